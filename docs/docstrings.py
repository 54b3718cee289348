"""Conversion of docstrings to Markdown: doctests become code blocks, `Source:` etc. a list."""

import re
from typing import Any

from griffe import Extension, Object

FACTS = re.compile(r"^(Source|Range|Invariant to|Cost): ")
"""Labels of the lines of a docstring that become list items."""


class Docstrings(Extension):
    """Griffe extension that converts docstrings to Markdown."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Convert the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown.

    >>> as_markdown("A sum.\\n\\nSource: me, Eq. 1\\nRange: [0, 1]").splitlines()
    ['A sum.', '', '- **Source** me, Eq. 1', '- **Range** [0, 1]']
    >>> as_markdown(">" * 3 + " 1 + 1\\n2").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if not any(FACTS.match(line) for line in lines):
        return block
    return "\n".join(FACTS.sub(r"- **\1** ", line) for line in _joined(lines))


def _joined(lines: list[str]) -> list[str]:
    """Split text into the part before the first label and the labelled lines with continuations."""
    found: list[str] = []
    for line in lines:
        if FACTS.match(line):
            if found and not FACTS.match(found[-1]):
                found.append("")
            found.append(line)
        elif found and FACTS.match(found[-1]):
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return found

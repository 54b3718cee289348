"""Build docs/formulas.md from the `Source:` lines of the docstrings.

python docs/build_formulas.py
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from nclab.claims.registry import papers

ROOT = Path(__file__).parent.parent
HEADER = """# Formulas

Every formula in nclab, by the paper it comes from. `make docs` builds this page from the
docstrings; do not edit it. [notation.md](notation.md) explains the symbols. The code is in
[nclab](../src/nclab) and [nclab_papers](../src/nclab_papers).
"""


class Formula(NamedTuple):
    """A function whose docstring names a source."""

    key: str
    place: str
    name: str
    file: str
    line: int
    summary: str
    formula: str
    range: str


def formulas() -> list[Formula]:
    """Return all formulas in the order of files and lines."""
    result = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            doc = ast.get_docstring(node) or ""
            source = re.search(r"^Source: (\w+), (.+)$", doc, re.MULTILINE)
            if not source:
                continue
            formula = re.search(r"\$\$(.+?)\$\$", doc, re.DOTALL)
            limits = re.search(r"^Range: ((?:.+\n?)+?)(?=\n|[A-Z][a-z ]+: |\Z)", doc, re.MULTILINE)
            result.append(
                Formula(
                    key=source[1],
                    place=source[2],
                    name=node.name,
                    file=file.relative_to(ROOT).as_posix(),
                    line=node.lineno,
                    summary=doc.splitlines()[0],
                    formula=" ".join(formula[1].split()) if formula else "",
                    range=" ".join(limits[1].split()) if limits else "",
                )
            )
    return result


def page() -> str:
    """Return the page of formulas."""
    everything = formulas()
    parts = [HEADER]
    for key, paper in papers().items():
        cited = [formula for formula in everything if formula.key == key]
        if not cited:
            continue
        parts.append(f"\n## {key}\n\n{paper.authors}, *{paper.title}* ({paper.year}).\n")
        for formula in cited:
            link = f"[`{formula.name}`](../{formula.file})"
            parts.append(f"\n### {formula.place} · {link}\n\n{formula.summary}\n")
            if formula.formula:
                parts.append(f"\n$${formula.formula}$$\n")
            if formula.range:
                parts.append(f"\nRange: {formula.range}\n")
    return "".join(parts)


if __name__ == "__main__":
    target = ROOT / "docs" / "formulas.md"
    target.write_text(page())
    print(f"wrote {target.relative_to(ROOT)} with {len(formulas())} formulas")

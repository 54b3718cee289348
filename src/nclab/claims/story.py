"""What the page of an experiment opens with: a title, what the paper says, and where."""

import inspect
import re
from types import ModuleType
from typing import cast

from nclab.claims.registry import errata, experiments
from nclab.records.schema import ErratumRow, StoryRow


def story(module: ModuleType) -> StoryRow:
    """Title, claim, source and further words of an experiment, from the docstring of its module.

    >>> from nclab_papers.pan2023 import fig31
    >>> story(fig31)["title"], story(fig31)["source"]
    ('Collapse against weight decay, for three kinds of batch norm', 'pan2023, Fig. 3.1')
    """
    text = inspect.getdoc(module) or ""
    first, _, rest = text.partition("\n")

    def said(word: str) -> str:
        found = re.search(rf"^{word}: (.+?)(?:\n\S+: |\n\n|\Z)", rest, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""

    says = said("Claim")
    paragraphs = [" ".join(one.split()) for one in rest.split("\n\n")]
    about = [one for one in paragraphs if one and not re.match(r"(Claim|Source): ", one)]
    return {
        "title": first.strip().removesuffix("."),
        "says": "" if says.startswith("none") else says,
        "source": said("Source"),
        "about": " ".join(about),
    }


def stories() -> dict[str, StoryRow]:
    """Every experiment's, by its name."""
    return {name: story(cast(ModuleType, module)) for name, module in experiments().items()}


def errata_rows() -> list[ErratumRow]:
    """Every erratum as plain values."""
    return [
        {
            "where": one.where,
            "printed": one.printed,
            "correct": one.correct,
            "why": one.why,
            "confidence": one.confidence,
            "claims": list(one.claims),
        }
        for one in errata()
    ]

"""Formulas of the docstrings, typeset: MathML that lies with the package, so pages need no TeX."""

import functools
import json
import re
from pathlib import Path
from typing import TypedDict

from nclab.errors import MissingExtra, NclabError

FILE = Path(__file__).with_name("formulas.json")
"""Written by docs/build_formulas.py."""


class FormulaRow(TypedDict):
    """A function whose docstring names a source."""

    anchor: str
    """As docs/formulas.md has it, which claims link to."""
    key: str
    """Of the paper."""
    place: str
    name: str
    summary: str
    """HTML, as is `range`."""
    mathml: str
    """Empty where the docstring has no formula."""
    range: str


def as_mathml(formula: str, *, block: bool) -> str:
    r"""A formula of TeX as MathML, by latex2mathml; one that cannot be typeset whole is refused.

    >>> as_mathml(r"\arg x", block=False).partition("<mrow>")[2]
    '<mo>arg</mo><mi>x</mi></mrow></math>'
    """
    try:
        from latex2mathml.converter import convert
    except ImportError as error:
        raise MissingExtra("Typesetting", package="latex2mathml", extra="docs") from error
    known = re.sub(r"(\\[Bb]igg?[lr])\\\|", r"\1‖", formula)
    known = known.replace(r"\arg", r"\operatorname{arg}")
    made = str(convert(known.strip(), display="block" if block else "inline"))
    if "\\" in made:
        unknown = ", ".join(re.findall(r"\\\w*", made))
        raise NclabError(f"Expected TeX that can be typeset, got {unknown} in {formula!r}.")
    return made


@functools.cache
def formulas() -> tuple[FormulaRow, ...]:
    """Every formula, in the order of docs/formulas.md."""
    found: list[FormulaRow] = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(found)


@functools.cache
def of_metrics() -> dict[str, str]:
    """The formula of every metric that has one, by its name.

    >>> of_metrics()["cdnv"].startswith("<math")
    True
    """
    from nclab.metrics.catalogue import BY_NAME

    known = {row["name"]: row["mathml"] for row in formulas() if row["mathml"]}
    found = {name: known.get(metric.function.__name__) for name, metric in BY_NAME.items()}
    return {name: formula for name, formula in found.items() if formula}

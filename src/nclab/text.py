"""Numbers, tables and names as text for people."""

import html
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from html.entities import html5
from io import StringIO
from typing import TYPE_CHECKING, Any

from nclab.errors import MissingExtra

if TYPE_CHECKING:
    from pandas import DataFrame

WIDTH = 100
"""Width of a table in characters, if the output is not a terminal."""
MAX_NUMBER = 1e300
"""Largest number that is shown: JSON can hold numbers that do not fit into a float."""


def number(value: float | None, *, near: float | None = None) -> str:
    """Return a number with four significant digits, or a dash for None.

    With `near=1`, a number close to 1 is written as its distance from 1.

    >>> number(0.123456), number(None), number(-1/3), number(2.5e-13)
    ('0.1235', '–', '-0.3333', '2.5e-13')
    >>> number(1 - 2e-7, near=1.0), number(1.0, near=1.0)
    ('1-2.0e-07', '1')
    """
    if value is None:
        return "–"
    if near == 1.0 and 1e-12 < 1 - value < 1e-3:
        return f"1-{1 - value:.1e}"
    return f"{value:.4g}"


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that tables and pages can show.

    >>> is_number(0.5), is_number(10**400), is_number(float("nan")), is_number("1")
    (True, False, False, False)
    """
    return type(value) in (float, int) and -MAX_NUMBER < value < MAX_NUMBER


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> counted(1, "run"), counted(0, "run"), counted(2, "class")
    ('1 run', '0 runs', '2 classes')
    """
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


def listed(words: Iterable[object], most: int = 10) -> str:
    """Return at most `most` words, separated by commas, and the number of the others.

    >>> listed(["cat", "dog", "fox"], 2), listed(range(3))
    ('cat, dog and 1 more', '0, 1, 2')
    """
    every = [str(word) for word in words]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def scientific(value: float) -> str:
    """Return a number in short scientific notation, as in names of runs.

    >>> [scientific(value) for value in (1e-4, 3e-3, 0.0, 0.5)]
    ['1e-4', '3e-3', '0', '5e-1']
    """
    if value == 0:
        return "0"
    digits, power = f"{value:e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def printable(text: str) -> str:
    r"""Return a text from a file with its control characters replaced, safe for a terminal.

    An escape sequence in the name of a run could otherwise clear the screen or change the title.

    >>> printable("run \x1b[2J 1")
    'run \ufffd[2J 1'
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


SYMBOLS = {
    "varepsilon": "ε",
    "varphi": "φ",
    "cdot": "·",
    "infty": "∞",
    "top": "ᵀ",
    "|": "‖",
    **dict.fromkeys(("dots", "ldots"), "…"),
    **dict.fromkeys((",", ";", "quad"), " "),
}
"""Plain text of TeX commands whose names are not those of HTML entities."""
RELATIONS = frozenset("·×≤≥≠≈∼∝→↦∈≪≫±≡")
"""Mathematical symbols that get a space before and after them."""
ACCENTS = {"bar": "\u0304", "tilde": "\u0303", "hat": "\u0302", "dot": "\u0307"}
SUPERSCRIPTS = str.maketrans("0123456789+−=()niTᵀ′", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵀᵀ′")
SUBSCRIPTS = str.maketrans("0123456789+−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
_FIRST_GROUP = 0xE000
"""Code point of the character that stands for the first group in braces. The second group gets
the next code point, and so on."""


def plain_math(text: str) -> str:
    r"""Return a text with the formulas between dollars in plain Unicode, for the terminal.

    >>> plain_math(r"at least $-\frac{1}{C-1} + \sqrt{2\epsilon}$, $\|\bar h_1\| \le x^2$, 5$")
    'at least −1/(C−1) + √(2ε), ‖h̄₁‖ ≤ x², 5$'
    >>> plain_math(r"$\log(1 + \lambda e^{\alpha\beta})$ of $h_{c,i}$")
    'log(1 + λe^(αβ)) of h_(c,i)'
    """
    return re.sub(r"\$([^$\n]+)\$", lambda match: _plain_formula(match[1]), text)


def _plain_formula(formula: str) -> str:
    """Return a TeX formula as plain text; placeholders stand for converted groups in braces."""
    formula = formula.replace("-", "−").replace("'", "′")
    formula = formula.replace(r"\{", "\\lbrace ").replace(r"\}", "\\rbrace ")
    formula = re.sub(r"\\(!|(left|right|bigl|bigr|text|mathrm|operatorname)\b ?)", "", formula)
    groups: list[str] = []
    while match := re.search(r"\{([^{}]*)\}", formula):
        groups.append(_plain_group(match[1], groups))
        character = chr(_FIRST_GROUP + len(groups) - 1)
        formula = formula[: match.start()] + character + formula[match.end() :]
    return _plain_group(formula, groups)


def _plain_group(formula: str, groups: list[str]) -> str:
    """Return a formula without braces as plain text; `groups` are the texts of its placeholders."""

    def expand(character: str) -> str:
        index = ord(character) - _FIRST_GROUP
        return groups[index] if 0 <= index < len(groups) else character

    def symbol(match: re.Match[str]) -> str:
        name = match[1]
        if name in ("frac", "tfrac", "sqrt", *ACCENTS):
            return match[0].rstrip()
        text = SYMBOLS.get(name, html5.get(f"{name};", name))
        is_before_word = re.match(r"[\w\ue000-\uf8ff]", match.string[match.end() :])
        if text in RELATIONS:
            return f" {text} "
        return f"{text} " if text == name and is_before_word else text  # as in log x

    def script(match: re.Match[str]) -> str:
        mark, text = match[1], expand(match[2])
        characters = SUPERSCRIPTS if mark == "^" else SUBSCRIPTS
        if all(ord(character) in characters for character in text):
            return text.translate(characters)
        return f"{mark}{text}" if len(text) == 1 else f"{mark}({text})"

    def fraction(match: re.Match[str]) -> str:
        above, below = expand(match[1]), expand(match[2])
        above = f"({above})" if re.search(r"[+−/=± ]", above) else above
        return f"{above}/{_bracketed(below)}\uf8ff"

    formula = re.sub(r"\\([A-Za-z]+|.)(?: (?=[\w\\(\ue000-\uf8ff]))?", symbol, formula)
    formula = re.sub(
        r"\\(bar|tilde|hat|dot)(.)", lambda match: expand(match[2]) + ACCENTS[match[1]], formula
    )
    formula = re.sub(r"([_^])(.)", script, formula)
    formula = re.sub(r"\\sqrt(.)", lambda match: f"√{_bracketed(expand(match[1]))}", formula)
    formula = re.sub(r"\\t?frac(.)(.)", fraction, formula)
    formula = re.sub("\uf8ff(?=[\\w(√])", "·", "".join(map(expand, formula)))
    formula = formula.replace("\uf8ff", "")
    return re.sub(r" +(?=[ ),])|(?<=\() +", "", formula).strip()


def _bracketed(text: str) -> str:
    """Return a formula in parentheses, unless it is a number or one letter with its marks."""
    return text if re.fullmatch(r"[\d.]+|\w[\u0300-\u036f₀-ₜᵢⱼ²³⁰-ⁿ]*", text) else f"({text})"


def fit_to_width(renderable: Any, console: Any) -> Any:
    """Return a renderable; its tables lose their borders if cells would not fit in the console.

    With borders, a terminal of 80 columns could show 6.398e-37 as "6.398e…".
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table

    while hasattr(renderable, "__rich__"):
        renderable = renderable.__rich__()
    if isinstance(renderable, Group):
        return Group(*(fit_to_width(part, console) for part in renderable.renderables))
    if isinstance(renderable, Table) and (
        _count_ellipses(renderable, console.width) > _count_ellipses(renderable, 9999)
    ):
        renderable.box = box.SIMPLE_HEAD
        renderable.show_edge = False
        renderable.padding = (0, 0)
        for column in renderable.columns:
            column.overflow = "fold"
    return renderable


def _count_ellipses(renderable: Any, width: int) -> int:
    stream = StringIO()
    _plain_console(stream, width).print(renderable)
    return stream.getvalue().count("…")


def as_text(renderable: Any, *, width: int | None = None) -> str:
    """Return a rich renderable as plain text, at most `WIDTH` characters wide by default.

    >>> as_text("[bold]plain[/bold]")
    'plain'
    """
    stream = StringIO()
    if width is None:
        terminal = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
        width = min(WIDTH, terminal)
    console = _plain_console(stream, width)
    console.print(fit_to_width(renderable, console))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def as_html(renderable: Any) -> str:
    """Return a rich renderable as HTML for a notebook: tables as tables, lines as paragraphs.

    >>> as_html("1 < [bold]2[/bold]")
    '<p>1 &lt; 2</p>'
    """
    from rich.console import Group
    from rich.table import Table

    while hasattr(renderable, "__rich__"):
        renderable = renderable.__rich__()
    if isinstance(renderable, Group):
        return "".join(map(as_html, renderable.renderables))
    if not isinstance(renderable, Table):
        lines = _without_markup(renderable).splitlines()
        return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    alignments = ["right" if c.justify == "right" else "left" for c in renderable.columns]

    def row_html(tag: str, cells: Iterable[Any]) -> str:
        columns = zip(alignments, map(_without_markup, cells), strict=True)
        styled = (
            f'<{tag} style="text-align:{alignment}">{html.escape(cell)}</{tag}>'
            for alignment, cell in columns
        )
        return f"<tr>{''.join(styled)}</tr>"

    head = row_html("th", (column.header for column in renderable.columns))
    rows = zip(*(column.cells for column in renderable.columns), strict=True)
    body = "".join(row_html("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _without_markup(cell: Any) -> str:
    from rich.text import Text

    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def _plain_console(stream: StringIO, width: int) -> Any:
    """Return a console that writes to the stream only; in a notebook rich would also display it."""
    from rich.console import Console

    options: dict[str, Any] = {"color_system": None, "legacy_windows": False}
    return Console(file=stream, width=width, force_jupyter=False, **options)


class Printed:
    """Base class that shows the result of `__rich__` at the Python prompt and in notebooks."""

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__  # the default of dataclasses prints all fields on one line

    def _repr_html_(self) -> str:
        return as_html(self)


def as_frame(
    rows: Iterable[Mapping[str, Any]], *, index: Sequence[str] | None = None
) -> "DataFrame":
    """Return a pandas table with one row per mapping.

    >>> as_frame([{"cdnv": 0.5}, {"cdnv": 0.25}])["cdnv"].tolist()
    [0.5, 0.25]
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise MissingExtra("to_frame()", package="pandas", extra="notebook") from error
    return DataFrame([dict(row) for row in rows], index=index)

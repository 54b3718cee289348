r"""The template engine of the pages, and mathematics as MathML.

Formulas are written in TeX between dollars, such as `$w_k$`. latex2mathml turns them into MathML,
so that pages need neither TeX nor the internet.
"""

import functools
import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError
from nclab.report.content import safe_name
from nclab.text import is_number, number, plain_math

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")


@functools.cache
def environment() -> "Environment":
    """Return the template engine; it escapes all values and rejects unknown variables."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    mark_safe = environment.filters["safe"]
    environment.filters |= {
        "number": lambda value: number(value) if is_number(value) else "–",
        "setting": _setting,
        "listed": lambda values: ", ".join(map(str, values)) if isinstance(values, list) else "",
        "pretty": pretty,
        "safe_name": safe_name,
        "math": lambda text: mark_safe(typeset(str(text))),
        "plain_math": lambda text: plain_math(str(text)),
    }
    return environment


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)


def command_line(text: str) -> str:
    """Return a command as a user would type it: without the folder of the program.

    >>> command_line("/home/me/.venv/bin/nclab sweep --out runs"), command_line("train.py 3")
    ('nclab sweep --out runs', 'python train.py 3')
    """
    program, space, arguments = text.partition(" ")
    if program.endswith(".py"):
        return f"python {text}"
    if program.startswith("'"):
        return text
    return f"{program.rpartition('/')[2]}{space}{arguments}"


def pretty(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def typeset(text: str) -> str:
    r"""Return a text as HTML, with the formulas between dollars as MathML.

    A formula that latex2mathml does not understand stays as it is.

    >>> print(typeset(r"within $\epsilon$ of <b>"))  # doctest: +ELLIPSIS
    within <math ...><mrow><mi>&#x003F5;</mi></mrow></math> of &lt;b&gt;
    >>> typeset("it costs 5$")
    'it costs 5$'
    """
    parts = re.split(r"\$([^$\n]+)\$", text)
    made = []
    for index, part in enumerate(parts):
        if index % 2 == 0:
            made.append(html.escape(part))
            continue
        try:
            made.append(as_mathml(part, block=False))
        except NclabError:
            made.append(html.escape(f"${part}$"))
    return "".join(made)


def as_mathml(formula: str, *, block: bool) -> str:
    r"""Return a TeX formula as MathML; raise if a part of it cannot be typeset.

    >>> as_mathml(r"\arg x", block=False).partition("<mrow>")[2]
    '<mo>arg</mo><mi>x</mi></mrow></math>'
    """
    from latex2mathml.converter import convert

    known = re.sub(r"(\\[Bb]igg?[lr])\\\|", r"\1‖", formula)
    known = known.replace(r"\arg", r"\operatorname{arg}")
    try:
        made = str(convert(known.strip(), display="block" if block else "inline"))
    except Exception as error:
        raise NclabError(f"Expected TeX that can be typeset, got {formula!r}.") from error
    if "\\" in made:
        unknown = ", ".join(re.findall(r"\\\w*", made))
        raise NclabError(f"Expected TeX that can be typeset, got {unknown} in {formula!r}.")
    return made


@functools.cache
def formulas_of_metrics() -> dict[str, str]:
    """Return the typeset formula of every metric whose docstring has one, by the metric's name.

    >>> formulas_of_metrics()["cdnv"].startswith("<math")
    True
    """
    from nclab.metrics.catalogue import BY_NAME

    formulas = {}
    for name, metric in BY_NAME.items():
        formula = re.search(r"\$\$(.+?)\$\$", metric.function.__doc__ or "", re.DOTALL)
        if formula:
            formulas[name] = as_mathml(" ".join(formula[1].split()), block=True)
    return formulas

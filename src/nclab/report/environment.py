"""The template engine of the pages, and how values are written in them."""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError
from nclab.report.content import safe_name
from nclab.report.inline_math import typeset
from nclab.text import number

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")


@functools.cache
def environment() -> "Environment":
    """Templates escape every value and know no variable that is not given."""
    try:
        import jinja2
    except ImportError as error:
        raise NclabError("Pages need jinja2. Run `pip install jinja2`.") from error

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    plain = environment.filters["safe"]
    environment.filters |= {
        "number": _number,
        "setting": _setting,
        "listed": lambda values: ", ".join(map(str, values)) if isinstance(values, list) else "",
        "pretty": pretty,
        "safe_name": safe_name,
        "math": lambda text: plain(typeset(str(text))),
    }
    return environment


def _number(value: Any) -> str:
    try:
        return number(value) if isinstance(value, int | float) else "–"
    except OverflowError:
        return "–"


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)


def command_line(text: str) -> str:
    """A command as one would type it: programs by their name, scripts with what runs them.

    >>> command_line("/home/me/.venv/bin/nclab sweep --out runs"), command_line("train.py 3")
    ('nclab sweep --out runs', 'python train.py 3')
    """
    program, gap, rest = text.partition(" ")
    if program.endswith(".py"):
        return f"python {text}"
    return f"{program.rpartition('/')[2]}{gap}{rest}" if not program.startswith("'") else text


def pretty(value: Any) -> str:
    """JSON that a person reads."""
    return json.dumps(value, indent=1, ensure_ascii=False)

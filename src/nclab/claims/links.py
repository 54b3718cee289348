"""From a claim to the formula, the code and the erratum that belong to it."""

import importlib
import re
from collections.abc import Callable
from typing import Any


def slug(heading: str) -> str:
    """The anchor that a heading gets on a page: small letters, hyphens for spaces, no marks.

    >>> slug("Lemma 2.4.1 · jensen_subset_mean")
    'lemma-241--jensen_subset_mean'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def resolve(code: str) -> Callable[..., Any]:
    """The function or class at a dotted path.

    >>> resolve("nclab.theory.layer_peeled.g_prime").__name__
    'g_prime'
    """
    module, _, name = code.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def formula_anchor(code: str) -> str:
    """Where docs/formulas.md shows a function; empty if its docstring names no source.

    >>> formula_anchor("nclab.theory.layer_peeled.g_prime")
    'docs/formulas.md#thm-231-proof--g_prime'
    """
    if not code:
        return ""
    function = resolve(code)
    source = re.search(r"^\s*Source: \w+, (.+)$", function.__doc__ or "", re.MULTILINE)
    if not source:
        return ""
    return f"docs/formulas.md#{slug(f'{source[1]} · {function.__name__}')}"

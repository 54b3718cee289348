"""Replacement of right code by wrong code, which every check must notice.

A claim names the function that computes its quantity. If this function returns a constant, the
negative or 1.5 times its result, the verdict on the claim must change.
"""

import copy
import dataclasses
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

import numpy as np
import torch

from nclab.claims.registry import packages

PAPER_PACKAGES = tuple(package.__name__ for package in packages().values())
ERRORS: dict[str, Callable[[Any], Any]] = {
    "constant": lambda number: 0 * number + 3,
    "sign": lambda number: -number,
    "factor": lambda number: 1.5 * number,
}
METHODS = {"ConicHull": "draw", "MLP": "forward"}
"""Method that is replaced if a claim links to a class."""
KEPT = ("tolerance", "applies")
"""Fields of a result that remain unchanged."""
CACHES = ("nclab_papers", "nclab.theory", "nclab.ulpm", *PAPER_PACKAGES)
"""Packages whose modules cache results between calls."""
WRONG = "_wrong_in_its_place"

Replacement = Callable[..., Any]


@contextmanager
def replace_everywhere(
    dotted: str, replacement: Callable[[Replacement], Replacement]
) -> Iterator[None]:
    """Replace a function by `replacement(original)` in every module that imported it.

    The function object remains and receives other code, so tables of functions are affected.
    """
    target: Any = pkgutil.resolve_name(dotted)
    if isinstance(target, type):
        target = getattr(target, METHODS[target.__name__])
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    before = (target.__code__, target.__defaults__, target.__kwdefaults__)
    original = FunctionType(
        target.__code__, target.__globals__, target.__name__, target.__defaults__
    )
    original.__kwdefaults__ = target.__kwdefaults__
    name = f"{WRONG}_{target.__name__}"
    scope: dict[str, Any] = {}
    exec(f"def {target.__name__}(*a, **k): return {name}(*a, **k)", scope)
    target.__globals__[name] = replacement(original)
    target.__code__ = scope[target.__name__].__code__
    target.__defaults__ = target.__kwdefaults__ = None
    forget()
    try:
        yield
    finally:
        target.__code__, target.__defaults__, target.__kwdefaults__ = before
        del target.__globals__[name]
        forget()


def with_error(error: str) -> Callable[[Replacement], Replacement]:
    """Return a replacement whose results contain wrong numbers everywhere."""
    return lambda original: lambda *a, **k: make_wrong(original(*a, **k), ERRORS[error], top=True)


def make_wrong(value: Any, error: Callable[[Any], Any], *, top: bool = False) -> Any:
    """Return a result with all its numbers changed, except counts and sizes inside results."""
    if isinstance(value, bool | np.bool_ | str | None):
        return value
    if isinstance(value, int | np.integer):
        return int(error(value)) if top else value
    if isinstance(value, float | np.floating):
        return type(value)(error(value))
    if isinstance(value, np.ndarray):
        return error(value) if value.dtype.kind == "f" else value
    if isinstance(value, torch.Tensor):
        return error(value) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: make_wrong(item, error) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(make_wrong(item, error) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(make_wrong(item, error) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            if field.name not in KEPT and hasattr(value, field.name):
                with suppress(AttributeError):
                    new = make_wrong(getattr(value, field.name), error)
                    object.__setattr__(twin, field.name, new)
        return twin
    return value


def forget() -> None:
    """Clear the caches of results that the replaced function may have computed."""
    for name, module in list(sys.modules.items()):
        if name.startswith(CACHES):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()

"""Wrong code in the place of right code: what every check must notice.

A claim names the function that computes what it is about. Where that function gives a constant,
the negative or 1.5 times of what it should, the verdict of the claim must change.
"""

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

import numpy as np
import torch

from nclab.claims.claim import resolve

ATTACKS: dict[str, Callable[[Any], Any]] = {
    "constant": lambda number: 0 * number + 3,
    "sign": lambda number: -number,
    "factor": lambda number: 1.5 * number,
}
METHODS = {"ConicHull": "draw", "MLP": "forward"}
"""What a class that a claim links to is for."""
KEPT = ("tolerance", "applies")
"""Fields of a result that are no result."""
CACHES = ("nclab_papers.pan2023", "nclab_papers.ji2022", "nclab.theory", "nclab.ulpm")
"""Where results are kept between calls."""
WRONG = "_wrong_in_its_place"

Replacement = Callable[..., Any]


@contextmanager
def replace_everywhere(
    dotted: str, replacement: Callable[[Replacement], Replacement]
) -> Iterator[None]:
    """Replace a function for everybody, whoever imported it, by `replacement(original)`.

    The function object stays and gets other code, so that tables of functions see it, too.
    """
    target: Any = resolve(dotted)
    if isinstance(target, type):
        target = getattr(target, METHODS[target.__name__])
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    before = (target.__code__, target.__defaults__, target.__kwdefaults__)
    original = FunctionType(
        target.__code__, target.__globals__, target.__name__, target.__defaults__
    )
    original.__kwdefaults__ = target.__kwdefaults__
    place = f"{WRONG}_{target.__name__}"
    scope: dict[str, Any] = {}
    exec(f"def {target.__name__}(*a, **k): return {place}(*a, **k)", scope)
    target.__globals__[place] = replacement(original)
    target.__code__ = scope[target.__name__].__code__
    target.__defaults__ = target.__kwdefaults__ = None
    forget()
    try:
        yield
    finally:
        target.__code__, target.__defaults__, target.__kwdefaults__ = before
        del target.__globals__[place]
        forget()


def attacked(attack: str) -> Callable[[Replacement], Replacement]:
    """For `replace_everywhere`: the function with every number of its result spoiled."""
    return lambda original: lambda *a, **k: spoiled(original(*a, **k), ATTACKS[attack], top=True)


def spoiled(value: Any, attack: Callable[[Any], Any], *, top: bool = False) -> Any:
    """A result with all its numbers changed; counts and sizes inside of results stay."""
    if isinstance(value, bool | np.bool_ | str | None):
        return value
    if isinstance(value, int | np.integer):
        return int(attack(value)) if top else value
    if isinstance(value, float | np.floating):
        return type(value)(attack(value))
    if isinstance(value, np.ndarray):
        return attack(value) if value.dtype.kind == "f" else value
    if isinstance(value, torch.Tensor):
        return attack(value) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: spoiled(one, attack) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(spoiled(one, attack) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(spoiled(one, attack) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            if field.name not in KEPT and hasattr(value, field.name):
                with suppress(AttributeError):
                    new = spoiled(getattr(value, field.name), attack)
                    object.__setattr__(twin, field.name, new)
        return twin
    return value


def forget() -> None:
    """Empty the caches of what the attacked function may have computed."""
    for name, module in list(sys.modules.items()):
        if name.startswith(CACHES):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()

"""Data sets of installed packages, `nclab.data`, beside those of this folder."""

import dataclasses
from functools import cache
from typing import Any

from nclab import plugins
from nclab.errors import DataError
from nclab.training.data.samples import Samples


@cache
def plugged_data() -> dict[str, Any]:
    """The dataclass of every plugin by its name; what cannot be used is warned of and left out."""
    found = {}
    for name, kind in plugins.plugins("data").items():
        why = _why_refused(kind)
        if why:
            plugins.left_out("data", name, why)
        else:
            found[name] = kind
    return found


def draw_samples(source: Any) -> Samples:
    """What a source draws; a plugin may give inputs and labels, which are checked here."""
    drawn = source.draw()
    if isinstance(drawn, Samples):
        return drawn
    if isinstance(drawn, tuple) and len(drawn) == 2:
        return Samples.checked(*drawn)
    raise DataError(
        f"Expected Samples, or inputs and labels, of {type(source).__name__}.draw(), got a "
        f"{type(drawn).__name__}."
    )


def _why_refused(kind: Any) -> str:
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return "expected a dataclass"
    if not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "expected a frozen dataclass"
    missing = [name for name in ("draw", "label") if not hasattr(kind, name)]
    if missing:
        return f"expected {missing[0]} of it"
    if any(one.default is dataclasses.MISSING for one in dataclasses.fields(kind)):
        return "expected a default for every field"
    return ""

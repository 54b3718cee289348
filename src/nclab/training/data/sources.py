"""Every source of samples by name: the data sets of nclab and those of plugins (`nclab.data`)."""

import dataclasses
from functools import cache
from typing import Any

from nclab import plugins
from nclab.errors import DataError, NclabError
from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.data.fashion_mnist import FashionMNIST
from nclab.training.data.samples import SampleFile, Samples

Source = Teacher | ConicHull | FashionMNIST | SampleFile
SOURCES: dict[str, Any] = {
    "teacher": Teacher,
    "conic": ConicHull,
    "fashion": FashionMNIST,
    "file": SampleFile,
}
"""Data sets of nclab by the name that configurations of runs record."""


@cache
def plugin_sources() -> dict[str, Any]:
    """Return the data sets of plugins by name; skip those of a wrong form with a warning."""
    sources = {}
    for name, kind in plugins.plugins("data").items():
        problem = f"nclab has data called {name}" if name in SOURCES else _problem(kind)
        if problem:
            plugins.skip_plugin("data", name, problem)
        else:
            sources[name] = kind
    return sources


def source_name(source: Any) -> str:
    """Return the name of a source in nclab, or that of the entry point of its plugin."""
    names = {kind: name for name, kind in (SOURCES | plugin_sources()).items()}
    if type(source) not in names:
        raise NclabError(
            f"Expected one of {', '.join(kind.__name__ for kind in names)} as data, got a "
            f"{type(source).__name__}. Install your data set as a plugin (nclab.data)."
        )
    return names[type(source)]


def draw_samples(source: Any) -> Samples:
    """Return the samples of a source; check those of a plugin that draws (inputs, labels)."""
    drawn = source.draw()
    if isinstance(drawn, Samples):
        return drawn
    if isinstance(drawn, tuple) and len(drawn) == 2:
        return Samples.checked(*drawn)
    raise DataError(
        f"Expected {type(source).__name__}.draw() to return Samples or (inputs, labels), got a "
        f"{type(drawn).__name__}."
    )


def _problem(kind: Any) -> str:
    """Return why a plugin's data set cannot be used; an empty text if it can."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return "expected a dataclass"
    if not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "expected a frozen dataclass"
    missing = [name for name in ("draw", "label") if not hasattr(kind, name)]
    if missing:
        return f"it has no attribute {missing[0]}"
    if any(field.default is dataclasses.MISSING for field in dataclasses.fields(kind)):
        return "expected a default for every field"
    return ""

"""Plugins: additions to nclab by other installed packages, found by their entry points.

A package names its additions in its `pyproject.toml`, for example

    [project.entry-points."nclab.metrics"]
    spread_ratio = "my_package.metrics:SPREAD_RATIO"

nclab imports a plugin only when an addition of its kind is needed.
"""

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from nclab.errors import NclabError, NclabWarning

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS = {
    "metrics": "a `nclab.metrics.catalogue.Metric`, or several",
    "papers": "the package of a paper, with a `PAPER`",
    "data": "a frozen dataclass with `draw()` and `label`",
}
"""For each kind of plugin: what an entry point in the group `nclab.<kind>` must name."""


class Plugin(NamedTuple):
    """One addition of an installed package."""

    kind: str
    name: str
    package: str
    """Name and version of the distribution."""
    problem: str = ""
    """Why nclab skips the plugin; empty if it works."""


@cache
def plugins(kind: str) -> dict[str, Any]:
    """Return the installed plugins of a kind by name; skip broken ones with a warning."""
    loaded: dict[str, Any] = {}
    for point in _points(kind):
        try:
            if point.name in loaded:
                raise NclabError("another package has this name")
            loaded[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything when imported
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            skip_plugin(kind, point.name, f"{_package(point)}: {reason}")
    return loaded


def installed() -> list[Plugin]:
    """Load every plugin of this environment; return each with its problem, if any."""
    rows = []
    for kind in KINDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NclabWarning)  # the returned rows contain the problem
            loaded = plugins(kind)
        for point in _points(kind):
            problem = _PROBLEMS.get((kind, point.name), "")
            if not problem and kind != "papers" and point.name not in loaded:
                problem = "it cannot be loaded"
            rows.append(Plugin(kind, point.name, _package(point), problem))
    return rows


def skip_plugin(kind: str, name: str, problem: str) -> None:
    """Record why a plugin is not used, and warn."""
    _PROBLEMS[kind, name] = problem
    warnings.warn(
        f"The plugin {name!r} of nclab.{kind} is skipped ({problem}). Repair or uninstall it.",
        NclabWarning,
        stacklevel=3,
    )


def clear_cache() -> None:
    """Forget all plugins, so that newly installed ones are found."""
    plugins.cache_clear()
    _entry_points.cache_clear()
    _PROBLEMS.clear()


_PROBLEMS: dict[tuple[str, str], str] = {}
"""Problems of skipped plugins by kind and name."""


def _points(kind: str) -> "tuple[EntryPoint, ...]":
    assert kind in KINDS, kind
    return _entry_points(f"nclab.{kind}")


@cache
def _entry_points(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group; later calls do not search the packages again."""
    from importlib.metadata import entry_points  # slow, and `nclab --help` needs none

    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def _package(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"

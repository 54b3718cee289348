"""Plugins: what other installed packages add to nclab, found by their entry points.

A package names what it brings in its `pyproject.toml`, as in

    [project.entry-points."nclab.metrics"]
    spread_ratio = "my_package.metrics:SPREAD_RATIO"

and it is there wherever nclab has such things. Nothing of a plugin is imported before somebody
asks for its kind.
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
    "models": "a function (inputs, classes) that returns a torch.nn.Module",
    "losses": "a function (logits, labels) that returns the mean loss of a batch",
    "optimizers": "a function (parameters, lr, weight_decay) that returns a torch Optimizer",
    "sinks": "a function (target or nothing) that returns a callable of an Event",
}
"""What may be added, by the end of the group `nclab.<kind>`: what its entry points name."""


class Plugin(NamedTuple):
    """One thing that a package adds."""

    kind: str
    name: str
    package: str
    """The distribution, with its version."""
    problem: str = ""
    """Why it is left out; empty where it works."""


@cache
def plugins(kind: str) -> dict[str, Any]:
    """What is installed of a kind, by name; one that cannot be loaded is warned of and left out.

    >>> "no-such-sink" in plugins("sinks")
    False
    """
    found: dict[str, Any] = {}
    for point in _points(kind):
        try:
            if point.name in found:
                raise NclabError("another package has this name")
            found[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything when imported
            left_out(kind, point.name, f"{_package(point)}: {_words(error)}")
    return found


def plugin(kind: str, name: str, ours: tuple[str, ...] = ()) -> Any:
    """The one of that name; refused with the names there are, `ours` among them.

    >>> plugin("losses", "mine", ours=("mse",))
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected one of mse among losses, got 'mine'.
    """
    found = plugins(kind)
    if name not in found:
        known = ", ".join((*ours, *found)) or "those of installed packages (there are none)"
        raise NclabError(f"Expected one of {known} among {kind}, got {name!r}.")
    return found[name]


def names(kind: str) -> tuple[str, ...]:
    """The names that entry points have, without importing anything."""
    return tuple(dict.fromkeys(point.name for point in _points(kind)))


def installed() -> list[Plugin]:
    """Every plugin of this environment, each loaded to see whether it works."""
    rows = []
    for kind in KINDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NclabWarning)  # it stands in the row
            known = plugins(kind)
        for point in _points(kind):
            why = _PROBLEMS.get((kind, point.name), "")
            if not why and kind != "papers" and point.name not in known:
                why = "it cannot be loaded"
            rows.append(Plugin(kind, point.name, _package(point), why))
    return rows


def left_out(kind: str, name: str, why: str) -> None:
    """Say once that a plugin is not used, and why."""
    _PROBLEMS[kind, name] = why
    warnings.warn(
        f"The plugin {name!r} of nclab.{kind} is left out ({why}). Mend or uninstall it.",
        NclabWarning,
        stacklevel=3,
    )


def forget() -> None:
    """Look again, as after an installation."""
    plugins.cache_clear()
    _entry_points.cache_clear()
    _PROBLEMS.clear()


_PROBLEMS: dict[tuple[str, str], str] = {}


def _points(kind: str) -> "tuple[EntryPoint, ...]":
    assert kind in KINDS, kind
    return _entry_points(f"nclab.{kind}")


@cache
def _entry_points(group: str) -> "tuple[EntryPoint, ...]":
    """Looked for once: every package of the environment is asked, and every recipe asks here."""
    from importlib.metadata import entry_points  # late: `nclab --help` does without

    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def _package(point: "EntryPoint") -> str:
    own = point.dist
    return "an unknown package" if own is None else f"{own.name} {own.version}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

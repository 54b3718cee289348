"""The plan of a sweep: combinations of settings, the data they need, and which runs are missing."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from nclab.errors import NclabError
from nclab.records import glance
from nclab.text import counted, number
from nclab.training.data.samples import Samples
from nclab.training.data.sources import draw_samples
from nclab.training.fleet.fleet import check_batches
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.rows import Row, differing, settings_of

PARTS = ("data", "selection", "shape", "recipe")
"""Parts of a config. An axis is a setting with several values: a field of a part, or `data`."""
MOST_VALUES = 12
"""Largest number of values of an axis that a printed plan lists."""
Condition = tuple[str, Callable[[Any], bool]]
"""Path of a field, and a function that says for its value whether another field is used."""
ADAM: Condition = ("recipe.optimizer", lambda name: name in ("adam", "adamw"))
MOMENTUM = ("sgd", "sgdw", "signum", "signumw")
READ_IF: dict[str, Condition] = {
    "recipe.momentum": ("recipe.optimizer", lambda name: name in MOMENTUM),
    "recipe.nesterov": ("recipe.optimizer", lambda name: name in ("sgd", "sgdw")),
    "recipe.beta1": ADAM,
    "recipe.beta2": ADAM,
    "recipe.epsilon": ADAM,
    "recipe.milestones": ("recipe.schedule", lambda name: name == "milestones"),
    "recipe.decay": ("recipe.schedule", lambda name: name == "milestones"),
    "recipe.smoothing": ("recipe.loss", lambda name: name == "label_smoothing"),
    "recipe.focal_gamma": ("recipe.loss", lambda name: name == "focal"),
    "selection.tail": ("selection.imbalance", lambda ratio: ratio > 1),
}
"""For each field that is used only with certain values of another field: this condition."""


@dataclass(frozen=True)
class Axes:
    """Settings with several values, the axes; a fleet is trained for every combination of values.

    If a combination does not use a field, such as the smoothing if the loss is cross-entropy, the
    field gets its default value, and combinations that become equal are trained once.

    >>> axes = Axes(SweepConfig(), {"recipe.loss": ("cross_entropy", "focal"),
    ...                             "recipe.focal_gamma": (1.0, 3.0), "shape.width": (32, 64)})
    >>> recipes = [(config.recipe, config.shape.width) for config in axes.configs[:3]]
    >>> [(recipe.loss, recipe.focal_gamma, width) for recipe, width in recipes]
    [('cross_entropy', 2.0, 32), ('cross_entropy', 2.0, 64), ('focal', 1.0, 32)]
    >>> len(axes.configs)
    6
    """

    config: SweepConfig
    """Config with the values that all combinations share."""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values by path, for example `recipe.rate`, `selection.imbalance` or `data.samples`."""

    def __post_init__(self) -> None:
        for path, values in self.values.items():
            part, _, name = path.partition(".")
            if part not in PARTS or (part != "data" and not name):
                raise NclabError(
                    f"Expected axes to be fields of {', '.join(PARTS)}, for example 'recipe.rate'; "
                    f"got {path!r}."
                )
            if path in ("shape.inputs", "shape.classes"):
                raise NclabError(
                    f"Expected 'data.{name}' as an axis, because the {name} of the network come "
                    f"from the data; got {path!r}."
                )
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise NclabError(f"Expected a list of values of {path}, got {values!r}.")
            if len(set(map(repr, values))) < len(values):
                raise NclabError(f"Expected {path} without repetition, got {list(values)}.")
        _ = self.configs  # raises for unknown fields and for values that a field does not accept

    @property
    def configs(self) -> list[SweepConfig]:
        """One sweep over norm, weight decay and seed for every distinct combination."""
        configs = {repr(config): config for config in combinations(self.config, self.values)}
        return list(configs.values())

    def never_read(self, paths: Iterable[str]) -> dict[str, tuple[str, list[Any]]]:
        """Return the fields of `paths` that no combination uses, as a dictionary.

        The value of an entry is the other field that decides this, and the values of that field.

        >>> Axes(SweepConfig()).never_read(["recipe.smoothing", "recipe.rate"])
        {'recipe.smoothing': ('recipe.loss', ['cross_entropy'])}
        """
        unread: dict[str, tuple[str, list[Any]]] = {}
        for path in paths:
            if path in READ_IF:
                deciding, condition = READ_IF[path]
                values = list(dict.fromkeys(map(attrgetter(deciding), self.configs)))
                if not any(map(condition, values)):
                    unread[path] = deciding, values
        return unread


def combinations(config: Any, values: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yield a config for every combination of values of its fields; the last field varies fastest.

    >>> from nclab.training.data import Teacher
    >>> [data.label for data in combinations(Teacher(), {"depth": (2, 3)})]
    ['teacher2', 'teacher3']
    """
    for chosen in itertools.product(*values.values()):
        combination = dict(zip(values, chosen, strict=True))
        for path in combination:
            if path not in READ_IF:
                continue
            deciding, is_read = READ_IF[path]
            value = combination.get(deciding, attrgetter(deciding)(config))
            if not is_read(value):
                part, _, name = path.partition(".")
                defaults = {f.name: f.default for f in dataclasses.fields(getattr(config, part))}
                combination[path] = defaults[name]
        yield _replace(config, combination)


def _replace(config: Any, values: Mapping[str, Any]) -> Any:
    """Return a config with new values by path.

    All values are set at once, because a config may be valid only with all of them.
    """
    known = [field.name for field in dataclasses.fields(config)]
    replaced = {path: value for path, value in values.items() if "." not in path}
    nested: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, dot, inner_path = path.partition(".")
        if name not in known:
            raise NclabError(
                f"Expected a field of {type(config).__name__} ({', '.join(known)}), got {name!r}."
            )
        if dot:
            nested.setdefault(name, {})[inner_path] = value
    for name, inner in nested.items():
        replaced[name] = _replace(replaced.get(name, getattr(config, name)), inner)
    return dataclasses.replace(config, **replaced)


@dataclass(frozen=True)
class FleetPlan:
    """The planned networks of one combination of data, shape and recipe."""

    config: SweepConfig
    samples: Samples
    test: Samples | None
    runs: tuple[RunPlan, ...]
    missing: tuple[RunPlan, ...]
    """Runs that have not ended in the folder."""


@dataclass(frozen=True)
class SweepPlan:
    """The planned fleets of a sweep and the folder of its runs."""

    fleets: tuple[FleetPlan, ...]
    out: Path

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of networks and fleets, and the axes, as plain JSON values."""
        return {
            "networks": len(self.runs),
            "missing": len(self.missing),
            "fleets": len(self.fleets),
            "axes": self.axes,
        }

    def __str__(self) -> str:
        lines = [f"{name}: {_listed(values)}" for name, values in self.axes.items()]
        networks, trained = len(self.runs), len(self.runs) - len(self.missing)
        summary = f"{counted(networks, 'network')} in {counted(len(self.fleets), 'fleet')}"
        return "\n".join([*lines, summary + (f", {trained} already trained" if trained else "")])

    @property
    def runs(self) -> list[RunPlan]:
        """All planned runs."""
        return [run for fleet in self.fleets for run in fleet.runs]

    @property
    def missing(self) -> list[RunPlan]:
        """Planned runs that have not ended in the folder."""
        return [run for fleet in self.fleets for run in fleet.missing]

    @property
    def settings(self) -> dict[str, Row]:
        """For every run, by name: the values of the settings that differ between the fleets."""
        settings = {run.name: settings_of(run.config) for run in self.runs}
        names = differing([settings[fleet.runs[0].name] for fleet in self.fleets])
        return {run: {name: row.get(name) for name in names} for run, row in settings.items()}

    @property
    def axes(self) -> dict[str, list[object]]:
        """Settings that differ between runs, such as norm or seed, each with the list of values."""
        members = {run.name: dataclasses.asdict(run.member) for run in self.runs}
        rows = [{**settings, **members[name]} for name, settings in self.settings.items()]
        return {
            name: list({repr(row[name]): row[name] for row in rows}.values())
            for name in differing(rows)
        }


def plan_sweep(sweep: SweepConfig | Axes | Sequence[SweepConfig], out: Path) -> SweepPlan:
    """Return the plan of a sweep with the runs that are missing in `out`; write nothing.

    The data are drawn, and every fleet is checked. A network that several configs share is planned
    once.
    """
    if isinstance(sweep, SweepConfig):
        configs: Sequence[SweepConfig] = [sweep]
    else:
        configs = sweep.configs if isinstance(sweep, Axes) else sweep
    drawn: dict[str, Samples] = {}
    known: set[str] = set()
    fleets = []
    for config in configs:
        source = repr(config.data)
        if source not in drawn:
            drawn[source] = draw_samples(config.data)
        samples, test = config.selection.split(drawn[source])
        check_batches(len(samples), config.recipe, config.members)
        runs = tuple(run for run in config.plan(samples, test) if run.name not in known)
        known |= {run.name for run in runs}
        missing = tuple(run for run in runs if not has_ended(out / run.name))
        if runs:
            fleets.append(FleetPlan(config, samples, test, runs, missing))
    return SweepPlan(tuple(fleets), out)


def _listed(values: list[Any]) -> str:
    """Return values of an axis as text, at most `MOST_VALUES` of them."""
    texts = [number(value) if type(value) is float else str(value) for value in values]
    more = f", … {len(values)} values" if len(values) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def has_ended(folder: Path) -> bool:
    """Whether a folder has a run that ended, finished or failed."""
    return (folder / "manifest.json").exists() and glance(folder).end is not None

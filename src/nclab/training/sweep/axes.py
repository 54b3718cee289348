"""Sweeps over more than norm, weight decay and seed: a config whose fields have several values."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nclab.errors import NclabError
from nclab.training.sweep.config import SweepConfig

PARTS = ("data", "selection", "shape", "recipe")
"""Of a config; an axis is a field of one of them, or the data as a whole."""
Deciding = tuple[str, Callable[[Any], bool]]
ADAM: Deciding = ("recipe.optimizer", lambda name: name in ("adam", "adamw"))
MOMENTUM = ("sgd", "sgdw", "signum", "signumw")
OUR_NETWORK: Deciding = ("shape.model", lambda name: name == "mlp")
READ_IF: dict[str, Deciding] = {
    "recipe.momentum": ("recipe.optimizer", lambda name: name in MOMENTUM),
    "recipe.nesterov": ("recipe.optimizer", lambda name: name in ("sgd", "sgdw")),
    "recipe.beta1": ADAM,
    "recipe.beta2": ADAM,
    "recipe.epsilon": ADAM,
    "recipe.milestones": ("recipe.schedule", lambda name: name == "milestones"),
    "recipe.decay": ("recipe.schedule", lambda name: name == "milestones"),
    "recipe.smoothing": ("recipe.loss", lambda name: name == "label_smoothing"),
    "recipe.focusing": ("recipe.loss", lambda name: name == "focal"),
    **{
        f"shape.{name}": OUR_NETWORK
        for name in ("layers", "width", "bias", "features", "activation", "head_bias")
    },
    "selection.tail": ("selection.imbalance", lambda ratio: ratio > 1),
}
"""Fields that change nothing unless another has some value."""


@dataclass(frozen=True)
class Axes:
    """The product of several values of some fields: a fleet for every combination.

    A field that a combination does not read, as the smoothing of cross-entropy, is no axis there:
    it is at its default, and the network is trained once.

    >>> axes = Axes(SweepConfig(), {"recipe.loss": ("cross_entropy", "focal"),
    ...                             "recipe.focusing": (1.0, 3.0), "shape.width": (32, 64)})
    >>> [(one.recipe.loss, one.recipe.focusing, one.shape.width) for one in axes.configs[:3]]
    [('cross_entropy', 2.0, 32), ('cross_entropy', 2.0, 64), ('focal', 1.0, 32)]
    >>> len(axes.configs)
    6
    """

    config: SweepConfig
    """What all have in common."""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """By path, as `recipe.rate`, `shape.width`, `selection.imbalance`, `data.samples` or `data`."""

    def __post_init__(self) -> None:
        for path, values in self.values.items():
            part, _, name = path.partition(".")
            if part not in PARTS or (part != "data" and not name):
                raise NclabError(
                    f"Expected an axis among the fields of {', '.join(PARTS)}, as 'recipe.rate', "
                    f"got {path!r}."
                )
            if path in ("shape.inputs", "shape.classes"):
                raise NclabError(
                    f"Expected {name} as an axis of the data, from which a network takes it, "
                    f"got {path!r}."
                )
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise NclabError(f"Expected a list of values of {path}, got {values!r}.")
            if not values:
                raise NclabError(f"Expected at least one value of {path}, got none.")
            if len(set(map(repr, values))) < len(values):
                raise NclabError(f"Expected {path} without repetition, got {list(values)}.")
        _ = self.configs  # refuses fields that there are not, and values that they do not take

    @property
    def configs(self) -> list[SweepConfig]:
        """A sweep over norm, weight decay and seed for every combination, each once."""
        found = {repr(one): one for one in combinations(self.config, self.values)}
        return list(found.values())

    def never_read(self, paths: Iterable[str]) -> dict[str, tuple[str, list[Any]]]:
        """Of these fields those that no combination reads: the field that decides, its values.

        >>> Axes(SweepConfig()).never_read(["recipe.smoothing", "recipe.rate"])
        {'recipe.smoothing': ('recipe.loss', ['cross_entropy'])}
        """
        found: dict[str, tuple[str, list[Any]]] = {}
        for path in paths:
            if path in READ_IF:
                other, reads = READ_IF[path]
                values = list(dict.fromkeys(_at(one, other) for one in self.configs))
                if not any(map(reads, values)):
                    found[path] = other, values
        return found


def combinations(config: Any, values: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """A config of every combination of values of its fields, the last running fastest.

    >>> from nclab.training.data.teacher import Teacher
    >>> [one.label for one in combinations(Teacher(), {"depth": (2, 3)})]
    ['teacher2', 'teacher3']
    """
    for chosen in itertools.product(*values.values()):
        combination = dict(zip(values, chosen, strict=True))
        for path in combination:
            if not _is_read(path, combination, config):
                combination[path] = _default(config, path)
        yield _with(config, combination)


def _is_read(path: str, combination: Mapping[str, Any], config: Any) -> bool:
    if path not in READ_IF:
        return True
    other, reads = READ_IF[path]
    return reads(combination[other] if other in combination else _at(config, other))


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _default(config: Any, path: str) -> Any:
    part, _, name = path.partition(".")
    return next(one.default for one in dataclasses.fields(_at(config, part)) if one.name == name)


def _with(config: Any, values: Mapping[str, Any]) -> Any:
    """All at once, as some values are right only beside others."""
    known = [one.name for one in dataclasses.fields(config)]
    own = {path: value for path, value in values.items() if "." not in path}
    deeper: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, dot, rest = path.partition(".")
        if name not in known:
            raise NclabError(
                f"Expected a field of {type(config).__name__} ({', '.join(known)}), got {name!r}."
            )
        if dot:
            deeper.setdefault(name, {})[rest] = value
    for name, inner in deeper.items():
        own[name] = _with(own.get(name, getattr(config, name)), inner)
    return dataclasses.replace(config, **own)

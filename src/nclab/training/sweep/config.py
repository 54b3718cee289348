"""What a sweep trains and measures, and the names of its runs."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from nclab.errors import NclabError
from nclab.text import scientific
from nclab.training.data.conic_hull import ConicHull
from nclab.training.data.fashion_mnist_samples import FashionMNIST
from nclab.training.data.modular_addition import ModularAddition
from nclab.training.data.plugged import draw_samples, plugged_data
from nclab.training.data.samples import SampleFile, Samples
from nclab.training.data.selection import SampleSelection, Split
from nclab.training.data.teacher import Teacher
from nclab.training.fleet import Member, Recipe
from nclab.training.models.mlp import Norm, Shape

Source = Teacher | ConicHull | FashionMNIST | ModularAddition | SampleFile
Layers = Literal["last", "all"]
Statistics = Literal["running", "full"]

KINDS = {
    Teacher: "teacher",
    ConicHull: "conic",
    FashionMNIST: "fashion",
    ModularAddition: "modular",
    SampleFile: "file",
}
ALWAYS = {
    "shape": ("inputs", "classes", "layers", "width", "bias"),
    "recipe": ("epochs", "batch", "rate", "momentum", "milestones", "decay", "drop_last"),
}
"""Fields in the configuration of every run. Others are there only where they are not the default,
so that the names of runs stay when options are added."""
LATER: dict[type, tuple[str, ...]] = {FashionMNIST: ("classes",)}
"""Fields of data for which the same holds."""
MOMENTS = 12
EPOCHS_PER_MOMENT = 20
"""A measurement costs about as much as one or two epochs."""
CHECKPOINT_SECONDS = 5.0
"""About so long one model trains between two checkpoints."""
LEAST_CHECKPOINTS = 4


def kind_of(source: Any) -> str:
    """What a source of samples is called: by us, or by the entry point of its plugin."""
    known = {**KINDS, **{kind: name for name, kind in plugged_data().items()}}
    if type(source) not in known:
        raise NclabError(
            f"Expected a source of samples, {', '.join(one.__name__ for one in known)}; got a "
            f"{type(source).__name__}. Install yours as a plugin, nclab.data."
        )
    return known[type(source)]


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The models of a sweep: one for every norm, weight decay and seed.

    >>> config = SweepConfig(norms=("affine",), weight_decays=(1e-3,), seeds=(0, 1))
    >>> [member.seed for member in config.members]
    [0, 1]
    """

    data: Source = field(default_factory=Teacher)
    """Where the samples come from."""
    selection: SampleSelection = field(default_factory=SampleSelection)
    """Which of them are trained on: long tails, label noise, a held-out share."""
    shape: Shape = field(default_factory=Shape)
    """Layers and width; inputs and classes are taken from the data."""
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    """Batch norm: affine, plain (no scale and shift), none."""
    weight_decays: tuple[float, ...] = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
    """On every parameter."""
    seeds: tuple[int, ...] = (0,)
    """Of first weights and batch order: a list, 0,1,2, or a range, 0:3; the data have their own."""
    recipe: Recipe = field(default_factory=Recipe)
    """Epochs, batch, rate, optimiser, loss."""
    moments: int | None = None
    """About so many epochs are measured; up to 12 by default. They are logarithmically spaced, the
    last included, and by default so few that measuring costs little beside training."""
    layers: Layers = "last"
    """Layers to measure: what the classifier reads, or every one."""
    statistics: Statistics = "running"
    """Measure with running averages of batch norm, or with those of the full data."""
    converged: float = 0.99
    """A model has converged if its training accuracy is at least this."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints; some seconds by default. It changes no number
    and is a rule of epochs, not of time, so that resumed and undisturbed runs are equal."""

    def __post_init__(self) -> None:
        for name in ("norms", "weight_decays", "seeds"):
            values = getattr(self, name)
            if not values:
                raise NclabError(f"Expected at least one of {name}, got none.")
            if len(set(values)) < len(values):
                raise NclabError(f"Expected {name} without repetition, got {list(values)}.")
        if self.recipe.epochs < 1:
            raise NclabError(f"Expected epochs of at least 1, got {self.recipe.epochs}.")
        if self.shape.layers < 2:
            raise NclabError(
                f"Expected at least 2 layers, a hidden one and the classifier, "
                f"got {self.shape.layers}."
            )
        if self.moments is not None and self.moments < 1:
            raise NclabError(f"Expected moments of at least 1, got {self.moments}.")
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise NclabError(
                f"Expected checkpoint_every of at least 1, got {self.checkpoint_every}."
            )
        for name, known in (("layers", Layers), ("statistics", Statistics)):
            if getattr(self, name) not in get_args(known):
                choices = " or ".join(map(repr, get_args(known)))
                raise NclabError(f"Expected {name} {choices}, got {getattr(self, name)!r}.")
        _ = self.members  # refuses unknown norms and negative weight decays

    @property
    def members(self) -> list[Member]:
        """One for every norm, weight decay and seed, in this order.

        A plugin's network has the norms that it has: there is one of it, called none.
        """
        norms: tuple[Norm, ...] = ("none",) if self.shape.plugged else self.norms
        return [
            Member(norm=norm, weight_decay=weight_decay, seed=seed)
            for norm in norms
            for weight_decay in self.weight_decays
            for seed in self.seeds
        ]

    @property
    def measured_epochs(self) -> list[int]:
        """Epochs after which the models are measured."""
        epochs = self.recipe.epochs
        few = min(MOMENTS, max(1, epochs // EPOCHS_PER_MOMENT))
        return measured_epochs(epochs, few if self.moments is None else self.moments)

    def checkpoint_epochs(self, samples: Samples) -> int:
        """Epochs between checkpoints on these data."""
        if self.checkpoint_every is not None:
            return self.checkpoint_every
        shape = self.shape_for(samples)
        pairs = itertools.pairwise(shape.widths)
        work = 6 * len(samples) * sum(rows * columns for rows, columns in pairs)
        steps = self.recipe.steps(len(samples))
        seconds = work / 3e10 + steps * shape.layers * 5e-5  # a core's arithmetic and its overhead
        most = max(1, self.recipe.epochs // LEAST_CHECKPOINTS)
        return max(1, min(most, round(CHECKPOINT_SECONDS / seconds)))

    def shape_for(self, samples: Samples) -> Shape:
        """The shape with the inputs and classes of the data."""
        return dataclasses.replace(
            self.shape, inputs=samples.inputs.shape[1], classes=samples.classes
        )

    def draw(self) -> Split:
        """The samples to train on, and those held out if any are."""
        return self.selection.split(draw_samples(self.data))

    def plan(self, samples: Samples, test: Samples | None = None) -> "list[RunPlan]":
        """A run for every member."""
        data: dict[str, Any] = {"kind": kind_of(self.data), "label": self.data.label}
        if not isinstance(self.data, SampleFile):
            always = {one.name for one in fields(self.data)} - {*LATER.get(type(self.data), ())}
            data |= plain(self.data, always)  # of a file the digest counts, not its place
        if self.selection.changes:
            data["selection"] = plain(self.selection)
        if test is not None:
            data["test_digest"] = test.digest()
        common = {
            "data": {**data, "digest": samples.digest()},
            "shape": plain(self.shape_for(samples), ALWAYS["shape"]),
            "recipe": plain(self.recipe, ALWAYS["recipe"]),
            "measure": {
                "epochs": self.measured_epochs,
                "layers": self.layers,
                "statistics": self.statistics,
            },
        }
        return [
            RunPlan(member, {**common, "member": dataclasses.asdict(member)})
            for member in self.members
        ]


@dataclass(frozen=True)
class RunPlan:
    """A member and everything that decides its numbers, as plain JSON values."""

    member: Member
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Readable, and unique by a hash of the configuration."""
        shape, recipe = self.config["shape"], self.config["recipe"]
        parts = (
            self.config["data"]["label"],
            *_sizes(shape),
            *(recipe[name] for name in ("optimizer", "loss") if name in recipe),
            self.member.norm,
            f"wd{scientific(self.member.weight_decay)}",
            f"s{self.member.seed}",
            hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:8],
        )
        return "_".join(parts)


def _sizes(shape: dict[str, Any]) -> tuple[str, ...]:
    """The sizes of our network, or the name of a plugin's, which has sizes of its own."""
    if "model" in shape:
        return (shape["model"],)
    return f"L{shape['layers']}", f"w{shape['width']}"


def plain(config: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a config that are not the default, and some whatever they are.

    >>> plain(SampleSelection(imbalance=10), always=["tail"])
    {'imbalance': 10, 'tail': 'step'}
    """
    values = {one.name: (one.default, getattr(config, one.name)) for one in fields(config)}
    return {
        name: value
        for name, (default, value) in values.items()
        if name in always or value != default
    }


def measured_epochs(epochs: int, moments: int) -> list[int]:
    """Logarithmically spaced epochs, the last included.

    >>> measured_epochs(300, 12)
    [1, 2, 3, 5, 8, 13, 22, 38, 63, 106, 179, 300]
    >>> measured_epochs(300, 1)
    [300]
    """
    if moments == 1:
        return [epochs]
    return sorted({int(epoch) for epoch in np.geomspace(1, epochs, moments).round()})

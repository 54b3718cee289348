"""The configuration of a sweep: what it trains and measures, and the names of its runs."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from nclab.errors import NclabError
from nclab.records.schema import OMITTED_DATA_DEFAULTS, stored
from nclab.text import scientific
from nclab.training.data.artificial import Teacher
from nclab.training.data.samples import SampleFile, Samples
from nclab.training.data.selection import SampleSelection, Split
from nclab.training.data.sources import Source, draw_samples, source_name
from nclab.training.fleet import Member, Recipe
from nclab.training.fleet.fleet import Statistics
from nclab.training.models.mlp import Norm, Shape

Layers = Literal["last", "all"]

ALWAYS_STORED = {
    "shape": ("inputs", "classes", "layers", "width", "bias"),
    "recipe": ("epochs", "batch", "rate", "momentum", "milestones", "decay", "drop_last"),
}
"""Fields that the configuration of every run stores. Other fields are stored only if they differ
from their default, so that runs keep their names when options are added."""
MOST_MEASUREMENTS = 12
"""Largest number of measured epochs, unless the configuration sets the number."""
EPOCHS_PER_MEASUREMENT = 20
"""Epochs of training for each measurement, which takes about as long as one or two epochs."""
CHECKPOINT_SECONDS = 5.0
"""Approximate training time of one model between two checkpoints."""
LEAST_CHECKPOINTS = 4


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A sweep that trains one model for every norm, weight decay and seed.

    >>> config = SweepConfig(norms=("affine",), weight_decays=(1e-3,), seeds=(0, 1))
    >>> [member.seed for member in config.members]
    [0, 1]
    """

    data: Source = field(default_factory=Teacher)
    """Source of the samples."""
    selection: SampleSelection = field(default_factory=SampleSelection)
    """Selection of training samples: imbalance, label noise, test share."""
    shape: Shape = field(default_factory=Shape)
    """Layers and width; inputs and classes come from the data."""
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    """Batch norm: affine, plain (no scale and shift), none, last (affine, once, before the
    classifier)."""
    weight_decays: tuple[float, ...] = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
    """Weight decay of every parameter."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of initial weights and batch order: a list, 0,1,2, or a range, 0:3."""
    recipe: Recipe = field(default_factory=Recipe)
    """Epochs, batch size, learning rate, optimiser and loss."""
    moments: int | None = None
    """Approximate number of epochs after which models are measured; by default one for every 20
    epochs of training, 12 at most. The measured epochs are spaced logarithmically and include the
    last."""
    layers: Layers = "last"
    """Layers to measure: the input of the classifier, or all."""
    statistics: Statistics = "running"
    """Statistics of batch norm when measuring: running averages, or those of the full data."""
    converged: float = 0.99
    """A model counts as converged only if its training accuracy is at least this."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints; by default about 5 seconds of training. The option does not
    change any number."""

    def __post_init__(self) -> None:
        for name in ("norms", "weight_decays", "seeds"):
            values = getattr(self, name)
            if not values:
                raise NclabError(f"Expected at least one of {name}, got none.")
            if len(set(values)) < len(values):
                raise NclabError(f"Expected {name} without repetition, got {list(values)}.")
        counts = {"epochs": self.recipe.epochs, "moments": self.moments}
        counts |= {"checkpoint_every": self.checkpoint_every}
        for name, value in counts.items():
            if value is not None and value < 1:
                raise NclabError(f"Expected {name} of at least 1, got {value}.")
        if self.shape.layers < 2:
            raise NclabError(
                "Expected at least 2 layers, a hidden layer and the classifier; "
                f"got {self.shape.layers}."
            )
        for name, choices in (("layers", Layers), ("statistics", Statistics)):
            if getattr(self, name) not in get_args(choices):
                known = " or ".join(map(repr, get_args(choices)))
                raise NclabError(f"Expected {name} {known}, got {getattr(self, name)!r}.")
        _ = self.members  # raises for unknown norms and negative weight decays

    @property
    def members(self) -> list[Member]:
        """One member for every norm, weight decay and seed, in this order."""
        return [
            Member(norm=norm, weight_decay=weight_decay, seed=seed)
            for norm in self.norms
            for weight_decay in self.weight_decays
            for seed in self.seeds
        ]

    @property
    def measured_epochs(self) -> list[int]:
        """Epochs after which the models are measured."""
        epochs = self.recipe.epochs
        default = min(MOST_MEASUREMENTS, max(1, epochs // EPOCHS_PER_MEASUREMENT))
        return measured_epochs(epochs, default if self.moments is None else self.moments)

    def checkpoint_epochs(self, samples: Samples) -> int:
        """Return the number of epochs between checkpoints on these samples.

        The default is computed from the sizes of data and network. The time is estimated, not
        measured, so that an interrupted run writes the same checkpoints as an undisturbed run.
        """
        if self.checkpoint_every is not None:
            return self.checkpoint_every
        shape = self.shape_for(samples)
        pairs = itertools.pairwise(shape.widths)
        work = 6 * len(samples) * sum(rows * columns for rows, columns in pairs)
        steps = self.recipe.steps(len(samples))
        seconds = work / 3e10 + steps * shape.layers * 5e-5  # arithmetic of a core, and overhead
        most = max(1, self.recipe.epochs // LEAST_CHECKPOINTS)
        return max(1, min(most, round(CHECKPOINT_SECONDS / seconds)))

    def shape_for(self, samples: Samples) -> Shape:
        """Return the shape with the inputs and classes of the samples."""
        return dataclasses.replace(
            self.shape, inputs=samples.inputs.shape[1], classes=samples.classes
        )

    def draw(self) -> Split:
        """Return the training samples, and the test samples if any are held out."""
        return self.selection.split(draw_samples(self.data))

    def plan(self, samples: Samples, test: Samples | None = None) -> "list[RunPlan]":
        """Return the planned run of every member."""
        data: dict[str, Any] = {"kind": source_name(self.data), "label": self.data.label}
        if not isinstance(self.data, SampleFile):  # a file is known by its digest, not by its path
            optional = OMITTED_DATA_DEFAULTS.get(data["kind"], {})
            data |= changed_fields(self.data, {f.name for f in fields(self.data)} - {*optional})
        if self.selection.changes:
            data["selection"] = changed_fields(self.selection)
        if test is not None:
            data["test_digest"] = test.digest()
        common = {
            "data": {**data, "digest": samples.digest()},
            "shape": changed_fields(self.shape_for(samples), ALWAYS_STORED["shape"]),
            "recipe": stored(changed_fields(self.recipe, ALWAYS_STORED["recipe"])),
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
    """A member and everything that determines its numbers, as plain JSON values."""

    member: Member
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Readable name of the run; a hash of the configuration makes it unique."""
        shape, recipe = self.config["shape"], self.config["recipe"]
        parts = (
            self.config["data"]["label"],
            f"L{shape['layers']}",
            f"w{shape['width']}",
            *(recipe[name] for name in ("optimizer", "loss") if name in recipe),
            self.member.norm,
            f"wd{scientific(self.member.weight_decay)}",
            f"s{self.member.seed}",
            hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:8],
        )
        return "_".join(parts)


def changed_fields(config: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a config that differ from their default, and those in `always`.

    >>> changed_fields(SampleSelection(imbalance=10), always=["tail"])
    {'imbalance': 10, 'tail': 'step'}
    """
    values = [(f.name, getattr(config, f.name), f.default) for f in fields(config)]
    return {name: value for name, value, default in values if name in always or value != default}


def measured_epochs(epochs: int, count: int) -> list[int]:
    """Return about `count` logarithmically spaced epochs, including the last.

    >>> measured_epochs(300, 12), measured_epochs(300, 1)
    ([1, 2, 3, 5, 8, 13, 22, 38, 63, 106, 179, 300], [300])
    """
    if count == 1:
        return [epochs]
    return sorted({int(epoch) for epoch in np.geomspace(1, epochs, count).round()})

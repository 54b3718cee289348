"""Networks of the studies, so small that two cores train 10,000 of them in an hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nclab.training.data.artificial import Teacher
from nclab.training.data.fashion_mnist import FashionMNIST
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import SweepConfig

FieldData = Literal["teacher", "fashion"]
COMPONENTS = 64
"""Number of principal components of FashionMNIST that are used as inputs."""
MILESTONES = (1 / 3, 2 / 3)
"""Shares of the training after which the learning rate is divided by ten."""


@dataclass(frozen=True)
class FieldNetworks:
    """Settings that all networks of a study share; a seed fixes data, weights and batches."""

    width: int = 64
    layers: int = 6
    samples: int = 2000
    """Number of training samples; for FashionMNIST rounded down to a multiple of the classes."""
    epochs: int = 80
    batch: int = 128
    workers: int | None = None
    """Number of processes; by default one per core, 0 trains in this process. The numbers do not
    depend on it."""
    source: bool = False
    """Whether these are the networks of the source. If not, its statements about its networks stay
    open."""

    def config(
        self,
        data: FieldData,
        *,
        classes: int,
        seed: int,
        weight_decays: Sequence[float],
        held_out: bool = False,
        **recipe: Any,
    ) -> SweepConfig:
        """Return the sweep of all weight decays of one seed.

        Args:
            held_out: draw as many test samples as training samples.
            recipe: further fields of the training recipe.
        """
        samples = self.samples * (2 if held_out else 1)
        source: Teacher | FashionMNIST = Teacher(classes=classes, samples=samples, seed=seed)
        if data == "fashion":
            divisible = samples - samples % (classes * (2 if held_out else 1))
            source = fashion(divisible, classes=classes, seed=seed)
        share = 0.5 if held_out else 0.0
        selection = SampleSelection(test_share=share, selection_seed=seed if held_out else 0)
        return self.of(source, selection, seed=seed, weight_decays=weight_decays, **recipe)

    def of(
        self,
        data: Teacher | FashionMNIST,
        selection: SampleSelection,
        *,
        seed: int,
        weight_decays: Sequence[float],
        **recipe: Any,
    ) -> SweepConfig:
        """Return the sweep of all weight decays of one seed on a selection of the given data."""
        return SweepConfig(
            data=data,
            selection=selection,
            shape=Shape(width=self.width, layers=self.layers),
            norms=("affine",),
            weight_decays=tuple(weight_decays),
            seeds=(seed,),
            recipe=Recipe(
                epochs=self.epochs, batch=self.batch, milestones=MILESTONES, decay=0.1, **recipe
            ),
            moments=1,
        )

    @property
    def size(self) -> str:
        """Size of the networks in a few words."""
        return (
            f"{self.layers} layers of width {self.width}, {self.samples} samples, "
            f"{self.epochs} epochs"
        )


def fashion(samples: int, *, classes: int, seed: int) -> FashionMNIST:
    """Return the first classes of FashionMNIST, projected onto principal components."""
    return FashionMNIST(samples=samples, components=COMPONENTS, classes=classes, seed=seed)

"""The networks of the studies of the field: small enough that two cores train 10,000 in an hour."""

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
"""Of FashionMNIST: its first principal components."""
MILESTONES = (1 / 3, 2 / 3)
"""The rate is divided by ten after each."""


@dataclass(frozen=True)
class FieldNetworks:
    """What all networks of a study have in common; a seed draws data, start and batches."""

    width: int = 64
    layers: int = 6
    samples: int = 2000
    """To train on; of FashionMNIST the largest number below that the classes divide."""
    epochs: int = 80
    batch: int = 128
    workers: int | None = None
    """Processes, one a core by default; 0 trains in this one. The numbers do not depend on it."""
    source: bool = False
    """Whether these are networks of the source itself. Ours are not, so that its sentences about
    its own networks stay open."""

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
        """One fleet: all weight decays of one seed. Held out are as many samples as are trained."""
        samples = self.samples * (2 if held_out else 1)
        source: Teacher | FashionMNIST = Teacher(classes=classes, samples=samples, seed=seed)
        if data == "fashion":
            whole = samples - samples % (classes * (2 if held_out else 1))
            source = fashion(whole, classes=classes, seed=seed)
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
        """One fleet on some selection of some data."""
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
        """In a few words."""
        return (
            f"{self.layers} layers of width {self.width}, {self.samples} samples, "
            f"{self.epochs} epochs"
        )


def fashion(samples: int, *, classes: int, seed: int) -> FashionMNIST:
    """The first classes of FashionMNIST by their first principal components."""
    return FashionMNIST(samples=samples, components=COMPONENTS, classes=classes, seed=seed)

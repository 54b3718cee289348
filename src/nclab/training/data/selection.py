"""Which of a source's samples are trained on: long tails, noisy labels, a held-out share."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.training.data.samples import Samples

LongTail = Literal["step", "exponential"]


class Split(NamedTuple):
    """Samples to train on, and to look at afterwards."""

    train: Samples
    test: Samples | None


@dataclass(frozen=True)
class SampleSelection:
    """What is done to samples, from the seed alone; by default nothing.

    Held-out samples are chosen first and keep their labels, so that they are the same whatever the
    imbalance and the noise.

    >>> samples = Samples.checked(torch.eye(40), torch.arange(40) % 4)
    >>> train, test = SampleSelection(imbalance=4, test_share=0.2).split(samples)
    >>> train.counts, test.counts
    ([8, 8, 2, 2], [2, 2, 2, 2])
    >>> SampleSelection(imbalance=8, tail="exponential").split(samples).train.counts
    [10, 5, 2, 1]
    """

    imbalance: float = 1.0
    """Samples of the largest class over those of the smallest; at 1 all samples are taken."""
    tail: LongTail = "step"
    """How: the latter half of the classes is small, or each smaller than the one before."""
    label_noise: float = 0.0
    """Share of the training samples that get the label of another class, each alike."""
    test_share: float = 0.0
    """Share of every class that is held out and measured with the class means of training."""
    selection_seed: int = 0
    """Of all three."""

    def __post_init__(self) -> None:
        if not 1 <= self.imbalance < math.inf:
            raise DataError(f"Expected imbalance of 1 or more, got {self.imbalance:g}.")
        if self.tail not in get_args(LongTail):
            raise DataError(f"Expected tail 'step' or 'exponential', got {self.tail!r}.")
        for name in ("label_noise", "test_share"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(f"Expected 0 <= {name} < 1, got {getattr(self, name):g}.")
        if self.selection_seed < 0:
            raise DataError(f"Expected a selection_seed of 0 or more, got {self.selection_seed}.")

    @property
    def changes(self) -> bool:
        """Whether anything is done."""
        return self.imbalance > 1 or self.label_noise > 0 or self.test_share > 0

    def split(self, samples: Samples) -> Split:
        """The samples to train on, and those held out if any are."""
        if not self.changes:
            return Split(samples, None)
        stream = np.random.Generator(np.random.PCG64(self.selection_seed))
        labels = samples.labels.numpy()
        order, doubt, other = stream.random((3, len(labels)))
        rows = [np.flatnonzero(labels == c) for c in range(samples.classes)]
        rows = [own[order[own].argsort(kind="stable")] for own in rows]
        held_out = [self._held_out(len(own), c) for c, own in enumerate(rows)]
        kept = self._kept([len(own) - out for own, out in zip(rows, held_out, strict=True)])
        parts = list(zip(rows, held_out, kept, strict=True))
        chosen = np.sort(np.concatenate([own[out : out + count] for own, out, count in parts]))
        test = np.sort(np.concatenate([own[:out] for own, out, _ in parts]))
        noisy = self._noisy(labels[chosen], doubt[chosen], other[chosen], samples.classes)
        return Split(
            Samples(samples.inputs[torch.from_numpy(chosen)], torch.from_numpy(noisy)),
            Samples(samples.inputs[torch.from_numpy(test)], samples.labels[torch.from_numpy(test)])
            if len(test)
            else None,
        )

    def _held_out(self, count: int, label: int) -> int:
        if self.test_share == 0:
            return 0
        if count < 2:
            raise DataError(
                f"Expected 2 samples or more of every class, to hold one out, got {count} of "
                f"class {label}."
            )
        return min(count - 1, max(1, round(self.test_share * count)))

    def _kept(self, counts: list[int]) -> list[int]:
        """As many as the classes have, in the wanted proportions."""
        if self.imbalance == 1:
            return counts
        C = len(counts)
        if self.tail == "step":
            shares = [1.0 if c < (C + 1) // 2 else 1 / self.imbalance for c in range(C)]
        else:
            shares = [self.imbalance ** (-c / (C - 1)) for c in range(C)]
        most = min(count / share for count, share in zip(counts, shares, strict=True))
        # What lies between two integers only by rounding counts as the larger.
        kept = [math.floor(most * share + 1e-9) for share in shares]
        if min(kept) < 1:
            raise DataError(
                f"Expected a sample or more of every class, but an imbalance of "
                f"{self.imbalance:g} leaves none beside {kept[0]} of the largest. Take more "
                "samples or a smaller imbalance."
            )
        return kept

    def _noisy(
        self,
        labels: NDArray[np.int64],
        doubt: NDArray[np.float64],
        other: NDArray[np.float64],
        classes: int,
    ) -> NDArray[np.int64]:
        """Labels, those with the least doubt numbers moved on to another class."""
        wrong = doubt.argsort(kind="stable")[: round(self.label_noise * len(labels))]
        noisy = labels.copy()
        noisy[wrong] = (labels[wrong] + 1 + np.floor(other[wrong] * (classes - 1))) % classes
        empty = np.flatnonzero(np.bincount(noisy, minlength=classes) == 0)
        if len(empty):
            raise DataError(
                f"Expected samples of every class, but label noise of {self.label_noise:g} leaves "
                f"none of class {empty[0]}. Take more samples or less noise."
            )
        return noisy

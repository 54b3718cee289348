"""Selection of training samples: class imbalance, label noise and held-out test samples."""

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
    """Training samples, and test samples if any are held out."""

    train: Samples
    test: Samples | None


@dataclass(frozen=True)
class SampleSelection:
    """Imbalance, label noise and test share of a data set; by default samples stay unchanged.

    The seed alone decides the selection. Test samples are chosen first and keep their labels, so
    they do not depend on imbalance and noise.

    >>> samples = Samples.checked(torch.eye(40), torch.arange(40) % 4)
    >>> train, test = SampleSelection(imbalance=4, test_share=0.2).split(samples)
    >>> train.counts, test.counts
    ([8, 8, 2, 2], [2, 2, 2, 2])
    >>> SampleSelection(imbalance=8, tail="exponential").split(samples).train.counts
    [10, 5, 2, 1]
    """

    imbalance: float = 1.0
    """Size of the largest class divided by that of the smallest; 1 keeps all samples."""
    tail: LongTail = "step"
    """Class sizes of imbalanced data: the second half of the classes is small (step), or sizes fall
    exponentially from class to class (exponential)."""
    label_noise: float = 0.0
    """Share of the training samples that get the label of another, random class."""
    test_share: float = 0.0
    """Share of every class that is held out and measured against the training class means."""
    selection_seed: int = 0
    """Seed of imbalance, noise and test samples."""

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
        """Whether the selection changes the samples."""
        return self.imbalance > 1 or self.label_noise > 0 or self.test_share > 0

    def split(self, samples: Samples) -> Split:
        """Return the training samples, and the test samples if any are held out."""
        if not self.changes:
            return Split(samples, None)
        stream = np.random.Generator(np.random.PCG64(self.selection_seed))
        labels = samples.labels.numpy()
        order, noise_rank, shift = stream.random((3, len(labels)))
        rows = [np.flatnonzero(labels == c) for c in range(samples.classes)]
        rows = [members[order[members].argsort(kind="stable")] for members in rows]
        held_out = [self._held_out(len(members), c) for c, members in enumerate(rows)]
        rest = [len(members) - out for members, out in zip(rows, held_out, strict=True)]
        classes = list(zip(rows, held_out, self._train_counts(rest), strict=True))
        train = np.sort(np.concatenate([members[n : n + count] for members, n, count in classes]))
        test = np.sort(np.concatenate([members[:n] for members, n, _ in classes]))
        noisy = self._noisy(labels[train], noise_rank[train], shift[train], samples.classes)
        return Split(
            Samples(samples.inputs[torch.from_numpy(train)], torch.from_numpy(noisy)),
            Samples(samples.inputs[torch.from_numpy(test)], samples.labels[torch.from_numpy(test)])
            if len(test)
            else None,
        )

    def _held_out(self, count: int, label: int) -> int:
        """Return how many samples of a class are held out: at least one unless `test_share` is 0.

        At least one sample of the class remains for training.
        """
        if self.test_share == 0:
            return 0
        if count < 2:
            raise DataError(
                f"Expected 2 samples or more of every class, so that one can be held out, got "
                f"{count} of class {label}."
            )
        return min(count - 1, max(1, round(self.test_share * count)))

    def _train_counts(self, counts: list[int]) -> list[int]:
        """Return class sizes with the requested imbalance that use as many samples as possible."""
        if self.imbalance == 1:
            return counts
        C = len(counts)
        if self.tail == "step":
            shares = [1.0 if c < (C + 1) // 2 else 1 / self.imbalance for c in range(C)]
        else:
            shares = [self.imbalance ** (-c / (C - 1)) for c in range(C)]
        most = min(count / share for count, share in zip(counts, shares, strict=True))
        # A size below an integer by rounding alone counts as that integer.
        sizes = [math.floor(most * share + 1e-9) for share in shares]
        if min(sizes) < 1:
            raise DataError(
                f"Expected a sample or more of every class, but with an imbalance of "
                f"{self.imbalance:g} the largest class has {sizes[0]} samples and the smallest "
                "none. Use more samples or a smaller imbalance."
            )
        return sizes

    def _noisy(
        self,
        labels: NDArray[np.int64],
        noise_rank: NDArray[np.float64],
        shift: NDArray[np.float64],
        classes: int,
    ) -> NDArray[np.int64]:
        """Return labels with noise: a share `label_noise` of them is changed to another class.

        Args:
            noise_rank: random number of every sample; the samples with the smallest are changed.
            shift: random number in [0, 1) of every sample, which selects the new class.
        """
        wrong = noise_rank.argsort(kind="stable")[: round(self.label_noise * len(labels))]
        noisy = labels.copy()
        noisy[wrong] = (labels[wrong] + 1 + np.floor(shift[wrong] * (classes - 1))) % classes
        empty = np.flatnonzero(np.bincount(noisy, minlength=classes) == 0)
        if len(empty):
            raise DataError(
                f"Expected samples of every class, but label noise of {self.label_noise:g} leaves "
                f"none of class {empty[0]}. Use more samples or less noise."
            )
        return noisy

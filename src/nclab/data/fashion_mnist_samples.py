"""FashionMNIST as samples for a sweep: its pixels, or their first principal components."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nclab.data.fashion_mnist import balanced_subset, load, to_inputs
from nclab.data.fashion_mnist_files import SIDE
from nclab.data.samples import Samples
from nclab.errors import DataError

GRID = 2.0**-10
"""Components are rounded to multiples of it: mathematical libraries differ in the last bits."""
SLICE = 10_000


@dataclass(frozen=True)
class FashionMNIST:
    """Equally many training images of each of the ten classes."""

    samples: int = 10_000
    """Number of samples."""
    components: int | None = None
    """The first so many principal components instead of 784 pixels; 64 keep most of the variance.
    They are those of all 60,000 images and divided by one number, so that their variance is 1 on
    average."""
    seed: int = 0
    """Of the samples."""

    def __post_init__(self) -> None:
        if self.components is not None and not 1 <= self.components <= SIDE * SIDE:
            raise DataError(
                f"Expected 1 to {SIDE * SIDE} components, or None for pixels; got "
                f"{self.components}."
            )
        if self.seed < 0:
            raise DataError(f"Expected a seed of 0 or more, got {self.seed}.")

    @property
    def label(self) -> str:
        """A short name."""
        return "fashion" if self.components is None else f"fashion{self.components}"

    def draw(self) -> Samples:
        """The samples."""
        pixels, labels = load()
        rows = balanced_subset(labels, size=self.samples, seed=self.seed)
        if self.components is None:
            inputs = to_inputs(pixels[rows], side=SIDE).flatten(1)
        else:
            inputs = principal_components(pixels.flatten(1), rows, self.components)
        return Samples(inputs.contiguous(), labels[rows])


def principal_components(pixels: Tensor, rows: Tensor, count: int) -> Tensor:
    """(rows, count) float32: coordinates of some images along the leading directions of all.

    Sums of products of bytes are exact in float64; a direction's largest entry is positive.
    """
    products = torch.zeros(pixels.shape[1], pixels.shape[1], dtype=torch.float64)
    for part in pixels.split(SLICE):
        products += part.T.double() @ part.double()
    mean = pixels.sum(0, dtype=torch.int64).double() / len(pixels)
    variances, directions = torch.linalg.eigh(products / len(pixels) - torch.outer(mean, mean))
    leading = directions[:, -count:].flip(1)
    largest = leading.gather(0, leading.abs().argmax(0, keepdim=True))
    scores = (pixels[rows].double() - mean) @ (leading * largest.sign())
    scale = variances[-count:].mean().sqrt()
    return ((scores / scale / GRID).round() * GRID).float()

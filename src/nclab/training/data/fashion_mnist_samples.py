"""FashionMNIST as samples for a sweep: its pixels, or their first principal components."""

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.training.data.fashion_mnist import balanced_subset, load, to_inputs
from nclab.training.data.fashion_mnist_files import SIDE
from nclab.training.data.samples import Samples

GRID = 2.0**-10
"""Components are rounded to multiples of it: mathematical libraries differ in the last bits."""
SLICE = 10_000
CLASSES = 10


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
    classes: int = CLASSES
    """Only the first so many of the ten classes."""

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= CLASSES:
            raise DataError(f"Expected 2 to {CLASSES} classes, got {self.classes}.")
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
        known = (labels < self.classes).nonzero().flatten()
        rows = known[balanced_subset(labels[known], size=self.samples, seed=self.seed)]
        if self.components is None:
            inputs = to_inputs(pixels[rows], side=SIDE).flatten(1)
        else:
            inputs = principal_components(pixels.flatten(1), rows, self.components)
        return Samples(inputs.contiguous(), labels[rows])


class Basis(NamedTuple):
    """The leading directions of all images."""

    mean: Tensor
    directions: Tensor
    """(pixels, count); the largest entry of each is positive."""
    scale: float
    """What coordinates are divided by: the root of their mean variance."""


_BASES: dict[tuple[int, int], Basis] = {}
"""By checksum of the images and count: a sweep asks for the same again and again."""


def principal_components(pixels: Tensor, rows: Tensor, count: int) -> Tensor:
    """(rows, count) float32: coordinates of some images along the leading directions of all."""
    key = zlib.crc32(pixels.contiguous().numpy().tobytes()), count
    if key not in _BASES:
        _BASES[key] = basis(pixels, count)
    mean, directions, scale = _BASES[key]
    scores = (pixels[rows].double() - mean) @ directions
    return ((scores / scale / GRID).round() * GRID).float()


def basis(pixels: Tensor, count: int) -> Basis:
    """Of images (n, pixels); sums of products of bytes are exact in float64."""
    products = torch.zeros(pixels.shape[1], pixels.shape[1], dtype=torch.float64)
    for part in pixels.split(SLICE):
        products += part.T.double() @ part.double()
    mean = pixels.sum(0, dtype=torch.int64).double() / len(pixels)
    variances, directions = torch.linalg.eigh(products / len(pixels) - torch.outer(mean, mean))
    leading = directions[:, -count:].flip(1)
    largest = leading.gather(0, leading.abs().argmax(0, keepdim=True))
    return Basis(mean, leading * largest.sign(), float(variances[-count:].mean().sqrt()))

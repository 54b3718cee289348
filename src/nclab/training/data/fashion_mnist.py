"""FashionMNIST: 60,000 training and 10,000 test images, 28 × 28, of ten kinds of clothing."""

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError, MissingData
from nclab.training.data.fashion_mnist_files import (
    FILES,
    INSTALLATION,
    SIDE,
    cache_folder,
    fetch_files,
    find_folder,
    read_checked,
)
from nclab.training.data.samples import Samples

MEAN, STD = 0.2860, 0.3530
"""Mean and standard deviation of the training pixels, from 0 to 1; they normalise the images."""
CLASSES = 10
GRID = 2.0**-10
"""Components are rounded to multiples of this, as linear algebra differs in the last bits between
libraries."""
SLICE = 10_000
"""Number of images in one matrix product of `basis`, which limits the memory."""


class Images(NamedTuple):
    """Images and their classes as the files hold them."""

    pixels: Tensor
    """Pixels (n, 28, 28), uint8."""
    labels: Tensor
    """Labels (n,) in [0, 10), int64."""


def load(*, part: str = "train", fetch: bool = True) -> Images:
    """Return the training or test images; download them into the cache folder if necessary.

    The files are searched in `$NCLAB_DATA`, in the folder of Debian's package
    `dataset-fashion-mnist` and in nclab's cache folder. Missing and damaged files raise
    `MissingData` with advice.
    """
    if part not in ("train", "test"):
        raise DataError(f"Expected part='train' or 'test', got {part!r}.")
    files = [FILES[part, "images"], FILES[part, "labels"]]
    home = find_folder(files)
    if home is None and fetch:
        home = fetch_files(files, cache_folder())
    if home is None:
        raise MissingData(f"FashionMNIST is not on this machine. {INSTALLATION}.")
    pixels, labels = (read_checked(home, file) for file in files)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels).long())


def balanced_subset(labels: Tensor, *, size: int, seed: int) -> Tensor:
    """Return (size,) ascending row numbers: equally many samples of each class, chosen by the seed.

    >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 1])
    >>> chosen = balanced_subset(labels, size=4, seed=0)
    >>> labels[chosen].bincount().tolist(), chosen.tolist() == sorted(chosen.tolist())
    ([2, 2], True)
    """
    counts = labels.bincount()
    classes = len(counts)
    per_class, remainder = divmod(size, classes)
    if remainder or size < classes:
        raise DataError(f"Expected a multiple of the {classes} classes as size, got {size}.")
    if per_class > counts.min():
        raise DataError(
            f"Expected at most {int(counts.min()) * classes} samples, {int(counts.min())} of each "
            f"of the {classes} classes; got size {size}."
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for c in range(classes):
        members = (labels == c).nonzero().flatten()
        order = torch.randperm(len(members), generator=generator)
        chosen.append(members[order[:per_class]])
    return torch.cat(chosen).sort().values


def to_inputs(pixels: Tensor, *, side: int = 32) -> Tensor:
    """Return normalised float32 images (n, 1, side, side), padded with black pixels.

    Black is 0 before the normalisation, hence (0 − 0.2860)/0.3530 after it.

    >>> inputs = to_inputs(torch.zeros(2, 28, 28, dtype=torch.uint8))
    >>> inputs.shape, round(inputs[0, 0, 0, 0].item(), 4)
    (torch.Size([2, 1, 32, 32]), -0.8102)
    """
    before, odd = divmod(side - pixels.shape[-1], 2)
    if before < 0:
        raise DataError(f"Expected a side of at least {pixels.shape[-1]}, got {side}.")
    padding = (before, before + odd) * 2
    padded = torch.nn.functional.pad(pixels, padding)
    return ((padded.float() / 255 - MEAN) / STD).unsqueeze(1)


@dataclass(frozen=True)
class FashionMNIST:
    """Source of training images, equally many of each class, as pixels or principal components."""

    samples: int = 10_000
    """Number of samples."""
    components: int | None = None
    """Number of principal components to use instead of the 784 pixels; 64 keep most of the
    variance. The principal directions are those of all 60,000 images. All components are divided
    by the same number, so that their mean variance is 1."""
    seed: int = 0
    """Seed of the samples."""
    classes: int = CLASSES
    """Number of classes to use, beginning with class 0."""

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
        """Short name of the data, for folders and tables."""
        return "fashion" if self.components is None else f"fashion{self.components}"

    def draw(self) -> Samples:
        """Return the samples of the seed."""
        pixels, labels = load()
        known = (labels < self.classes).nonzero().flatten()
        rows = known[balanced_subset(labels[known], size=self.samples, seed=self.seed)]
        if self.components is None:
            inputs = to_inputs(pixels[rows], side=SIDE).flatten(1)
        else:
            inputs = principal_components(pixels.flatten(1), rows, self.components)
        return Samples(inputs.contiguous(), labels[rows])


class Basis(NamedTuple):
    """Leading principal directions of all images."""

    mean: Tensor
    directions: Tensor
    """Directions (pixels, count); the largest entry of each is positive."""
    scale: float
    """Root of the mean variance of the coordinates, by which they are divided."""


_BASES: dict[tuple[int, int], Basis] = {}
"""Bases that were computed before, by the checksum of the images and the number of directions."""


def principal_components(pixels: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return float32 coordinates (rows, count) of some images along the principal directions.

    The directions are those of all images. Coordinates are rounded to multiples of 1/1024, so that
    they are equal on every machine.
    """
    key = zlib.crc32(pixels.contiguous().numpy().tobytes()), count
    if key not in _BASES:
        _BASES[key] = basis(pixels, count)
    mean, directions, scale = _BASES[key]
    scores = (pixels[rows].double() - mean) @ directions
    return ((scores / scale / GRID).round() * GRID).float()


def basis(pixels: Tensor, count: int) -> Basis:
    """Return the leading principal directions of images (n, pixels).

    Pixels are bytes, so the sums of their products are exact in float64.
    """
    products = torch.zeros(pixels.shape[1], pixels.shape[1], dtype=torch.float64)
    for part in pixels.split(SLICE):
        products += part.T.double() @ part.double()
    mean = pixels.sum(0, dtype=torch.int64).double() / len(pixels)
    variances, directions = torch.linalg.eigh(products / len(pixels) - torch.outer(mean, mean))
    leading = directions[:, -count:].flip(1)
    largest = leading.gather(0, leading.abs().argmax(0, keepdim=True))
    return Basis(mean, leading * largest.sign(), float(variances[-count:].mean().sqrt()))

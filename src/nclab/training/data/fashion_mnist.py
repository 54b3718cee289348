"""FashionMNIST: 28 × 28 grey images of ten kinds of clothing, 60,000 to train and 10,000 to test.

Looked for in a folder you name, in `$NCLAB_DATA`, where Debian's package `dataset-fashion-mnist`
puts it, and in nclab's cache folder; what is not there can be fetched, see `fashion_mnist_fetch`.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError, MissingData
from nclab.training.data.fashion_mnist_fetch import fetch_files
from nclab.training.data.fashion_mnist_files import (
    FILES,
    HOW,
    cache_folder,
    find_folder,
    read_checked,
)

MEAN, STD = 0.2860, 0.3530
"""Of the training pixels, 0 to 1; what images are normalised by."""


class Images(NamedTuple):
    """Images and their classes as the files hold them."""

    pixels: Tensor
    """(n, 28, 28) uint8."""
    labels: Tensor
    """(n,) int64 in [0, 10)."""


def load(*, part: str = "train", folder: Path | None = None, fetch: bool = True) -> Images:
    """The training or the test images, checked; fetched into the cache folder if need be.

    A missing file is a `MissingData`, a damaged one a `DataError`; both say what to do.
    """
    if part not in ("train", "test"):
        raise DataError(f"Expected part='train' or 'test', got {part!r}.")
    files = [FILES[part, "images"], FILES[part, "labels"]]
    home = find_folder(files, folder=folder)
    if home is None and fetch and folder is None:
        home = fetch_files(files, cache_folder())
    if home is None:
        where = f"in {folder}" if folder else "on this machine"
        raise MissingData(
            f"Expected FashionMNIST's {files[0].name}[.gz], not found {where}. {HOW}."
        )
    pixels, labels = (read_checked(home, file) for file in files)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels).long())


def balanced_subset(labels: Tensor, *, size: int, seed: int) -> Tensor:
    """(size,) ascending indices of equally many samples of each class, chosen by the seed.

    >>> labels = torch.tensor([0, 1, 0, 1, 0, 1, 1])
    >>> chosen = balanced_subset(labels, size=4, seed=0)
    >>> labels[chosen].bincount().tolist(), chosen.tolist() == sorted(chosen.tolist())
    ([2, 2], True)
    """
    counts = labels.bincount()
    classes = len(counts)
    per_class, rest = divmod(size, classes)
    if rest or size < classes:
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
    """(n, 1, side, side) float32: black around the image, then less the mean, over the deviation.

    The padding is black like the background of the images, so it is (0 − 0.2860)/0.3530, not 0.

    >>> inputs = to_inputs(torch.zeros(2, 28, 28, dtype=torch.uint8))
    >>> inputs.shape, round(inputs[0, 0, 0, 0].item(), 4)
    (torch.Size([2, 1, 32, 32]), -0.8102)
    """
    before, rest = divmod(side - pixels.shape[-1], 2)
    if before < 0:
        raise DataError(f"Expected a side of at least {pixels.shape[-1]}, got {side}.")
    padding = (before, before + rest) * 2
    padded = torch.nn.functional.pad(pixels, padding)
    return ((padded.float() / 255 - MEAN) / STD).unsqueeze(1)

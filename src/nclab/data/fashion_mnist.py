"""FashionMNIST: 28 × 28 grey images of ten kinds of clothing, 60,000 to train and 10,000 to test.

Looked for in a folder you name, in `$NCLAB_DATA`, where Debian's package `dataset-fashion-mnist`
puts it, and in nclab's cache folder; what is not there can be fetched, see `fashion_mnist_fetch`.
"""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nclab.data.idx import read_idx
from nclab.errors import DataError, MissingData

PACKAGE = "dataset-fashion-mnist"
PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FOLDER_VARIABLE = "NCLAB_DATA"
CLASSES = 10
SIDE = 28
MEAN, STD = 0.2860, 0.3530
"""Of the training pixels, 0 to 1; what images are normalised by."""


class File(NamedTuple):
    """One of the four files."""

    name: str
    """Without .gz."""
    shape: tuple[int, ...]
    digest: str
    """SHA-256 of the bytes of the array, without header and compression."""


FILES = {
    ("train", "images"): File(
        "train-images-idx3-ubyte",
        (60_000, SIDE, SIDE),
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    ),
    ("train", "labels"): File(
        "train-labels-idx1-ubyte",
        (60_000,),
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    ),
    ("test", "images"): File(
        "t10k-images-idx3-ubyte",
        (10_000, SIDE, SIDE),
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    ),
    ("test", "labels"): File(
        "t10k-labels-idx1-ubyte",
        (10_000,),
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
}
HOW = (
    f"Install Debian's package {PACKAGE}, put its four IDX files into a folder and set "
    f"{FOLDER_VARIABLE} to it, or connect to the internet and run again"
)


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
        from nclab.data.fashion_mnist_fetch import fetch_files

        home = fetch_files(files, cache_folder())
    if home is None:
        where = f"in {folder}" if folder else "on this machine"
        raise MissingData(
            f"Expected FashionMNIST's {files[0].name}[.gz], not found {where}. {HOW}."
        )
    pixels, labels = (read_checked(home, file) for file in files)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels).long())


def find_folder(files: list[File], *, folder: Path | None = None) -> Path | None:
    """The first folder that has all these files, plain or gzipped; only `folder` if it is given."""
    for place in [folder] if folder else places():
        if all(_path(place, file) for file in files):
            return place
    return None


def places() -> Iterator[Path]:
    """Where the files are looked for, in this order."""
    if named := os.environ.get(FOLDER_VARIABLE):
        yield Path(named)
        yield Path(named) / "fashion-mnist"
    yield PACKAGE_FOLDER
    yield cache_folder()


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/nclab/fashion-mnist`, by default below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nclab" / "fashion-mnist"


def read_checked(folder: Path, file: File) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The array of one file, if shape and checksum are those of the published one."""
    path = _path(folder, file)
    if path is None:
        raise MissingData(f"Expected {file.name}[.gz] in {folder}, not found. {HOW}.")
    advice = f"Delete it and fetch it again. {HOW}."
    try:
        array = read_idx(path)
    except DataError as error:
        raise MissingData(f"{error} {advice}") from error
    if array.shape != file.shape or array.dtype != np.uint8:
        raise MissingData(
            f"Expected {file.shape} bytes in {path}, got {array.shape} {array.dtype}: "
            f"not FashionMNIST. {advice}"
        )
    if sha256(array.data).hexdigest() != file.digest:
        raise MissingData(
            f"Expected the published FashionMNIST in {path}, but its checksum differs: it is "
            f"damaged or another data set. {advice}"
        )
    return array


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


def _path(folder: Path, file: File) -> Path | None:
    for path in (folder / f"{file.name}.gz", folder / file.name):
        if path.is_file():
            return path
    return None

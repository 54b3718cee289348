"""Where the four files of FashionMNIST lie, and whether they are the published ones."""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nclab.errors import DataError, MissingData
from nclab.training.data.idx import read_idx

PACKAGE = "dataset-fashion-mnist"
PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FOLDER_VARIABLE = "NCLAB_DATA"
SIDE = 28


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


def _path(folder: Path, file: File) -> Path | None:
    for path in (folder / f"{file.name}.gz", folder / file.name):
        if path.is_file():
            return path
    return None

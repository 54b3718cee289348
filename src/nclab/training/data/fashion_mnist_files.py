"""The four files of FashionMNIST: find them, check them, download them.

A download first tries Debian's package, which any user may fetch and unpack, then the addresses of
the authors. Checksums decide whether a file is the published one.
"""

import gzip
import math
import os
import shutil
import subprocess
import tempfile
import urllib.request
import zlib
from collections.abc import Sequence
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nclab.errors import DataError, MissingData, NclabError
from nclab.files import write_whole

PACKAGE = "dataset-fashion-mnist"
PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FOLDER_VARIABLE = "NCLAB_DATA"
SIDE = 28
"""Height and width of an image."""
ADDRESSES = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
"""Addresses at which the authors publish the files."""
TIMEOUT_SECONDS = 30.0
"""Timeout of a server that does not answer."""
PACKAGE_SECONDS = 600.0
"""Timeout of the download of the whole package."""


class File(NamedTuple):
    """Description of one of the four files."""

    name: str
    """File name without .gz."""
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
INSTALLATION = (
    f"Install Debian's package {PACKAGE}, put its four IDX files into a folder and set "
    f"{FOLDER_VARIABLE} to it, or connect to the internet and run again"
)


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/nclab/fashion-mnist`, by default below `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nclab" / "fashion-mnist"


def find_folder(files: Sequence[File]) -> Path | None:
    """Return the first folder that has all files, plain or gzipped; None if there is none."""
    named = os.environ.get(FOLDER_VARIABLE)
    folders = [Path(named), Path(named) / "fashion-mnist"] if named else []
    folders += [PACKAGE_FOLDER, cache_folder()]
    return next((path for path in folders if all(_path(path, file) for file in files)), None)


def read_checked(folder: Path, file: File) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the array of a file, plain or gzipped; raise unless it is the published one."""
    path = _path(folder, file)
    if path is None:
        raise MissingData(f"Expected {file.name}[.gz] in {folder}, not found. {INSTALLATION}.")
    header = 4 * (1 + len(file.shape))  # bytes of the kind of numbers and of the sizes
    advice = f"Delete it and fetch it again. {INSTALLATION}."
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read(header + math.prod(file.shape) + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise MissingData(f"Cannot read {path}, which is damaged ({error}). {advice}") from error
    if sha256(content[header:]).hexdigest() != file.digest:
        raise MissingData(
            f"Expected the published FashionMNIST in {path}, but its checksum differs: the file is "
            f"damaged or another data set. {advice}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(file.shape).copy()


def _path(folder: Path, file: File) -> Path | None:
    paths = (folder / f"{file.name}.gz", folder / file.name)
    return next((path for path in paths if path.is_file()), None)


def fetch_files(
    files: Sequence[File], target: Path, *, addresses: Sequence[str] = ADDRESSES
) -> Path:
    """Download the files into the target folder, check them and return the folder.

    If neither the Debian package nor any address works, raise `MissingData` with every reason.
    """
    problems = []
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingData(f"Cannot make the folder {target}: {error.strerror}.") from error
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as name:
        scratch = Path(name)
        for source in ("the Debian package", *addresses):
            try:
                if source in addresses:
                    folder = _fetch_from_address(files, source, scratch)
                else:
                    folder = _fetch_package(scratch)
                for file in files:
                    read_checked(folder, file)
            except NclabError as error:
                problems.append(f"{source}: {error}")
                continue
            for file in files:
                write_whole(target / f"{file.name}.gz", (folder / f"{file.name}.gz").read_bytes())
            return target
    reasons = "; ".join(line.removesuffix(f" {INSTALLATION}.").rstrip(".") for line in problems)
    raise MissingData(
        f"FashionMNIST is not on this machine and cannot be fetched ({reasons}). {INSTALLATION}."
    )


def _fetch_package(scratch: Path) -> Path:
    """Download Debian's package, unpack it without root and return the folder of its files."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise DataError("no apt-get and dpkg on this machine")
    _run_command(["apt-get", "download", PACKAGE], scratch)
    packages = sorted(scratch.glob("*.deb"))
    if not packages:
        raise DataError("apt-get downloaded no package")
    _run_command(["dpkg", "-x", packages[0].name, "unpacked"], scratch)
    return scratch / "unpacked" / PACKAGE_FOLDER.relative_to("/")


def _run_command(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, errors="replace", timeout=PACKAGE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{command[0]} did not run ({error})") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"{command[0]} failed ({last})")


def _fetch_from_address(files: Sequence[File], address: str, scratch: Path) -> Path:
    folder = scratch / "official"
    folder.mkdir(exist_ok=True)
    for file in files:
        try:
            url = f"{address}/{file.name}.gz"
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read()
        except (OSError, HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or error
            raise DataError(f"no answer ({reason})") from error
        write_whole(folder / f"{file.name}.gz", content)
    return folder

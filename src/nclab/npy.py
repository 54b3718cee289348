"""The .npy format and .npz archives, with every size checked against the file before it is used."""

import ast
import contextlib
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError

MAGIC = b"\x93NUMPY"
HEADER_BYTES = 1 << 16
"""No header of plain arrays is longer; that of numpy has about 120 bytes."""
DIMENSIONS = 32
PLAIN = re.compile(r"[<>|=]?(?:b1|\?|[iu][1248]|f(?:2|4|8|16)|c(?:8|16)|[SU][0-9]{1,6})")
"""Numbers and texts; objects would be pickles."""
TIGHTEST = 1032
"""Deflate makes nothing smaller than by this factor: what claims more is no archive."""
PICKLED = (
    "Expected plain numeric arrays, but {} holds pickled objects, which could run code. "
    "Save the arrays with a numeric dtype."
)


class Header(NamedTuple):
    """What stands before the numbers of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    """Where the numbers begin."""

    @property
    def bytes(self) -> int:
        """Of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: BinaryIO, where: object) -> Header:
    """The header of a .npy stream; DataError for whatever is not one of a plain array.

    >>> import io
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.zeros((2, 3)))
    >>> read_header(io.BytesIO(stream.getvalue()), "it").shape
    (2, 3)
    """
    start = stream.read(8)
    version = start[6] if len(start) == 8 and start[:6] == MAGIC else 0
    if version not in (1, 2, 3):
        raise DataError(f"Expected an array of numpy, but {where} does not begin like one.")
    width = 2 if version == 1 else 4
    told = stream.read(width)
    length = int.from_bytes(told, "little")
    content = stream.read(min(length, HEADER_BYTES + 1))
    if len(told) < width or len(content) < length or length > HEADER_BYTES:
        raise DataError(f"Expected the header of an array in {where}; it is cut short or damaged.")
    try:
        facts = ast.literal_eval(content.decode("utf-8"))
        kind, fortran, shape = facts["descr"], facts["fortran_order"], facts["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise DataError(f"Cannot read {where}: the header of an array is damaged.") from error
    if isinstance(kind, str) and kind.lstrip("<>|=").startswith("O"):
        raise DataError(PICKLED.format(where))
    if not isinstance(kind, str) or not PLAIN.fullmatch(kind):
        raise DataError(f"Expected numbers or texts in {where}, got an array of {kind!r:.40}.")
    sizes = isinstance(shape, tuple) and all(type(one) is int and one >= 0 for one in shape)
    if not sizes or len(shape) > DIMENSIONS or not isinstance(fortran, bool):
        raise DataError(f"Cannot read {where}: the shape of an array is damaged.")
    return Header(np.dtype(kind), shape, fortran, 8 + width + length)


def check_size(header: Header, available: int, where: object) -> None:
    """Refuse an array that is not as large as its header says, before memory is taken for it."""
    if header.bytes != available - header.offset:
        raise DataError(
            f"Expected {header.bytes} bytes of numbers in {where} for the shape {header.shape}, "
            f"got {available - header.offset}: it is cut short or damaged."
        )


def read_array(stream: BinaryIO, available: int, where: object) -> NDArray[Any]:
    """The array of a .npy stream of so many bytes."""
    header = read_header(stream, where)
    check_size(header, available, where)
    content = bytearray(header.bytes)
    view, done = memoryview(content), 0
    while done < len(content):
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise DataError(f"Cannot read {where}: it is cut short.")
        done += count
    if stream.read(1):  # at its end an archive compares checksums
        raise DataError(f"Cannot read {where}: there is more than its header says.")
    order: Any = "F" if header.fortran else "C"
    found = np.frombuffer(content, header.dtype).reshape(header.shape, order=order)
    return found.astype(header.dtype.newbyteorder("="), copy=False)


def map_array(file: Path) -> NDArray[Any]:
    """The array of a .npy file, memory-mapped."""
    try:
        with file.open("rb") as stream:
            header = read_header(stream, file.name)
        check_size(header, file.stat().st_size, file.name)
        if header.bytes == 0:
            return np.empty(header.shape, header.dtype)
        order: Any = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror or error}.") from error


def npz_names(file: Path) -> list[str]:
    """Names of the arrays of an archive."""
    with _opened(file) as archive:
        names = [one.filename.removesuffix(".npy") for one in archive.infolist()]
    if len(set(names)) < len(names):
        raise DataError(f"Cannot read {file}: two of its arrays have the same name.")
    return names


def read_npz(file: Path, name: str) -> NDArray[Any]:
    """One array of an archive; the others are not read.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "a.npz"
    >>> np.savez(place, X=np.ones(2), y=np.zeros(3))
    >>> npz_names(place), read_npz(place, "y")
    (['X', 'y'], array([0., 0., 0.]))
    """
    with _opened(file) as archive:
        found = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        return _member(archive, found[name], file)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    """An archive, whose faults are errors of ours: a damaged one makes zipfile raise anything."""
    if not zipfile.is_zipfile(file):
        raise DataError(f"Expected a .npz archive, but {file} is not one (or is cut short).")
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror or error}.") from error
    except MemoryError as error:
        raise DataError(f"Cannot read {file}: its arrays do not fit the memory.") from error
    except Exception as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"Cannot read {file}: it is damaged ({words}).") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: Path) -> NDArray[Any]:
    where = f"{member.filename!r:.60} of {file}"
    if member.flag_bits & 1:
        raise DataError(f"Cannot read {where}: it is encrypted.")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"Cannot read {where}: it is compressed in a way that numpy does not use.")
    most = member.compress_size * (TIGHTEST if member.compress_type else 1)
    if member.file_size > most or member.compress_size > file.stat().st_size:
        raise DataError(f"Cannot read {where}: it claims more than the file can hold.")
    with archive.open(member) as stream:
        return read_array(stream, member.file_size, where)  # type: ignore[arg-type]

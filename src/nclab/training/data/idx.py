"""IDX files, the format of MNIST and its relatives, plain or gzipped."""

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError

DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
"""Number type by the third byte of the file; all numbers are big-endian."""
GZIP_MAGIC = b"\x1f\x8b"
MOST_BYTES = 2**32
"""Largest array that is read; a header that announces more counts as damaged."""


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Return the array of an IDX file; recognise gzip by content, not by name.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 0, 2]))
    >>> read_idx(file).tolist()
    [7, 0, 2]
    """
    file = Path(path)
    try:
        with file.open("rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                return _parse(raw, file)
            with gzip.open(raw) as stream:
                return _parse(stream, file)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"Expected a gzipped IDX file, but {file} is damaged ({error}).") from error
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror or error}.") from error


def _parse(stream: BinaryIO, file: Path) -> NDArray[Any]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES or magic[3] == 0:
        raise DataError(
            f"Expected an IDX file, but {file} starts with {magic.hex(' ') or 'nothing'}."
        )
    dtype, dimensions = DTYPES[magic[2]], magic[3]
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(
            f"Expected {dimensions} sizes in the header of {file}, but the file is cut short."
        )
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    if 0 in shape:
        raise DataError(f"Expected data in {file}, got the empty shape {shape}.")
    size = math.prod(shape) * dtype.itemsize
    if size > MOST_BYTES:
        raise DataError(
            f"Expected at most {MOST_BYTES} bytes in {file}, but its header says {size}."
        )
    content = stream.read(size + 1)  # one byte more shows whether data follow the array
    if len(content) != size:
        length = "more" if len(content) > size else f"{len(content)}"
        raise DataError(
            f"Expected {size} bytes of data in {file} for its shape {shape}, found {length}."
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))

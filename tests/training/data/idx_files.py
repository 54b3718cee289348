"""Writer of IDX files for tests."""

import gzip
import struct
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nclab.training.data.fashion_mnist_files import FILES, File


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """Return an array in IDX format: zeros, 8 for bytes, dimensions, sizes, numbers."""
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + sizes + array.tobytes()


def write_small(
    folder: Path, *, zipped: bool, size: int = 20, part: str = "train"
) -> dict[tuple[str, str], File]:
    """Write a small data set under the published names; return its description, as in FILES."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (size, 28, 28), dtype=np.uint8)
    labels = (np.arange(size) % 10).astype(np.uint8)
    described = {}
    for kind, array in (("images", pixels), ("labels", labels)):
        key = (part, kind)
        name = FILES[key].name
        content = idx_bytes(array)
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
        described[key] = File(name, array.shape, sha256(array.tobytes()).hexdigest())
    return described

"""Damaged and hostile files of arrays give an error of nclab or a measurement, within bounds."""

import gzip
import io
import random
import resource
import time
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from nclab.array_files import FEATURES, LABELS, pick, read_arrays
from nclab.errors import NclabError
from nclab.measurement.arrays import measure_features
from nclab.measurement.shards import measure_shards
from nclab.training.data.fashion_mnist_files import File, read_checked
from nclab.training.data.samples import read_samples
from tests.fuzz.mutations import FILES

SECONDS = 5.0
"""No file of a few kilobytes takes longer."""
BYTES = 1 << 30
"""Nor more memory than this above what there was."""


def _saved(save: Callable[..., None], **arrays: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def originals() -> dict[str, bytes]:
    """Write good files of every kind; return them by name."""
    rows = np.random.default_rng(0)
    features = rows.normal(size=(12, 4)).astype(np.float32)
    labels = np.arange(12) % 3
    weight = rows.normal(size=(3, 4))
    arrays: dict[str, Any] = {
        "features": features,
        "labels": labels,
        "weight": weight,
        "unused": np.zeros(50),
    }
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    alone = io.BytesIO()
    np.save(alone, features)
    idx = bytes([0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + bytes(range(12))
    return {
        "stored.npz": _saved(np.savez, **arrays),
        "packed.npz": _saved(np.savez_compressed, **arrays),
        "turned.npz": _saved(np.savez, X=np.asfortranarray(features.astype(">f8")), y=labels),
        "plain.safetensors": save(tensors),
        "part.features.npy": alone.getvalue(),
        "images.idx": idx,
        "images.idx.gz": gzip.compress(idx, mtime=0),
    }


def use(path: Path) -> None:
    """Read and measure a file like a user."""
    if ".idx" in path.name:
        read_checked(path.parent, File("images.idx", (3, 4), sha256(bytes(range(12))).hexdigest()))
    elif path.suffix == ".npy":
        labels = path.with_name("part.labels.npy")
        if not labels.exists():
            np.save(labels, np.arange(12) % 3)
        measure_shards([path], workers=0)
    else:
        arrays = read_arrays(path)
        weight = arrays.get("weight")
        measure_features(pick(arrays, FEATURES, path), pick(arrays, LABELS, path), weight=weight)
        read_samples(path)


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Return an attack on good files of every kind; it returns whether the file was refused."""
    good = originals()
    return lambda chance: attack(chance, good, folder)


def attack(chance: random.Random, originals: dict[str, bytes], folder: Path) -> bool:
    """Damage one file; return whether it was refused. Fail if another error than ours is raised."""
    name = chance.choice(sorted(originals))
    content = originals[name]
    for _ in range(chance.choice((1, 1, 2, 4))):
        content = chance.choice(FILES)(chance, content) or b"\0"
    path = folder / name
    path.write_bytes(content)
    before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(path)
        said = ""
    except NclabError as error:
        said = str(error)
    assert "\n" not in said, said
    assert time.process_time() - before < SECONDS, f"{name} took too long"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    assert grown < BYTES, f"{name} took {grown} bytes"
    return bool(said)

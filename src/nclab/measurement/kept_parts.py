"""What workers have seen of their files, kept on disk until the whole measurement has ended."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab import __version__
from nclab.errors import NclabError
from nclab.files import delete, remove_leftovers, translate_os_errors
from nclab.measurement.shard_rounds import Plan, ReadPart
from nclab.tensor_trees import read_tree, write_tree

SUFFIX = ".part.safetensors"


class KeptParts:
    """Parts by a key of all that they depend on: files as they are, options, class means."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: list[Path] = []
        with translate_os_errors("write", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def key(self, work: str, plan: Plan, files: Iterable[Path], *more: Any) -> str:
        """A name for the part; other when a file, an option or the class means have changed."""
        told = hashlib.sha256(f"{__version__} {work}".encode())
        for file in files:
            with translate_os_errors("read", file):
                about = file.stat()
            _tell(told, [str(file), about.st_size, about.st_mtime_ns])
        _tell(told, [plan, more])
        return told.hexdigest()[:32]

    def read(self, key: str) -> ReadPart | None:
        """The part, if it is there and whole."""
        try:
            return ReadPart(**read_tree(self._path(key)))
        except NclabError:
            return None

    def write(self, key: str, part: ReadPart) -> None:
        """Keep a part, whole or not at all."""
        write_tree(self._path(key), part._asdict())

    def forget(self) -> None:
        """Remove the parts of a measurement that has ended."""
        for path in self._used:
            delete(path)
        remove_leftovers(self.folder, (f"*{SUFFIX}",))

    def _path(self, key: str) -> Path:
        path = self.folder / f"{key}{SUFFIX}"
        if path not in self._used:
            self._used.append(path)
        return path


def _tell(told: Any, value: Any) -> None:
    """Add a value of any kind that a plan holds to a digest."""
    told.update(f"{type(value).__name__}:".encode())
    if hasattr(value, "state_dict"):  # moments
        _tell(told, value.state_dict())
    elif dataclasses.is_dataclass(value):
        _tell(told, {one.name: getattr(value, one.name) for one in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _tell(told, str(name))
            _tell(told, item)
    elif isinstance(value, list | tuple):
        told.update(f"{len(value)}:".encode())
        for item in value:
            _tell(told, item)
    elif isinstance(value, Tensor):
        _tell(told, list(value.shape))
        told.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        _tell(told, list(value.shape))
        told.update(np.ascontiguousarray(value).tobytes())
    elif callable(getattr(value, "sums", None)):  # a second pass
        _tell(told, value.sums())
    elif callable(value):  # its address is another in every process
        told.update(f"{value.__module__}.{value.__qualname__};".encode())
    else:
        told.update(f"{value!r};".encode())

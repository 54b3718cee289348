"""What workers have seen of their files, kept on disk until the whole measurement has ended."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab import __version__
from nclab.files import explained, remove_leftovers, write_whole

State = dict[str, Tensor]
SUFFIX = ".part.safetensors"


class ReadPart(NamedTuple):
    """What one worker has seen of its files."""

    moments: State | None
    logits: State | None
    look: State | None
    bad: dict[str, str]


class KeptParts:
    """Parts by a key of all that they depend on: files as they are, options, class means."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: list[Path] = []
        with explained("write", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def key(self, work: str, plan: Any, files: Iterable[Path], *states: State) -> str:
        """A name for the part; other when a file, an option or the class means have changed."""
        told = hashlib.sha256(f"{__version__} {work}".encode())
        for file in files:
            with explained("read", file):
                about = file.stat()
            told.update(json.dumps([str(file), about.st_size, about.st_mtime_ns]).encode())
        options = {name: value for name, value in vars(plan).items() if name != "head"}
        told.update(json.dumps(options, sort_keys=True).encode())
        heads = (
            {} if plan.head is None else {k: v for k, v in vars(plan.head).items() if v is not None}
        )
        for state in (heads, *states):
            _add(told, state)
        return told.hexdigest()[:32]

    def read(self, key: str) -> ReadPart | None:
        """The part, if it is there and whole."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = self._path(key)
        try:
            found = load(path.read_bytes())
        except (OSError, SafetensorError):
            return None
        bad = json.loads(bytes(found.pop("bad").tolist()))
        states: dict[str, State] = {}
        for name, tensor in found.items():
            whose, _, own = name.partition("/")
            states.setdefault(whose, {})[own] = tensor
        return ReadPart(states.get("moments"), states.get("logits"), states.get("look"), bad)

    def write(self, key: str, part: ReadPart) -> None:
        """Keep a part, whole or not at all."""
        from safetensors.torch import save

        states = {"moments": part.moments, "logits": part.logits, "look": part.look}
        tensors = {
            f"{whose}/{name}": value.cpu().contiguous()
            for whose, state in states.items()
            for name, value in (state or {}).items()
        }
        tensors["bad"] = torch.tensor(list(json.dumps(part.bad).encode()), dtype=torch.uint8)
        write_whole(self._path(key), save(tensors))

    def forget(self) -> None:
        """Remove the parts of a measurement that has ended."""
        for path in self._used:
            path.unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _path(self, key: str) -> Path:
        path = self.folder / f"{key}{SUFFIX}"
        if path not in self._used:
            self._used.append(path)
        return path


def _add(told: Any, state: Mapping[str, Tensor | None]) -> None:
    for name, tensor in sorted(state.items()):
        told.update(name.encode())
        if tensor is not None:
            told.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())

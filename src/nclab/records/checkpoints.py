"""Checkpoints: safetensors files with a digest of their content."""

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError, RecordError
from nclab.files import open_regular, write_whole
from nclab.records.encoding import require_json
from nclab.records.schema import SCHEMA, CheckpointAbout

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in the folder of a run."""
_DIGEST_BYTES = 16
_BLANK = "0" * (2 * _DIGEST_BYTES)
"""Stands in the place of the digest while the digest is computed."""
_METADATA = "__metadata__"
_MAX_HEADER_BYTES = 100_000_000
"""Limit of safetensors itself."""
_FILE_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to continue a run from a step."""

    step: int
    tensors: "dict[str, Tensor]"
    extra: dict[str, Any] = field(default_factory=dict)
    journal_length: int = 0
    """Bytes of the journal when the checkpoint was written."""
    journal_checksum: int = 0
    """CRC-32 of these bytes."""
    identity: str = ""
    """Identity of the run; empty in runs of older versions."""


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step.

    >>> checkpoint_path(Path("run"), 790).as_posix()
    'run/checkpoints/step-000000790.safetensors'
    """
    return folder / CHECKPOINTS / f"step-{step:09d}.safetensors"


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """Return the paths of all checkpoint files by step, ascending, readable or not."""
    if not (folder / CHECKPOINTS).is_dir():
        return {}
    paths = {
        int(match[1]): path
        for path in (folder / CHECKPOINTS).iterdir()
        if (match := _FILE_NAME.fullmatch(path.name))
    }
    return dict(sorted(paths.items()))


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically; equal checkpoints give equal bytes."""
    import torch
    from safetensors.torch import save

    if checkpoint.step < 0:
        raise RecordError(f"Expected a checkpoint of step 0 or later, got {checkpoint.step}.")
    for name, tensor in checkpoint.tensors.items():
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise RecordError(f"Expected {name} of a checkpoint to be a tensor, got a {kind}.")
    # One metadata entry, because safetensors writes several in no fixed order.
    about: CheckpointAbout = {
        "checksum": _BLANK,
        "schema": SCHEMA,
        "step": checkpoint.step,
        "journal_length": checkpoint.journal_length,
        "journal_checksum": checkpoint.journal_checksum,
        "identity": checkpoint.identity,
        "extra": require_json(checkpoint.extra, name="extra of a checkpoint"),
    }
    # Clones, because safetensors refuses views that share memory.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint.tensors.items()
    }
    content = bytearray(save(tensors, metadata={"nclab": json.dumps(about)}))
    start = content.index(_BLANK.encode())
    content[start : start + len(_BLANK)] = _digest(content).encode()
    try:
        write_whole(checkpoint_path(folder, checkpoint.step), bytes(content))
    except NclabError as error:
        raise RecordError(
            f"{error} Nothing written before is lost. Free some space and start again to continue."
        ) from error


def read_checkpoint(path: Path, *, root: Path | None = None) -> Checkpoint:
    """Read a checkpoint and verify its digest; with `root`, no link below it is followed."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content, header = _read_content(path, root)
        about = json.loads(header[_METADATA]["nclab"])
        checksum = about["checksum"].encode()
        start = content.index(checksum)
        content[start : start + len(checksum)] = _BLANK.encode()
        if _digest(content).encode() != checksum:
            raise ValueError("the digest does not match")
        if about["schema"] > SCHEMA:
            raise RecordError(
                f"Expected a checkpoint of schema {SCHEMA} or older, got schema "
                f"{about['schema']} in {path}. Update nclab."
            )
        return Checkpoint(
            step=about["step"],
            tensors=load(bytes(content)),
            extra=about["extra"],
            journal_length=about["journal_length"],
            journal_checksum=about["journal_checksum"],
            identity=about.get("identity", ""),
        )
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    except RecordError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        SafetensorError,
    ) as error:
        raise RecordError(f"Expected an intact checkpoint, got a damaged one: {path}.") from error


def _read_content(path: Path, root: Path | None) -> tuple[bytearray, dict[str, Any]]:
    """Return the bytes and the header of a checkpoint; raise unless the header covers every byte.

    A hostile header could otherwise announce more bytes than the memory holds.
    """
    with open_regular(path, root=root) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size, _MAX_HEADER_BYTES):
            raise ValueError("the header is longer than the file")
        header = json.loads(stream.read(length))
        ends = (entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA)
        if 8 + length + max(ends, default=0) != size:
            raise ValueError("the header does not cover the file")
        stream.seek(0)
        return bytearray(stream.read(size)), header


def _digest(content: bytearray) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()

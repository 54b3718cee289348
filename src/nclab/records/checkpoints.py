"""Checkpoints: safetensors files that know when they are damaged."""

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError, RecordError
from nclab.files import open_regular, write_whole
from nclab.records.lines import exact
from nclab.records.schema import SCHEMA, CheckpointAbout

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "checkpoints"
DIGEST = 16
BLANK = "0" * (2 * DIGEST)
ABOUT = "__metadata__"
LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors has it."""
NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to go on from a step."""

    step: int
    tensors: "dict[str, Tensor]"
    extra: dict[str, Any] = field(default_factory=dict)
    journal_length: int = 0
    journal_checksum: int = 0
    identity: str = ""
    """Of the run; empty in older ones."""


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies.

    >>> path_of(Path("run"), 790).as_posix()
    'run/checkpoints/step-000000790.safetensors'
    """
    return folder / FOLDER / f"step-{step:09d}.safetensors"


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """Step and path of each checkpoint file, ascending, whether readable or not."""
    if not (folder / FOLDER).is_dir():
        return {}
    found = {
        int(match[1]): path
        for path in (folder / FOLDER).iterdir()
        if (match := NAME.fullmatch(path.name))
    }
    return dict(sorted(found.items()))


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write whole or not at all; equal checkpoints give equal bytes."""
    import torch
    from safetensors.torch import save

    if checkpoint.step < 0:
        raise RecordError(f"Expected a checkpoint of step 0 or later, got {checkpoint.step}.")
    for name, tensor in checkpoint.tensors.items():
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise RecordError(f"Expected {name} of a checkpoint as a tensor, got a {kind}.")
    # One metadata entry, because safetensors writes several in no fixed order.
    about: CheckpointAbout = {
        "checksum": BLANK,
        "schema": SCHEMA,
        "step": checkpoint.step,
        "journal_length": checkpoint.journal_length,
        "journal_checksum": checkpoint.journal_checksum,
        "identity": checkpoint.identity,
        "extra": exact(checkpoint.extra, what="extra of a checkpoint"),
    }
    # Clones, because safetensors refuses views that share memory.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint.tensors.items()
    }
    content = bytearray(save(tensors, metadata={"nclab": json.dumps(about)}))
    place = content.index(BLANK.encode())
    content[place : place + len(BLANK)] = _digest(content).encode()
    target = path_of(folder, checkpoint.step)
    try:
        write_whole(target, bytes(content))
    except NclabError as error:
        raise RecordError(
            f"{error} Nothing written before is lost; make room and start again to go on."
        ) from error


def read_checkpoint(path: Path, *, root: Path | None = None) -> Checkpoint:
    """Read and verify; a damaged file is refused before more of it is read than its header tells.

    With a root no link below it is followed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content, header = _content(path, root)
        about = json.loads(header[ABOUT]["nclab"])
        checksum = about["checksum"].encode()
        place = content.index(checksum)
        content[place : place + len(checksum)] = BLANK.encode()
        if _digest(content).encode() != checksum:
            raise RecordError(f"Expected a whole checkpoint, got a damaged one: {path}.")
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
        raise RecordError(f"Expected a whole checkpoint, got a damaged one: {path}.") from error


def _content(path: Path, root: Path | None) -> tuple[bytearray, dict[str, Any]]:
    """The bytes of a checkpoint and its header, which must name every one of them."""
    with open_regular(path, root=root) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size, LONGEST_HEADER):
            raise ValueError("the header is longer than the file")
        header = json.loads(stream.read(length))
        ends = (one["data_offsets"][1] for name, one in header.items() if name != ABOUT)
        if 8 + length + max(ends, default=0) != size:
            raise ValueError("the header names other bytes than there are")
        stream.seek(0)
        return bytearray(stream.read(size)), header


def _digest(content: bytearray) -> str:
    return hashlib.blake2b(content, digest_size=DIGEST).hexdigest()

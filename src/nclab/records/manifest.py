"""The files of a run next to its journal: its manifest and its checkpoints.

The manifest has the configuration and the environment; it is written once at the start.
Checkpoints are safetensors files with a digest of their content.
"""

import dataclasses
import functools
import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nclab
from nclab.errors import NclabError, RecordError
from nclab.files import open_regular, read_regular, write_whole
from nclab.records.encoding import dump_checked_json, load_checked_json, require_json
from nclab.records.schema import SCHEMA

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
_FORMAT = "nclab run"
_TYPES: dict[str, type] = {"name": str, "kind": str, "command": str, "identity": str}
_TYPES |= {"config": dict, "versions": dict}
"""Fields whose types readers rely on."""
_ADDED_FIELDS = {"backend": None, "cpu": None, "identity": ""}
"""Fields that runs of older versions lack, with their values for these runs."""
_VECTOR_INSTRUCTIONS = ("avx512f", "avx2", "avx", "sve", "asimd", "vsx")
"""Names of vector instructions in the flags of a CPU, the widest first."""
_IDENTITY_BYTES = 8
CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in the folder of a run."""
_DIGEST_BYTES = 16
_BLANK = "0" * (2 * _DIGEST_BYTES)
"""Placeholder for the digest while the digest is computed."""
_METADATA = "__metadata__"
_MAX_HEADER_BYTES = 100_000_000  # the limit of safetensors itself
_FILE_NAME = re.compile(r"step-(\d+)\.safetensors")
_PACKAGES = ("torch", "numpy", "scipy", "safetensors", "numba")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a run; fields that are not given describe this process.

    >>> Manifest(name="a", kind="fleet", config={"width": 64}, seed=0, device="cpu").schema
    3
    """

    name: str
    kind: str
    config: dict[str, Any]
    """All settings that determine the numbers, in JSON types."""
    seed: int | None
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """Time of creation in UTC, to the second."""
    commit: str | None = field(default_factory=lambda: commit())  # type: ignore[has-type]
    """Commit of the source tree of nclab, with `-dirty` if it has changes; None outside git."""
    versions: dict[str, str] = field(default_factory=lambda: versions())
    device: str
    machine: str = field(default_factory=platform.platform)
    command: str = field(default_factory=lambda: shlex.join(sys.argv))
    backend: str | None = None
    """Implementation of the training, "kernel" (numba) or "torch"; None if there is no choice."""
    cpu: str | None = field(default_factory=lambda: cpu())  # type: ignore[has-type]
    """CPU model and its vector instructions, which affect rounding; None in older runs."""
    identity: str = ""
    """Identifier that the journal and the checkpoints of the run repeat; empty in older runs."""
    format: str = _FORMAT
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return dataclasses.asdict(self)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json` atomically."""
    write_whole(folder / MANIFEST, dump_checked_json(manifest.to_dict(), indent=2))


def read_manifest(folder: Path, *, root: Path | None = None) -> Manifest:
    """Read the manifest of a run; with `root`, no link below it is followed."""
    path = folder / MANIFEST
    try:
        content, _ = load_checked_json(read_regular(path, root=root))
    except FileNotFoundError as error:
        raise RecordError(f"Expected a run in {folder}, but it has no {MANIFEST}.") from error
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    except RecordError as error:
        raise RecordError(
            f"Expected an intact manifest, but {path} is damaged ({error}). "
            "Restore the file from a copy, or delete the folder."
        ) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise RecordError(f"Expected the manifest of a run, got another file: {path}.")
    schema = content.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise RecordError(
            f"Expected records of schema {SCHEMA} or older, got schema {schema} in {path}. "
            "Update nclab."
        )
    names = [field.name for field in dataclasses.fields(Manifest)]
    content = {**_ADDED_FIELDS, **content}
    missing = [name for name in names if name not in content]
    if missing:
        raise RecordError(f"Expected the field {missing[0]} in {path}, but it is missing.")
    for name, kind in _TYPES.items():
        if not isinstance(content[name], kind):
            got = type(content[name]).__name__
            raise RecordError(f"Expected {name} of type {kind.__name__} in {path}, got {got}.")
    return Manifest(**{name: content[name] for name in names})


def identity_of(kind: str, config: Mapping[str, Any], seed: int | None) -> str:
    """Return the identifier of a run, which does not depend on its folder and its name.

    With a seed the identifier is a digest of kind, config and seed, so that repeating a run gives
    files with the same bytes. Without a seed it is random.

    >>> identity_of("demo", {"rate": 0.1}, 0)
    'c17656e2b85c1bd1'
    """
    if seed is None:
        return secrets.token_hex(_IDENTITY_BYTES)
    text = json.dumps([kind, config, seed], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_IDENTITY_BYTES).hexdigest()


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """Return a description of the first difference between two JSON values; None if equal.

    >>> first_difference({"a": {"b": 1}}, {"a": {"b": 2}})
    'a.b: 1 before, 2 now'
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                return f"{inner}: {_shorten(old[key])} before, absent now"
            if key not in old:
                return f"{inner}: absent before, {_shorten(new[key])} now"
            difference = first_difference(old[key], new[key], inner)
            if difference:
                return difference
        return None
    comparable = type(old) is type(new) or {type(old), type(new)} == {int, float}
    if comparable and old == new:
        return None
    return f"{path}: {_shorten(old)} before, {_shorten(new)} now"


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def versions() -> dict[str, str]:
    """Return the versions of Python, nclab and the numerical packages, without importing them."""
    numbers = {"python": platform.python_version(), "nclab": nclab.__version__}
    for package in _PACKAGES:
        try:
            numbers[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return numbers


@functools.cache
def cpu() -> str:
    """Return the model of the CPU and the widest vector instructions that torch may use."""
    try:
        content = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        content = ""
    lines = (line.partition(":") for line in content.split("\n\n", 1)[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in lines}
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    model = facts.get("model name") or platform.processor() or platform.machine()
    widest = next((name for name in _VECTOR_INSTRUCTIONS if name in flags), "")
    vectors = os.environ.get("ATEN_CPU_CAPABILITY") or widest
    return f"{model}, {vectors}" if vectors else model


@functools.cache
def commit() -> str | None:
    """Return the commit of the source tree of nclab, or None outside a git checkout."""
    tree = Path(nclab.__file__).resolve().parents[2]
    if not (tree / ".git").exists():  # an installed package, perhaps inside a user's repository
        return None
    try:
        head = _git(tree, "rev-parse", "HEAD")
        changes = _git(tree, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changes else head


def _git(tree: Path, *words: str) -> str:
    """Return the output of a git command; it takes no locks that would disturb others."""
    command = ["git", "--no-optional-locks", "-C", str(tree), *words]
    process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return process.stdout.strip()


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to continue a run from a step."""

    step: int
    tensors: "dict[str, Tensor]"
    extra: dict[str, Any] = field(default_factory=dict)
    journal_length: int = 0
    """Bytes of the journal when the checkpoint was written."""
    journal_checksum: int = 0
    """CRC-32 of the journal when the checkpoint was written."""
    identity: str = ""
    """Identity of the run; empty in runs of older versions."""


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
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
    # Only one metadata entry, as safetensors writes several entries in random order.
    properties = {
        "checksum": _BLANK,
        "schema": SCHEMA,
        "step": checkpoint.step,
        "journal_length": checkpoint.journal_length,
        "journal_checksum": checkpoint.journal_checksum,
        "identity": checkpoint.identity,
        "extra": require_json(checkpoint.extra, name="extra of a checkpoint"),
    }
    # Clone the tensors, as safetensors rejects tensors that share memory.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint.tensors.items()
    }
    content = bytearray(save(tensors, metadata={"nclab": json.dumps(properties)}))
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
    from safetensors.torch import load

    try:
        content, header = _read_content(path, root)
        properties = json.loads(header[_METADATA]["nclab"])
        checksum = properties["checksum"].encode()
        start = content.index(checksum)
        content[start : start + len(checksum)] = _BLANK.encode()
        if _digest(content).encode() != checksum:
            raise ValueError("the digest does not match")
        if properties["schema"] > SCHEMA:
            raise RecordError(
                f"Expected a checkpoint of schema {SCHEMA} or older, got schema "
                f"{properties['schema']} in {path}. Update nclab."
            )
        return Checkpoint(
            step=properties["step"],
            tensors=load(bytes(content)),
            extra=properties["extra"],
            journal_length=properties["journal_length"],
            journal_checksum=properties["journal_checksum"],
            identity=properties.get("identity", ""),
        )
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    except RecordError:
        raise
    except Exception as error:
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

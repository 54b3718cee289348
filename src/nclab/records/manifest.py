"""The manifest: what a run is, written once before anything else."""

import dataclasses
import functools
import hashlib
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import nclab
from nclab.errors import RecordError
from nclab.files import read_regular, write_whole
from nclab.records.schema import SCHEMA
from nclab.records.seals import open_json, seal_json

FILE = "manifest.json"
FORMAT = "nclab run"
KINDS = {"name": str, "kind": str, "command": str, "config": dict, "versions": dict}
KINDS |= {"identity": str}
"""Types of what others read."""
LATER = {"backend": None, "cpu": None, "identity": ""}
"""What older runs do not tell, and what is said instead."""
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd", "vsx")
"""Widest first, as the flags of a CPU name them."""
IDENTITY = 8
"""Bytes of the identity of a run."""
PACKAGES = ("torch", "numpy", "scipy", "safetensors", "numba")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A run's first page; what is not told is as it is here and now.

    >>> Manifest(name="a", kind="fleet", config={"width": 64}, seed=0, device="cpu").schema
    3
    """

    name: str
    kind: str
    config: dict[str, Any]
    """Everything that decides the numbers, of JSON types."""
    seed: int | None
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """UTC, to the second."""
    commit: str | None = field(default_factory=lambda: commit())  # type: ignore[has-type]
    """Of the source tree of nclab, with `-dirty` if it has changes; None if it is no checkout."""
    versions: dict[str, str] = field(default_factory=lambda: versions())
    device: str
    machine: str = field(default_factory=platform.platform)
    command: str = field(default_factory=lambda: shlex.join(sys.argv))
    backend: str | None = None
    """The code that takes the steps, where there is a choice; None if there is none or if the
    run is older than this field."""
    cpu: str | None = field(default_factory=lambda: cpu())  # type: ignore[has-type]
    """Model and vector instructions, which decide the rounding; None in older runs."""
    identity: str = ""
    """By which journal and checkpoints know that they are of this run; empty in older runs."""
    format: str = FORMAT
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, whole or not at all."""
    write_whole(folder / FILE, seal_json(manifest.to_dict(), indent=2))


def read_manifest(folder: Path, *, root: Path | None = None) -> Manifest:
    """The manifest of a run; a newer schema and a foreign file are refused.

    With a root no link below it is followed.
    """
    path = folder / FILE
    try:
        found, _ = open_json(read_regular(path, root=root))
    except FileNotFoundError as error:
        raise RecordError(f"Expected a run in {folder}, but it has no {FILE}.") from error
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
    except RecordError as error:
        raise RecordError(
            f"Expected the JSON that was written to {path}, got damaged bytes ({error}). "
            "Restore it, or delete the folder."
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RecordError(f"Expected the manifest of a run, got another file: {path}.")
    schema = found.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise RecordError(
            f"Expected records of schema {SCHEMA} or older, got schema {schema} in {path}. "
            "Update nclab."
        )
    known = [field.name for field in dataclasses.fields(Manifest)]
    absent = [name for name in known if name not in found and name not in LATER]
    if absent:
        raise RecordError(f"Expected {absent[0]} in {path}, but it is missing.")
    found = {**LATER, **found}
    for name, kind in KINDS.items():
        if not isinstance(found[name], kind):
            got = type(found[name]).__name__
            raise RecordError(f"Expected {name} of type {kind.__name__} in {path}, got {got}.")
    return Manifest(**{name: found[name] for name in known})


def identity_of(kind: str, config: Mapping[str, Any], seed: int | None) -> str:
    """What tells a run from all others, wherever its folder is and whatever that is called.

    With a seed the same three decide it that decide whether a run is gone on with, so that a run
    made again has the same bytes. Without a seed nothing says that it could be: it is random.

    >>> identity_of("demo", {"rate": 0.1}, 0) == identity_of("demo", {"rate": 0.1}, 0)
    True
    >>> identity_of("demo", {"rate": 0.1}, 0) == identity_of("demo", {"rate": 0.1}, 1)
    False
    """
    if seed is None:
        return secrets.token_hex(IDENTITY)
    words = json.dumps([kind, config, seed], sort_keys=True)
    return hashlib.blake2b(words.encode(), digest_size=IDENTITY).hexdigest()


def first_difference(old: Any, new: Any, where: str = "") -> str | None:
    """The first place where two JSON values differ, in words.

    >>> first_difference({"a": {"b": 1}}, {"a": {"b": 2}})
    'a.b: 1 there, 2 here'
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in new:
                return f"{place}: {_short(old[key])} there, absent here"
            if key not in old:
                return f"{place}: absent there, {_short(new[key])} here"
            found = first_difference(old[key], new[key], place)
            if found:
                return found
        return None
    if type(old) is type(new) and old == new:
        return None
    if {type(old), type(new)} == {int, float} and old == new:
        return None
    return f"{where}: {_short(old)} there, {_short(new)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def versions() -> dict[str, str]:
    """Versions of everything that computes, without importing it."""
    found = {"python": platform.python_version(), "nclab": nclab.__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def cpu() -> str:
    """The model of the CPU and the widest vector instructions that torch may use."""
    try:
        told = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        told = ""
    lines = (line.partition(":") for line in told.split("\n\n", 1)[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in lines}
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    model = facts.get("model name") or platform.processor() or platform.machine()
    wide = os.environ.get("ATEN_CPU_CAPABILITY") or next((v for v in VECTORS if v in flags), "")
    return f"{model}, {wide}" if wide else model


@functools.cache
def commit() -> str | None:
    """The commit of the source tree that is running, None outside a git checkout."""
    tree = Path(nclab.__file__).resolve().parents[2]
    if not (tree / ".git").exists():  # an installed package, perhaps inside a user's repository
        return None
    try:
        head = _git(tree, "rev-parse", "HEAD")
        dirty = _git(tree, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if dirty else head


def _git(tree: Path, *words: str) -> str:
    """What git says, without taking locks that would disturb whoever works in the tree."""
    command = ["git", "--no-optional-locks", "-C", str(tree), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()

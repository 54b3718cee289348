"""A folder of runs with every kind of hostile file."""

import contextlib
import json
import os
import stat
from pathlib import Path

from nclab.records import open_run
from nclab.records.results import write_json


def run(folder: Path, *, name: str | None = None) -> Path:
    """Write a good run with one measurement."""
    with open_run(folder, kind="fleet", config={"a": 1}, seed=0, name=name) as one:
        one.append(
            {"kind": "measurement", "step": 1, "layers": [{"layer": "fc", "min_intra": 0.5}]}
        )
    return folder


def sparse(path: Path, size: int) -> None:
    """Create a large file that uses no space on the disk."""
    path.unlink(missing_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)


def fifo(path: Path) -> None:
    """Replace a file by a pipe, which would block a reader for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path: Path, target: str | Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def folder(root: Path, outside: Path, *, size: int, long_line: int) -> Path:
    """Write good runs `first` and `zz-last` with hostile files between them; secrets lie outside.

    `size` is that of sparse files, `long_line` that of the longest line of a journal.
    """
    run(root / "first", name="the first good one")
    run(root / "zz-last", name="the last good one")
    run(outside / "secret", name="TOP-SECRET")
    write_json(outside / "numbers.json", {"secret": "TOP-SECRET"})
    (outside / "picture.png").write_bytes(b"TOP-SECRET")
    for name in ("manifest.json", "journal.jsonl", "state.json", "lock"):
        fifo(run(root / f"fifo-{name}") / name)
        link(run(root / f"link-{name}") / name, outside / "secret" / name)
        sparse(run(root / f"sparse-{name}") / name, size)
        link(run(root / f"loop-{name}") / name, name)
        link(run(root / f"device-{name}") / name, "/dev/zero")
        directory = run(root / f"folder-{name}") / name
        directory.unlink()
        directory.mkdir()
    sparse(run(root / "checkpoint") / "checkpoints" / "step-000000001.safetensors", size)
    fifo(run(root / "checkpoint-fifo") / "checkpoints" / "step-000000001.safetensors")
    with (run(root / "long line") / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"kind":"measurement","x":[' + b"[]," * (long_line // 3) + b"[]]}\n")
    (root / "loop").symlink_to("loop")
    (root / "up").symlink_to("..")
    (root / "linked").symlink_to(outside / "secret")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "linked").symlink_to(outside)
    run(Path(os.fsdecode(os.fsencode(root) + b"/bad-\xff-name")))
    run(root / "surrogate", name="lone \ud800 surrogate")
    fifo(root / "fifo")
    with contextlib.suppress(PermissionError):  # only root makes one
        device = run(root / "real-device") / "journal.jsonl"
        device.unlink()
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # zeros without an end
    experiment = root / "pan2023_odd"
    experiment.mkdir()
    write_json(experiment / "numbers.json", {"rows": []})
    for name in ("png", "picture.json"):
        fifo(experiment / f"fifo.{name}")
        sparse(experiment / f"sparse.{name}", size)
    link(experiment / "secret.png", outside / "picture.png")
    for name in ("fifo", "sparse", "linked"):
        (root / f"ji2022_{name}").mkdir()
    fifo(root / "ji2022_fifo" / "numbers.json")
    sparse(root / "ji2022_sparse" / "numbers.json", size)
    link(root / "ji2022_linked" / "numbers.json", outside / "numbers.json")
    fifo(root / "claims.json")
    (root / "skipped.json").write_text(json.dumps({"a": "lone \ud800 surrogate"}))
    return root

"""Kill a small writer at random moments, and at every single change of the disk.

python -m tests.records.killing FOLDER [--steps 7]

With 100 steps there are about a thousand kills.
"""

import argparse
import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nclab.errors import NclabWarning
from nclab.records import open_run
from tests.kills import forked, killed_after

CHANGES = ("open", "write", "pwrite", "fsync", "replace", "unlink", "ftruncate", "mkdir")


def train(folder: Path, *, steps: int, every: int) -> None:
    """Train a run in which every number depends on all numbers before it."""
    with open_run(folder, kind="demo", config={"steps": steps}, seed=0) as run:
        if run.finished:
            return
        checkpoint = run.resume_latest()
        generator = torch.Generator().manual_seed(0)
        weight, start = torch.zeros(4, 4), 0
        if checkpoint is not None:
            weight, start = checkpoint.tensors["weight"], checkpoint.step
            generator.set_state(checkpoint.tensors["generator"])
        for step in range(start + 1, steps + 1):
            weight = 0.9 * weight + torch.randn(4, 4, generator=generator)
            run.append({"kind": "measurement", "step": step, "weight": weight})
            run.beat(step=step, total=steps)
            if step % every == 0 or step == steps:
                run.checkpoint(step, {"weight": weight, "generator": generator.get_state()})
        run.finish(norm=weight.norm())


def content(folder: Path) -> dict[str, bytes]:
    """Return the files whose bytes must not depend on kills: all but times and process ids."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", "state.json", "lock")
    }


def long(folder: Path) -> None:
    train(folder, steps=400, every=7)


def kill_at_random(folder: Path, kills: int, duration: float) -> int:
    """Kill and restart the writer; return how often the kill came before its end."""
    chance, hits = random.Random(0), 0
    for _ in range(kills):
        hits += killed_after(chance.uniform(0, duration / kills), lambda: long(folder))
    return hits


class Bomb:
    """Ends the process at its n-th change of the disk; a write stops after half of its bytes."""

    def __init__(self, folder: Path, countdown: int, *, power: bool) -> None:
        self.journal, self.left, self.power = folder / "journal.jsonl", countdown, power
        self.folder, self.on_disk = folder, self.size()

    def size(self) -> int:
        return self.journal.stat().st_size if self.journal.exists() else 0

    def arm(self) -> None:
        for name in CHANGES:
            setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    change(arguments[0], arguments[1][: len(arguments[1]) // 2])
                if self.power:
                    self.cut_power()
                os._exit(9)
            done = change(*arguments, **options)
            if name == "fsync" and os.readlink(f"/proc/self/fd/{arguments[0]}") == str(
                self.journal
            ):
                self.on_disk = self.size()
            return done

        return changed

    def cut_power(self) -> None:
        """Lose what was not flushed: the journal gets zeros, the heartbeat becomes empty."""
        size = self.size()
        if size > self.on_disk:
            with self.journal.open("r+b") as stream:
                stream.seek(self.on_disk)
                stream.write(b"\0" * (size - self.on_disk))
        if (self.folder / "state.json").exists():
            (self.folder / "state.json").write_bytes(b"")


def kill_everywhere(
    root: Path, work: Callable[[Path], None], wanted: dict[str, bytes], *, power: bool
) -> int:
    """Kill at every change of the disk and restart; return the number of changes."""
    for countdown in range(1, 10_000):
        folder = root / str(countdown)

        def explode(folder: Path = folder, countdown: int = countdown) -> None:
            Bomb(folder, countdown, power=power).arm()
            work(folder)

        status = os.waitstatus_to_exitcode(os.waitpid(forked(explode), 0)[1])
        if status == 0:
            return countdown - 1
        assert status == 9, f"{countdown}: {status}"
        work(folder)
        files = content(folder)
        assert files == wanted, f"{countdown}: {sorted(files)}"
        shutil.rmtree(folder)
    raise AssertionError("the writer never ends")


def small(folder: Path) -> None:
    train(folder, steps=7, every=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=7, help="of the run that is killed everywhere")
    given = parser.parse_args()
    root = given.folder.resolve()
    torch.set_num_threads(1)
    warnings.simplefilter("error", NclabWarning)
    started = time.monotonic()
    long(root / "undisturbed")
    hits = {"random": kill_at_random(root / "killed", 10, time.monotonic() - started)}
    long(root / "killed")
    assert content(root / "killed") == content(root / "undisturbed")

    def work(folder: Path) -> None:
        train(folder, steps=given.steps, every=2)

    work(root / "small")
    wanted = content(root / "small")
    for mode in ("process", "power"):
        hits[mode] = kill_everywhere(root / mode, work, wanted, power=mode == "power")
    print(json.dumps(hits))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()

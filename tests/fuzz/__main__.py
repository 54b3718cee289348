"""`make fuzz`, or `python -m tests.fuzz [CAMPAIGN …] [--count N] [--workers N] [--again NUMBER]`.

Attack number N of a campaign is the same on every machine. The folder `fuzz` stores the progress of
a campaign, so that the campaign continues where it stopped, and the attacks that found something.
Workers share a campaign in blocks. A block that is stopped before its end is repeated, and no block
is counted twice. `--from` starts elsewhere with separate progress, for several machines.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from nclab.progress import track
from tests.fuzz import files, numbers, records, reports, structure

KEPT = Path("fuzz")
EVERY_SECONDS = 5.0
"""Between two notes of how far it is."""

BLOCK = 20
"""Attacks that a worker takes at a time."""
MEMORY = "/dev/shm"
"""Where victims are written, if there is such a place: what is attacked is bytes, not a disk."""

Attack = Callable[[random.Random], bool]
Campaign = Callable[[Path], Attack]
CAMPAIGNS: dict[str, Campaign] = {
    "records": records.campaign,
    "files": files.campaign,
    "reports": reports.campaign,
    "structure": structure.campaign,
    "numbers": numbers.campaign,
}


def main(arguments: list[str]) -> int:
    """Run the campaigns; return 1 if one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("campaign", nargs="*", choices=[[], *CAMPAIGNS], help="default: all")
    parser.add_argument("--count", type=int, default=10_000, help="attacks of each campaign")
    parser.add_argument("--workers", type=int, default=1, help="processes that share a campaign")
    parser.add_argument("--from", type=int, default=0, dest="begin", help="the first attack")
    parser.add_argument("--again", type=int, help="make this one attack once more")
    given = parser.parse_args(arguments)
    found = 0
    for name in given.campaign or CAMPAIGNS:
        with victims() as folder:
            if given.again is not None:
                CAMPAIGNS[name](Path(folder))(random.Random(f"{name} {given.again}"))
            else:
                found += _run(name, given.begin, given.count, given.workers, folder)
    return int(found > 0)


def victims() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the attacked files."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)


def _run(name: str, begin: int, count: int, workers: int, folder: str) -> int:
    KEPT.mkdir(exist_ok=True)
    file = KEPT / (f"{name}-from-{begin}.json" if begin else f"{name}.json")
    state: dict[str, Any] = {"done": begin, "noticed": 0, "bad": {}}
    state |= json.loads(file.read_text()) if file.exists() else {}
    first, noted = state["done"], time.monotonic()
    blocks = [
        range(at, min(at + BLOCK, first + count)) for at in range(first, first + count, BLOCK)
    ]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, _begin, (name, folder)) as pool:
        made = pool.map(_attacked, blocks)
        for block, (noticed, bad) in zip(track(blocks, f"{name}, from {first}"), made, strict=True):
            state["noticed"] += noticed
            state["bad"] |= bad
            state["done"] = block.stop
            if time.monotonic() - noted > EVERY_SECONDS or state["done"] == first + count:
                file.write_text(json.dumps(state, indent=1))
                noted = time.monotonic()
    told = f"{state['done'] - begin} attacks, {state['noticed']} noticed, {len(state['bad'])} bad"
    print(f"{name}: {told}")
    return len(state["bad"])


_own: list[tuple[str, Attack]] = []
"""Of a worker: its campaign."""


def _begin(name: str, folder: str) -> None:
    own = Path(folder) / str(os.getpid())
    own.mkdir()
    _own.append((name, CAMPAIGNS[name](own)))


def _attacked(block: range) -> tuple[int, dict[str, str]]:
    """Run a block of attacks; return how many were noticed, and what each bad one did."""
    ((name, attack),) = _own
    noticed, bad = 0, {}
    for number in block:
        try:
            noticed += attack(random.Random(f"{name} {number}"))
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            bad[str(number)] = traceback.format_exc(limit=-3)
    return noticed, bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

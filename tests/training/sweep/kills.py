"""Kill a small sweep of two processes at random moments many times, then let it end.

The program imports once and forks every attempt, so that twenty kills take seconds. It prints the
number of killed attempts, and the folders of the sweeps, all of which have ended.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from nclab.training.sweep.group import Group, train_group
from nclab.training.sweep.plan import has_ended
from nclab.training.sweep.train import deal
from tests.training.sweep.small import small

CONFIG = small()
SAMPLES = CONFIG.data.draw()
PLANS = CONFIG.plan(SAMPLES)


def train(out: Path) -> None:
    """Do the work of `train_sweep` in forked instead of new processes."""
    missing = [plan for plan in PLANS if not has_ended(out / plan.name)]
    children = []
    for hand in deal(missing, 2):
        children.append(os.fork())
        if children[-1] == 0:
            train_group(lambda *progress: None, Group(CONFIG, hand, SAMPLES, out))
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)


def attempt(out: Path, seconds: float | None) -> None:
    """Train; with `seconds`, kill all processes at once after that time."""
    alive, held_open = os.pipe()  # closed when the last process that holds it is gone
    ready, go = os.pipe()  # nobody is born before the group is
    leader = os.fork()
    if leader == 0:
        os.close(go)
        os.read(ready, 1)
        train(out)
        os._exit(0)
    os.setpgid(leader, leader)
    for end in (go, ready, held_open):
        os.close(end)
    if seconds is not None:
        time.sleep(seconds)
        os.killpg(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    os.read(alive, 1)
    os.close(alive)


def ended(out: Path) -> bool:
    """Whether every run has ended."""
    return all(has_ended(out / plan.name) for plan in PLANS)


def main(out: Path, kills: int, seed: int) -> None:
    """Kill a number of attempts; after a sweep that ended, start another one."""
    torch.set_num_threads(1)
    moments = random.Random(seed)
    attempt(out / "compiled", None)  # else the time of the compiler would be that of a sweep
    started = time.monotonic()
    attempt(out / "timing", None)
    duration = time.monotonic() - started
    folders = [out / "0"]
    killed = 0
    while killed < kills:
        attempt(folders[-1], moments.uniform(0.02, duration / 3))
        if ended(folders[-1]):
            folders.append(out / str(len(folders)))
        else:
            killed += 1
    attempt(folders[-1], None)
    sys.stdout.write(json.dumps({"killed": killed, "folders": [str(f) for f in folders]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

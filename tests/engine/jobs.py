"""Jobs for the tests of engines, which workers can import."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nclab.engine import Job, ReportStep, run_jobs


def square(report: ReportStep, value: int, *, steps: int = 3) -> int:
    for step in range(1, steps + 1):
        report(step, steps)
    return value * value


class Deadly:
    """Argument that kills the idle workers while it is pickled for one of them."""

    def __init__(self) -> None:
        self.deaths = 0

    def __reduce__(self) -> tuple[Any, ...]:
        self.deaths += 1
        if self.deaths > 9:
            raise ValueError("handed out without end")
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        return (Deadly, ())


def kill_itself(report: ReportStep) -> None:
    report(1, 2)
    os.kill(os.getpid(), signal.SIGKILL)


def train_but_die_once(report: ReportStep, group: Any) -> None:
    """Train a group of a sweep; kill the first worker that has written a checkpoint."""
    from nclab.training.sweep.group import train_group

    mark = group.out.parent / "died"

    def count(done: int, total: int | None = None) -> None:
        report(done, total)
        if done and not mark.exists() and list(group.out.rglob("checkpoints/*")):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    train_group(count, group)


def once(report: ReportStep, mark: str) -> int:
    """Die at the first start; later return the number of starts."""
    lives = Path(mark)
    lives.write_text(f"{lives.read_text() if lives.exists() else ''}x")
    if lives.read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return len(lives.read_text())


def crash(report: ReportStep) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(report: ReportStep) -> None:
    sys.exit(3)


def unanswerable(report: ReportStep) -> Any:
    return lambda: None


def keep_a_lock(report: ReportStep) -> Any:
    return threading.Lock()


def alone(report: ReportStep, path: str) -> None:
    """Raise if another job uses the path at the same time."""
    Path(path).mkdir()
    time.sleep(0.05)
    Path(path).rmdir()


def wait_for(report: ReportStep, folder: str, name: str) -> str:
    """Create a file with the name, then wait for the file `go`."""
    (Path(folder) / name).touch()
    report(0, 1)
    patience = time.monotonic() + 300
    while not (Path(folder) / "go").exists():
        assert time.monotonic() < patience
        time.sleep(0.02)
    return name


def setting(report: ReportStep) -> tuple[str, int, int]:
    import torch

    return os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), os.getpid()


def tensor(report: ReportStep) -> Any:
    import torch

    return torch.arange(4)


def with_child(report: ReportStep) -> int:
    done = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, check=True)
    return int(done.stdout)


def sleep(report: ReportStep, folder: str) -> None:
    """Write the process id into the folder, then sleep longer than any test."""
    note = Path(folder) / f"{os.getpid()}"
    note.touch()
    report(0, 1)
    time.sleep(600)


if __name__ == "__main__":
    # A shell starts what runs in the background deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work = [Job(str(i), sleep, (sys.argv[1],)) for i in range(2)]
    if len(sys.argv) == 3:
        from nclab.engine.ray import Cluster

        with Cluster(sys.argv[2]) as cluster:
            cluster.run_jobs(work)
    else:
        run_jobs(work, workers=2)

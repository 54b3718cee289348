"""Every system call that writes or deletes may fail: one line, no loss, and the next run works."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.shim import build


def attacked(folder: Path, *options: object) -> dict[str, dict[str, int]]:
    """Run the program with the library that makes calls fail; return how the scenarios ended."""
    library = build(folder)
    preloaded = {} if library is None else {"LD_PRELOAD": str(library)}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of flushes
    with tempfile.TemporaryDirectory(dir=memory) as place:
        command = [sys.executable, "-m", "tests.faults.program", place, *map(str, options)]
        environment = {**os.environ, **preloaded}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    assert bool(found.pop("by library")) == (library is not None)
    return found


def test_some_calls_fail(tmp_path: Path) -> None:
    found = attacked(tmp_path, "--every", 41, "--only", "records", "handle", "sweep", "monitor")
    assert set(found) == {"records", "handle", "sweep", "monitor"}
    monitor = found.pop("monitor")
    assert monitor["done"], "a sink that fails is warned of, and the training goes on"
    assert all(counts["said"] for counts in found.values()), found


@pytest.mark.slow
def test_every_call_fails(tmp_path: Path) -> None:
    found = attacked(tmp_path)
    assert sum(counts["faults"] for counts in found.values()) > 1000

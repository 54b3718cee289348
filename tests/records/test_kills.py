"""A writer killed anywhere, resumed, ends with the bytes of one that was never stopped."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("mode", "least"), [("random", 5), ("process", 40), ("power", 40)])
def test_a_killed_run_ends_the_same(mode: str, least: int) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of flushes
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.records.killing", folder, mode],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= least

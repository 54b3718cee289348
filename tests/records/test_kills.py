"""A writer killed anywhere, resumed, ends with the bytes of one that was never stopped."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_killed_run_ends_the_same() -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of flushes
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.records.killing", folder],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert kills["random"] >= 5
    assert min(kills["process"], kills["power"]) >= 40

"""A writer that is killed and resumed ends with the bytes of an uninterrupted one."""

import json
import os
import tempfile
from pathlib import Path

from tests.forked import Program


def test_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of flushes
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        done = Program("tests.records.killing", folder, folder=tmp_path).wait()
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert kills["random"] >= 5
    assert min(kills["process"], kills["power"]) >= 40

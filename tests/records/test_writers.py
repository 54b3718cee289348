"""A small version of `python -m tests.records.writers`, which has 32 processes."""

import json
import os
import tempfile
from pathlib import Path

from tests.forked import Program


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        arguments = ("--processes", 4, "--records", 250)
        done = Program("tests.records.writers", folder, *arguments, folder=tmp_path).wait()
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found.pop("records") == 2 * 4 * 250
    assert not any(found.values())

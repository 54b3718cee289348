"""Progress bars: shown on a terminal, nested in one display, silent elsewhere."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import nclab

SCRIPT = """
import time
import nclab.progress as progress

progress.PATIENCE_SECONDS = 0.05
with progress.bar("whole", total=2) as whole:
    for part in range(2):
        for _ in progress.track(range(4), "inner"):
            time.sleep(0.05)
        whole.update(part + 1, f"part {part}")
        time.sleep(0.15)
assert progress._shared is None
"""


def test_nested_bars_share_one_display_on_a_terminal() -> None:
    main, terminal = pty.openpty()
    source = str(Path(nclab.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stderr=terminal,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source, "TERM": "xterm", "COLUMNS": "120"},
        check=False,
    )
    os.close(terminal)
    shown = os.read(main, 1_000_000).decode()
    os.close(main)
    assert done.returncode == 0, shown
    for word in ("whole", "inner", "part 1"):
        assert word in shown
    assert done.stdout == b""


def test_nothing_is_shown_where_nobody_watches() -> None:
    source = str(Path(nclab.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": source},
        check=True,
    )
    assert done.stdout == done.stderr == b""

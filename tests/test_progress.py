"""Progress bars appear on a terminal only, nested in one display."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import nclab

SCRIPT = """
import time
import nclab.progress as progress

progress.DELAY_SECONDS = 0.05
with progress.bar("whole", total=2) as whole:
    for part in range(2):
        for _ in progress.track(range(4), "inner"):
            time.sleep(0.05)
        whole.update(part + 1, f"part {part}")
        time.sleep(0.15)
assert progress._shared is None
"""


def on_a_terminal(script: str, *arguments: object) -> str:
    """Run a script on a terminal; return what appears on standard error."""
    main, terminal = pty.openpty()
    source = str(Path(nclab.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stderr=terminal,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    seen: list[bytes] = []

    def read() -> None:  # all the time, as a terminal holds little
        try:
            while part := os.read(main, 65536):
                seen.append(part)
        except OSError:  # how Linux says that nobody writes any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    said = process.communicate()[0]
    reader.join()
    os.close(main)
    shown = b"".join(seen).decode()
    assert process.returncode == 0, shown
    assert said == b""
    return shown


def test_nested_bars_share_one_display_on_a_terminal() -> None:
    shown = on_a_terminal(SCRIPT)
    for word in ("whole", "inner", "part 1"):
        assert word in shown


def test_a_bar_is_seen_before_its_first_step_is_done() -> None:
    shown = on_a_terminal("""
import time
import nclab.progress as progress

progress.DELAY_SECONDS = 0.2
for _ in progress.track([1], "slow"):
    time.sleep(0.7)
for _ in progress.track([1], "quick"):
    time.sleep(0.01)
""")
    assert "slow" in shown
    assert "0/1" in shown
    assert "quick" not in shown


MEASURING = """
import sys
import time
import numpy as np
import torch
import nclab
import nclab.progress as progress
from nclab.cli.main import app
from nclab.metrics import view
from nclab.statistics import ClassMoments, SecondPass

def slow(kind, name):
    quick = getattr(kind, name)
    def late(*args, **kwargs):
        time.sleep(0.3)
        return quick(*args, **kwargs)
    setattr(kind, name, late)

slow(ClassMoments, "add_checked")
slow(SecondPass, "add_checked")
slow(view.Deviation, "update")
progress.DELAY_SECONDS = 0.1
generator = torch.Generator().manual_seed(0)
rows = torch.randn(40, 3, generator=generator)
labels = torch.arange(40) % 4
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 4))
batches = list(zip(rows.split(20), labels.split(20)))
files = [f"{sys.argv[1]}/{number}.npz" for number in range(2)]
for file, (part, own) in zip(files, batches):
    np.savez(file, features=part, labels=own)
sys.stdout = open("/dev/null", "w")
doors = {
    "arrays": lambda: nclab.measure_features(rows, labels),
    "batches": lambda: nclab.measure_features(batches),
    "model": lambda: nclab.measure(model, batches),
    "shards": lambda: nclab.measure_shards(files, workers=0),
    "command": lambda: app(["measure", *files, "--workers", "0"], standalone_mode=False),
}
for name, measure in doors.items():
    sys.stderr.write(f"door {name}.")
    measure()
"""


def test_every_pass_of_a_measurement_is_seen(tmp_path: Path) -> None:
    """The second pass over kept batches and a single block of pairs also show a bar."""
    shown = on_a_terminal(MEASURING, tmp_path).split("door ")[1:]
    assert [part.split(".")[0] for part in shown] == [
        *("arrays", "batches", "model", "shards", "command"),
    ]
    for part in shown:
        passes = ["measuring", "second pass"]
        if part.startswith(("shards", "command")):
            passes = ["measuring shards"]
        assert all(word in part for word in (*passes, "pairs of classes")), part


def test_nothing_is_shown_where_nobody_watches() -> None:
    source = str(Path(nclab.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": source},
        check=True,
    )
    assert done.stdout == done.stderr == b""

"""A sweep that is killed at any moment continues and ends with the same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nclab
from nclab.training.sweep import train_sweep
from tests.cli.runner import call
from tests.forked import Program
from tests.training.sweep.small import contents, small

ROOT = Path(__file__).parents[3]


def environment() -> dict[str, str]:
    """Return an environment in which a new interpreter finds nclab and the tests."""
    paths = (str(Path(nclab.__file__).parents[1]), str(ROOT))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_many_kills_change_no_byte(tmp_path: Path, kills: int) -> None:
    script = ROOT / "tests" / "training" / "sweep" / "kills.py"
    done = Program(script, tmp_path / "killed", kills, 1, folder=tmp_path / "said").wait()
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["killed"] == kills
    train_sweep(small(), tmp_path / "undisturbed", workers=0)
    expected = contents(tmp_path / "undisturbed")
    for folder in answer["folders"]:
        assert contents(Path(folder)) == expected


def test_a_killed_command_continues(tmp_path: Path) -> None:
    options = "--samples 130 --inputs 8 --layers 3 --width 8 --norm affine,none --epochs 30"
    options += " --weight-decay 1e-3 --batch 32 --moments 3 --json"
    undisturbed = call("sweep", *options.split(), "--workers", 1, "--out", tmp_path / "undisturbed")
    command = ["nclab", "sweep", *options.split(), "--workers", "2"]
    started = subprocess.Popen(
        [sys.executable, "-m", *command, "--out", str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    while started.poll() is None and not list((tmp_path / "killed").rglob("journal.jsonl")):
        time.sleep(0.01)
    os.killpg(started.pid, signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL
    resumed = call("sweep", *options.split(), "--workers", 1, "--out", tmp_path / "killed")
    assert json.loads(resumed.out) == json.loads(undisturbed.out)
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")

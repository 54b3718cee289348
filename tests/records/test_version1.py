"""Runs of release 0.1.0 in the folder `version1` are read, resumed and reported.

`whole` and `stopped` are one small training, to its end and killed after step 5 of 7; the third is
a network of a sweep that was killed before its end.
"""

import shutil
import warnings
from pathlib import Path

import pytest
import torch

from nclab.errors import NclabWarning
from nclab.records import open_run, read_run
from nclab.records.verify import verify_run
from tests.cli.runner import call

SWEPT = "teacher2_L2_w4_none_wd1e-3_s0_29c80f25"
SWEEP = "--data teacher --samples 60 --inputs 4 --teacher-depth 2 --layers 2 --width 4 --norm none"
SWEEP += " --weight-decay 1e-3 --epochs 4 --batch 30 --workers 1"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a copy of the recorded runs that tests may change."""
    return shutil.copytree(Path(__file__).with_name("version1"), tmp_path / "runs")


def resume_training(folder: Path) -> None:
    """Continue the training that wrote these runs."""
    with open_run(folder, kind="demo", config={"steps": 7}, seed=0) as run:
        found = run.resume_latest()
        assert found is not None
        weight = found.tensors["weight"]
        for step in range(found.step + 1, 8):
            weight = 0.9 * weight + step
            layer = {"min_intra": step / 10, "intra_cosine": [step / 8, 1.0]}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "weight": weight})
            if step % 2 == 0 or step == 7:
                run.checkpoint(step, {"weight": weight})
        run.finish(norm=weight.norm())


def test_they_are_read_and_said_to_be_unchecked(runs: Path) -> None:
    whole, stopped = read_run(runs / "whole"), read_run(runs / "stopped")
    assert (whole.state, stopped.state) == ("finished", "stopped")
    assert [one["step"] for one in whole.of_kind("measurement")] == [1, 2, 3, 4, 5, 6, 7]
    assert torch.as_tensor(whole.of_kind("measurement")[0]["weight"]).tolist() == [[1, 1], [1, 1]]
    for folder in runs.iterdir():
        states = {one.file: one.state for one in verify_run(folder)}
        assert states.pop("journal.jsonl") == states.pop("manifest.json") == "unchecked"
        assert set(states.values()) == {"good"}, states


def test_a_stopped_one_ends_with_the_bytes_of_the_whole_one(runs: Path) -> None:
    with pytest.warns(NclabWarning, match="another version"):
        resume_training(runs / "stopped")
    one, other = ((runs / name / "journal.jsonl").read_bytes() for name in ("stopped", "whole"))
    assert one == other


def test_a_sweep_goes_on_and_all_are_reported(runs: Path) -> None:
    before = (runs / SWEPT / "journal.jsonl").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NclabWarning)  # of another version
        done = call("sweep", *SWEEP.split(), "--out", runs)
    assert done.code == 0, done.err
    if len(list(runs.glob("teacher2*"))) > 1:
        pytest.skip("the data of this sweep come out otherwise on this CPU: it is another run")
    view = read_run(runs / SWEPT)
    assert view.state == "finished"
    assert [one["epoch"] for one in view.of_kind("epoch")] == [1, 2, 3, 4]
    assert (runs / SWEPT / "journal.jsonl").read_bytes().startswith(before)
    listed = call("runs", runs)
    assert (listed.code, listed.err) == (0, "")
    assert call("report", runs).code == 0
    pages = {path.stem for path in (runs / "report" / "runs").glob("*.html")}
    assert {"whole", "stopped", SWEPT} <= pages

"""`nclab ulpm` on the command line."""

import json
import sys
from pathlib import Path

import pytest

from nclab.array_files import read_arrays
from nclab.records import read_run
from tests.cli.runner import call

SMALL = ("ulpm", "--classes", 3, "--per-class", 2, "--dim", 2)
KEYS = {
    "step",
    "log_time",
    "log_loss",
    "margin",
    "normalised_margin",
    "alignment",
    "nc1_within_variation",
    "nc2_norm_variation_means",
    "nc2_norm_variation_weights",
    "nc2_equiangularity_means",
    "nc2_equiangularity_weights",
    "nc3_self_duality",
    "outcome",
}


@pytest.mark.parametrize(
    ("options", "last"),
    [
        (("--steps", 50), ("step", 50)),
        (("--method", "descent", "--steps", 20, "--noise", 0.01, "--batch", 3), ("step", 20)),
        (("--method", "normalised", "--steps", 8, "--rate", 20), ("step", 8)),
        (("--method", "flow", "--log-time", 30), ("log_time", 30.0)),
    ],
)
def test_json_is_the_last_sample(options: tuple[object, ...], last: tuple[str, float]) -> None:
    done = call(*SMALL, *options, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert set(answer) >= KEYS
    assert answer[last[0]] == pytest.approx(last[1])
    assert answer["outcome"] == "finished"


def test_table() -> None:
    done = call(*SMALL, "--steps", 100)
    assert done.code == 0
    assert "margin" in done.out
    assert "finished: 100 steps" in done.out


def test_divergence_is_reported_not_raised() -> None:
    done = call(*SMALL, "--steps", 500, "--rate", 500, "--reduction", "sum", "--json")
    assert done.code == 0
    assert json.loads(done.out)["outcome"] == "diverged"


def test_out_writes_a_run_that_other_commands_read(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "flow"
    done = call(*SMALL, "--method", "flow", "--log-time", 40, "--out", folder, "--json")
    assert done.code == 0, done.err
    names = {path.name for path in folder.iterdir()}
    assert names >= {"manifest.json", "journal.jsonl", "point.safetensors"}
    assert names >= {"quantities.png", "quantities.pdf", "margins.png", "margins.pdf"}
    run = read_run(folder)
    samples = run.of_kind("sample")
    answer = json.loads(done.out)
    assert samples[-1]["margin"] == answer["margin"]
    assert samples[-1]["log_time"] == answer["log_time"]
    assert run.manifest.config["log_time"] == 40
    assert set(read_arrays(folder / "point.safetensors")) == {"weight", "features", "labels"}
    measured = json.loads(call("measure", folder / "point.safetensors", "--json").out)
    assert measured["margin"] == pytest.approx(answer["margin"])
    assert call("landscape", folder / "point.safetensors", "--json").code == 0
    second = call(*SMALL, "--steps", 5, "--out", folder)
    assert second.code == 2
    assert "new or empty folder" in second.err


def test_without_matplotlib_everything_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = call(*SMALL, "--steps", 200, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "no figures: A figure needs matplotlib" in done.out
    assert (tmp_path / "run" / "journal.jsonl").exists()
    done = call("landscape", tmp_path / "run" / "point.safetensors", "--out", tmp_path / "point")
    assert done.code == 0, done.err
    assert "no figures: A figure needs matplotlib" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dim", 3, "--steps", 5), "dimension 4 or more, got 3"),
        (("--per-class", 0, "--steps", 5), "1 sample per class, got 0"),
        (("--classes", 1, "--steps", 5), "at least 2 classes, got 1"),
        (("--rate", -1, "--steps", 5), "positive rate, got -1"),
        (("--steps", 5, "--log-time", 3), "got both"),
        ((), "got neither"),
        (("--method", "flow", "--steps", 5), "--log-time with --method flow"),
        (("--method", "normalised", "--log-time", 5), "--steps with --method normalised"),
        (("--method", "flow", "--log-time", 5, "--rate", 1), "no --rate with --method flow"),
        (("--method", "normalised", "--steps", 5, "--noise", 1), "with descent only"),
        (("--steps", 5, "--noise", -1), "noise >= 0"),
        (("--steps", 5, "--scale", 0), "positive scale"),
        (("--steps", 5, "--seed", -1), "a seed of 0 or more, got -1"),
        (("--steps", 5, "--scale", 1e200), "a scale up to 1e+150, got 1e+200"),
        (("--steps", 0), "at least 1 step, got 0"),
        (("--method", "flow", "--log-time", -1e9), "log time from -30 to 1e+07, got -1e+09"),
        (("--method", "flow", "--log-time", 1e300), "log time from -30 to 1e+07, got 1e+300"),
        (("--method", "flow", "--log-time", "nan"), "finite log time, got nan"),
    ],
)
def test_bad_input_is_one_clear_line(options: tuple[object, ...], message: str) -> None:
    done = call("ulpm", *options)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.count("\n") == 1


def test_help_has_an_example() -> None:
    done = call("ulpm", "--help")
    assert done.code == 0
    assert "Example" in done.out

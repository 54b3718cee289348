"""`nclab sweep` on the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from nclab.report.site import write_report
from nclab.text import as_text
from nclab.training.sweep.rows import rows_table
from tests.cli.runner import call

pytestmark = pytest.mark.usefixtures("forked_workers")
SMALL = "--layers 3 --width 8 --norm affine,none --weight-decay 1e-3,1e-2 --epochs 2 --batch 32"
SMALL_OPTIONS = (*SMALL.split(), "--workers", 1)
ROW = {"norm", "weight_decay", "seed", "accuracy", "loss", "min_intra", "max_inter", "alpha"}
ROW |= {"beta", "converged"}


def write(path: Path, **arrays: object) -> Path:
    """Write a file of arrays."""
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def mine(folder: Path) -> Path:
    """Write a file with three distant clouds of points."""
    stream = np.random.default_rng(0)
    labels = np.arange(90) % 3
    inputs = stream.standard_normal((90, 5)) + 4 * np.eye(5)[labels]
    return write(folder / "mine.npz", X=100 * inputs, y=labels)


def test_a_file_of_arrays(tmp_path: Path) -> None:
    file = mine(tmp_path)
    options = ("--standardise", "--seeds", "0,1", "--out", tmp_path / "runs", "--json")
    done = call("sweep", "--data", file, *SMALL_OPTIONS, *options)
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert len(rows) == 8
    assert all(set(row) >= ROW for row in rows)
    assert {row["data"] for row in rows} == {"mine"}
    assert [row["seed"] for row in rows[:2]] == [0, 1]
    assert all(type(row["converged"]) is bool for row in rows)


@pytest.mark.parametrize("data", ["teacher", "conic"])
def test_artificial_data_print_a_table(tmp_path: Path, data: str) -> None:
    options = ("--data", data, "--samples", 130, "--inputs", 6, "--teacher-depth", 2)
    done = call(
        "sweep",
        *options,
        *SMALL_OPTIONS,
        "--measure",
        "all",
        "--statistics",
        "full",
        "--out",
        tmp_path,
    )
    assert done.code == 0, done.err
    assert "affine" in done.out
    assert "4 runs in" in done.out
    tables = {"results.csv", "results.parquet"}
    assert {entry.name.split("_")[0] for entry in tmp_path.iterdir()} <= {
        "teacher2",
        "conic",
        *tables,
    }


def test_options_of_training_and_selection(tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    rows = [f"{y},{a:.3f},{b:.3f}" for y, (a, b) in enumerate(stream.standard_normal((90, 2)))]
    rows = [f"{int(row.split(',')[0]) % 3},{row.split(',', 1)[1]}" for row in rows]
    (tmp_path / "mine.csv").write_text("label,a,b\n" + "\n".join(rows))
    flags = "--optimizer signum --rate 1e-3 --loss label_smoothing --schedule cosine --warmup 0.5"
    flags += " --activation tanh --features 2 --no-head-bias --imbalance 3 --tail exponential"
    flags += " --label-noise 0.1 --test-share 0.2 --selection-seed 3 --layers 3 --width 8"
    flags += " --norm affine --weight-decay 1e-3 --epochs 2 --batch 16 --workers 1 --json"
    done = call("sweep", "--data", tmp_path / "mine.csv", *flags.split(), "--out", tmp_path / "out")
    assert done.code == 0, done.err
    [row] = json.loads(done.out)
    assert row["optimizer"] == "signum"
    assert row["objective"] == "label_smoothing"
    assert type(row["loss"]) is float
    assert (row["head_bias"], row["tail"], row["data"]) == (False, "exponential", "mine")
    assert row["test_accuracy"] is not None


FOUR = "--optimizer sgd,adamw --rate 0.01,0.1 --loss cross_entropy,focal --imbalance 1,3"
TINY = "--norm affine --weight-decay 1e-3 --layers 3 --width 4 --epochs 2 --batch 32 --workers 1"


def test_four_axes_of_a_users_file(tmp_path: Path) -> None:
    """A sweep is planned, trained and extended; the report has a figure for every axis."""
    file, out = mine(tmp_path), tmp_path / "runs"
    flags = ("sweep", "--data", file, "--standardise", *TINY.split(), "--out", out)
    planned = call(*flags, *FOUR.split(), "--plan")
    assert planned.code == 0, planned.err
    assert "optimizer: sgd, adamw" in planned.out
    assert "16 networks in 16 fleets" in planned.out
    assert not out.exists()
    first = call(*flags, *FOUR.split(), "--json")
    assert first.code == 0, first.err
    rows = json.loads(first.out)
    settings = {
        tuple(row[n] for n in ("optimizer", "rate", "objective", "imbalance")) for row in rows
    }
    assert len(settings) == len(rows) == 16
    longer = FOUR.replace("1,3", "1,3,9")
    more = call(*flags, *longer.split(), "--plan", "--json")
    assert (json.loads(more.out)["networks"], json.loads(more.out)["missing"]) == (24, 8)
    with (out / "results.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 16
    page = write_report(out, tmp_path / "site").page.read_text()
    for axis in ("optimizer", "rate", "loss", "imbalance"):
        assert f'<a href="runs.html#x={axis}">' in page


def test_lists_of_data_and_milestones(tmp_path: Path) -> None:
    flags = "--data teacher,conic --samples 130,140 --inputs 6 --features none,2"
    flags += " --milestones 0.5/0.25,0.5 --plan --json --teacher-depth 2,3"
    done = call("sweep", *flags.split(), *TINY.split(), "--out", tmp_path / "runs")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert plan["networks"] == (4 + 2) * 2 * 2
    assert plan["axes"]["features"] == [None, 2]
    assert plan["axes"]["milestones"] == [[0.5], [0.25, 0.5]]


def test_bad_arrays_give_one_clear_line(tmp_path: Path) -> None:
    inputs, labels = np.ones((6, 2)), np.array([0, 1] * 3)
    cases = {
        "got nan in row 0": {"X": np.full((6, 2), np.nan), "y": labels},
        "at least 2 classes, got only class 0": {"X": inputs, "y": 0 * labels},
        "got (6, 2, 1)": {"X": inputs[:, :, None], "y": labels},
        "without gaps": {"X": inputs, "y": labels * 50},
        "X or features or inputs": {"Z": inputs, "y": labels},
        "labels or y or targets": {"X": inputs},
    }
    for number, (pattern, arrays) in enumerate(cases.items()):
        file = write(tmp_path / f"{number}.npz", **arrays)
        done = call("sweep", "--data", file, "--out", tmp_path / "runs")
        assert done.code == 2, pattern
        assert pattern in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (("--norm", "layer"), "Expected norm 'affine', 'plain', 'none' or 'last', got 'layer'"),
        (("--norm", ""), "at least one of norms, got none"),
        (("--weight-decay=-1e-3",), "0 <= weight_decay < inf, got -0.001"),
        (("--weight-decay", "big"), "numbers in --weight-decay, got 'big'"),
        (("--weight-decay", "nan"), "0 <= weight_decay < inf, got nan"),
        (("--seeds", "0.5"), "integers in --seeds, got '0.5'"),
        (("--seeds", "1,1"), "Expected --seeds without repetition, got '1,1'"),
        (("--seeds", "2"), "got 2. Write --seeds 2, for the single seed 2, or --seeds 0:2 for 2"),
        (("--seeds", "3:1"), "--seeds first:end with up to 1000 seeds, got '3:1'"),
        (("--seeds", "-1,"), "seeds of 0 or more in --seeds, got -1"),
        (("--epochs", 0), "epochs of at least 1, got 0"),
        (("--samples", 129, "--batch", 64), "leave one of 1"),
        (("--samples", 3, "--classes", 4), "2 to 3 classes"),
        (("--batch", 20_000, "--drop-last"), "at least 20000 samples"),
        (("--layers", 1), "at least 2 layers"),
        (("--data", "nothing.npz"), "does not exist"),
        (("--data", "points.csv"), "does not exist"),
        (
            ("--data", "mine.npz", "--samples", 10),
            "--samples only with --data teacher or conic or fashion",
        ),
        (
            ("--data", "mine.npz", "--data-seed", 1),
            "--data-seed only with --data teacher or conic or fashion",
        ),
        (("--data", "conic", "--standardise"), "--standardise with a file"),
        (("--data", "conic", "--components", 5), "--components only with --data fashion"),
        (("--test-share", 1), "0 <= test_share < 1, got 1"),
        (("--imbalance", 0.5), "Expected imbalance of 1 or more, got 0.5"),
        (("--imbalance", 1e6), "and the smallest none"),
        (("--optimizer", "lion"), "lion"),
        (("--optimizer", "adam", "--nesterov"), "nesterov with sgd or sgdw"),
        (("--smoothing", 2), "0 <= smoothing < 1, got 2"),
        (
            ("--smoothing", 0.2),
            "--smoothing only with a --loss that uses it, got --loss cross_entropy",
        ),
        (("--loss", "mse,focal", "--smoothing", "0.2,0.3"), "got --loss mse,focal"),
        (
            ("--tail", "exponential"),
            "--tail only with a --imbalance that uses it, got --imbalance 1",
        ),
        (("--features", 0), "features to be an integer of at least 1, got 0"),
        (("--rate", "0.1,fast"), "numbers in --rate, got 'fast'"),
        (("--width", "8,8"), "--width without repetition, got 8,8"),
        (
            ("--loss", "mse,hinge"),
            "--loss as one of cross_entropy, label_smoothing, focal, mse",
        ),
        (("--loss", ","), "at least one value of --loss, got none"),
        (
            ("--data", "teacher,conic", "--components", "5,6"),
            "--components only with --data fashion",
        ),
        (("--rate", "0.1,-1"), "0 <= rate < inf, got -1"),
        (("--device", "tpu"), "Expected device"),
        (("--measure", "some"), "some"),
    ],
)
def test_bad_options_raise_one_clear_line(
    tmp_path: Path, options: tuple[object, ...], pattern: str
) -> None:
    done = call("sweep", "--out", tmp_path / "runs", *options)
    assert done.code == 2
    assert pattern in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_help_has_an_example() -> None:
    done = call("sweep", "--help")
    assert done.code == 0
    assert "Example: nclab sweep" in " ".join(done.out.split())


def test_rows_fit_a_terminal_of_80_columns() -> None:
    numbers = {"accuracy": 0.9815, "loss": 0.004123, "min_intra": 0.2093, "max_inter": -0.007659}
    others = {"alpha": 6.064, "beta": 3.021, "converged": True, "why": None, "zero_features": 0}
    row = {"norm": "affine", "weight_decay": 1e-3, "seed": 0, **numbers, **others}
    printed = as_text(rows_table([row]), width=80)
    assert all(f"{value:.4g}" in printed for value in numbers.values())

"""`nclab landscape` on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.records import read_run
from nclab.ulpm.problem import Problem
from nclab.ulpm.separation import optimal_point
from tests.cli.runner import call


def test_example_of_the_paper() -> None:
    done = call("landscape", "--example", "3.1", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["kind"] == "strict saddle"
    assert answer["smallest_eigenvalue"] == pytest.approx(-0.18157, abs=1e-4)
    assert answer["gap"] > 0.2
    assert answer["escape"]["actual"] == pytest.approx(answer["escape"]["predicted"], rel=0.01)


def test_a_small_saddle_is_still_a_saddle() -> None:
    answer = json.loads(call("landscape", "--example", "3.1", "--scale", 1e-3, "--json").out)
    assert answer["log_gap"] < 1e-12
    assert answer["escape"] is not None
    assert answer["kind"] == "strict saddle"


@pytest.mark.parametrize("names", [("W", "H"), ("weight", "features")])
def test_points_from_files(tmp_path: Path, names: tuple[str, str]) -> None:
    problem = Problem(3, 2, 4)
    W, H = problem.split(optimal_point(problem, seed=1))
    file = tmp_path / "point.npz"
    save(file, **{names[0]: W, names[1]: H})
    answer = json.loads(call("landscape", file, "--json").out)
    assert answer["kind"] == "global minimum"
    assert answer["gap"] == pytest.approx(0.0, abs=1e-12)
    shuffled = np.array([3, 0, 5, 1, 4, 2])
    np.savez(file, W=W, H=H[shuffled], y=problem.labels[shuffled])
    assert json.loads(call("landscape", file, "--json").out)["kind"] == "global minimum"


def test_table_and_figures(tmp_path: Path) -> None:
    folder = tmp_path / "saddle"
    done = call("landscape", "--example", "3.1", "--scale", 0.5, "--out", folder)
    assert done.code == 0, done.err
    assert "strict saddle" in done.out
    assert "negative curvature" in done.out
    names = {path.name for path in folder.iterdir()}
    assert names >= {"manifest.json", "slice.png", "slice.pdf", "journal.jsonl"}
    run = read_run(folder)
    assert (run.manifest.kind, run.manifest.config["scale"]) == ("landscape", 0.5)
    assert run.end is not None
    assert run.end["landscape"]["smallest_eigenvalue"] < 0


def save(path: Path, **arrays: object) -> Path:
    """Write a file of a point."""
    plain: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez(path, **plain)
    return path


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "point.npz"
    W, H = np.eye(3), np.ones((6, 3))
    holed = H.copy()
    holed[4, 2] = np.nan
    cases = [
        (("--example", "3.2"), "--example 3.1, the only one, got '3.2'"),
        ((), "got neither"),
        ((save(tmp_path / "a.npz", W=W, H=H), "--example", "3.1"), "got both"),
        ((tmp_path / "missing.npz",), "does not exist"),
        ((save(tmp_path / "b.npz", W=W, H=holed),), "got nan at H[4, 2]"),
        ((save(tmp_path / "c.npz", W=W, H=H[:4]),), "got (3, 3) and (4, 3)"),
        ((save(tmp_path / "d.npz", W=W, H=H, y=[0, 0, 0, 1, 1, 2]),), "same number of samples"),
        ((save(tmp_path / "e.npz", W=W, H=H, y=[0, 0, 1, 1, 2, 3]),), "labels in [0, 3)"),
        ((save(tmp_path / "f.npz", W=W[:, :1], H=H[:, :1]),), "dimension 2 or more, got 1"),
        ((save(tmp_path / "g.npz", W=W, H=H[:, :2]),), "H of shape (6, 3), got (6, 2)"),
        ((save(tmp_path / "h.npz", W=W * 0, H=H * 0),), "other than zero"),
        ((save(tmp_path / "i.npz", W=W, H=1e200 * H),), "up to 1e+150 in size, got 1e+200"),
        ((save(tmp_path / "j.npz", W=W, H=H), "--scale", 3), "--scale with --example only"),
        (("--example", "3.1", "--scale", 1e200), "up to 1e+150 in size, got 1e+200"),
        ((save(file, W=W),), "Expected features"),
    ]
    for options, message in cases:
        done = call("landscape", *options)
        assert done.code == 2, options
        assert message in done.err, done.err
        assert done.err.count("\n") == 1

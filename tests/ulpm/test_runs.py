"""Tests that `nclab ulpm` and `nclab landscape` write ordinary runs."""

import json
import sys
from pathlib import Path

import pytest

from nclab.records import read_run
from nclab.report.site import write_report
from nclab.report.watcher import Selection, Watcher
from nclab.ulpm.examination import examine, find_point
from nclab.ulpm.runs import UlpmConfig, solve, to_dict, write_examination, write_solution
from tests.cli.runner import call


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a flow, a diverging descent and the saddle, without figures, which take seconds."""
    root = tmp_path_factory.mktemp("ulpm")
    small = {"classes": 3, "per_class": 2, "dim": 2}
    flow = UlpmConfig(**small, method="flow", log_time=30.0)  # type: ignore[arg-type]
    steep = UlpmConfig(**small, steps=500, rate=500.0, reduction="sum")  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        for name, config in (("flow", flow), ("steep", steep)):
            write_solution(solve(config), root / name)
        lines = write_examination(examine(find_point(None, "3.1")), root / "saddle")
    assert "no figures" in lines[-1]
    return root


def test_samples_are_records_and_the_last_point_is_measured(root: Path) -> None:
    run = read_run(root / "flow")
    solution = solve(UlpmConfig(**run.manifest.config))
    samples = run.of_kind("sample")
    assert [row["margin"] for row in samples] == [
        sample.to_dict()["margin"] for sample in solution.trajectory.samples
    ]
    record = run.last("measurement")
    assert record is not None
    answer = to_dict(solution)
    assert record["layers"][0]["min_intra"] == answer["min_intra"]
    assert record["log_time"] == samples[-1]["log_time"] == answer["log_time"]
    assert run.manifest.backend == answer["backend"]


def test_nclab_runs_lists_ulpm_runs(root: Path) -> None:
    rows = {row["name"]: row for row in json.loads(call("runs", root, "--json").out)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "flow": "finished",
        "steep": "failed",
        "saddle": "finished",
    }
    assert rows["flow"]["accuracy"] == 1.0
    assert "too large" in rows["steep"]["why"]
    assert rows["saddle"]["kind"] == "landscape"


def test_pages_plot_ulpm_runs_over_log_t(root: Path, tmp_path: Path) -> None:
    report = write_report(root, tmp_path / "report")
    assert report.runs == 3
    script = (tmp_path / "report/data/runs/flow.js").read_text()
    data = json.loads(script.removeprefix("nclab.gotRun(").removesuffix(");\n"))
    assert data["first"][:3] == ["log_loss", "margin", "normalised_margin"]
    assert data["layers"] == ["features"]
    table = next(entry for entry in data["tables"] if entry["kind"] == "sample")
    assert table["log t"][-1] == 30
    margin = next(entry["y"] for entry in table["columns"] if entry["metric"] == "margin")
    assert len(margin) == len(table["log t"]) == len(read_run(root / "flow").of_kind("sample"))
    page = (tmp_path / "report/runs/flow.html").read_text()
    assert "<option>log t</option><option>step</option>" in page
    assert "strict saddle" in (tmp_path / "report/runs/saddle.html").read_text()


def test_the_live_page_compares_ulpm_runs(root: Path) -> None:
    watcher = Watcher(root)
    watcher.refresh()
    curves = watcher.curves(Selection("normalised_margin", "every", "log_time"), {})
    assert {curve["layer"] for curve in curves["flow"]} == {"features"}
    assert not curves.get("saddle")
    assert curves["flow"][0]["x"][-1] == 30

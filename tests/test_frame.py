"""pandas tables, and the error if pandas is not installed."""

import sys
from pathlib import Path

import pytest
import torch

import nclab
from nclab.errors import MissingExtra
from nclab.monitor import History
from nclab.records import open_run, read_run
from nclab.ulpm import Problem, flow

pytest.importorskip("pandas", reason="pandas is not installed")
FEATURES = torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(300) % 3
COLLAPSE = nclab.measure_features(
    FEATURES, LABELS, weight=torch.eye(3, 4), intervals=True, shuffled_labels=True
)


def test_a_layer_has_a_row_for_each_metric() -> None:
    frame = COLLAPSE.to_frame()
    assert list(frame.index) == list(COLLAPSE.scalars())
    assert frame.loc["cdnv", "value"] == COLLAPSE.cdnv
    assert frame.loc["max_inter", "at_collapse"] == -0.5
    assert COLLAPSE.intervals is not None
    assert COLLAPSE.shuffled_labels is not None
    assert frame.loc["alpha", "low"] == COLLAPSE.intervals["alpha"].low
    assert frame.loc["cdnv", "labels_shuffled"] == COLLAPSE.shuffled_labels["cdnv"]
    plain = nclab.measure_features(FEATURES, LABELS).to_frame()
    assert list(plain.columns) == ["value", "at_collapse", "meaning"]
    assert plain["value"].isna()["loss"]


def test_reports_and_histories_have_a_row_for_each_layer() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    batches = [(FEATURES.float(), LABELS)]
    report = nclab.measure(net, batches, test=batches)
    frame = report.to_frame()
    assert frame["split"].tolist() == ["train", "test"]
    assert frame["cdnv"].tolist() == [row["cdnv"] for row in report.to_dicts()]
    monitor = nclab.Monitor(net, alarms=())
    monitor.measure(batches)
    assert monitor.history.to_frame()["layer"].tolist() == ["1"]


def test_theory_and_runs_have_frames(tmp_path: Path) -> None:
    bounds = nclab.certify(4, 1.8, 1.8, 0.05)
    assert bounds.to_frame().loc["intra_lower", "value"] == bounds.intra_lower.value
    target = COLLAPSE.target()
    distance = COLLAPSE.distance_to(target)
    assert distance.to_frame().loc["means", "target"] == distance.means
    assert distance.to_frame().loc["means", "etf"] == distance.etf["means"]
    run = flow(Problem(3, 2, 4), log_time=10.0)
    assert run.to_frame()["margin"].tolist() == run.column("margin").tolist()
    with open_run(tmp_path / "run", kind="monitor", config={}) as written:
        layers = [COLLAPSE.to_dict()]
        written.append({"kind": "measurement", "step": 3, "epoch": 1, "layers": layers})
    [row] = read_run(tmp_path / "run").to_frame().to_dict("records")
    assert (row["step"], row["split"], row["cdnv"]) == (3, "train", COLLAPSE.cdnv)
    assert "inter_cosine" not in row


def test_the_error_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"needs pandas. Run `pip install nclab\[notebook\]`"):
        COLLAPSE.to_frame()


def test_histories_and_trajectories_print_a_short_text(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    monitor = nclab.Monitor(net, alarms=())
    assert repr(monitor.history) == "<History: nothing measured yet>"
    monitor.measure([(FEATURES.float(), LABELS)], epoch=2, step=7)
    done = "2 epochs and 7 steps done, 1 row of history, 0 alarms"
    assert repr(monitor) == f"<Monitor of Sequential: {done}>"
    assert repr(monitor.history) == "<History: 1 row, 1 layer, epoch 2>"
    assert repr(monitor.last) == "<Event: step 7, epoch 2, loader on train, measured 1>"
    words = repr(flow(Problem(3, 2, 4), log_time=10.0))
    assert words.startswith("<Trajectory: flow of C=3, N=2, d=4, ")
    assert len(words) < 150
    with open_run(tmp_path / "mine", kind="monitor", config={}) as run:
        run.finish()
    assert repr(read_run(tmp_path / "mine")) == "<RunView: mine, monitor, finished, 1 records>"
    assert History() == History([])

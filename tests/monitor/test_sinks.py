"""Events reach memory and the journal of a run."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import nclab
from nclab.errors import NclabWarning, RecordError
from nclab.monitor import Event, RecordSink
from nclab.records import open_run, read_run
from tests.monitor.loops import batches, network, train


def test_history_holds_a_row_for_each_layer_and_epoch() -> None:
    model = network()
    with nclab.Monitor(model, preset="full") as monitor:
        train(model, monitor, epochs=3)
    rows = monitor.history.rows
    assert [(row["epoch"], row["layer"]) for row in rows] == [
        (epoch, layer) for epoch in (1, 2, 3) for layer in ("2", "5")
    ]
    epochs, values = monitor.history.series("cdnv")
    assert epochs == [1, 2, 3]
    assert values == [row["cdnv"] for row in rows if row["layer"] == "5"]
    assert monitor.history.series("cdnv", "2")[1] == [
        rows[0]["cdnv"],
        rows[2]["cdnv"],
        rows[4]["cdnv"],
    ]
    assert monitor.history.series("loss", "2") == ([], [])


def test_scalars_have_the_names_of_loggers() -> None:
    seen: list[dict[str, float]] = []
    model = network()
    with nclab.Monitor(model, sinks=lambda event: seen.append(event.scalars())) as monitor:
        train(model, monitor, epochs=1)
    assert {"nc/5/min_intra", "nc/5/nc3_self_duality", "nc/5/loss"} <= seen[0].keys()
    assert "nc/5/nc4_ncc_accuracy" not in seen[0]
    assert all(isinstance(value, float) for value in seen[0].values())


def everything(event: Event) -> Any:
    return nclab.monitor.Alarm("always", "5", (1,), 2.0, "it is so")


def test_records_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    model = network()
    sink = RecordSink(folder, config={"rate": 0.1})
    with nclab.Monitor(model, preset="full", alarms=[everything], sinks=[sink]) as monitor:
        train(model, monitor, epochs=2)
        monitor.measure(batches())
    view = read_run(folder)
    assert (view.state, view.manifest.kind, view.manifest.config) == (
        "finished",
        "monitor",
        {"rate": 0.1},
    )
    kinds = [(r["kind"], r.get("source")) for r in view.records if r["kind"] != "start"]
    assert kinds == [
        ("measurement", "training"),
        ("alarm", None),
        ("measurement", "training"),
        ("measurement", "loader"),
        ("end", None),
    ]
    first = next(r for r in view.records if r["kind"] == "measurement")
    assert (first["step"], first["epoch"]) == (6, 1.0)
    assert [layer["layer"] for layer in first["layers"]] == ["2", "5"]
    assert first["train"]["loss"] == first["layers"][-1]["loss"]
    alarm = next(r for r in view.records if r["kind"] == "alarm")
    assert (alarm["name"], alarm["classes"], alarm["value"]) == ("always", [1], 2.0)


def test_a_run_that_breaks_is_recorded_as_failed(tmp_path: Path) -> None:
    model = network()
    with (
        pytest.raises(RuntimeError, match="out of coffee"),
        nclab.Monitor(model, sinks=[RecordSink(tmp_path / "broken")]) as monitor,
    ):
        train(model, monitor, epochs=2, forward=_breaking(after=8))
    view = read_run(tmp_path / "broken")
    assert (view.state, view.records[-1]["why"]) == ("failed", "out of coffee")


def _breaking(*, after: int) -> Any:
    left = [after]

    def forward(model: nn.Module, inputs: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("out of coffee")
        return model(inputs)

    return forward


def test_a_folder_that_cannot_be_used_is_refused_before_training(tmp_path: Path) -> None:
    model = network()
    with nclab.Monitor(model, sinks=RecordSink(tmp_path / "mine")) as monitor:
        train(model, monitor, epochs=1)
    with pytest.raises(RecordError, match="has finished"):
        RecordSink(tmp_path / "mine")
    with pytest.raises(RecordError, match=r"config\.rate"):
        RecordSink(tmp_path / "mine", config={"rate": 0.1})


def test_a_training_that_failed_can_be_started_again(tmp_path: Path) -> None:
    def steps() -> list[int]:
        return [record["step"] for record in read_run(tmp_path).of_kind("measurement")]

    with (
        pytest.raises(RuntimeError, match="out of coffee"),
        nclab.Monitor(network(), sinks=RecordSink(tmp_path)) as monitor,
    ):
        train(monitor.model, monitor, epochs=3, forward=_breaking(after=14))
    assert steps() == [6, 12]
    again = nclab.Monitor(network(), sinks=RecordSink(tmp_path))
    again.steps, again.epochs = 12, 2  # as from a checkpoint
    with pytest.raises(RuntimeError, match="out of coffee"), again:
        train(again.model, again, epochs=3, forward=_breaking(after=8))
    assert steps() == [6, 12, 18]
    anew = nclab.Monitor(network(), sinks=RecordSink(tmp_path))
    with pytest.warns(NclabWarning, match="from step 6 on are taken back"), anew:
        train(anew.model, anew, epochs=2)
    assert steps() == [6, 12]
    assert read_run(tmp_path).state == "finished"


def test_a_run_of_ones_own_stays_open(tmp_path: Path) -> None:
    model = network()
    with open_run(tmp_path / "own", kind="demo", config={}) as run:
        with nclab.Monitor(model, sinks=[RecordSink(run)]) as monitor:
            train(model, monitor, epochs=1)
        run.finish(epochs=1)
    assert [r["kind"] for r in read_run(tmp_path / "own").records if r["kind"] != "start"] == [
        "measurement",
        "end",
    ]

"""Tests of the history, the console, records of runs, and failing sinks."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import nclab
from nclab.errors import NclabWarning, RecordError
from nclab.monitor import ConsoleSink, Event, RecordSink
from nclab.records import find_runs, open_run, read_run
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
    scalars: list[dict[str, float]] = []
    model = network()
    with nclab.Monitor(model, sinks=lambda event: scalars.append(event.scalars())) as monitor:
        train(model, monitor, epochs=1)
    assert {"nc/5/min_intra", "nc/5/nc3_self_duality", "nc/5/loss"} <= scalars[0].keys()
    assert "nc/5/nc4_ncc_accuracy" not in scalars[0]
    assert all(isinstance(value, float) for value in scalars[0].values())


def always(event: Event) -> Any:
    return nclab.monitor.Alarm("always", "5", (1,), 2.0, "it is so")


def test_records_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    model = network()
    sink = RecordSink(folder, config={"rate": 0.1})
    with nclab.Monitor(model, preset="full", alarms=[always], sinks=[sink]) as monitor:
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


def test_a_run_that_raises_is_recorded_as_failed(tmp_path: Path) -> None:
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


def once(folder: Path, **options: Any) -> RecordSink:
    """Record a training of one epoch in a folder; return the sink."""
    sink = RecordSink(folder, **options)
    with nclab.Monitor(network(), sinks=sink) as monitor:
        train(monitor.model, monitor, epochs=1)
    return sink


def test_a_second_run_of_the_same_script_is_a_new_run(tmp_path: Path) -> None:
    folders = [
        once(tmp_path / "mine", config={"rate": rate}).run_folder for rate in (0.1, 0.1, 0.2)
    ]
    assert [folder.name for folder in folders if folder] == ["mine", "mine-2", "mine-3"]
    views = [read_run(folder) for folder in folders if folder]
    assert [view.manifest.config["rate"] for view in views] == [0.1, 0.1, 0.2]
    assert [view.state for view in views] == ["finished"] * 3
    sink = once(tmp_path)  # in a folder of runs, the new run must not hide the others
    assert sink.run_folder == tmp_path / "run-1"
    assert len(find_runs(tmp_path)) == 4


def test_an_unusable_folder_raises_before_training(tmp_path: Path) -> None:
    once(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    for folder, options, words in (
        ("mine", {"exist": "resume"}, "has finished"),
        ("mine", {"exist": "resume", "config": {"rate": 0.1}}, r"config\.rate"),
        ("mine", {"exist": "again"}, "Expected exist='new' or 'resume', got 'again'"),
        ("mine", {"config": 3}, "Expected config= a dictionary, a dataclass or a Namespace"),
        ("mine", {"config": {"loss": float("nan")}}, "Expected finite numbers"),
        (".", {"exist": "resume"}, "with 1 runs in it"),
        ("file", {}, "is a file"),
    ):
        with pytest.raises(RecordError, match=words):
            RecordSink(tmp_path / folder, **options)


def test_the_config_may_be_a_dataclass_or_namespace(tmp_path: Path) -> None:
    @dataclass
    class Settings:
        rate: float
        data: Path

    given = [Settings(0.1, tmp_path), argparse.Namespace(rate=0.1, data=tmp_path)]
    for sink in (RecordSink(tmp_path / "mine", config=config) for config in given):
        assert sink.config == {"rate": 0.1, "data": str(tmp_path)}


def test_a_failed_training_can_be_resumed(tmp_path: Path) -> None:
    def sink() -> RecordSink:
        return RecordSink(tmp_path, exist="resume")

    def steps() -> list[int]:
        return [record["step"] for record in read_run(tmp_path).of_kind("measurement")]

    with (
        pytest.raises(RuntimeError, match="out of coffee"),
        nclab.Monitor(network(), sinks=sink()) as monitor,
    ):
        train(monitor.model, monitor, epochs=3, forward=_breaking(after=14))
    assert steps() == [6, 12]
    again = nclab.Monitor(network(), sinks=sink())
    again.set_progress(epochs=2, steps=12)  # as from a checkpoint
    with pytest.raises(RuntimeError, match="out of coffee"), again:
        train(again.model, again, epochs=3, forward=_breaking(after=8))
    assert steps() == [6, 12, 18]
    restarted = nclab.Monitor(network(), sinks=sink())
    with pytest.warns(NclabWarning, match="from step 6 on are removed"), restarted:
        train(restarted.model, restarted, epochs=2)
    assert steps() == [6, 12]
    assert read_run(tmp_path).state == "finished"


class Broken:
    """A sink whose service does not answer."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, event: Event) -> None:
        self.calls += 1
        raise ConnectionError("no answer")

    def close(self, error: BaseException | None) -> None:
        raise OSError("still no answer")


def test_a_failing_sink_warns_once_and_the_others_go_on() -> None:
    broken, steps = Broken(), list[int]()
    model = network()
    with (
        pytest.warns(NclabWarning, match="Broken failed .*no answer.* training goes on") as caught,
        nclab.Monitor(model, sinks=[broken, lambda event: steps.append(event.step)]) as monitor,
    ):
        train(model, monitor, epochs=3)
    assert (len(caught), broken.calls, steps) == (1, 3, [6, 12, 18])


def test_a_failing_sink_does_not_hide_the_error_of_the_training() -> None:
    with (
        pytest.raises(RuntimeError, match="out of coffee"),
        pytest.warns(NclabWarning, match="still no answer"),
        nclab.Monitor(network(), sinks=[Broken()]) as monitor,
    ):
        train(monitor.model, monitor, epochs=1, forward=_breaking(after=2))


def test_the_console_prints_a_line_for_each_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    sinks = [ConsoleSink(), ConsoleSink("cdnv")]
    with nclab.Monitor(model, sinks=sinks, alarms=[always], total_epochs=2) as monitor:
        train(model, monitor, epochs=2)
    lines = capsys.readouterr().out.splitlines()
    measured = [line for line in lines if line.startswith("epoch")]
    assert len(measured) == 4
    assert measured[0].startswith("epoch 1/2, step 6/12 | 5 | loss ")
    assert re.fullmatch(r"epoch 2/2, step 12/12 \| 5 \| cdnv \S+", measured[3])
    assert lines.count("  ! epoch 1, 5: it is so (class 1)") == 2


def test_an_alarm_has_its_epoch_and_step() -> None:
    model = network()
    with nclab.Monitor(model, alarms=[always]) as monitor:
        train(model, monitor, epochs=2)
    assert repr(monitor.alarms) == "[<Alarm always: epoch 1, 5: it is so (class 1)>]"
    assert (monitor.alarms[0].epoch, monitor.alarms[0].step) == (1.0, 6)
    again = nclab.Monitor(model)
    again.load_state_dict(monitor.state_dict())
    assert again.alarms == monitor.alarms


def test_a_run_records_its_progress(tmp_path: Path) -> None:
    model, sink = network(), RecordSink(tmp_path / "mine")
    with nclab.Monitor(model, sinks=sink, total_epochs=4) as monitor:
        train(model, monitor, epochs=1)
        assert read_run(tmp_path / "mine").progress == 0.25


def test_a_wrong_sink_raises() -> None:
    with pytest.raises(nclab.NclabError, match=r"Expected sinks= callables .* got 3"):
        nclab.Monitor(network(), sinks=[3])  # type: ignore[list-item]
    with pytest.raises(nclab.NclabError, match="Did you mean cdnv"):
        ConsoleSink("cdvn")


def test_an_open_run_stays_open(tmp_path: Path) -> None:
    model = network()
    with open_run(tmp_path / "own", kind="demo", config={}) as run:
        with nclab.Monitor(model, sinks=[RecordSink(run)]) as monitor:
            train(model, monitor, epochs=1)
        run.finish(epochs=1)
    assert [r["kind"] for r in read_run(tmp_path / "own").records if r["kind"] != "start"] == [
        "measurement",
        "end",
    ]

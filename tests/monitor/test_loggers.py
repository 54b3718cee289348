"""Tests of the TensorBoard, W&B and MLflow sinks, read back from their files."""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nclab
from nclab.errors import MissingExtra
from nclab.monitor import Alarm, Event, MlflowSink, TensorBoardSink, WandbSink
from tests.monitor.loops import network, train

LAYER = "5"
NAME = f"nc/{LAYER}/nc1_trace_ratio"


def notice(event: Event) -> Alarm | None:
    """Raise an alarm at the second event."""
    if event.step < 12:
        return None
    return Alarm("late", LAYER, (1,), 0.5, "it is late")


def trained(*sinks: Any) -> nclab.Monitor:
    """Return a monitor after two epochs of six steps."""
    model = network()
    with nclab.Monitor(model, sinks=sinks, alarms=[notice]) as monitor:
        train(model, monitor)
    return monitor


def expected(monitor: nclab.Monitor) -> list[tuple[int, float]]:
    """Return steps and values of one metric."""
    return [(row["step"], row["nc1_trace_ratio"]) for row in monitor.history.rows]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra log")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "theirs"))
    monitor = trained(TensorBoardSink(tmp_path / "ours"), TensorBoardSink(writer))
    writer.add_scalar("mine", 1.0, 13)  # a writer passed by the user stays open
    writer.close()
    assert monitor.last is not None
    for folder in ("ours", "theirs"):
        read = EventAccumulator(str(tmp_path / folder))
        read.Reload()
        points = [(point.step, point.value) for point in read.Scalars(NAME)]
        assert [step for step, _ in points] == [6, 12]
        assert points == [pytest.approx(point, rel=1e-6) for point in expected(monitor)]
        assert set(monitor.last.scalars()) <= set(read.Tags()["scalars"])
        text = read.Tensors("nc/alarms/text_summary")
        assert [(entry.step, entry.tensor_proto.string_val[0].decode()) for entry in text] == [
            (12, f"epoch 2, {LAYER}: it is late (class 1)")
        ]


def test_a_logger_writes_only_the_chosen_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra log")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(TensorBoardSink(tmp_path, metrics=["loss", "nc1_trace_ratio"]))
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == [f"nc/{LAYER}/loss", NAME]
    sinks: tuple[Any, ...] = (TensorBoardSink, MlflowSink, WandbSink)
    for sink in sinks:
        with pytest.raises(nclab.NclabError, match=r"got 'los'\. Did you mean loss"):
            sink(*([tmp_path] if sink is TensorBoardSink else []), metrics="los")


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Return the package wandb, offline and silent, without a background process."""
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "WANDB_DIR": str(tmp_path),
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DISABLE_GIT": "true",
        "WANDB_X_DISABLE_STATS": "true",
        "WANDB_X_DISABLE_META": "true",
    }.items():
        monkeypatch.setenv(name, value)
    package = pytest.importorskip("wandb", reason="needs the extra log")
    yield package
    package.teardown()


def wandb_records(folder: Path) -> Iterator[Any]:
    """Return the records of an offline run: protocol buffers in a log of 32 KiB blocks."""
    protocol = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, position, parts = file.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if (left := 2**15 - position % 2**15) < 7:
            position += left
            continue
        length, kind = (
            int.from_bytes(data[position + 4 : position + 6], "little"),
            data[position + 6],
        )
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = protocol.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


@pytest.mark.parametrize("given", [False, True], ids=["own run", "the user's run"])
def test_wandb(given: bool, wandb: Any, tmp_path: Path) -> None:
    if given:
        run = wandb.init(project="mine")
        monitor = trained(WandbSink())
        assert wandb.run is run  # the user finishes this run
        run.log({"mine": 1.0})
        run.finish()
    else:
        monitor = trained(WandbSink(project="collapse"))
        assert wandb.run is None
    wandb.teardown()  # another process writes the file and may not have finished
    records = list(wandb_records(tmp_path))
    rows = [
        {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items}
        for items in (record.history.item for record in records if record.HasField("history"))
    ]
    points = [(row["nc/step"], row[NAME]) for row in rows if NAME in row]
    assert points == expected(monitor)
    assert monitor.last is not None
    assert set(monitor.last.scalars()) <= set(rows[1])
    axes = [record.metric for record in records if record.HasField("metric")]
    assert ("nc/*", "nc/step") in {(axis.glob_name, axis.step_metric) for axis in axes}
    alerts = [record.alert.text for record in records if record.HasField("alert")]
    assert alerts == [f"epoch 2, {LAYER}: it is late (class 1)"]
    assert sum("mine" in row for row in rows) == given


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the package mlflow, which writes to local files."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return pytest.importorskip("mlflow", reason="needs the extra log")


def test_mlflow(mlflow: Any, tmp_path: Path) -> None:
    where = (tmp_path / "mlruns").as_uri()
    client = mlflow.MlflowClient(where)
    other = client.create_run(client.create_experiment("mine"))
    monitor = trained(
        MlflowSink(tracking_uri=where), MlflowSink(other.info.run_id, tracking_uri=where)
    )
    runs = client.search_runs([client.get_experiment_by_name("nclab").experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"]
    assert client.get_run(other.info.run_id).info.status == "RUNNING"
    assert monitor.last is not None
    for run in (runs[0], client.get_run(other.info.run_id)):
        history = client.get_metric_history(run.info.run_id, NAME)
        assert [(metric.step, metric.value) for metric in history] == expected(monitor)
        assert set(monitor.last.scalars()) <= set(run.data.metrics)
        assert run.data.tags["nc.alarm.late"] == f"epoch 2, {LAYER}: it is late (class 1)"


@pytest.mark.parametrize(
    ("package", "sink"),
    [
        ("tensorboard", lambda folder: TensorBoardSink(folder)),
        ("wandb", lambda folder: WandbSink()),
        ("mlflow", lambda folder: MlflowSink()),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, sink: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (package, "torch.utils.tensorboard", "tensorboard.compat"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"needs {package}.*pip install nclab\[log\]"):
        sink(tmp_path)  # raises when the sink is made, not after an epoch
    assert os.listdir(tmp_path) == []

"""Measurements match the schema, and readers accept records of any form."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nclab.measurement import measure
from nclab.monitor.event import Alarm, Event
from nclab.monitor.sinks import RecordSink
from nclab.records import read_run, schema
from nclab.records.schema import MEASUREMENT, MeasurementRecord, layers_of, title_of_layer
from nclab.training.sweep.train import train_sweep
from nclab.ulpm.runs import UlpmConfig, solve, write_solution
from tests.training.sweep.small import small


def check_run(folder: Path) -> set[str]:
    """Check the measurements of a run against the schema; return the kinds of its records."""
    view = read_run(folder)
    for record in view.of_kind(MEASUREMENT):
        known, required = MeasurementRecord.__annotations__, MeasurementRecord.__required_keys__
        assert required <= record.keys() <= known.keys()
        assert all(isinstance(layer["layer"], str) for layer in record["layers"])
    json.loads((folder / "state.json").read_bytes())
    return {record["kind"] for record in view.records}


def test_a_sweep_writes_what_the_schema_says(tmp_path: Path) -> None:
    for row in train_sweep(small(), tmp_path, workers=0):
        assert check_run(tmp_path / row["run"]) == {"epoch", "measurement", "geometry", "end"}


def test_a_monitor_writes_what_the_schema_says(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    report = measure(model, [(torch.randn(20, 3), torch.arange(20) % 2)])
    alarm = Alarm("nan", "fc", (1,), 12.0, "12 features are not finite")
    sink = RecordSink(tmp_path / "one")
    sink(Event(step=3, epoch=0.5, source="training", report=report, alarms=(alarm,)))
    sink.close()
    assert check_run(tmp_path / "one") == {"measurement", "alarm", "end"}


def test_the_layer_peeled_model_writes_what_the_schema_says(tmp_path: Path) -> None:
    write_solution(solve(UlpmConfig(classes=3, per_class=2, dim=2, steps=20)), tmp_path)
    assert check_run(tmp_path) == {"sample", "measurement", "end"}


@pytest.mark.parametrize("record", [None, {}, {"layers": 5}, {"layers": {"a": 1}}, {"layers": []}])
def test_a_record_without_layers_has_none(record: dict[str, Any] | None) -> None:
    assert layers_of(record) == []
    assert schema.last_layer(record) == {}


def test_layers_keep_their_order_and_have_titles() -> None:
    layers = layers_of({"layers": [{"layer": "conv"}, {"loss": 1.0}]})
    assert [title_of_layer(layer, place) for place, layer in enumerate(layers)] == [
        "conv",
        "layer 2",
    ]

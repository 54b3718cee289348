"""The records that nclab writes match the schema."""

import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints

import pytest
import torch

from nclab.claims.ledger import judge_all
from nclab.measurement import measure
from nclab.monitor.event import Alarm, Event
from nclab.monitor.sinks import RecordSink
from nclab.records import Manifest, schema
from nclab.records.schema import layers_of, title_of_layer
from nclab.training.sweep.train import train_sweep
from nclab.ulpm.runs import UlpmConfig, solve, write_solution
from tests.training.sweep.small import small

RECORDS: dict[str, Any] = {
    "start": schema.StartRecord,
    "epoch": schema.EpochRecord,
    "measurement": schema.MeasurementRecord,
    "sample": schema.SampleRecord,
    "geometry": schema.GeometryRecord,
    "alarm": schema.AlarmRecord,
    "end": schema.EndRecord,
}


def wrong(value: Any, kind: Any) -> list[str]:
    """Return the fields of a JSON value that do not match a TypedDict; more fields are allowed."""
    hints = get_type_hints(kind, include_extras=True)
    found = [name for name in kind.__required_keys__ if name not in value]
    for name in hints.keys() & value.keys():
        hint = hints[name]
        inner = get_args(hint)[0] if get_origin(hint) is NotRequired else hint
        if not fits(value[name], inner):
            found.append(f"{name}: {value[name]!r}")
    return found


def fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is UnionType:
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, inner[1]) for one in value.values())
    if kind is float:
        return type(value) in (int, float)
    if kind is NoneType:
        return value is None
    if hasattr(kind, "__required_keys__"):
        return not wrong(value, kind)
    return type(value) is kind


def check_run(folder: Path) -> set[str]:
    """Check every file of a run against the schema; return the kinds of its records."""
    kinds = set()
    for line in (folder / "journal.jsonl").read_bytes().splitlines():
        record = json.loads(line)
        assert wrong(record, RECORDS[record["kind"]]) == []
        kinds.add(record["kind"])
    manifest, hints = json.loads((folder / "manifest.json").read_bytes()), get_type_hints(Manifest)
    assert manifest.pop("check")
    assert manifest.keys() == hints.keys()
    assert [name for name, kind in hints.items() if not fits(manifest[name], kind)] == []
    assert manifest["format"] == "nclab run"
    assert wrong(json.loads((folder / "state.json").read_bytes()), schema.StateFile) == []
    for file in (folder / "checkpoints").iterdir():
        content = file.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about = json.loads(header["__metadata__"]["nclab"])
        assert wrong(about, schema.CheckpointAbout) == []
    return kinds


def test_a_sweep_writes_what_the_schema_says(tmp_path: Path) -> None:
    for row in train_sweep(small(), tmp_path, workers=0):
        kinds = check_run(tmp_path / row["run"])
        assert kinds == {"start", "epoch", "measurement", "geometry", "end"}


def test_a_monitor_writes_what_the_schema_says(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    report = measure(model, [(torch.randn(20, 3), torch.arange(20) % 2)])
    alarm = Alarm("nan", "fc", (1,), 12.0, "12 features are not finite")
    sink = RecordSink(tmp_path / "one")
    sink(Event(step=3, epoch=0.5, source="training", report=report, alarms=(alarm,)))
    sink.close()
    assert check_run(tmp_path / "one") == {"start", "measurement", "alarm", "end"}


def test_the_layer_peeled_model_writes_what_the_schema_says(tmp_path: Path) -> None:
    write_solution(solve(UlpmConfig(classes=3, per_class=2, dim=2, steps=20)), tmp_path)
    assert check_run(tmp_path) == {"start", "sample", "measurement", "end"}


def test_claims_are_what_the_schema_says() -> None:
    rows = judge_all(ids=["pan2023/lemma-2.4.4"])
    assert [wrong(json.loads(json.dumps(row)), schema.ClaimRow) for row in rows] == [[]]


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

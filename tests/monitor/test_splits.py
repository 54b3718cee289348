"""Tests of several splits in one monitor: history, records, loggers and pages keep each."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import nclab
from nclab.monitor import Alarm, CollapseReached, RecordSink
from nclab.monitor.callbacks import as_splits
from nclab.records import read_run
from nclab.records.schema import split_of
from nclab.report.run_data import last_values, run_data
from nclab.report.run_follower import RunFollower
from nclab.report.watcher import Selection, Watcher
from tests.monitor.loops import batches, network, train

NAMES = ("cat", "dog", "fox")


def watched(folder: Path | None = None, epochs: int = 3, **options: Any) -> nclab.Monitor:
    """Train and measure the training data and other data after every epoch."""
    model = network()
    sinks = [] if folder is None else [RecordSink(folder)]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with nclab.Monitor(model, sinks=sinks, layers="all", **options) as monitor:
        for epoch in range(1, epochs + 1):
            for x, y in batches():
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
            when = {"epoch": epoch, "step": 6 * epoch}
            reference = monitor.measure(batches(), **when)  # type: ignore[arg-type]
            monitor.measure(batches(seed=5), split="test", reference=reference)
    return monitor


def test_two_splits_agree_with_the_definition() -> None:
    monitor = watched()
    history, model = monitor.history, monitor.model
    assert history.splits == ["train", "test"]
    curves = {split: history.series("cdnv", split=split) for split in history.splits}
    assert all(at == [1, 2, 3] for at, _ in curves.values())
    assert curves["train"][1] != curves["test"][1]
    assert history.series("cdnv") == curves["train"]
    model.eval()
    with torch.no_grad():
        (x, y), (z, w) = (
            [torch.cat(part) for part in zip(*batches(seed=seed), strict=True)] for seed in (0, 5)
        )
        body = model[:-1]  # type: ignore[index]
        h, g = body(x).double(), body(z).double()
        mu = torch.stack([h[y == c].mean(0) for c in range(3)])
        near = torch.cdist(g, mu).argmin(1)
        decided = model(z).argmax(1)
    assert history.series("reference_ncc_accuracy", split="test")[1][-1] == float(
        (near == w).double().mean()
    )
    assert history.series("reference_ncc_agreement", split="test")[1][-1] == float(
        (near == decided).double().mean()
    )
    spread = float((mu - mu.mean(0)).square().sum(1).mean())
    strong = float((g - mu[w]).square().sum(1).mean()) / spread
    measured = history.series("strong_test_collapse", split="test")[1][-1]
    assert measured == pytest.approx(strong, rel=1e-6)
    assert monitor.last is not None
    assert monitor.last.split == "test"
    assert "nc/test/5/cdnv" in monitor.last.scalars()


def test_a_running_estimate_belongs_to_the_training_split() -> None:
    model = network()
    monitor = nclab.Monitor(model)
    train(model, monitor, epochs=1)
    monitor.measure(batches(seed=5), split="test", reference=monitor.last.report)  # type: ignore
    assert [row["split"] for row in monitor.history.rows] == ["train", "test"]
    assert monitor.history.rows[1]["strong_test_collapse"] > 0


def test_records_and_pages_keep_splits_separate(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watched(folder, class_names=NAMES)
    records = [record for record in read_run(folder).records if record["kind"] == "measurement"]
    assert [record["split"] for record in records] == ["train", "test"] * 3
    assert records[0]["layers"][-1]["class_names"] == list(NAMES)
    run = RunFollower(folder, root=tmp_path)
    run.refresh()
    assert run.layers() == ["2", "5", "2 · test", "5 · test"]
    assert run.last_layers() == ["5", "5 · test"]
    for layer, split in (("5", "train"), ("5 · test", "test")):
        x, y = run.curve((layer, "cdnv"), "epoch")
        values = [record["layers"][-1]["cdnv"] for record in records if record["split"] == split]
        assert (x, y) == ([1.0, 2.0, 3.0], values)  # no gap where the other split was measured
    shown = last_values(run)
    assert shown["cdnv"] == pytest.approx(records[-2]["layers"][-1]["cdnv"], rel=1e-5)
    assert shown["cdnv · test"] == pytest.approx(records[-1]["layers"][-1]["cdnv"], rel=1e-5)
    assert ("", "test loss") in run.names()
    assert ("", "train loss") in run.names()
    data = run_data(run, slug="run")
    frames = data["cosines"]["frames"]
    assert [record["epoch"] for record in frames] == [1, 2, 3]
    assert data["cosines"]["names"] == list(NAMES)
    last = records[-2]["layers"][-1]["inter_cosine"]
    assert frames[-1]["values"] == [round(1000 * value) for row in last for value in row]
    watcher = Watcher(tmp_path)
    watcher.refresh()
    (curves,) = watcher.curves(Selection("cdnv", "last", "epoch"), {}).values()
    assert [record["layer"] for record in curves] == ["5", "5 · test"]


def test_journals_without_a_split_belong_to_training(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watched(folder, epochs=2)
    journal = folder / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert {split_of(line) for line in lines if line["kind"] == "measurement"} == {"train", "test"}
    with nclab.records.open_run(tmp_path / "old", kind="monitor", config={}) as run:
        for line in lines:
            if line["kind"] == "measurement" and line["split"] == "train":
                run.append({name: value for name, value in line.items() if name != "split"})
    old = RunFollower(tmp_path / "old", root=tmp_path)
    old.refresh()
    assert (old.layers(), old.last_layers()) == (["2", "5"], ["5"])
    assert old.curve(("5", "cdnv"), "epoch")[0] == [1.0, 2.0]
    assert old.last_measurement()["epoch"] == 2


def test_alarms_are_raised_for_each_split() -> None:
    easy = CollapseReached({"nc1_trace_ratio": 1e9})
    monitor = watched(epochs=2, alarms=[easy], class_names=NAMES)
    raised = {(alarm.split, alarm.layer) for alarm in monitor.alarms}
    assert raised == {(split, layer) for split in ("train", "test") for layer in ("2", "5")}
    assert any("5, test: collapse reached" in str(alarm) for alarm in monitor.alarms)
    other = nclab.Monitor(network())
    other.load_state_dict(monitor.state_dict())
    assert other.alarms == monitor.alarms
    state = monitor.state_dict()
    for alarm in state["alarms"]:  # as versions before wrote them
        del alarm["split"], alarm["names"]
    for row in state["history"]:
        del row["split"]
    other.load_state_dict(state)
    assert {alarm.split for alarm in other.alarms} == {"train"}
    assert other.history.splits == ["train"]


def test_alarms_name_the_classes() -> None:
    alarm = Alarm("merge", "fc", (0, 2), 0.1, "class means merge", names=("cat", "fox"))
    assert str(alarm) == "fc: class means merge (classes cat, fox)"
    raises = [lambda event: Alarm("mine", "5", (2,), 1.0, "look")]
    monitor = watched(epochs=1, alarms=raises, class_names=NAMES)
    assert str(monitor.alarms[0]) == "epoch 1, 5: look (class fox)"


def test_a_test_set_without_a_class() -> None:
    model = network()
    monitor = nclab.Monitor(model)
    reference = monitor.measure(batches())
    some = [(x[y != 1], y[y != 1]) for x, y in batches(seed=5)]
    report = monitor.measure(some, split="test", reference=reference)
    assert report.last.classes == (0, 2)
    assert report.last.reference_ncc_accuracy is not None
    with pytest.raises(nclab.DataError, match="samples of all 3 classes"):
        monitor.measure(some, split="test")


@pytest.mark.parametrize("split", ["", "a/b", 7])
def test_a_split_needs_a_name(split: Any) -> None:
    with pytest.raises(nclab.NclabError, match="split= a name such as 'test'"):
        nclab.Monitor(network()).measure(batches(), split=split)


def test_as_splits() -> None:
    loader = batches()
    assert as_splits(None, ("train",)) == {}
    assert as_splits(loader, ("train",)) == {"train": loader}
    assert list(as_splits({"test": loader, "train": "train"}, ("train",))) == ["train", "test"]

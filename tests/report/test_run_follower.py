"""A run is read while it grows, whatever its files contain."""

import json
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nclab.errors import RecordError
from nclab.records import open_run
from nclab.report.content import Content, compact_json
from nclab.report.pages import Pages
from nclab.report.run_data import describe_all, last_values, row_of, run_data, with_axes
from nclab.report.run_follower import Frames, RunFollower
from tests.report.damage import damaged

LAYER = {
    "layer": "fc",
    "num_classes": 2,
    "balanced_loss": 0.1,
    "min_intra": 0.9,
    "inter_cosine": [[1.0, None], [-0.5, 1.0]],
    "intra_cosine": [0.9, 0.8],
    "certificate": {"excess_loss": 0.01, "intra_lower": 0.8, "class_intra_lower": [0.7, 0.6]},
}
CORNERS = [[0.1, 0.2, 0.3], [1.0, 0.0, 0.0]]
RECORDS: list[dict[str, Any]] = [
    {"kind": "epoch", "step": 1, "epoch": 1, "loss": 0.5, "accuracy": 0.9, "rate": 0.1},
    {"kind": "measurement", "step": 1, "epoch": 1, "layers": [LAYER], "train": {"loss": 0.5}},
    {"kind": "geometry", "step": 1, "epoch": 1, "share": 1.0, "labels": [0, 1], "points": CORNERS}
    | dict.fromkeys(("means", "weights", "etf"), CORNERS),
    {"kind": "alarm", "step": 1, "name": "nan", "classes": [1], "value": 3.0, "severe": True},
    {"kind": "sample", "step": 1, "log_time": 0.5, "layer": "features", "margin": 1.0},
    {"kind": "end", "state": "failed", "why": "the loss is not finite", "outcome": "diverged"},
]


def test_a_resumed_run_forgets_what_was_cut(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with open_run(folder, kind="fleet", config={}, seed=0) as run:
        for step in range(5):
            run.append({"kind": "measurement", "step": step, "loss": step / 10})
        growing = RunFollower(folder, root=tmp_path)
        growing.refresh()
        assert sum(frames.count for frames in growing.splits.values()) == 5
        run.resume(0)
        run.append({"kind": "measurement", "step": 7, "loss": 0.7})
        growing.refresh()
    assert sum(frames.count for frames in growing.splits.values()) == 1
    assert growing.curve(("", "loss"), "step") == ([7.0], [0.7])


@pytest.mark.parametrize("behind", [False, True])
def test_a_split_is_seen_before_and_behind_the_layers(tmp_path: Path, behind: bool) -> None:
    """Sweeps write the split behind the layers; the newest numbers were once those of test data."""
    when: dict[str, Any] = {"kind": "measurement", "step": 1, "epoch": 1}
    test = {"layers": [LAYER | {"min_intra": 0.2}], "split": "test"}
    with open_run(tmp_path / "one", kind="fleet", config={}, seed=0) as run:
        run.append({**when, "layers": [LAYER]})
        run.append({**when, **(test if behind else dict(reversed(test.items())))})
    growing = RunFollower(tmp_path / "one", root=tmp_path)
    growing.refresh()
    assert set(growing.splits) == {"train", "test"}
    values = last_values(growing)
    assert (values["min_intra"], values["min_intra · test"]) == (0.9, 0.2)


def test_frames_keep_both_ends() -> None:
    frames = Frames(limit=10)
    for n in range(95):
        frames.extend([b'{"kind":"g","step":%d}' % n])
    steps = [record["step"] for record in frames.records(5)]
    assert steps[0] == 0
    assert steps[-1] == 94
    assert len(steps) == 5
    assert len(frames.lines()) <= 21


def line(record: Any) -> bytes:
    """Return a line as a writer would append it, without the writer's checks."""
    return json.dumps(record, separators=(",", ":")).replace("Infinity", "1e999").encode() + b"\n"


def look(folder: Path) -> None:
    """Make everything that pages show of a run."""
    run = RunFollower(folder, root=folder.parent)
    run.refresh()
    compact_json(run_data(run, slug="a"))
    rows = with_axes([row_of("a", run)], describe_all({"a": run}))
    pages = Pages(Content(folder.parent), {"a": run}, rows, plotly=False)
    assert pages.render("runs/a.html")
    assert pages.render("runs.html")


@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_a_wrong_value_in_a_record_costs_no_page(tmp_path: Path, place: int) -> None:
    folder = tmp_path / "one"
    open_run(folder, kind="fleet", config={}, seed=0).close()
    start = (folder / "journal.jsonl").read_bytes()
    others = [line(record) for record in RECORDS]
    for spoiled in islice(damaged(RECORDS[place]), place % 5, None, 5):
        lines = [*others[:place], line(spoiled), *others[place + 1 :]]
        (folder / "journal.jsonl").write_bytes(start + b"".join(lines))
        look(folder)


@pytest.mark.parametrize("file", ["manifest.json", "state.json"])
def test_a_wrong_value_beside_the_journal_is_read_or_refused(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "one"
    with open_run(folder, kind="fleet", config={"rate": 0.1}, seed=0) as run:
        run.beat(step=1, total=2)
    content = json.loads((folder / file).read_bytes())
    for spoiled in islice(damaged(content), 0, None, 3):
        (folder / file).write_bytes(line(spoiled))
        with suppress(*([RecordError] if file == "manifest.json" else [])):
            look(folder)


def test_names_of_classes_reach_every_picture_of_the_page(tmp_path: Path) -> None:
    layer = {**LAYER, "classes": [0, 2], "class_names": ["cat", "fox"]}
    with open_run(tmp_path / "one", kind="fleet", config={}, seed=0) as run:
        run.append({"kind": "measurement", "step": 1, "epoch": 1, "layers": [layer]})
        run.append(RECORDS[2])
    growing = RunFollower(tmp_path / "one", root=tmp_path)
    growing.refresh()
    data = run_data(growing, slug="one")
    assert data["cosines"]["names"] == ["cat", "fox"]
    assert data["geometry"][0]["names"] == {"0": "cat", "2": "fox"}
    assert data["certificate"]["classes"]["names"] == ["cat", "fox"]

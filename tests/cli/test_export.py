"""`nclab export`: tables of records for other tools."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nclab.records import open_run
from tests.cli.runner import call


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, rate in (("a", 0.1), ("b", 1)):  # a whole number beside another is a number
        config = {"rate": rate, "net": {"width": 8}, "tags": ["x", "y"]}
        with open_run(tmp_path / name, kind="demo", config=config, seed=3) as run:
            for epoch in (1, 2):
                layers: list[dict[str, Any]] = [
                    {"layer": layer, "cdnv": epoch / 10, "intra_cosine": [0.5], "notes": {}}
                    for layer in ("first", "last")
                ]
                run.append(
                    {"kind": "measurement", "step": 10 * epoch, "epoch": epoch, "layers": layers}
                )
                run.append({"kind": "epoch", "step": 10 * epoch, "epoch": epoch, "loss": 0.5})
            run.finish()
    return tmp_path


def test_a_row_for_each_layer_and_measurement(runs: Path) -> None:
    done = call("export", runs)
    assert (done.code, done.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 8
    assert list(rows[0])[:9] == [
        *("run", "folder", "kind", "state", "seed"),
        *("config.rate", "config.net.width", "config.tags", "step"),
    ]
    assert [(row["run"], row["layer"], row["epoch"], row["cdnv"]) for row in rows[:3]] == [
        ("a", "first", "1", "0.1"),
        ("a", "last", "1", "0.1"),
        ("a", "first", "2", "0.2"),
    ]
    assert (rows[0]["config.tags"], rows[0]["split"]) == ('["x", "y"]', "train")
    assert "intra_cosine" not in rows[0]


def test_all_formats_have_the_same_rows(runs: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra arrow")
    printed = json.loads(call("export", runs, "--json").out)
    for name in ("all.json", "all.parquet"):
        done = call("export", runs, "--out", tmp_path / name)
        assert f"wrote 8 rows of 2 runs to {tmp_path / name}" in done.out
    assert json.loads((tmp_path / "all.json").read_text()) == printed
    assert parquet.read_table(tmp_path / "all.parquet").to_pylist() == printed
    assert printed[-1]["config.rate"] == 1


def test_records_of_other_kinds(runs: Path) -> None:
    rows = json.loads(call("export", runs / "a", "--records", "epoch", "--json").out)
    assert [(row["record"], row["epoch"], row["loss"]) for row in rows] == [
        ("epoch", 1, 0.5),
        ("epoch", 2, 0.5),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--records", "epochs"), "Expected runs with records of epochs"),
        (("--out", "all.xlsx"), "with suffix .csv, .parquet or .json, got all.xlsx"),
        (("--records", ","), "Expected at least one kind in --records"),
    ],
)
def test_bad_outputs_are_one_line(runs: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = call("export", runs, *arguments)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert call("export", runs / "none").code == 2


def test_a_table_replaces_no_pipe_and_follows_links(runs: Path, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    done = call("export", runs, "--out", pipe)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "which is not a regular file" in done.err
    assert pipe.is_fifo()
    link.symlink_to("table.csv")
    assert call("export", runs, "--out", link).code == 0
    assert link.is_symlink()
    assert (tmp_path / "table.csv").read_text().startswith("run,")


def spoiled(folder: Path, damage: str) -> None:
    """Damage a run or a part of it."""
    journal = folder / "journal.jsonl"
    if damage == "manifest":
        (folder / "manifest.json").write_text("garbage")
    elif damage == "empty":
        journal.write_bytes(b"")
    elif damage == "first line":
        journal.write_bytes(journal.read_bytes()[:9])
    elif damage == "damaged":
        journal.write_bytes(journal.read_bytes().replace(b'"step":10', b'"step":11'))
    elif damage == "torn":
        journal.write_bytes(journal.read_bytes()[:-9])
    else:
        journal.unlink()
        if damage == "pipe":
            os.mkfifo(journal)
        elif damage == "folder":
            journal.mkdir()


@pytest.mark.parametrize(
    ("damage", "message", "rows"),
    [
        ("manifest", "is damaged", 4),
        ("empty", "has no complete line", 4),
        ("missing", "its journal is missing", 4),
        ("first line", "has no complete line", 4),
        ("torn", "its last line is incomplete", 8),
        ("damaged", "damaged and skipped", 6),
        ("pipe", "not a regular file", 4),
        ("folder", "not a regular file", 4),
    ],
)
def test_unreadable_runs_are_reported_and_hide_no_other(
    runs: Path, damage: str, message: str, rows: int
) -> None:
    spoiled(runs / "a", damage)
    done = call("export", runs, "--json")
    assert done.code == 0
    assert len(json.loads(done.out)) == rows
    assert (done.err.count("\n"), done.err.count(str(runs / "a"))) == (1, 1)
    assert message in done.err
    listed = call("runs", runs, "--json")
    assert listed.code == 0
    lines = {row["name"]: row["problem"] for row in json.loads(listed.out)}
    assert lines["b"] is None
    if damage == "manifest":
        assert message in listed.err
    elif damage in ("pipe", "folder"):
        assert message in lines["a"]
    else:
        assert lines["a"]
    assert call("verify", runs).code == 1


def test_no_link_in_the_folder_is_followed(runs: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside") / "journal.jsonl"
    outside.write_bytes((runs / "a" / "journal.jsonl").read_bytes())
    (runs / "a" / "journal.jsonl").unlink()
    (runs / "a" / "journal.jsonl").symlink_to(outside)
    done = call("export", runs, "--json")
    assert {row["run"] for row in json.loads(done.out)} == {"b"}
    assert "journal.jsonl is a link, which is not followed" in done.err

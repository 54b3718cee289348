"""`nclab export`: the records of runs as tables that other tools read."""

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


def test_a_row_for_each_layer_and_moment(runs: Path) -> None:
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


def test_every_format_holds_the_same(runs: Path, tmp_path: Path) -> None:
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
    ("words", "expected"),
    [
        (("--records", "epochs"), "Expected runs with records of epochs"),
        (("--out", "all.xlsx"), "with the ending .csv, .parquet or .json, got all.xlsx"),
        (("--format", "parquet"), "Expected --out FILE for parquet"),
        (("--format", "csv", "--json"), "Expected --json or --format csv, got both"),
        (("--records", ","), "Expected one or more kinds in --records"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    runs: Path, words: tuple[str, ...], expected: str
) -> None:
    done = call("export", runs, *words)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert call("export", runs / "none").code == 2


def test_a_table_takes_the_place_of_no_pipe_and_goes_where_a_link_leads(
    runs: Path, tmp_path: Path
) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.csv"
    os.mkfifo(pipe)
    done = call("export", runs, "--out", pipe, "--format", "csv")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "which is a pipe. Name another file, or leave --out out to print." in done.err
    assert pipe.is_fifo()
    link.symlink_to("table.csv")
    assert call("export", runs, "--out", link).code == 0
    assert link.is_symlink()
    assert (tmp_path / "table.csv").read_text().startswith("run,")

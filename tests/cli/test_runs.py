"""`nclab runs`: one row per run, from the end of its journal."""

import io
import json
from pathlib import Path

import pytest

from nclab.records import open_run
from nclab.records.manifest import read_manifest
from tests.cli.runner import call
from tests.records.test_run import start
from tests.report.sweeps import sweep


def some_runs(folder: Path) -> None:
    layer = {"layer": "last", "min_intra": 0.75, "accuracy": 0.5, "intra_cosine": [0.75, 0.9]}
    with start(folder / "fleet" / "a") as run:
        for epoch in (1, 2):
            run.append(
                {"kind": "measurement", "step": epoch * 10, "epoch": epoch, "layers": [layer]}
            )
            run.append({"kind": "geometry", "step": epoch * 10, "points": [[0, 1, 2]]})
        run.finish()
    with start(folder / "fleet" / "b") as run:
        run.beat(step=3, total=12)
    with start(folder / "c") as run:
        run.fail("the loss [is] not finite")


def test_every_run_has_a_row(tmp_path: Path) -> None:
    some_runs(tmp_path)
    done = call("runs", tmp_path)
    assert (done.code, done.err) == (0, "")
    for text in ("finished", "stopped", "25%", "0.75", "[is]"):
        assert text in done.out


def test_the_same_rows_as_json(tmp_path: Path) -> None:
    some_runs(tmp_path)
    rows = {row["name"]: row for row in json.loads(call("runs", tmp_path, "--json").out)}
    assert set(rows) == {"a", "b", "c"}
    assert {name: row["state"] for name, row in rows.items()} == {
        "a": "finished",
        "b": "stopped",
        "c": "failed",
    }
    assert (rows["a"]["epoch"], rows["a"]["accuracy"], rows["a"]["min_intra"]) == (2, 0.5, 0.75)
    assert (rows["b"]["progress"], rows["b"]["step"], rows["b"]["total"]) == (0.25, 3, 12)
    assert rows["c"]["why"] == "the loss [is] not finite"
    assert rows["a"]["metrics"] == {"last": {"min_intra": 0.75, "accuracy": 0.5}}
    assert rows["a"]["config"] == read_manifest(tmp_path / "fleet" / "a").config != {}
    assert rows["c"]["metrics"] == {}


def test_problems_are_shown(tmp_path: Path) -> None:
    sweep(tmp_path)
    rows = {row["name"]: row["health"] for row in json.loads(call("runs", tmp_path, "--json").out)}
    assert rows["dead"] == "dead"
    assert rows["monitored"] == "not finite"
    assert rows["affine-0.001-0"] == ""
    assert rows["none-0.001-0"] == "not converged"
    assert "health" in call("runs", tmp_path).out


def test_a_damaged_run_is_reported(tmp_path: Path) -> None:
    some_runs(tmp_path)
    (tmp_path / "c" / "manifest.json").write_text("{")
    done = call("runs", tmp_path, "--json")
    assert {row["name"] for row in json.loads(done.out)} == {"a", "b"}
    assert len(done.err.splitlines()) == 1
    assert "c/manifest.json" in done.err


def test_the_end_of_a_long_name_is_shown(tmp_path: Path) -> None:
    name = "teacher3_L15_w64_affine_wd1e-2_s0_7dae7d9d"
    with start(tmp_path / name) as run:
        run.fail("some words that need a good part of the width of the table")
    done = call("runs", tmp_path)
    assert "…" not in done.out
    first = [line.split("│")[1].strip() for line in done.out.splitlines() if "│" in line]
    assert "".join(first) == name


def test_accuracy_and_loss_are_those_of_the_measurement(tmp_path: Path) -> None:
    layer = {"layer": "last", "min_intra": 0.75, "accuracy": 0.9985, "loss": 0.04}
    train = {"accuracy": 0.9915, "loss": 0.05}  # averages while the weights moved
    with start(tmp_path / "a") as run:
        run.append({"kind": "measurement", "step": 1, "layers": [layer], "train": train})
    (row,) = json.loads(call("runs", tmp_path, "--json").out)
    assert (row["accuracy"], row["loss"]) == (0.9985, 0.04)


def test_a_running_run_is_listed(tmp_path: Path) -> None:
    with start(tmp_path / "now"):
        (row,) = json.loads(call("runs", tmp_path, "--json").out)
    assert row["state"] == "running"


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    done = call("runs", tmp_path)
    assert (done.code, done.out) == (0, f"No runs in {tmp_path}.\n")
    assert json.loads(call("runs", tmp_path, "--json").out) == []
    done = call("runs", tmp_path / "missing")
    assert done.code == 2
    assert "does not exist" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_file_instead_of_a_folder_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = call("runs", file)
    assert (done.code, done.err) == (
        2,
        f"nclab: Expected a folder with runs, but {file} is a file.\n",
    )


def test_links_that_are_not_followed_are_reported(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "runs"
    outside.write_text("secret")
    start(root / "one").close()
    (root / "one" / "checkpoints").rmdir()
    (root / "one" / "checkpoints").symlink_to("/")
    (root / "linked").mkdir()
    (root / "linked" / "manifest.json").symlink_to(outside)
    done = call("runs", root)
    assert done.code == 0
    verified = json.loads(call("verify", root, "--json").out)
    states = {result["file"]: result["state"] for result in verified}
    assert len(states) == len(verified)
    for name in ("one/checkpoints", "linked/manifest.json"):
        assert str(root / name) in done.err
        assert states[name] == "skipped"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", ["runs", "export"])
def test_escape_sequences_of_a_run_do_not_reach_the_terminal(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cli.runner.io.StringIO", Terminal)
    monkeypatch.setenv("TERM", "dumb")  # without colours, which are escape sequences
    attack = "\x1b]0;title\x07\x1b[2J\x9b31m"
    layer = {"layer": f"fc{attack}", "min_intra": 0.5}
    with open_run(tmp_path / "one", kind=f"k{attack}", config={}, name=f"n{attack}") as run:
        run.append({"kind": "measurement", "step": 1, "layers": [layer]})
        run.fail(f"why{attack}")
    (tmp_path / f"link{attack}").symlink_to("nowhere")
    result = call(command, tmp_path)
    assert result.code == 0
    assert "nowhere" not in result.out
    for stream in (result.out, result.err):
        assert not any(character in stream for character in "\x1b\x07\x9b")
    assert "\ufffd" in result.out
    assert "\ufffd" in result.err

"""`nclab verify`: good and damaged folders."""

import json
from pathlib import Path

from nclab.records.results import write_json
from tests.cli.runner import call
from tests.cli.test_runs import some_runs


def test_good_folders_are_counted(tmp_path: Path) -> None:
    some_runs(tmp_path)
    write_json(tmp_path / "claims.json", {"claims": []})
    done = call("verify", tmp_path)
    assert (done.code, done.out, done.err) == (0, "7 files: 7 good.\n", "")


def test_a_changed_number_is_reported(tmp_path: Path) -> None:
    some_runs(tmp_path)
    journal = tmp_path / "fleet" / "a" / "journal.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b'"min_intra":0.75', b'"min_intra":0.95'))
    (problem,) = [
        row for row in json.loads(call("verify", tmp_path, "--json").out) if row["state"] != "good"
    ]
    assert problem["file"] == "fleet/a/journal.jsonl"
    offset = content.index(b'{"kind":"measurement"')
    assert f"byte {offset}, line 2" in problem["found"]
    done = call("verify", tmp_path)
    assert done.code == 1
    assert "7 files" not in done.out
    assert "6 files: 5 good, 1 damaged." in done.out
    listed = call("runs", tmp_path)
    assert "0.95" not in listed.out
    assert "damaged" in " ".join(listed.out.split())


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    done = call("verify", tmp_path / "none")
    assert (done.code, done.out) == (2, "")
    assert "does not exist" in done.err

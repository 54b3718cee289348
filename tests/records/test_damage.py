"""Every changed record is noticed, and every intact record is still read."""

import random
import shutil
import warnings
from pathlib import Path

import pytest

from nclab.errors import RecordError
from nclab.records import read_run
from nclab.records.results import parse_json, write_json
from nclab.records.verify import Verified, verify_run
from tests.fuzz.records import campaign, written
from tests.records.test_faults import line_for, make_old
from tests.records.test_run import start, three_checkpoints


def test_every_damage_of_a_journal_is_noticed(tmp_path: Path) -> None:
    attack = campaign(tmp_path)
    assert sum(attack(random.Random(number)) for number in range(1500)) > 1000


def test_every_flip_of_a_byte_is_noticed(tmp_path: Path) -> None:
    truth = written(tmp_path)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            view = read_run(tmp_path)
        assert view.problem, f"byte {place} changed without a word"
        assert len(truth) - len(view.records) in (0, 1, 2)


def test_every_flip_of_a_file_of_results_is_noticed(tmp_path: Path) -> None:
    path, value = tmp_path / "numbers.json", {"rows": [{"accuracy": 0.9533}], "preset": "paper"}
    write_json(path, value)
    content = path.read_bytes()
    assert parse_json(path) == value
    noticed = 0
    for place in range(len(content)):
        for bit in range(8):
            changed = bytes([content[place] ^ (1 << bit)])
            path.write_bytes(content[:place] + changed + content[place + 1 :])
            try:
                assert parse_json(path) == value
            except RecordError:
                noticed += 1
    assert noticed > 8 * len(content) - 20  # but for the last newline


def verify_journal(folder: Path) -> Verified:
    """Return the result of verifying the journal of a run."""
    return next(result for result in verify_run(folder) if result.file == "journal.jsonl")


def test_verify_says_what_is_affected_and_how_to_repair_it(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    assert {one.state for one in verify_run(tmp_path)} == {"good"}
    journal = tmp_path / "journal.jsonl"
    place = whole.index(b'"step":20')
    journal.write_bytes(whole[: place + 7] + b"9" + whole[place + 8 :])
    result = verify_journal(tmp_path)
    assert result.state == "damaged"
    assert f"byte {whole.rindex(b'{', 0, place)}, line 3" in result.message
    assert "delete the folder" in result.repair  # both checkpoints are behind the damage
    later = line_for(tmp_path, b'{"kind":"note"}', 5)
    journal.write_bytes(whole.replace(b'"step":30', b'"step":31') + later)
    assert "goes back to step 20" in verify_journal(tmp_path).repair
    journal.write_bytes(whole[:-9])
    assert "damaged from byte" in verify_journal(tmp_path).message
    journal.write_bytes(whole)
    make_old(tmp_path)
    assert verify_journal(tmp_path).state == "unchecked"


def test_a_missing_journal_is_reported_although_there_are_checkpoints(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    (tmp_path / "journal.jsonl").unlink()
    result = verify_journal(tmp_path)
    assert result.state == "damaged"
    assert "its journal is missing" in result.message


def test_a_run_of_the_released_version_goes_on_in_its_own_form(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 1})
    path = tmp_path / "journal.jsonl"
    make_old(tmp_path)
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 2})
    assert path.read_bytes().endswith(b'{"kind":"measurement","step":2}\n')
    assert [one["step"] for one in read_run(tmp_path).records] == [1, 2]


def test_a_forked_child_and_a_second_writer_are_refused(tmp_path: Path) -> None:
    import os

    run = start(tmp_path)
    with pytest.raises(RecordError, match="in use by process"):
        start(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            run.append({"kind": "measurement", "step": 1})
        except RecordError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    run.append({"kind": "measurement", "step": 2})
    run.close()
    assert [one["step"] for one in read_run(tmp_path).records] == [2]
    shutil.rmtree(tmp_path)

"""Damage of every byte: each changed record is noticed, each whole one is still read."""

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nclab.errors import NclabWarning, RecordError
from nclab.records import Tail, glance, read_run
from nclab.records.results import parse_json, write_json
from nclab.records.seals import seal_line
from nclab.records.verify import verify_run
from tests.records.test_faults import old_lines
from tests.records.test_run import start, three_checkpoints

Mutation = Callable[[random.Random, bytes], bytes]


def flipped(chance: random.Random, content: bytes) -> bytes:
    place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def replaced(chance: random.Random, content: bytes) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]


def inserted(chance: random.Random, content: bytes) -> bytes:
    place, count = chance.randrange(len(content)), chance.choice((1, 1, 2, 40))
    return content[:place] + chance.randbytes(count) + content[place:]


def deleted(chance: random.Random, content: bytes) -> bytes:
    place, count = chance.randrange(len(content)), chance.choice((1, 1, 2, 40))
    return content[:place] + content[place + count :]


def copied(chance: random.Random, content: bytes) -> bytes:
    begin, end = sorted(chance.randrange(len(content)) for _ in range(2))
    place = chance.randrange(len(content))
    return content[:place] + content[begin:end] + content[place:]


def moved_lines(chance: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")[:-1]
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    change = chance.choice(("swap", "drop", "double"))
    if change == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif change == "drop":
        del lines[one]
    else:
        lines.insert(other, lines[one])
    return b"\n".join([*lines, b""])


MUTATIONS: tuple[Mutation, ...] = (flipped, replaced, inserted, deleted, copied, moved_lines)


def written(folder: Path) -> list[dict[str, Any]]:
    """A run with some records; what it holds."""
    with start(folder) as run:
        for step in range(6):
            layer = {"layer": "fc", "min_intra": 0.9 + step / 100, "intra": [0.9, 1.0]}
            train = {"loss": 1 / (step + 1), "accuracy": 0.9533, "rate": 0.1}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "train": train})
        run.finish(accuracy=0.9533)
    return read_run(folder).records


def attack(chance: random.Random, content: bytes, folder: Path, truth: list[Any]) -> bool:
    """One mutation of a journal; whether it changed a byte. Fails where a reader is deceived."""
    changed = chance.choice(MUTATIONS)(chance, content)
    (folder / "journal.jsonl").write_bytes(changed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        view, tail = read_run(folder), Tail(folder)
        followed = tail.poll()
    assert all(record in truth for record in view.records), "a changed record was read"
    assert followed == view.records
    lost = truth[: len(view.records)] != view.records
    if lost:
        assert view.problem, "records are gone from the middle without a word"
        torn = not changed.endswith(b"\n")
        assert tail.problem == view.problem or (torn and "torn" in view.problem)
    assert bool(tail.problem) == any(one.category is NclabWarning for one in told)
    good = {line for line in content.split(b"\n") if line}
    whole = [line for line in changed[: changed.rfind(b"\n") + 1].split(b"\n") if line in good]
    if len(set(whole)) == len(whole) and whole == sorted(whole, key=content.index):
        expected = len(whole) - (content.split(b"\n")[0] in whole)
        assert len(view.records) == expected, "a good record after the damage was not read"
    assert all(record in truth for record in glance(folder).records)
    return changed != content


def test_every_damage_of_a_journal_is_noticed(tmp_path: Path) -> None:
    truth = written(tmp_path)
    content = (tmp_path / "journal.jsonl").read_bytes()
    chance = random.Random(0)
    assert sum(attack(chance, content, tmp_path, truth) for _ in range(1500)) > 1000


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


def test_verify_says_what_is_affected_and_how_to_repair_it(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    assert {one.state for one in verify_run(tmp_path)} == {"good"}
    journal = tmp_path / "journal.jsonl"
    place = whole.index(b'"step":20')
    journal.write_bytes(whole[: place + 7] + b"9" + whole[place + 8 :])
    found = {one.file: one for one in verify_run(tmp_path)}["journal.jsonl"]
    assert found.state == "damaged"
    assert f"byte {whole.rindex(b'{', 0, place)}, line 3" in found.found
    assert "delete the folder" in found.repair  # checkpoints of steps 20 and 30 are kept
    later = seal_line(b'{"kind":"note"}', 5)
    journal.write_bytes(whole.replace(b'"step":30', b'"step":31') + later)
    assert "goes back to step 20" in {o.file: o for o in verify_run(tmp_path)}[journal.name].repair
    journal.write_bytes(whole[:-9])
    assert "is torn" in {one.file: one for one in verify_run(tmp_path)}[journal.name].found
    journal.write_bytes(old_lines(whole))
    assert {one.file: one for one in verify_run(tmp_path)}[journal.name].state == "unchecked"


def test_a_run_of_the_released_version_goes_on_in_its_own_form(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 1})
    path = tmp_path / "journal.jsonl"
    path.write_bytes(old_lines(path.read_bytes()))
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 2})
    assert path.read_bytes().endswith(b'{"kind":"measurement","step":2}\n')
    assert [one["step"] for one in read_run(tmp_path).records] == [1, 2]


def test_a_forked_child_and_a_second_writer_are_refused(tmp_path: Path) -> None:
    import os

    run = start(tmp_path)
    (tmp_path / "lock").unlink()
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

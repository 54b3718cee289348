"""Every kind of damage is repaired, survived or refused in one line."""

import errno
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from nclab.errors import NclabError, NclabWarning
from nclab.records import Checkpoint, JournalReader, open_run, read_run
from nclab.records.encoding import add_checksum, dump_checked_json, strip_checksum
from nclab.records.manifest import (
    list_checkpoints,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from tests.records.test_run import start, three_checkpoints, weights


def journal_of(folder: Path) -> Path:
    return folder / "journal.jsonl"


def checkpoint_of(folder: Path, step: int) -> Path:
    return folder / "checkpoints" / f"step-{step:09d}.safetensors"


def make_old(folder: Path, version: int = 1) -> bytes:
    """Turn a run into one of nclab 0.1.0, or into one of schema 2, which has no identity."""
    path, manifest = journal_of(folder), folder / "manifest.json"
    content = path.read_bytes()
    bodies = [strip_checksum(line) for line in content.split(b"\n")[:-1]]
    bodies[0] = b'{"kind":"start","schema":%d}' % version
    checked = [add_checksum(body, number) for number, body in enumerate(bodies, start=1)]
    path.write_bytes(b"".join(checked if version > 1 else [body + b"\n" for body in bodies]))
    entries = json.loads(manifest.read_bytes()) | {"schema": version}
    del entries["identity"], entries["check"]
    manifest.write_bytes(
        dump_checked_json(entries) if version > 1 else json.dumps(entries).encode()
    )
    state = json.loads((folder / "state.json").read_bytes())
    state.pop("journal_length", None)
    (folder / "state.json").write_text(json.dumps(state))
    now = path.read_bytes()
    for file in list_checkpoints(folder).values():
        one = read_checkpoint(file)
        lines = content[: one.journal_length].count(b"\n")
        known = b"".join(now.splitlines(keepends=True)[:lines])
        about = (len(known), zlib.crc32(known))
        write_checkpoint(folder, Checkpoint(one.step, one.tensors, one.extra, *about))
    return now


def line_for(folder: Path, body: bytes, number: int) -> bytes:
    """Return a line as the writer of a run would append it."""
    return add_checksum(body, number, read_manifest(folder).identity)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_torn_last_line_is_repaired_wherever_it_is_torn(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last + 1, len(whole)):
        journal_of(tmp_path).write_bytes(whole[:end])
        assert [r["step"] for r in read_run(tmp_path).records] == [10, 20]
        with pytest.warns(NclabWarning, match="step 30"), start(tmp_path) as run:
            assert run.steps() == [20]  # the one of step 30 is ahead of the journal
        assert journal_of(tmp_path).read_bytes() == whole[:last]


def test_a_torn_heading_is_repaired(tmp_path: Path) -> None:
    start(tmp_path).close()
    whole = journal_of(tmp_path).read_bytes()
    for end in range(len(whole)):
        journal_of(tmp_path).write_bytes(whole[:end])
        start(tmp_path).close()
        assert journal_of(tmp_path).read_bytes() == whole


def test_a_power_cut_may_leave_zeros(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    journal_of(tmp_path).write_bytes(whole + b"\0" * 4096)
    start(tmp_path).close()
    assert journal_of(tmp_path).read_bytes() == whole
    journal_of(tmp_path).write_bytes(whole + b"\0\n\0\n{")
    with pytest.warns(NclabWarning, match="2 lines are removed"):
        start(tmp_path).close()
    assert journal_of(tmp_path).read_bytes() == whole


def test_a_line_damaged_in_the_middle_stops_the_writer_not_the_reader(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        for step in range(5):
            run.append({"kind": "measurement", "step": step})
    lines = journal_of(tmp_path).read_bytes().split(b"\n")
    lines[2] = lines[2][:-3] + b"\0\0\0"
    journal_of(tmp_path).write_bytes(b"\n".join(lines))
    before = journal_of(tmp_path).read_bytes()
    with pytest.raises(NclabError, match=r"line 3 of .*journal.jsonl .*is damaged"):
        start(tmp_path)
    assert journal_of(tmp_path).read_bytes() == before
    with pytest.warns(NclabWarning, match="skipped"):
        assert [r["step"] for r in read_run(tmp_path).records] == [0, 2, 3, 4]
    with pytest.warns(NclabWarning, match="skipped"):
        assert len(JournalReader(tmp_path).poll()) == 4


def test_damage_after_a_good_checkpoint_is_repeated(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 40})
    flip(journal_of(tmp_path), whole.index(b'"step":30') - 1)  # the comma before it
    with pytest.warns(NclabWarning, match="step 30 is skipped"):
        run = start(tmp_path)
    with pytest.raises(NclabError, match=r"line 4 .* damaged"):
        run.append({"kind": "measurement", "step": 50})
    run.resume(20)
    run.append({"kind": "measurement", "step": 30, "loss": 1 / 30})
    run.close()
    assert journal_of(tmp_path).read_bytes() == whole


def test_a_changed_digit_is_noticed(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    flip(journal_of(tmp_path), whole.index(b'"step":30') + 7)  # still JSON: step 20 twice
    with pytest.warns(NclabWarning, match=r"1 line is damaged and skipped, from line 4 on"):
        assert [one["step"] for one in read_run(tmp_path).records] == [10, 20]
    flip(journal_of(tmp_path), whole.index(b'"step":30') + 7)
    journal_of(tmp_path).write_bytes(make_old(tmp_path).replace(b'"step":30', b'"step":20'))
    assert [one["step"] for one in read_run(tmp_path).records] == [10, 20, 20]


def test_a_changed_digit_is_noticed_at_the_checkpoint(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    flip(journal_of(tmp_path), whole.index(b'"step":30') + 7)  # still JSON: step 20 twice
    with pytest.warns(NclabWarning, match="1 line is removed"):
        run = start(tmp_path)
    with run:
        with pytest.warns(NclabWarning, match="step 30 is skipped"):
            assert run.steps() == [20]
        with pytest.raises(NclabError, match=r"does not\. Resume from another step"):
            run.resume(30)
        run.resume(20)
        run.append({"kind": "measurement", "step": 30, "loss": 1 / 30})
    assert journal_of(tmp_path).read_bytes() == whole


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    path = checkpoint_of(tmp_path, 30)
    whole = path.read_bytes()
    with start(tmp_path) as run:
        for end in (0, 5, 100, len(whole) - 1):
            path.write_bytes(whole[:end])
            with pytest.warns(NclabWarning, match="step-000000030.*skipped"):
                assert run.steps() == [20]
        path.write_bytes(whole)
        for place in range(0, len(whole), 7):  # header and data alike
            flip(path, place)
            with pytest.warns(NclabWarning, match="step-000000030.*skipped"):
                assert run.steps() == [20]
            flip(path, place)
        assert run.steps() == [20, 30]


def test_two_damaged_checkpoints_start_again_with_warnings(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    for step in (20, 30):
        checkpoint_of(tmp_path, step).write_bytes(b"")
    with start(tmp_path) as run:
        with pytest.warns(NclabWarning) as caught:
            assert run.resume_latest() is None
        assert len(caught) == 2


@pytest.mark.parametrize("part", [0, 7])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    run = start(tmp_path)
    run.append({"kind": "measurement", "step": 1})
    before = journal_of(tmp_path).read_bytes()
    write, calls = os.write, []

    def full(descriptor: int, content: bytes) -> int:
        calls.append(len(content))
        if part and len(calls) == 1:
            return write(descriptor, content[:part])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NclabError, match=r"No space left on device. Nothing .* is lost"):
        run.append({"kind": "measurement", "step": 2})
    monkeypatch.undo()
    assert journal_of(tmp_path).read_bytes() == before
    with pytest.raises(NclabError, match="No space left"):  # what the disk has is not known
        run.append({"kind": "measurement", "step": 2})
    run.close()
    with start(tmp_path) as run:  # and it can go on when there is room
        run.append({"kind": "measurement", "step": 2})
    assert len(read_run(tmp_path).records) == 2


LIMITED = """
import resource, sys, torch
from nclab.errors import NclabError
from nclab.records import open_run
run = open_run(sys.argv[1], kind="demo", config={}, seed=0)
for step in range(3):
    run.append({"kind": "m", "step": step})
run.checkpoint(2, {"w": torch.zeros(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    if sys.argv[3] == "checkpoint":
        run.checkpoint(3, {"w": torch.zeros(100_000)})
    for step in range(3, 10_000):
        run.append({"kind": "m", "step": step})
except NclabError as error:
    print(error)
    sys.exit(2)
"""


@pytest.mark.parametrize("what", ["checkpoint", "journal"])
def test_a_file_that_may_not_grow_stops_with_one_line(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), "2000", what],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"Cannot write {tmp_path}")
    assert len(done.stdout.splitlines()) == 1
    content = journal_of(tmp_path).read_bytes()
    assert content.endswith(b"\n")  # the part of a line is taken back
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [
        "step-000000002.safetensors"
    ]
    with open_run(tmp_path, kind="demo", config={}, seed=0) as run:
        assert run.steps() == [2]


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    with start(tmp_path), pytest.raises(NclabError, match=f"in use by process {os.getpid()}"):
        start(tmp_path)
    start(tmp_path).close()


HOLD = """
import sys
from nclab.records import open_run
run = open_run(sys.argv[1], kind="demo", config={"a": 1}, seed=0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert read_run(tmp_path).state == "running"
        with pytest.raises(NclabError, match=f"in use by process {process.pid}"):
            open_run(tmp_path, kind="demo", config={"a": 1}, seed=0)
        process.kill()
    assert read_run(tmp_path).state == "stopped"
    open_run(tmp_path, kind="demo", config={"a": 1}, seed=0).close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    run = start(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # waits until the parent has looked
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    run.close()
    start(tmp_path).close()
    os.close(writing)
    os.waitpid(child, 0)
    os.close(reading)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    start(tmp_path).close()
    manifest = tmp_path / "manifest.json"
    old = manifest.read_text()
    manifest.write_bytes(dump_checked_json(json.loads(old) | {"schema": 4}))
    for opened in (lambda: start(tmp_path), lambda: read_run(tmp_path)):
        with pytest.raises(NclabError, match=r"schema 4 in .*Update nclab"):
            opened()
    manifest.write_text(old)
    journal_of(tmp_path).write_bytes(add_checksum(b'{"kind":"start","schema":4}', 1))
    with pytest.raises(NclabError, match=r"schema 4 in .*Update nclab"):
        start(tmp_path)


def test_a_damaged_or_foreign_manifest_is_refused(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    for content, words in (("{", "damaged"), ("[1]", "another file"), ("{}", "another file")):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(NclabError, match=words):
            start(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(NclabError, match="missing"):
        start(tmp_path)
    with pytest.raises(NclabError, match=r"no manifest\.json"):
        read_run(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NclabError, match="Cannot write"):
        start(tmp_path / "file" / "run")


def test_an_error_in_the_loop_is_recorded(tmp_path: Path) -> None:
    def interrupted() -> None:
        with start(tmp_path) as run:
            run.checkpoint(1, weights(1))
            raise KeyError("lost")

    with pytest.raises(KeyError):
        interrupted()
    assert read_run(tmp_path).state == "failed"
    assert read_run(tmp_path).heartbeat["why"] == "'lost'"
    with start(tmp_path) as run:
        assert run.steps() == [1]

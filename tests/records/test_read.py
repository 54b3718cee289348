"""Readers see every complete record, during and after writing."""

from pathlib import Path

import pytest

from nclab.errors import NclabError
from nclab.records import JournalReader, find_runs, glance, read_run, verify_run
from nclab.records import run as run_module
from nclab.records.encoding import add_checksum
from nclab.records.manifest import read_manifest
from tests.cli.runner import call
from tests.records.test_faults import line_for
from tests.records.test_run import start, three_checkpoints


def test_a_view_has_state_and_progress(tmp_path: Path) -> None:
    with start(tmp_path, name="mine") as run:
        assert read_run(tmp_path).progress is None
        run.beat(step=25, total=100, rate=3.5)
        view = read_run(tmp_path)
        assert (view.name, view.state, view.progress) == ("mine", "running", 0.25)
        assert view.heartbeat["rate"] == 3.5
        assert view.end is None
    assert read_run(tmp_path).state == "stopped"
    with start(tmp_path) as run:
        run.finish(loss=0.5)
    view = read_run(tmp_path)
    assert (view.state, view.progress) == ("finished", 1.0)
    assert view.end == {"kind": "end", "state": "finished", "loss": 0.5}


@pytest.mark.parametrize(("period", "writes"), [(1e9, 1), (0.0, 5)])
def test_beats_are_written_once_a_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period: float, writes: int
) -> None:
    monkeypatch.setattr(run_module, "PERIOD_SECONDS", period)
    seen = set()
    with start(tmp_path) as run:
        for step in range(1, 6):
            run.beat(step=step, total=9)
            seen.add((tmp_path / "state.json").read_bytes())
    assert len(seen) == writes
    assert read_run(tmp_path).heartbeat["step"] == 5  # the last one is kept at the end


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 20, b"[]", b'{"state":"dreaming"}', b'{"state":"stopped","step":"x"}']
)
def test_a_damaged_state_file_is_a_problem(tmp_path: Path, content: bytes) -> None:
    three_checkpoints(tmp_path)
    (tmp_path / "state.json").write_bytes(content)
    for view in (read_run(tmp_path), glance(tmp_path)):
        assert (view.state, view.progress, view.heartbeat) == ("stopped", None, {})
        assert view.problem == "its state.json is damaged, so its progress is unknown"
    (result,) = [result for result in verify_run(tmp_path) if result.state != "good"]
    assert (result.file, result.state) == ("state.json", "damaged")
    assert "state.json is damaged" in call("runs", tmp_path, "--json").out


def test_the_heading_is_no_record(tmp_path: Path) -> None:
    start(tmp_path).close()
    identity = read_manifest(tmp_path).identity
    heading = add_checksum(b'{"kind":"start","schema":3,"identity":"%s"}' % identity.encode(), 1)
    assert (tmp_path / "journal.jsonl").read_bytes() == heading
    assert read_run(tmp_path).records == []
    assert JournalReader(tmp_path).poll() == []


def fill(folder: Path, count: int) -> None:
    with start(folder) as run:
        for step in range(count):
            layer = {"name": "a", "min_intra": 0.5, "intra": [0.5, 0.6], "pairs": [[1, 2], [3, 4]]}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "empty": []})
            run.append({"kind": "geometry", "step": step, "points": [[0.0, 1.0, 2.0]] * 200})


def test_large_records_can_be_skipped(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    view = read_run(tmp_path, kinds={"measurement"})
    assert [record["step"] for record in view.records] == [0, 1, 2]
    assert len(read_run(tmp_path).of_kind("geometry")) == 3
    assert len(JournalReader(tmp_path, kinds=["geometry"]).poll()) == 3


@pytest.mark.parametrize("ending", [b"", b'{"kind":"measurement","st', b"\0" * 70_000])
def test_a_glance_finds_the_last_measurement(tmp_path: Path, ending: bytes) -> None:
    fill(tmp_path, 20)
    with start(tmp_path) as run:
        for _ in range(50):  # push the last measurement beyond one block
            run.append({"kind": "geometry", "points": [[0.0, 1.0, 2.0]] * 200})
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(ending)
    (found,) = glance(tmp_path).records
    assert (found["kind"], found["step"]) == ("measurement", 19)


def test_a_glance_sees_the_end(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.finish(accuracy=1.0)
    view = glance(tmp_path)
    assert view.state == "finished"
    assert view.end is not None
    assert view.end["accuracy"] == 1.0


def test_runs_are_found_three_levels_deep(tmp_path: Path) -> None:
    for name in ("b", "a/x", "a/y/z", "a/y/too/deep", ".hidden"):
        start(tmp_path / name).close()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "manifest.json").write_text('{"schema": 1}')
    assert find_runs(tmp_path) == [tmp_path / name for name in ("a/x", "a/y/z", "b")]
    assert find_runs(tmp_path / "b") == [tmp_path / "b"]
    assert find_runs(tmp_path / "nothing") == []


def test_a_reader_returns_each_record_once(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path)
    assert reader.poll() == []  # there is no run yet
    with start(tmp_path) as run:
        for step in range(3):
            run.append({"kind": "m", "step": step})
        assert [r["step"] for r in reader.poll()] == [0, 1, 2]
        assert reader.poll() == []
        run.append({"kind": "m", "step": 3})
        assert [r["step"] for r in reader.poll()] == [3]
        assert not reader.restarted


def test_a_reader_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    start(tmp_path).close()
    reader = JournalReader(tmp_path)
    line = line_for(tmp_path, b'{"kind":"m","step":7}', 2)
    seen = []
    with (tmp_path / "journal.jsonl").open("ab", buffering=0) as journal:
        for place in range(len(line)):
            journal.write(line[place : place + 1])
            seen += reader.poll()
    assert seen == [{"kind": "m", "step": 7}]


def test_a_reader_notices_a_resumed_run(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    reader = JournalReader(tmp_path)
    assert len(reader.poll()) == 3
    with start(tmp_path) as run:
        run.resume(20)
        assert [r["step"] for r in reader.poll()] == [10, 20]
        assert reader.restarted
        assert reader.poll() == []
        assert not reader.restarted


def test_a_reader_notices_a_run_that_was_cut_and_grew_again(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    reader = JournalReader(tmp_path)
    reader.poll()
    with start(tmp_path) as run:
        run.resume(20)
        for step in (31, 32, 33):  # otherwise than before: another machine, another order
            run.append({"kind": "measurement", "step": step})
    assert [r["step"] for r in reader.poll()] == [10, 20, 31, 32, 33]
    assert reader.restarted


def test_a_reader_reads_only_what_is_new(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    reader = JournalReader(tmp_path)
    reader.poll()
    before = (tmp_path / "journal.jsonl").stat().st_size
    with (tmp_path / "journal.jsonl").open("r+b") as journal:
        journal.write(b"\0" * (before - 1000))  # were it read again, it would be damaged
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(line_for(tmp_path, b'{"kind":"m"}', 202))
    assert reader.poll() == [{"kind": "m"}]
    assert reader.problem is None


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for read in (read_run, glance):
        with pytest.raises(NclabError, match=r"no manifest\.json"):
            read(tmp_path)

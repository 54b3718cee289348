"""Files of another run, and journals that lost lines at their end, are noticed."""

import shutil
import warnings
from pathlib import Path

import pytest

from nclab.errors import NclabError, NclabWarning, RecordError
from nclab.records import JournalReader, Run, find_runs, glance, open_run, read_run
from nclab.records.verify import Verified, verify_folder, verify_run
from nclab.report.run_follower import RunFollower
from tests.cli.runner import call
from tests.records.test_faults import checkpoint_of, journal_of, make_old
from tests.records.test_run import weights


def write(folder: Path, number: int, *, finish: bool = True, seed: int | None = 0) -> Path:
    """Write a run of five measurements with checkpoints of steps 3 and 5."""
    with open_run(folder, kind="demo", config={"number": number}, seed=seed) as run:
        for step in range(1, 6):
            layer = {"layer": "fc", "accuracy": step / 10 + number / 100}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "train": {}})
            run.beat(step=step, total=5)
            if step in (3, 5):
                run.checkpoint(step, weights(number + step))
        if finish:
            run.finish()
    return folder


def damaged(folder: Path) -> dict[str, Verified]:
    return {one.file: one for one in verify_run(folder) if one.state != "good"}


def reopen(folder: Path, number: int = 0) -> Run:
    return open_run(folder, kind="demo", config={"number": number}, seed=0)


def replace_line(folder: Path, other: Path, number: int) -> None:
    lines, others = (journal_of(one).read_bytes().splitlines(True) for one in (folder, other))
    journal_of(folder).write_bytes(
        b"".join([*lines[:number], others[number], *lines[number + 1 :]])
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_checkpoints_of_another_run_delete_no_record(tmp_path: Path, version: int) -> None:
    one, other = (write(tmp_path / str(n), n, finish=False) for n in (0, 10**9))
    if version < 3:  # as it was before files were bound to their run
        make_old(one, version), make_old(other, version)
    before = journal_of(one).read_bytes()
    shutil.rmtree(one / "checkpoints")
    shutil.copytree(other / "checkpoints", one / "checkpoints")
    for step in (3, 5):
        found = damaged(one)[f"checkpoints/{checkpoint_of(one, step).name}"]
        assert (found.state, "cannot go on" in found.repair) == ("damaged", True)
    with reopen(one) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore", NclabWarning)
        with pytest.raises(NclabError, match=r"got those of another journal: step-.*\. Restore"):
            run.resume_latest()
    assert journal_of(one).read_bytes() == before
    assert len(read_run(one).records) == 5


def test_one_checkpoint_of_another_run_is_skipped(tmp_path: Path) -> None:
    one, other = (write(tmp_path / str(n), n, finish=False) for n in (0, 10))
    shutil.copy(checkpoint_of(other, 5), checkpoint_of(one, 5))
    (result,) = damaged(one).values()
    assert result.file == f"checkpoints/{checkpoint_of(one, 5).name}"
    assert result.repair == "Delete it; the run resumes from the checkpoint before it."
    with reopen(one) as run, pytest.warns(NclabWarning, match="by another run"):
        found = run.resume_latest()
    assert found is not None
    assert found.step == 3


def test_without_checkpoints_a_run_starts_again(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 0, finish=False)
    shutil.rmtree(one / "checkpoints")
    with reopen(one) as run:
        assert run.resume_latest() is None
    assert read_run(one).records == []
    assert damaged(one) == {}


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 3, 5])
@pytest.mark.parametrize("beside", ["all", "no checkpoints", "no state"])
def test_a_journal_cut_at_a_line_is_damaged(
    tmp_path: Path, finish: bool, kept: int, beside: str
) -> None:
    one = write(tmp_path / "one", 0, finish=finish)
    if beside == "no checkpoints":
        shutil.rmtree(one / "checkpoints")
    elif beside == "no state":
        (one / "state.json").unlink()
    lines = journal_of(one).read_bytes().splitlines(keepends=True)
    journal_of(one).write_bytes(b"".join(lines[:kept]))
    assert "journal.jsonl" in damaged(one)
    assert damaged(one)["journal.jsonl"].repair
    if beside != "no state" or kept == 0:  # else only the checkpoints know, which are not read
        for read in (read_run, glance):
            assert read(one).problem
        growing = RunFollower(one, root=tmp_path)
        growing.refresh()
        assert growing.problem
        assert call("verify", tmp_path).code == 1
        assert "journal" in call("runs", tmp_path, "--json").out.split('"problem": "')[1]


def test_a_run_that_was_gone_on_with_is_good(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 0)
    whole = journal_of(one).read_bytes()
    with reopen(one) as run:
        run.resume(3)
        assert damaged(one) == {}
        assert read_run(one).problem is None
        state = (one / "state.json").read_bytes()
    (one / "state.json").write_bytes(state)  # as after a kill
    assert damaged(one) == {}
    assert read_run(one).problem is None
    write_rest(one)
    assert journal_of(one).read_bytes() == whole
    assert damaged(one) == {}


def write_rest(folder: Path) -> None:
    with reopen(folder) as run:
        for step in (4, 5):
            layer = {"layer": "fc", "accuracy": step / 10}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "train": {}})
        run.checkpoint(5, weights(5))
        run.finish()


def test_a_line_of_another_run_is_not_read(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, n) for n, name in enumerate(("one", "two")))
    for number in (0, 2, 5, 6):  # the heading, the third line, the last measurement, the end
        before = journal_of(one).read_bytes()
        replace_line(one, other, number)
        assert "journal.jsonl" in damaged(one)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NclabWarning)
            steps = [record.get("step", 6) for record in read_run(one).records]
            tail = [record.get("step", 6) for record in JournalReader(one).poll()]
        assert steps == tail == [step for step in range(1, 7) if step != number]
        assert glance(one).problem or number == 2  # a glance is at the end
        journal_of(one).write_bytes(before)
    assert damaged(one) == {}


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize("seed", [0, None])
def test_a_manifest_of_another_run_is_named(
    tmp_path: Path, checkpoints: bool, seed: int | None
) -> None:
    one, other = (write(tmp_path / name, n, seed=seed) for n, name in enumerate(("one", "two")))
    if not checkpoints:
        shutil.rmtree(one / "checkpoints")
    shutil.copy(other / "manifest.json", one / "manifest.json")
    before = journal_of(one).read_bytes()
    assert damaged(other) == {}
    found = damaged(one)
    names = {f"checkpoints/{path.name}" for path in (one / "checkpoints").glob("*")}
    assert set(found) == {"journal.jsonl", *names}
    assert all("another run" in result.message for result in found.values())
    assert glance(one).records == []
    with pytest.warns(NclabWarning, match="different runs"):
        assert read_run(one).records == []
    assert call("verify", tmp_path).code == 1
    assert "different runs" in call("runs", tmp_path, "--json").out
    with pytest.raises(RecordError, match="that of another run"):
        open_run(one, kind="demo", config={"number": 1}, seed=seed)
    assert journal_of(one).read_bytes() == before


def test_a_journal_of_another_run_is_named(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, n) for n, name in enumerate(("one", "two")))
    shutil.copy(journal_of(other), journal_of(one))
    assert "another run" in damaged(one)["journal.jsonl"].message
    assert "manifest.json" not in damaged(one)


def test_two_runs_without_a_seed_differ(tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, 0, seed=None) for name in ("one", "two"))
    replace_line(one, other, 2)
    assert set(damaged(one)) == {"journal.jsonl"}


def test_a_run_that_was_moved_or_copied_is_good(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 0, finish=False)
    shutil.copytree(one, tmp_path / "copy" / "of")
    one.rename(tmp_path / "renamed")
    assert {one.state for one in verify_folder(tmp_path)} == {"good"}
    for folder in find_runs(tmp_path):
        with reopen(folder) as run:
            assert run.steps() == [3, 5]


@pytest.mark.parametrize("version", [1, 2])
def test_older_runs_are_as_good_as_they_were(tmp_path: Path, version: int) -> None:
    one = write(tmp_path / "one", 0, finish=False)
    make_old(one, version)
    for _ in range(2):
        states = {one.file: one.state for one in verify_run(one)}
        old = {states.pop("manifest.json"), states.pop("journal.jsonl")}
        assert old == {"unchecked" if version == 1 else "good"}
        assert set(states.values()) == {"good"}
        with reopen(one) as run:
            run.append({"kind": "note", "step": 6})
            run.checkpoint(6, weights(6))
    with reopen(one) as run:
        assert run.resume_latest() is not None
        assert run.resume(None) is None  # anew, and still a run without an identity
        run.append({"kind": "note", "step": 7})
    assert [record["step"] for record in read_run(one).records] == [7]
    assert "journal.jsonl" not in damaged(one)


def test_the_heading_of_a_killed_start_is_replaced(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", 0), write(tmp_path / "two", 1)
    heading = journal_of(other).read_bytes().splitlines(keepends=True)[0]
    shutil.rmtree(one)
    one.mkdir()
    journal_of(one).write_bytes(heading)
    write(one, 0)
    assert damaged(one) == {}

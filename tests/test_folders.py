"""Replacing a folder keeps the old one or the new one, and the user's files in it."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nclab.errors import NclabError
from nclab.folders import FolderMark, replace_folder
from tests.kills import ends_at

OLD = {
    "runs/gone.html": b"1",
    "runs/stays.html": b"2",
    "index.html": b'"runs/gone.html" "runs/stays.html"',
}
NEW = {
    "runs/stays.html": b"4",
    "runs/more.html": b"5",
    "index.html": b'"runs/stays.html" "runs/more.html"',
}
MARK = FolderMark(
    "mark", {"format": "ours"}, folders=("runs", "data/empty"), pages=("index.html", "more.html")
)


def put(folder: Path, files: dict[str, bytes]) -> None:
    replace_folder(folder, files, MARK)


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder except its mark."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert json.loads(files.pop("mark").read_bytes())["format"] == "ours"
    return {name: path.read_bytes() for name, path in files.items()}


def neighbours(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir() if path != folder]


def test_a_kill_at_any_change_leaves_the_old_or_the_new_folder(tmp_path: Path) -> None:
    """Between two renames there is neither; the next call restores the old one first."""
    complete = missing = 0
    for change in range(1, 200):
        folder = tmp_path / str(change) / "report"
        put(folder, OLD)
        if not ends_at(change, lambda folder=folder: put(folder, NEW)):  # type: ignore[misc]
            break
        if folder.exists():
            assert content(folder) in (OLD, NEW), change
            complete += content(folder) == NEW
        else:
            missing += 1
        put(folder, NEW)
        assert content(folder) == NEW
        assert not neighbours(folder), change
    assert change > 15
    assert complete > 0
    assert missing == 1


def test_the_first_folder_is_complete_or_missing(tmp_path: Path) -> None:
    for change in range(1, 200):
        folder = tmp_path / str(change) / "report"
        if not ends_at(change, lambda folder=folder: put(folder, NEW)):  # type: ignore[misc]
            break
        assert not folder.exists() or content(folder) == NEW, change
        put(folder, NEW)
        assert content(folder) == NEW
        assert not neighbours(folder), change
    assert change > 10


def add_user_files(folder: Path) -> None:
    (folder / "mine" / "deep").mkdir(parents=True)
    (folder / "mine" / "deep" / "notes.txt").write_text("mine")
    (folder / "mine.html").write_text("mine")
    (folder / "link").symlink_to(folder.parent)
    os.mkfifo(folder / "fifo")


def check_user_files(folder: Path) -> None:
    assert (folder / "mine/deep/notes.txt").read_text() == "mine"
    assert (folder / "mine.html").read_text() == "mine"
    assert (folder / "link").is_symlink()
    assert (folder / "fifo").is_fifo()


def test_files_of_the_user_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    put(folder, OLD)
    add_user_files(folder)
    folder.chmod(0o750)
    put(folder, NEW)
    check_user_files(folder)
    assert folder.stat().st_mode & 0o777 == 0o750
    assert "runs/gone.html" not in content(folder)


def test_files_of_the_user_are_kept_after_a_kill_at_any_change(tmp_path: Path) -> None:
    for change in range(1, 200):
        folder = tmp_path / str(change) / "report"
        put(folder, OLD)
        add_user_files(folder)
        if not ends_at(change, lambda folder=folder: put(folder, NEW)):  # type: ignore[misc]
            break
        put(folder, NEW)
        check_user_files(folder)
        assert not neighbours(folder), change
    assert change > 20


def test_nothing_is_written_or_deleted_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "gone.html").write_text("precious")
    folder = tmp_path / "report"
    put(folder, OLD)
    for page in (folder / "runs").iterdir():
        page.unlink()
    (folder / "runs").rmdir()
    (folder / "runs").symlink_to(outside)
    put(folder, NEW)
    assert content(folder) == NEW
    assert {path.name for path in outside.iterdir()} == {"gone.html"}


def test_foreign_folders_with_the_name_of_a_leftover_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    foreign = tmp_path / ".report.0123456789ab"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    put(folder, OLD)
    assert (foreign / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["replace", "rename"])
def test_a_full_disk_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "report"
    put(folder, OLD)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(NclabError, match="No space left"):
        put(folder, NEW)
    monkeypatch.undo()
    assert content(folder) == OLD
    assert not neighbours(folder)


def test_a_folder_without_the_mark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "journal.jsonl").write_text("precious")
    with pytest.raises(NclabError, match="has other files in it"):
        put(Path("new/.."), OLD)
    assert (tmp_path / "runs" / "journal.jsonl").read_text() == "precious"

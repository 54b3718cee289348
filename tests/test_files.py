"""Files and folders are replaced whole, and nothing is written through a foreign link."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nclab.errors import DataError, NclabError
from nclab.files import FolderMark, replace_folder, write_whole
from tests.cli.runner import call
from tests.kills import ends_at


def make_fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def make_device(path: Path) -> Path:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may create a device")
    return path


@pytest.mark.parametrize("make", [make_fifo, make_device])
@pytest.mark.parametrize("linked", [False, True], ids=["direct", "through a link"])
def test_special_files_are_not_replaced(
    tmp_path: Path, make: Callable[[Path], Path], linked: bool
) -> None:
    node = make(tmp_path / "node")
    before = node.lstat()
    target = tmp_path / "link" if linked else node
    if linked:
        target.symlink_to(node)
    with pytest.raises(DataError, match=r"Expected a file to write, got .* is not a regular"):
        write_whole(target, b"1", through_link=True)
    assert (node.lstat().st_ino, node.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert target.is_symlink() is linked
    assert {path.name for path in tmp_path.iterdir()} <= {"node", "link"}


def test_a_link_that_the_user_named_is_written_through(tmp_path: Path) -> None:
    folder, link, dangling = (tmp_path / name for name in ("folder", "link", "dangling"))
    folder.mkdir()
    (folder / "table.csv").write_text("old")
    link.symlink_to("folder/table.csv")
    dangling.symlink_to("folder/new.csv")
    for path in (link, dangling):
        write_whole(path, b"new", through_link=True)
        assert path.is_symlink()
        assert path.read_bytes() == b"new"
    assert {path.name for path in folder.iterdir()} == {"table.csv", "new.csv"}


def test_a_link_in_a_folder_of_runs_is_replaced(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "state.json"
    outside.write_text("precious")
    link.symlink_to(outside)
    write_whole(link, b"new")
    assert not link.is_symlink()
    assert outside.read_text() == "precious"


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="is not a regular file"):
        write_whole(tmp_path / "loop", b"1", through_link=True)
    assert (tmp_path / "loop").is_symlink()


def test_a_figure_does_not_replace_a_pipe(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    (tmp_path / "real.png").write_bytes(b"")
    (tmp_path / "link.png").symlink_to("real.png")
    words = ("target", "--classes", 3, "--weight-decay", 0.01, "--plot")
    assert call(*words, tmp_path / "link.png").code == 0
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")
    result = call(*words, make_fifo(tmp_path / "pipe.png"))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "which is not a regular file" in result.err
    assert (tmp_path / "pipe.png").is_fifo()


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
    assert change > 5
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
    assert change > 4


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
    assert change > 5


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


@pytest.mark.parametrize("name", ["mkdir", "rename"])
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

"""A folder is the old one or the new one at every moment, and nothing of others is touched."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from nclab import folders
from nclab.errors import NclabError, NclabWarning
from nclab.folder_marks import Mark
from nclab.folders import replace_folder
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
MARK = Mark("mark", {"format": "ours"}, folders=("runs", "data/empty"), endings=(".html",))


def put(place: Path, files: dict[str, bytes]) -> None:
    replace_folder(place, files, MARK)


def content(place: Path) -> dict[str, bytes]:
    """Every file but the mark."""
    found = {p.relative_to(place).as_posix(): p for p in place.rglob("*") if p.is_file()}
    assert json.loads(found.pop("mark").read_bytes())["format"] == "ours"
    return {name: path.read_bytes() for name, path in found.items()}


def beside(place: Path) -> list[str]:
    return [path.name for path in place.parent.iterdir() if path != place]


def test_a_kill_at_any_change_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    whole = 0
    for change in range(1, 200):
        place = tmp_path / str(change) / "report"
        put(place, OLD)
        if not ends_at(change, lambda place=place: put(place, NEW)):  # type: ignore[misc]
            break
        assert content(place) in (OLD, NEW), change
        whole += content(place) == NEW
        put(place, NEW)
        assert content(place) == NEW
        assert not beside(place), change
    assert change > 20
    assert 0 < whole < change - 5


def test_the_first_one_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    for change in range(1, 200):
        place = tmp_path / str(change) / "report"
        if not ends_at(change, lambda place=place: put(place, NEW)):  # type: ignore[misc]
            break
        assert not place.exists() or content(place) == NEW, change
        put(place, NEW)
        assert content(place) == NEW
        assert not beside(place), change
    assert change > 10


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the folder were a mounted one, which cannot be renamed."""

    def busy(*_: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(folders, "_exchange", busy)


def test_where_none_can_be_put_beside_no_link_is_ever_dead(tmp_path: Path, mounted: None) -> None:
    for change in range(1, 400):
        place = tmp_path / str(change) / "report"
        put(place, OLD)
        if not ends_at(change, lambda place=place: put(place, NEW)):  # type: ignore[misc]
            break
        found = content(place)
        for target in re.findall(r'"([^"]+)"', found["index.html"].decode()):
            assert target in found, (change, target)
        put(place, NEW)
        assert content(place) == NEW
        assert not beside(place), change
    assert change > 40


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    place = tmp_path / "report"
    put(place, OLD)
    (place / "mine" / "deep").mkdir(parents=True)
    (place / "mine" / "deep" / "notes.txt").write_text("mine")
    (place / "away").symlink_to(tmp_path)
    os.mkfifo(place / "fifo")
    place.chmod(0o750)
    put(place, NEW)
    assert (place / "mine/deep/notes.txt").read_text() == "mine"
    assert (place / "mine/deep/notes.txt").stat().st_nlink == 1
    assert (place / "away").is_symlink()
    assert (place / "fifo").is_fifo()
    assert place.stat().st_mode & 0o777 == 0o750
    assert "runs/gone.html" not in content(place)


def test_nothing_is_written_or_deleted_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "gone.html").write_text("precious")
    place = tmp_path / "report"
    put(place, OLD)
    for page in (place / "runs").iterdir():
        page.unlink()
    (place / "runs").rmdir()
    (place / "runs").symlink_to(outside)
    put(place, NEW)
    assert content(place) == NEW
    assert {path.name for path in outside.iterdir()} == {"gone.html"}


def test_foreign_folders_that_look_like_leftovers_stay(tmp_path: Path) -> None:
    place = tmp_path / "report"
    foreign = tmp_path / ".report.0123456789ab"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("mine")
    put(place, OLD)
    assert (foreign / "thesis.tex").exists()
    (foreign / "mark").write_text("")  # the half of a report that a kill has left
    put(place, OLD)
    assert not foreign.exists()


def test_an_old_one_that_cannot_be_deleted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "report"
    put(place, OLD)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(folders, "_remove", refuse)
    with pytest.warns(NclabWarning, match="earlier report stays as .*Input/output error"):
        put(place, NEW)
    assert content(place) == NEW


def test_a_disk_that_is_full_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "report"
    put(place, OLD)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(NclabError, match="No space left"):
        put(place, NEW)
    assert content(place) == OLD
    assert not beside(place)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "of an older nclab"])
@pytest.mark.parametrize("name", ["runs/mine/journal.jsonl", "runs/notes.txt", "data/x/page.html"])
def test_files_of_others_among_ours_are_never_deleted(
    tmp_path: Path, name: str, listed: bool
) -> None:
    place = tmp_path / "report"
    put(place, OLD)
    if not listed:
        (place / "mark").write_text('{"format": "ours"}')
        put(place, OLD)
        (place / "mark").write_text('{"format": "ours"}')
    mine = place / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(NclabError, match=name.rpartition("/")[0]):
        put(place, NEW)
    assert mine.read_text() == "mine"
    assert (place / "runs/gone.html").exists()


def test_a_page_that_is_not_in_the_list_is_not_ours(tmp_path: Path) -> None:
    place = tmp_path / "report"
    put(place, OLD)
    (place / "runs" / "mine.html").write_text("mine")
    (place / "runs" / ".stays.html.0123456789ab").write_text("what a killed writer left")
    with pytest.raises(NclabError, match=r"runs/mine\.html"):
        put(place, NEW)
    (place / "runs" / "mine.html").unlink()
    put(place, NEW)
    assert content(place) == NEW


def test_a_folder_without_the_mark_is_refused_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "journal.jsonl").write_text("precious")
    with pytest.raises(NclabError, match="has other files in it"):
        put(Path("new/.."), OLD)
    assert (tmp_path / "runs" / "journal.jsonl").read_text() == "precious"

"""A file is written atomically, only over a regular file, and never through a foreign link."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nclab.errors import DataError
from nclab.files import resolve_output, write_whole
from tests.cli.runner import call


def make_fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def make_device(path: Path) -> Path:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may create a device")
    return path


@pytest.mark.parametrize(("make", "name"), [(make_fifo, "a pipe"), (make_device, "a device")])
@pytest.mark.parametrize("linked", [False, True], ids=["direct", "through a link"])
def test_special_files_are_not_replaced(
    tmp_path: Path, make: Callable[[Path], Path], name: str, linked: bool
) -> None:
    node = make(tmp_path / "node")
    before = node.lstat()
    target = tmp_path / "link" if linked else node
    if linked:
        target.symlink_to(node)
    with pytest.raises(DataError, match=f"Expected a file to write, got .* is {name}"):
        write_whole(target, b"1", through_link=True)
    if not linked:
        with pytest.raises(DataError, match=name):
            write_whole(target, b"1")
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
    with pytest.raises(DataError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "loop", b"1", through_link=True)
    assert (tmp_path / "loop").is_symlink()


def test_an_advice_ends_the_message() -> None:
    with pytest.raises(DataError, match=r"which is a device\. Leave --out out\."):
        resolve_output(Path("/dev/null"), "Leave --out out.")


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
    assert "which is a pipe" in result.err
    assert (tmp_path / "pipe.png").is_fifo()

"""A file is written whole, where it was named, and takes the place of nothing but a file."""

import os
import stat
from pathlib import Path

import pytest

from nclab.errors import DataError
from nclab.files import named_file, write_whole
from tests.cli.runner import call


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def device(path: Path) -> Path:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes a device")
    return path


@pytest.mark.parametrize(("make", "said"), [(fifo, "a pipe"), (device, "a device")])
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "linked"])
def test_what_is_no_file_stays_what_it_is(
    tmp_path: Path, make: object, said: str, linked: bool
) -> None:
    assert callable(make)
    node = make(tmp_path / "node")
    before = node.lstat()
    target = tmp_path / "link" if linked else node
    if linked:
        target.symlink_to(node)
    with pytest.raises(DataError, match=f"Expected a file to write, got .* is {said}"):
        write_whole(target, b"1", through_link=True)
    if not linked:
        with pytest.raises(DataError, match=said):
            write_whole(target, b"1")
    assert (node.lstat().st_ino, node.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert target.is_symlink() is linked
    assert {path.name for path in tmp_path.iterdir()} <= {"node", "link"}


def test_a_link_that_was_named_is_written_through(tmp_path: Path) -> None:
    far, link, dangling = (tmp_path / name for name in ("far", "link", "dangling"))
    far.mkdir()
    (far / "table.csv").write_text("old")
    link.symlink_to("far/table.csv")
    dangling.symlink_to("far/new.csv")
    for one in (link, dangling):
        write_whole(one, b"new", through_link=True)
        assert one.is_symlink()
        assert one.read_bytes() == b"new"
    assert {path.name for path in far.iterdir()} == {"table.csv", "new.csv"}


def test_a_link_in_a_folder_of_runs_is_replaced_and_never_followed(tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", tmp_path / "state.json"
    outside.write_text("precious")
    link.symlink_to(outside)
    write_whole(link, b"new")
    assert not link.is_symlink()
    assert outside.read_text() == "precious"


def test_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DataError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "loop", b"1", through_link=True)
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_names_of_open_streams_are_told(name: str) -> None:
    if not os.path.islink(name):
        pytest.skip("this system has none")
    with pytest.raises(DataError, match=r"stands for an open stream\. Leave --out out\."):
        named_file(Path(name), "Leave --out out.")  # looks, and writes nothing


def test_a_picture_takes_the_place_of_no_pipe(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    (tmp_path / "real.png").write_bytes(b"")
    (tmp_path / "link.png").symlink_to("real.png")
    words = ("target", "--classes", 3, "--weight-decay", 0.01, "--plot")
    assert call(*words, tmp_path / "link.png").code == 0
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")
    done = call(*words, fifo(tmp_path / "pipe.png"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "which is a pipe" in done.err
    assert (tmp_path / "pipe.png").is_fifo()

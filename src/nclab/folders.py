"""Folders are written beside and put in their place whole: a kill leaves the old one or the new."""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, NclabWarning
from nclab.files import explained, remove_leftovers, write_whole
from nclab.folder_marks import Mark

EXCHANGE = 2
"""The flag of `renameat2`, and of `renamex_np` of macOS, that swaps two names at once."""
HERE = -100
"""AT_FDCWD."""
ELSEWHERE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV, errno.EBUSY}
"""What a system says where nothing can be put beside a folder, as beside a mounted one."""


def replace_folder(target: Path, files: Mapping[str, bytes], mark: Mark) -> None:
    """Make a folder hold these files in place of those of an earlier one.

    The folders of the mark are made even if they stay empty; those that the earlier folder has are
    ours, and go with it, as does every file that is written anew. What else lies there is kept; a
    folder that is not ours, and one with files of others among ours, is refused. Where nothing can
    be written beside the target, files are replaced one by one, new ones first and old ones
    deleted last, so that no link is ever dead.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "report"
    >>> mark = Mark("mark", {"format": "mine"}, folders=["a"])
    >>> replace_folder(place, {"a/b.html": b"1"}, mark)
    >>> replace_folder(place, {"a/c.html": b"2"}, mark)
    >>> sorted(path.name for path in place.rglob("*"))
    ['a', 'c.html', 'mark']
    """
    place = real_place(target)
    mark.check(place, files)
    with explained("write to the folder", target, NclabError):
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(place, mark.name)
        try:
            _replace_at_once(place, files, mark)
        except OSError as error:
            if error.errno not in ELSEWHERE | {errno.ENOSYS, errno.EINVAL}:
                raise
            _replace_one_by_one(place, files, mark)


def real_place(target: Path) -> Path:
    """The folder that is replaced: a link that was asked for leads to it, `..` to the one above.

    Whoever checks a folder checks this one: `new/..` does not exist before `new` does.
    """
    return Path(os.path.realpath(target))


def _replace_at_once(place: Path, files: Mapping[str, bytes], mark: Mark) -> None:
    with _beside(place, mark.name) as beside:
        try:
            _fill(beside, {mark.name: mark.content(files), **files}, mark.folders)
            if place.is_dir():
                shutil.copymode(place, beside)
                _bring_along(place, beside, mark.names(files))
            try:
                os.rename(beside, place)  # new or empty
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                _exchange(beside, place)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(beside, mark.name)
            raise
        try:
            _remove(beside, mark.name)
        except OSError as error:
            words = f"The earlier {place.name} stays as {beside}: {error.strerror}. Delete it."
            warnings.warn(words, NclabWarning, stacklevel=5)


@contextlib.contextmanager
def _beside(place: Path, mark: str) -> Iterator[Path]:
    """A new folder beside a place, locked, so that no other writer takes it for a leftover."""
    while True:
        beside = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
        beside.mkdir()
        with contextlib.suppress(FileNotFoundError):  # another one took it for a leftover
            descriptor = os.open(beside, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
    try:
        (beside / mark).touch()  # at once, so that what a kill leaves is known as ours
        yield beside
    finally:
        os.close(descriptor)


def _fill(folder: Path, files: Mapping[str, bytes], folders: Collection[str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content, flush=False)
    for name in folders:
        (folder / name).mkdir(parents=True, exist_ok=True)


def _bring_along(place: Path, beside: Path, ours: set[str]) -> None:
    """What others have put into a folder of ours is in the new one, too; no byte is copied."""
    for entry in os.scandir(place):
        if entry.name in ours:
            continue
        if entry.is_dir(follow_symlinks=False):
            to = beside / entry.name
            shutil.copytree(entry.path, to, symlinks=True, copy_function=_link)
        else:
            _link(entry.path, beside / entry.name)


def _link(source: Any, target: Any) -> None:
    """A second name of a file; a copy where the file system knows none."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise
        shutil.copy2(source, target)


def _exchange(one: Path, other: Path) -> None:
    """Swap two names at once; ENOSYS where the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(HERE, names[0], HERE, names[1], EXCHANGE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


def _replace_one_by_one(place: Path, files: Mapping[str, bytes], mark: Mark) -> None:
    place.mkdir(exist_ok=True)
    ours = mark.names(files)
    remove_leftovers(place, ours)
    for name in ours:  # nothing is written through a link
        if (place / name).is_symlink():
            (place / name).unlink()
    before = [path for name in ours for path in (place / name).rglob("*")]
    both = {*files, *(path.relative_to(place).as_posix() for path in before)}
    write_whole(place / mark.name, mark.content(both), flush=False)  # a kill leaves some of both
    kept = {place / name for name in (*files, *mark.folders)}
    kept |= {parent for path in kept for parent in path.parents}
    pages_last = sorted(files, key=lambda name: "/" not in name)
    _fill(place, {name: files[name] for name in pages_last}, mark.folders)
    for path in sorted(before, reverse=True):  # what a folder holds before the folder
        if path not in kept:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    write_whole(place / mark.name, mark.content(files), flush=False)


def _remove_leftovers(place: Path, mark: str) -> None:
    """Delete what killed writers of this folder have left beside it, nothing else."""
    pattern = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{12}}")
    for entry in list(os.scandir(place.parent)):
        if not pattern.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):  # another one is at it, or it is not ours to delete
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if Path(entry.path, mark).is_file() or not os.listdir(descriptor):
                    _remove(Path(entry.path), mark)
            finally:
                os.close(descriptor)


def _remove(folder: Path, mark: str) -> None:
    """Delete a folder of ours, its mark last: what a kill leaves of it is still known as ours."""
    if not folder.is_dir():
        return
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != mark:
            os.unlink(entry.path)
    (folder / mark).unlink(missing_ok=True)
    folder.rmdir()

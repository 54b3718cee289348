"""Files are written whole or not at all."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from nclab.errors import DataError, NclabError


@contextlib.contextmanager
def explained(doing: str, path: object, kind: type[NclabError] = DataError) -> Iterator[None]:
    """What the system refuses is one line of ours: what could not be done, and why.

    >>> with explained("read", "notes.txt"):
    ...     open("no such folder/notes.txt")
    Traceback (most recent call last):
    nclab.errors.DataError: Cannot read notes.txt: No such file or directory.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"Cannot {doing} {path}: {error.strerror}.") from error


def write_whole(
    path: str | os.PathLike[str], content: bytes, *, flush: bool = True, through_link: bool = False
) -> None:
    """Write through a temporary file in the same folder, flushed to disk, then renamed.

    Without `flush` a power cut may lose the content; a killed process still does not. What is
    there and is no file, such as a device, is refused. A link is replaced, for in a folder of runs
    it may lead anywhere; `through_link` is for a file that someone named: it stays, and the file
    that it leads to is replaced.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_whole(target, b"all of it")
    >>> target.read_bytes()
    b'all of it'
    """
    asked = Path(path)
    target = named_file(asked) if through_link else asked
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    with explained("write", asked):
        _refuse_others(target, asked)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                if flush:
                    os.fsync(stream.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    if flush:
        flush_folder(target.parent)


def named_file(path: Path, advice: str = "Name another file.") -> Path:
    """The file that is written where someone named this one: itself, or where its link leads.

    Whatever is there and is no regular file is refused, standard output among others.

    >>> named_file(Path("/dev/null"), "Why?")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file to write, got /dev/null, which is a device. Why?
    """
    with explained("write", path):
        above = os.path.realpath(path.parent)
        if path.is_symlink() and (above == "/dev" or f"{above}/".startswith("/proc/")):
            raise DataError(
                f"Expected a file to write, got {path}, which stands for an open stream. {advice}"
            )
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _refuse_others(path, path, advice, follow=True)
    return target


KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What a file must not take the place of; folders the system itself refuses."""


def _refuse_others(
    target: Path, asked: Path, advice: str = "Name another file.", *, follow: bool = False
) -> None:
    try:
        kind = KINDS.get(stat.S_IFMT(os.stat(target, follow_symlinks=follow).st_mode))
    except FileNotFoundError:
        return
    if kind is not None:
        raise DataError(f"Expected a file to write, got {asked}, which is {kind}. {advice}")


def delete(path: Path, kind: type[NclabError] = DataError) -> None:
    """Delete a file if it is there, or say in one line why it cannot be."""
    with explained("delete", path, kind):
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Delete the temporary files of writers of these files that were killed, nothing else."""
    for name in names:
        for path in folder.glob(f".{name}.*"):
            if re.fullmatch(r"[0-9a-f]{12}", path.name.rpartition(".")[2]):
                delete(path)


def flush_folder(folder: Path) -> None:
    """Make a rename or a new file survive a power cut, where the system allows it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

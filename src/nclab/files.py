"""Files are written whole or not at all."""

import contextlib
import os
import re
import secrets
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


def write_whole(path: str | os.PathLike[str], content: bytes, *, flush: bool = True) -> None:
    """Write through a temporary file in the same folder, flushed to disk, then renamed.

    Without `flush` a power cut may lose the content; a killed process still does not.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_whole(target, b"all of it")
    >>> target.read_bytes()
    b'all of it'
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    with explained("write", target):
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

"""Safe reading and writing of files: writes are atomic, reads are bounded and follow no links.

Reading files that somebody else may have written has four dangers: a FIFO blocks for ever, a device
may do anything, a link may lead outside the folder, and a sparse file of terabytes costs nothing to
create. `open_regular` is the one safe way to open such files.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from nclab.errors import DataError, NclabError

MAX_BYTES = 1 << 26
"""Largest file that is read at once. All results, manifests and pictures are smaller."""
_BUFFER_BYTES = 1 << 17
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SPECIAL_FILES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Kinds of files that must not be replaced by a regular file."""


@contextlib.contextmanager
def translate_os_errors(
    action: str, path: object, kind: type[NclabError] = DataError
) -> Iterator[None]:
    """Turn an `OSError` into an error of nclab that names the action, the path and the reason.

    >>> with translate_os_errors("read", "notes.txt"):
    ...     open("no such folder/notes.txt")
    Traceback (most recent call last):
    nclab.errors.DataError: Cannot read notes.txt: No such file or directory.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"Cannot {action} {path}: {error.strerror}.") from error


def write_whole(
    path: str | os.PathLike[str], content: bytes, *, flush: bool = True, through_link: bool = False
) -> None:
    """Write a file atomically: after a crash the old content or the new one is there, complete.

    The content goes to a temporary file in the same folder, is flushed to the disk and renamed.

    Args:
        flush: whether to wait until the content is on the disk. Without waiting, a power failure
            may lose the content; a killed process never does.
        through_link: whether to replace the file that a link points to. By default the link
            itself is replaced, because a link in a folder of runs may lead anywhere. Pass True for
            a path that the user named.

    >>> import tempfile, pathlib
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
    >>> write_whole(target, b"all of it")
    >>> target.read_bytes()
    b'all of it'
    """
    named = Path(path)
    target = resolve_output(named) if through_link else named
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    with translate_os_errors("write", named):
        _refuse_special_file(target, named)
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


def resolve_output(path: Path, advice: str = "Name another file.") -> Path:
    """Return the file that an output path of the user stands for, with links resolved.

    >>> resolve_output(Path("/dev/null"), "Name a file.")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file to write, got /dev/null, which is a device. Name a file.
    """
    with translate_os_errors("write", path):
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _refuse_special_file(target, path, advice)
    return target


def _refuse_special_file(target: Path, named: Path, advice: str = "Name another file.") -> None:
    """Raise if a pipe, a socket or a device would be replaced."""
    try:
        kind = _SPECIAL_FILES.get(stat.S_IFMT(os.lstat(target).st_mode))
    except FileNotFoundError:
        return
    if kind is not None:
        raise DataError(f"Expected a file to write, got {named}, which is {kind}. {advice}")


def delete(path: Path, kind: type[NclabError] = DataError) -> None:
    """Delete a file if it exists."""
    with translate_os_errors("delete", path, kind):
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Delete temporary files of killed calls of `write_whole`; `names` may be patterns."""
    for name in names:
        for path in folder.glob(f".{name}.*"):
            if re.fullmatch(r"[0-9a-f]{12}", path.name.rpartition(".")[2]):
                delete(path)


def flush_folder(folder: Path) -> None:
    """Make new and renamed files in a folder survive a power failure, if the system can do so."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_regular(path: Path, *, root: Path | None = None) -> BinaryIO:
    """Open a regular file for reading; raise `OSError` for pipes, devices, folders and links.

    With `root`, links below that folder are never followed, even if somebody replaces a folder by
    a link in the meantime.

    >>> open_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] it is not a regular file: '/dev/null'
    """
    if root is None:
        return _open_in(None, os.fspath(path), path)
    folder = _open_folder(path.parent, root)
    try:
        return _open_in(folder, path.name, path)
    finally:
        os.close(folder)


def read_regular(path: Path, *, root: Path | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes.

    >>> import tempfile
    >>> note = Path(tempfile.mkdtemp()) / "note"
    >>> _ = note.write_bytes(b"12345")
    >>> read_regular(note)
    b'12345'
    >>> read_regular(note, max_bytes=4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: [Errno 27] it is larger than the limit of 4 bytes: ...
    """
    with open_regular(path, root=root) as stream:
        if os.fstat(stream.fileno()).st_size > max_bytes:
            message = f"it is larger than the limit of {max_bytes:,} bytes"
            raise OSError(errno.EFBIG, message, str(path))
        return stream.read(max_bytes)


def list_folder(folder: Path, *, root: Path) -> dict[str, int]:
    """Return the sorted names in a folder with their modes; no link below `root` is followed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a").mkdir()
    >>> [(name, stat.S_ISDIR(mode)) for name, mode in list_folder(folder, root=folder).items()]
    [('a', True)]
    """
    modes = {}
    descriptor = _open_folder(folder, root)
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                    modes[entry.name] = entry.stat(follow_symlinks=False).st_mode
    finally:
        os.close(descriptor)
    return dict(sorted(modes.items()))


def _open_folder(path: Path, root: Path) -> int:
    """Return the descriptor of a folder at or below `root`; walk there without following links."""
    if ".." in path.parts[len(root.parts) :] or not path.is_relative_to(root):
        raise OSError(errno.EACCES, f"it lies outside {root}", str(path))
    descriptor = os.open(root, _FOLDER_FLAGS)
    for part in path.relative_to(root).parts:
        try:
            below = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise _explain_link(error, part, descriptor, path) from None
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _open_in(folder: int | None, name: str, path: Path) -> BinaryIO:
    """Open a regular file in an open folder; without a folder, links are followed."""
    flags = _FILE_FLAGS if folder is None else _FILE_FLAGS | os.O_NOFOLLOW
    try:
        # Check before opening: opening a device may already have an effect.
        _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=folder is None), path)
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise _explain_link(error, name, folder, path) from None
    try:
        _require_regular(os.fstat(descriptor), path)  # it may have been replaced in between
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb", buffering=_BUFFER_BYTES)


def _require_regular(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _explain_link(error: OSError, name: str, folder: int | None, path: Path) -> OSError:
    """Return an error that names the link if opening a link failed; else the same error."""
    message = error.strerror
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and folder is not None:
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                message = f"{name} is a link, which is not followed"
    return OSError(error.errno, message, str(path))

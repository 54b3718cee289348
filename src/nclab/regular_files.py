"""Reading files that others may have put there: regular ones only, no links below a root, bounded.

A FIFO would wait for ever, a device may do anything, a link may lead to files that are nobody's
business, and a sparse file of terabytes costs nothing to make.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 1 << 26
"""Of a file that is read whole; no result, manifest or picture of nclab has as many."""
BUFFER = 1 << 17
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: Path, *, root: Path | None = None) -> BinaryIO:
    """A regular file, open for reading; OSError in plain words for everything else.

    With a root no link below it is followed, neither to a file nor to a folder, whatever is
    replaced in the meantime.

    >>> open_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] it is no regular file: '/dev/null'
    """
    if root is None:
        return _regular(os.fspath(path), None, FILE, path)
    folder = open_folder(path.parent, root=root)
    try:
        return _regular(path.name, folder, FILE | os.O_NOFOLLOW, path)
    finally:
        os.close(folder)


def read_regular(path: Path, *, root: Path | None = None, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most so many bytes.

    >>> import tempfile
    >>> note = Path(tempfile.mkdtemp()) / "note"
    >>> _ = note.write_bytes(b"12345")
    >>> read_regular(note), read_regular(note, most=5)
    (b'12345', b'12345')
    >>> read_regular(note, most=4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: [Errno 27] it has more than the 4 bytes that are read: ...
    """
    with open_regular(path, root=root) as stream:
        _check_size(stream, most, path)
        return stream.read(most)


def check_regular(path: Path, *, root: Path) -> None:
    """OSError where `read_regular` has one, without reading the content."""
    with open_regular(path, root=root) as stream:
        _check_size(stream, MOST_BYTES, path)


def open_folder(path: Path, *, root: Path) -> int:
    """The descriptor of a folder at or below a root, reached without following a link."""
    if ".." in path.parts[len(root.parts) :] or not path.is_relative_to(root):
        raise OSError(errno.EACCES, f"it lies outside {root}", str(path))
    descriptor = os.open(root, FOLDER)
    for part in path.relative_to(root).parts:
        try:
            below = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise _in_words(error, part, descriptor, path) from None
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def entries(folder: Path, *, root: Path) -> dict[str, int]:
    """What a folder at or below a root holds, sorted: names with their modes, links not followed.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> (place / "a").mkdir()
    >>> [(name, stat.S_ISDIR(mode)) for name, mode in entries(place, root=place).items()]
    [('a', True)]
    """
    found = {}
    descriptor = open_folder(folder, root=root)
    try:
        with os.scandir(descriptor) as inside:
            for entry in inside:
                with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mode
    finally:
        os.close(descriptor)
    return dict(sorted(found.items()))


def _regular(name: str, folder: int | None, flags: int, path: Path) -> BinaryIO:
    try:
        _check(os.stat(name, dir_fd=folder, follow_symlinks=folder is None).st_mode, path)
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise _in_words(error, name, folder, path) from None
    try:
        _check(os.fstat(descriptor).st_mode, path)  # it may have been replaced
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb", buffering=BUFFER)


def _check(mode: int, path: Path) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _in_words(error: OSError, name: str, folder: int | None, path: Path) -> OSError:
    """What the system says of a link in the way is not what a reader would understand."""
    words = error.strerror
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and folder is not None:
        try:
            linked = stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
        except OSError:
            linked = False
        if linked:
            words = f"{name} is a link, which is not followed"
    return OSError(error.errno, words, str(path))


def _check_size(stream: BinaryIO, most: int, path: Path) -> None:
    if os.fstat(stream.fileno()).st_size > most:
        words = f"it has more than the {most:,} bytes that are read"
        raise OSError(errno.EFBIG, words, str(path))

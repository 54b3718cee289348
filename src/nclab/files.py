"""Safe reading and writing of files and folders.

Writes are atomic: after a crash, the old content or the new one is there. Files that somebody else
may have written are opened with `open_regular`. It rejects pipes, which would block for ever, and
inside a folder of runs also links, which may lead outside. `read_regular` limits the size as well,
because a file of terabytes without content costs nothing to create.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nclab.errors import DataError, NclabError

MAX_BYTES = 1 << 26
"""Largest file that is read at once. All results, manifests and pictures are smaller."""
_BUFFER_BYTES = 1 << 17
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")
"""Names of the temporary files of `write_whole`."""


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
        through_link: what to replace if the path is a link: the file to which it points (True, for
            paths that the user typed), or the link itself (False, as links in folders of runs may
            point anywhere).
    """
    target = check_output(path) if through_link else Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    with translate_os_errors("write", path):
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


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the output path with its links resolved; raise if a folder or device is there.

    >>> check_output("/dev/null")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a file to write, got /dev/null, which is not a regular file.
    """
    with translate_os_errors("write", path):
        target = Path(os.path.realpath(path))
        if os.path.lexists(target) and not target.is_file():
            raise DataError(f"Expected a file to write, got {path}, which is not a regular file.")
    return target


def delete(path: Path, kind: type[NclabError] = DataError) -> None:
    """Delete a file if it exists."""
    with translate_os_errors("delete", path, kind):
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Delete the temporary files that killed calls of `write_whole` left for these files.

    `names` are names or glob patterns of the files that were written.
    """
    for name in names:
        for path in folder.glob(f".{name}.*"):
            if _TEMPORARY.fullmatch(path.name):
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
    a link in the meantime. Without it, they are followed.

    >>> open_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] it is not a regular file: '/dev/null'
    """
    if root is None:
        descriptor = os.open(path, _FILE_FLAGS)
    else:
        with _open_folder(path.parent, root) as folder:
            descriptor = _open_below(path.name, _FILE_FLAGS, folder, path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb", buffering=_BUFFER_BYTES)


def read_regular(path: Path, *, root: Path | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes.

    >>> import tempfile
    >>> note = Path(tempfile.mkdtemp()) / "note"
    >>> _ = note.write_bytes(b"12345")
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
    """Return {name: file mode} of a folder, sorted by name; no link below `root` is followed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a").mkdir()
    >>> [(name, stat.S_ISDIR(mode)) for name, mode in list_folder(folder, root=folder).items()]
    [('a', True)]
    """
    modes = {}
    with _open_folder(folder, root) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                modes[entry.name] = entry.stat(follow_symlinks=False).st_mode
    return dict(sorted(modes.items()))


@contextlib.contextmanager
def _open_folder(path: Path, root: Path) -> Iterator[int]:
    """Yield the descriptor of a folder at or below `root`; no link below `root` is followed."""
    if ".." in path.parts[len(root.parts) :] or not path.is_relative_to(root):
        raise OSError(errno.EACCES, f"it lies outside {root}", str(path))
    descriptor = os.open(root, _FOLDER_FLAGS)
    try:
        for part in path.relative_to(root).parts:
            below = _open_below(part, _FOLDER_FLAGS, descriptor, path)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _open_below(name: str, flags: int, folder: int, path: Path) -> int:
    """Return the descriptor of an entry of an open folder; raise if it is a link."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        reason = error.strerror
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = f"{name} is a link, which is not followed, or not a folder"
        raise OSError(error.errno, reason, str(path)) from None


@dataclass(frozen=True)
class FolderMark:
    """A small JSON file by which nclab recognises the folders that it has written."""

    name: str
    content: Mapping[str, str]
    """Entries that the file must contain, as another program may use the same file name."""
    folders: Collection[str]
    """Subfolders that nclab replaces with all their content; it creates them even without files."""
    pages: Collection[str] = ()
    """Files outside these subfolders that nclab replaces."""

    def check(self, target: Path) -> None:
        """Raise unless the target folder is new, empty or contains this mark."""
        with translate_os_errors("write to the folder", target, NclabError):
            if not target.exists() or not any(target.iterdir()):
                return
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            entries = json.loads(read_regular(target / self.name, root=target))
            if self.content.items() <= dict(entries).items():
                return
        raise NclabError(
            f"Expected a new or empty folder or an earlier report, but {target} has other files "
            "in it. Pass another folder with --out."
        )


def replace_folder(target: Path, files: Mapping[str, bytes], mark: FolderMark) -> None:
    """Write a folder with these files; an earlier folder with the same mark is replaced.

    The mark names the subfolders and pages that nclab writes. Other files in the earlier folder
    are the user's and are moved to the new folder. Readers see the old folder or the new one,
    never a mixture. If the writer is killed, the next writer cleans up.
    """
    named, target = target, Path(os.path.realpath(target))
    mark.check(target)
    with translate_os_errors("write to the folder", named, NclabError):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(target, mark)
        new = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        old = target.with_name(f"{new.name}.old")
        try:
            for name in mark.folders:
                (new / name).mkdir(parents=True, exist_ok=True)
            content = json.dumps(dict(mark.content)).encode()
            for name, text in {mark.name: content, **files}.items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                (new / name).write_bytes(text)
            if target.exists():
                shutil.copymode(target, new)
                os.rename(target, old)
            os.rename(new, target)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            if old.exists():
                os.rename(old, target)
            raise
        _clean_up(target, mark)


def _clean_up(target: Path, mark: FolderMark) -> None:
    """Remove the folders that an earlier writer left next to the target.

    A folder `.<name>.<12 digits>` is a new version that was never finished. With the ending `.old`
    it is the version before the last replacement; the user's files in it move to the target.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}(\.old)?")
    ours = {mark.name, *mark.pages, *(name.split("/")[0] for name in mark.folders)}
    for leftover in list(target.parent.iterdir()):
        match = pattern.fullmatch(leftover.name)
        if match and match[1] and not target.exists():
            os.rename(leftover, target)
        elif match:
            for path in leftover.iterdir() if match[1] else ():
                if path.name not in ours and not os.path.lexists(target / path.name):
                    os.rename(path, target / path.name)
            shutil.rmtree(leftover)

"""Replacing a folder as a whole: the new one is written next to the old one, then renamed."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nclab.errors import NclabError
from nclab.files import read_regular, translate_os_errors, write_whole

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")
"""Names of the temporary files of `write_whole`."""


@dataclass(frozen=True)
class FolderMark:
    """A small JSON file by which nclab recognises the folders that it has written."""

    name: str
    content: Mapping[str, str]
    """Entries of the JSON file; another program may use the same file name."""
    folders: Collection[str]
    """Subfolders that nclab replaces with all their content; they exist even if they are empty."""
    pages: Collection[str] = ()
    """Files next to the subfolders that nclab replaces."""

    def is_in(self, folder: Path) -> bool:
        """Whether a folder carries this mark."""
        try:
            entries = json.loads(read_regular(folder / self.name, root=folder))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(entries, dict) and self.content.items() <= entries.items()

    def check(self, target: Path) -> None:
        """Raise unless the target is new, empty or an earlier folder of ours."""
        with translate_os_errors("write to the folder", target, NclabError):
            if not target.exists() or not any(target.iterdir()) or self.is_in(target):
                return
        raise NclabError(
            f"Expected a new or empty folder or an earlier report, but {target} has other files "
            "in it. Pass another folder with --out."
        )


def replace_folder(target: Path, files: Mapping[str, bytes], mark: FolderMark) -> None:
    """Write a folder with these files; an earlier folder with the same mark is replaced.

    Readers see the old folder or the new one, never a mixture. What the user has put next to the
    subfolders and pages of the mark is moved to the new folder. If the writer is killed, the next
    writer cleans up.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "report"
    >>> mark = FolderMark("mark", {"format": "mine"}, folders=["a"])
    >>> replace_folder(target, {"a/b.html": b"1"}, mark)
    >>> replace_folder(target, {"a/c.html": b"2"}, mark)
    >>> sorted(path.name for path in target.rglob("*"))
    ['a', 'c.html', 'mark']
    """
    named, target = target, Path(os.path.realpath(target))
    mark.check(target)
    with translate_os_errors("write to the folder", named, NclabError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            _clean_up(target, mark)
            new = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
            old = target.with_name(f"{new.name}.old")
            try:
                _write(new, files, mark)
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


def _write(folder: Path, files: Mapping[str, bytes], mark: FolderMark) -> None:
    """Write the mark first: if this process is killed, the half-written folder is recognised."""
    folder.mkdir()
    write_whole(folder / mark.name, f"{json.dumps(dict(mark.content))}\n".encode(), flush=False)
    for name in mark.folders:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, content, flush=False)


def _clean_up(target: Path, mark: FolderMark) -> None:
    """Finish what an earlier writer has begun: its folders next to the target disappear.

    A folder `.<name>.<12 digits>` is a new version that was never finished. With the ending `.old`
    it is the version before the last replacement; the user's files in it move to the target.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{12}}(\.old)?")
    ours = {mark.name, *mark.pages, *(name.split("/")[0] for name in mark.folders)}
    for entry in list(os.scandir(target.parent)):
        match = pattern.fullmatch(entry.name)
        if match is None or not entry.is_dir(follow_symlinks=False):
            continue
        leftover = Path(entry.path)
        if not mark.is_in(leftover):
            if all(_TEMPORARY.fullmatch(name) for name in os.listdir(leftover)):
                shutil.rmtree(leftover)  # killed before it wrote the mark
            continue
        if match[1] and not target.exists():
            os.rename(leftover, target)
            continue
        for path in leftover.iterdir() if match[1] else ():
            foreign = path.name not in ours and not _TEMPORARY.fullmatch(path.name)
            if foreign and not os.path.lexists(target / path.name):
                os.rename(path, target / path.name)
        _delete(leftover, mark)


def _delete(folder: Path, mark: FolderMark) -> None:
    """Delete a folder with its mark last, so that what a kill leaves is still recognised."""
    for path in folder.iterdir():
        if path.name != mark.name:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (folder / mark.name).unlink()
    folder.rmdir()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time replace folders in this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

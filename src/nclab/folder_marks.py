"""The mark of a folder that is replaced whole: whose it is, and every file that we wrote there."""

import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nclab.errors import NclabError
from nclab.files import explained
from nclab.regular_files import read_regular

FILES = "files"
"""The entry of a mark with the names of what was written."""
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")
"""What a killed writer of a file leaves, as `nclab.files` names it."""


@dataclass(frozen=True)
class Mark:
    """A file of JSON that tells our folders from others and lists what we wrote into them."""

    name: str
    about: Mapping[str, str]
    """What it says besides; another program may use the same name for a file."""
    folders: Collection[str]
    """What is in every such folder, and goes with it."""
    endings: Collection[str] = ()
    """Of files in those folders that count as ours where an older mark lists none."""

    def content(self, files: Iterable[str]) -> bytes:
        """The mark of a folder with these files.

        >>> Mark("mark", {"format": "mine"}, ["pages"]).content(["pages/a.html"])
        b'{"format": "mine", "files": ["pages/a.html"]}\\n'
        """
        return (json.dumps({**self.about, FILES: sorted(files)}) + "\n").encode()

    def names(self, files: Iterable[str]) -> set[str]:
        """Names in the folder itself that are replaced with it."""
        return {name.split("/")[0] for name in (self.name, *files, *self.folders)}

    def check(self, target: Path, files: Iterable[str] = ()) -> None:
        """Refuse all but a new or empty folder and an earlier one of ours that is ours alone.

        What lies beside our own names, `files` among them, is kept and so may be there.
        """
        with explained("write to the folder", target, NclabError):
            if not target.exists() or not any(target.iterdir()):
                return
            known = self._read(target)
            if known is None:
                raise NclabError(
                    f"Expected a new or empty folder or an earlier report, but {target} has other "
                    "files in it. Pass another folder with --out."
                )
            own = self.names(files)
            foreign = next(self._foreign(target, own, known.get(FILES)), None)
        if foreign is not None:
            raise NclabError(
                f"Expected only what was written with the earlier report in {target}, got "
                f"{foreign}, which would be deleted. Move it, or pass another folder with --out."
            )

    def _read(self, folder: Path) -> dict[str, object] | None:
        """What the mark of a folder says; None where it is not one of ours."""
        try:
            found = json.loads(read_regular(folder / self.name, root=folder))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        return found if all(found.get(key) == told for key, told in self.about.items()) else None

    def _foreign(self, folder: Path, own: set[str], listed: object) -> Iterator[str]:
        """Names of what would go with our own names and was not written by us."""
        files = set(listed) if isinstance(listed, list) else None
        places = {".", *_with_parents(self.folders)}
        places |= _with_parents(os.path.dirname(name) for name in files or () if "/" in name)
        for name, is_folder in _below(folder, own):
            place, _, last = name.rpartition("/")
            if name in places or name == self.name or TEMPORARY.fullmatch(last):
                continue
            if files is not None:
                ours = name in files
            else:
                ours = not is_folder and (place or ".") in places
                ours = ours and os.path.splitext(last)[1] in self.endings
            if not ours:
                yield name


def _with_parents(names: Iterable[str]) -> set[str]:
    """Folders and those that they lie in.

    >>> sorted(_with_parents(["data/runs"]))
    ['data', 'data/runs']
    """
    parts = (name.split("/") for name in names)
    return {"/".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}


def _below(folder: Path, names: set[str]) -> Iterator[tuple[str, bool]]:
    """Everything under these names, whether it is a folder, links not followed."""
    waiting = sorted(names, reverse=True)
    while waiting:
        name = waiting.pop()
        try:
            is_folder = stat.S_ISDIR(os.lstat(folder / name).st_mode)
        except FileNotFoundError:
            continue
        yield name, is_folder
        if is_folder:
            waiting += sorted((f"{name}/{one}" for one in os.listdir(folder / name)), reverse=True)

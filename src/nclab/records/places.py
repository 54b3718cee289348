"""Where a run goes when its folder may hold one already: beside it, or in its place."""

import os
from collections.abc import Iterator
from pathlib import Path

from nclab.errors import RecordError
from nclab.files import delete, translate_os_errors
from nclab.records import checkpoints
from nclab.records.heartbeat import FILE as STATE
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lock import Lock
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import read_manifest
from nclab.records.read import find_runs

FIRST = "run"
"""What runs are called in a folder that holds runs."""
MOST = 100_000


def claim_folder(folder: str | os.PathLike[str]) -> Path:
    """A folder without a run: this one, else `mine-2`, `mine-3`, or `run-1` among others' runs.

    It is made at once, so that no two processes get the same.

    >>> import tempfile
    >>> first = claim_folder(Path(tempfile.mkdtemp()) / "mine")
    >>> from nclab.records import open_run
    >>> open_run(first, kind="demo", config={}).close()
    >>> first.name, claim_folder(first).name
    ('mine', 'mine-2')
    >>> claim_folder(first.parent).name
    'run-1'
    """
    place = Path(folder)
    with translate_os_errors("write", place, RecordError):
        for candidate in _candidates(place):
            try:
                candidate.mkdir(parents=True)
            except FileExistsError:
                if not candidate.is_dir():
                    raise
                if candidate is place and not holds_run(place) and not find_runs(place):
                    return place
            else:
                return candidate
    raise RecordError(f"Expected fewer than {MOST} runs beside {place}. Take another folder.")


def _candidates(place: Path) -> Iterator[Path]:
    yield place
    among = not holds_run(place) and bool(find_runs(place))
    base = place / FIRST if among else place
    for number in range(1 if among else 2, MOST):
        yield base.with_name(f"{base.name}-{number}")


def holds_run(folder: Path) -> bool:
    """Whether a run, or what is left of one, is in the folder itself."""
    return (folder / MANIFEST).exists() or (folder / JOURNAL).exists()


def refuse_folder_of_runs(folder: Path) -> None:
    """A run must not be opened above others, which would no longer be found."""
    if not holds_run(folder) and (inside := find_runs(folder)):
        raise RecordError(
            f"Expected the folder of one run, got {folder} with {len(inside)} runs in it. "
            f"Name one of them, as {inside[0]}."
        )


def delete_run(folder: Path) -> None:
    """Delete the run in a folder, which nobody may be writing; other files there stay."""
    if not holds_run(folder):
        return
    if (folder / MANIFEST).exists():
        read_manifest(folder)  # another program's manifest is not ours to delete
    lock = Lock(folder)
    try:
        for path in checkpoints.list_checkpoints(folder).values():
            delete(path, RecordError)
        for name in (JOURNAL, STATE, MANIFEST):
            delete(folder / name, RecordError)
    finally:
        lock.close()

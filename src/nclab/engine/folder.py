"""Whether jobs on other machines see the folder that they shall write to."""

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from nclab.errors import NclabError

LOOKS, PAUSE_SECONDS = 5, 0.2
"""A network folder may show a new file a moment late."""


@contextmanager
def marked(folder: Path | None) -> Iterator[Path | None]:
    """Make the folder and keep a mark in it, by which a job knows that it is the same one.

    >>> import tempfile
    >>> with marked(Path(tempfile.mkdtemp())) as mark:
    ...     look_for(mark)
    >>> mark.exists()
    False
    """
    if folder is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder.absolute() / f".shared-{uuid4().hex}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def look_for(mark: Path | None) -> None:
    """Refuse to go on where the mark is not to be seen."""
    if mark is None:
        return
    for _ in range(LOOKS):
        if mark.exists():
            return
        time.sleep(PAUSE_SECONDS)
    raise NclabError(
        f"Expected {mark.parent} to be the same folder on every machine of the cluster, but "
        f"{platform.node()} sees another one. Take a folder that all of them share."
    )

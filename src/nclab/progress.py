"""A progress bar that appears only where a person is watching and the work is long."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE_SECONDS = 2.0


def track(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield the items; after two seconds show a bar on standard error if it is a terminal.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    total = len(items) if isinstance(items, Sized) else None
    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True, disable=False) as progress:
        task = progress.add_task(description, total=total, visible=False)
        for item in items:
            yield item
            late = time.monotonic() - started > PATIENCE_SECONDS
            progress.update(task, advance=1, visible=late)

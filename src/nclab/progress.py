"""Progress bars that appear only where a person is watching and the work is long.

Bars may be nested, also across modules: all of them share one display.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

PATIENCE_SECONDS = 2.0

_shared: "Progress | None" = None
"""The display in use; the outermost bar opens it."""


@dataclass
class Bar:
    """A bar to be moved by whoever does the work; without a display it does nothing."""

    display: "Progress | None" = None
    task: "TaskID | None" = None
    started: float = field(default_factory=time.monotonic)

    def update(self, done: float, note: str = "", *, total: float | None = None) -> None:
        """Move to `done`, with a short note behind the bar; may change the total."""
        if self.display is None or self.task is None:
            return
        late = time.monotonic() - self.started > PATIENCE_SECONDS
        self.display.update(self.task, completed=done, total=total, visible=late, note=note)


@contextmanager
def bar(description: str, total: float | None = None) -> Iterator[Bar]:
    """A bar on standard error if it is a terminal, gone when the work is done.

    >>> with bar("counting", total=3) as counting:
    ...     counting.update(3, "all of them")
    """
    if not sys.stderr.isatty():
        yield Bar()
        return
    with _display() as display:
        task = display.add_task(description, total=total, visible=False, note="")
        try:
            yield Bar(display, task)
        finally:
            display.remove_task(task)


def track(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield the items; after two seconds show a bar.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    with bar(description, total=len(items) if isinstance(items, Sized) else None) as moving:
        for number, item in enumerate(items, start=1):
            yield item
            moving.update(number)


@contextmanager
def _display() -> "Iterator[Progress]":
    global _shared
    if _shared is not None:
        yield _shared
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        _shared = display
        try:
            yield display
        finally:
            _shared = None

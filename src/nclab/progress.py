"""Progress bars on standard error, shown only in a terminal and only if the work takes long.

Bars may be nested, also across modules. All of them share one display.
"""

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

DELAY_SECONDS = 2.0
"""Seconds before a bar appears."""

_shared: "Progress | None" = None
"""The display in use; the outermost bar opens it."""


@dataclass(frozen=True)
class Bar:
    """A progress bar; without a display, `update` does nothing."""

    display: "Progress | None" = None
    task: "TaskID | None" = None

    def update(self, done: float, note: str = "", *, total: float | None = None) -> None:
        """Move the bar to `done`, show a short note behind it, and optionally change the total."""
        if self.display is not None and self.task is not None:
            self.display.update(self.task, completed=done, total=total, note=note)


@contextmanager
def bar(description: str, total: float | None = None) -> Iterator[Bar]:
    """Show a bar while the context is open.

    >>> with bar("counting", total=3) as counting:
    ...     counting.update(3, "all of them")
    """
    if not sys.stderr.isatty():
        yield Bar()
        return
    with _open_display() as display:
        task = display.add_task(description, total=total, note="")
        try:
            yield Bar(display, task)
        finally:
            display.remove_task(task)


def track(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield the items and show how many are done.

    >>> list(track([1, 2, 3], "counting"))
    [1, 2, 3]
    """
    if not sys.stderr.isatty():
        yield from items
        return
    with bar(description, total=len(items) if isinstance(items, Sized) else None) as progress:
        for number, item in enumerate(items, start=1):
            yield item
            progress.update(number)


@contextmanager
def _open_display() -> "Iterator[Progress]":
    """Open the shared display, or yield the one that an outer bar has opened."""
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
    from rich.table import Table

    class DelayedProgress(Progress):
        """A display that shows a task only after `DELAY_SECONDS`."""

        def get_renderables(self) -> Iterator[Table]:
            visible = [task for task in self.tasks if (task.elapsed or 0.0) > DELAY_SECONDS]
            yield self.make_tasks_table(visible)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with DelayedProgress(*columns, console=Console(stderr=True), transient=True) as display:
        _shared = display
        try:
            yield display
        finally:
            _shared = None

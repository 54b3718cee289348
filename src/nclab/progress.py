"""Progress bars that appear only where a person is watching and the work is long.

Bars may be nested, also across modules: all of them share one display.
"""

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

PATIENCE_SECONDS = 2.0

_shared: "Progress | None" = None
"""The display in use; the outermost bar opens it."""


@dataclass(frozen=True)
class Bar:
    """A bar to be moved by whoever does the work; without a display it does nothing."""

    display: "Progress | None" = None
    task: "TaskID | None" = None

    def update(self, done: float, note: str = "", *, total: float | None = None) -> None:
        """Move to `done`, with a short note behind the bar; may change the total."""
        if self.display is not None and self.task is not None:
            self.display.update(self.task, completed=done, total=total, note=note)


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
        task = display.add_task(description, total=total, note="")
        try:
            yield Bar(display, task)
        finally:
            display.remove_task(task)


def track(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield the items; after two seconds show a bar, though the first may not be done.

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
    from rich.table import Table

    class Late(Progress):
        """Shows what has lasted a while, however rarely it moves."""

        def get_renderables(self) -> Iterator[Table]:
            late = [task for task in self.tasks if (task.elapsed or 0.0) > PATIENCE_SECONDS]
            yield self.make_tasks_table(late)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Late(*columns, console=Console(stderr=True), transient=True) as display:
        _shared = display
        try:
            yield display
        finally:
            _shared = None

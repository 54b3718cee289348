"""How much history a monitor keeps in memory, however long the training is."""

from typing import Any

from nclab.records.schema import split_of

MOST = 20_000
"""Rows, about 75 MB; a training of so many measurements is no longer read row by row."""


def thin(rows: list[dict[str, Any]], most: int | None = None) -> None:
    """Of more rows than `most`, drop every second event of the older half, split by split.

    The first event of each split stays, and so does the newer half. Records on disk keep all.

    >>> rows = [{"event": number} for number in range(1, 7)]
    >>> thin(rows, most=5)
    >>> [row["event"] for row in rows]
    [1, 3, 4, 5, 6]
    """
    if len(rows) <= (MOST if most is None else most):
        return
    older = rows[: len(rows) // 2]
    newer = rows[len(older) :]
    numbers: dict[str, list[Any]] = {}
    for row in older:
        events = numbers.setdefault(split_of(row), [])
        if not events or events[-1] != row.get("event"):
            events.append(row.get("event"))
    kept = {(split, event) for split, events in numbers.items() for event in events[::2]}
    rows[:] = [row for row in older if (split_of(row), row.get("event")) in kept] + newer

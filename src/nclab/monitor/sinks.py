"""Sinks: where events go. A sink is any callable that takes an `Event`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from nclab.monitor.event import Event

Sink = Callable[[Event], object]
"""May have a method `close()`, which the monitor calls at its end."""


class Journal(Protocol):
    """What can append a record, such as a `nclab.records.Run`."""

    def append(self, record: dict[str, Any], /) -> object:
        """Add one record."""


@dataclass
class History:
    """Keeps the scalars of every event in memory: one row for each layer.

    `pandas.DataFrame(monitor.history.rows)` is a table of the training.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        when = {"step": event.step, "epoch": event.epoch, "source": event.source}
        self.rows.extend({**when, **collapse.to_row()} for collapse in event.layers)

    def series(self, metric: str, layer: str | None = None) -> tuple[list[float], list[float]]:
        """Epochs and values of one metric, by default of the last layer of each event.

        >>> history = History([{"epoch": 1, "layer": "a", "cdnv": 2.0, "step": 3}])
        >>> history.series("cdnv")
        ([1], [2.0])
        """
        last = {row["step"]: row for row in self.rows}
        chosen = last.values() if layer is None else self.rows
        kept = [
            row for row in chosen if row.get(metric) is not None and layer in (None, row["layer"])
        ]
        return [row["epoch"] for row in kept], [row[metric] for row in kept]


@dataclass(frozen=True)
class RecordSink:
    """Appends every event, and every alarm after it, to the journal of a run."""

    run: Journal

    def __call__(self, event: Event) -> None:
        self.run.append(event.to_record())
        for alarm in event.alarms:
            about = {**alarm._asdict(), "classes": list(alarm.classes)}
            self.run.append({"kind": "alarm", "step": event.step, "epoch": event.epoch, **about})

"""Sinks: where events go. A sink is any callable that takes an `Event`."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nclab.errors import NclabWarning
from nclab.frame import as_frame
from nclab.metrics.toward import progress
from nclab.monitor.event import Event
from nclab.records import Run, open_run
from nclab.records.run import refuse_other
from nclab.records.schema import ALARM, TRAIN, split_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.drawing import Drawing

KIND = "monitor"
"""Of the runs that a sink opens."""

Sink = Callable[[Event], object]
"""May have a method `close(error)`, called at the end; error is None if all went well."""


@dataclass(repr=False)
class History:
    """Keeps the scalars of every event in memory: one row for each layer, `event` counts events.

    `monitor.history.to_frame()` is a table of the training, `plot()` a picture of it.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        number = self.rows[-1].get("event", 0) + 1 if self.rows else 1
        when = {"event": number, "step": event.step, "epoch": event.epoch, "source": event.source}
        when["split"] = event.split
        self.rows.extend({**when, **collapse.to_row()} for collapse in event.layers)

    def __repr__(self) -> str:
        if not self.rows:
            return "<History: nothing measured yet>"
        layers = len({row["layer"] for row in self.rows})
        epochs = sorted({row["epoch"] for row in self.rows})
        ends = f"epoch {epochs[0]:g}" + (f" to {epochs[-1]:g}" if len(epochs) > 1 else "")
        return f"<History: {len(self.rows)} rows, {layers} layers, {ends}>"

    def to_frame(self) -> "DataFrame":
        """The rows as a pandas table."""
        return as_frame(self.rows)

    def plot(self, *metrics: str, dark: bool = False) -> "Drawing":
        """Metrics over epochs, a curve for each layer and split; by default one of every kind.

        >>> rows = [{"epoch": e, "layer": "a", "cdnv": 1 / e, "event": e} for e in (1, 2)]
        >>> History(rows).plot("cdnv")
        <Drawing: 1 panels, 3.1 x 2.92 inches>
        """
        from nclab.figures.drawing import drawn
        from nclab.figures.history import history_picture

        return drawn(history_picture(self.rows, metrics), dark)

    @property
    def splits(self) -> list[str]:
        """The data that were measured, in the order in which they first were."""
        return list(dict.fromkeys(split_of(row) for row in self.rows))

    def series(
        self, metric: str, layer: str | None = None, *, split: str | None = None
    ) -> tuple[list[float], list[float]]:
        """Epochs and values of one metric, by default of the last layer of each event.

        Of one split of the data, by default that of training, or the first that was measured.

        >>> history = History([{"epoch": 1, "layer": "a", "cdnv": 2.0, "event": 1}])
        >>> history.series("cdnv")
        ([1], [2.0])
        """
        # Rows that an older state holds have no event; their steps tell them apart.
        known = self.splits
        split = split or (TRAIN if TRAIN in known else next(iter(known), TRAIN))
        rows = [row for row in self.rows if split_of(row) == split]
        last = {row.get("event", ("step", row.get("step"))): row for row in rows}
        chosen = last.values() if layer is None else rows
        kept = [
            row for row in chosen if row.get(metric) is not None and layer in (None, row["layer"])
        ]
        return [row["epoch"] for row in kept], [row[metric] for row in kept]

    def progress(self, layer: str | None = None, *, split: str | None = None) -> str:
        """In words: how much of the way to its own optimum the training has come since the start.

        >>> row = {"layer": "a", "target_distance": 0.5, "etf_distance": 0.6, "epoch": 1}
        >>> now = {**row, "target_distance": 0.16, "etf_distance": 0.5, "epoch": 9}
        >>> History([{**row, "event": 1}, {**now, "event": 2}]).progress()[:38]
        '68 % of the way to its own optimum (di'
        """
        own, etf = (
            self.series(name, layer, split=split)[1] for name in ("target_distance", "etf_distance")
        )
        return progress(own, etf)


class RecordWriter(Protocol):
    """What can append a record, such as a `nclab.records.Run`."""

    def append(self, record: dict[str, Any], /) -> object:
        """Add one record."""


class RecordSink:
    """Writes every event, and every alarm after it, to the journal of a run.

    Given a folder it opens a run there at the first event, so that under torch.distributed only
    the first process does, and ends it with the monitor. A run there that was stopped or failed
    goes on: what it holds from the first event's step on is taken back. One that has finished is
    refused at once. A run, or whatever appends records, that is given open is the caller's to end.

    >>> import tempfile
    >>> RecordSink(tempfile.mkdtemp() + "/mine", config={"rate": 0.1}).run is None
    True
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | RecordWriter,
        *,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = target if isinstance(target, (str, os.PathLike)) else None
        self.journal = None if isinstance(target, (str, os.PathLike)) else target
        self.config = dict(config or {})
        self.run: Run | None = None
        if self.folder is not None:
            refuse_other(self.folder, kind=KIND, config=self.config)

    def __call__(self, event: Event) -> None:
        journal = self._journal(event.step)
        journal.append(event.to_record())
        if (picture := event.picture_record()) is not None:
            journal.append(picture)
        for alarm in event.alarms:
            about = {**alarm._asdict(), "classes": list(alarm.classes), "names": list(alarm.names)}
            journal.append({"kind": ALARM, "step": event.step, "epoch": event.epoch, **about})
        if self.run is not None:
            self.run.beat(step=event.step)

    def close(self, error: BaseException | None = None) -> None:
        """End the run that was opened here; after an error it is marked as failed."""
        if self.run is None:
            return
        if error is None:
            self.run.finish()
        elif isinstance(error, Exception):
            self.run.fail(str(error))
        self.run.close()
        self.run = None

    def _journal(self, step: int) -> RecordWriter:
        if self.journal is not None:
            return self.journal
        if self.run is None:
            assert self.folder is not None
            self.run = open_run(self.folder, kind=KIND, config=self.config)
            if self.run.rewind(step):
                warnings.warn(
                    f"{os.fspath(self.folder)} holds a training that was stopped; its records "
                    f"from step {step} on are taken back.",
                    NclabWarning,
                    stacklevel=2,
                )
        return self.run

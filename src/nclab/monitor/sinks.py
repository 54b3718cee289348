"""Sinks: where events go. A sink is any callable that takes an `Event`."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabWarning
from nclab.frame import as_frame
from nclab.metrics.toward import progress
from nclab.monitor.event import Event
from nclab.records.schema import TRAIN, split_of
from nclab.text import counted

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.drawing import Drawing

Sink = Callable[[Event], object]
"""May have a method `close(error)`, called at the end; error is None if all went well."""


class SinkCalls:
    """Calls every sink; one that fails is warned of once, and the training and the others go on.

    >>> def broken(event):
    ...     raise OSError("no connection")
    >>> seen = []
    >>> calls = SinkCalls([broken, seen.append])
    >>> with warnings.catch_warnings(record=True, action="always") as told:
    ...     calls("first"), calls("second")
    (None, None)
    >>> [str(one.message) for one in told], seen
    (['The sink broken failed and misses events (OSError: no connection); the training goes on.'],
    ['first', 'second'])
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self._told: set[int] = set()

    def __call__(self, event: Event) -> None:
        for sink in self.sinks:
            self._call(sink, sink, event)

    def close(self, error: BaseException | None = None) -> None:
        """Close what can be closed; what fails there never hides the error of the training."""
        for sink in self.sinks:
            close = getattr(sink, "close", None)
            if callable(close):
                self._call(sink, close, error)

    def _call(self, sink: Sink, function: Callable[[Any], object], given: Any) -> None:
        try:
            function(given)
        except Exception as error:  # noqa: BLE001 - a sink may be anyone's, a logger or a network
            if id(sink) in self._told:
                return
            self._told.add(id(sink))
            why = " ".join(f"{type(error).__name__}: {error}".split())
            warnings.warn(
                f"The sink {_called(sink)} failed and misses events ({why}); the training goes on.",
                NclabWarning,
                stacklevel=4,
            )


def _called(sink: Sink) -> str:
    return getattr(sink, "__name__", None) or type(sink).__name__


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
        layers = counted(len({row["layer"] for row in self.rows}), "layer")
        epochs = sorted({row["epoch"] for row in self.rows})
        ends = f"epoch {epochs[0]:g}" + (f" to {epochs[-1]:g}" if len(epochs) > 1 else "")
        return f"<History: {counted(len(self.rows), 'row')}, {layers}, {ends}>"

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

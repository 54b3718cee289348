"""Event: one measurement of the monitor, as alarms and sinks receive it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nclab.errors import NclabError
from nclab.frame import as_frame
from nclab.measurement.collapse import Collapse
from nclab.measurement.report import Report
from nclab.metrics.catalogue import every_metric
from nclab.metrics.target_distance import MEANINGS, progress
from nclab.records.schema import GEOMETRY, MEASUREMENT, TRAIN, MeasurementRecord, split_of
from nclab.text import counted

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.matplotlib_renderer import Drawing

Source = Literal["training", "loader"]
Key = tuple[str, str, tuple[int, ...]]
"""What an alarm is about: its name, the layer, the classes."""


class Alarm(NamedTuple):
    """Something worth knowing about a layer, raised once.

    >>> alarm = Alarm("nan", "fc", (3,), 12.0, "12 features are not finite")
    >>> print(alarm)
    fc: 12 features are not finite (class 3)
    >>> alarm._replace(epoch=2.0, step=40)
    <Alarm nan: epoch 2, fc: 12 features are not finite (class 3)>
    """

    name: str
    layer: str
    classes: tuple[int, ...]
    value: float
    message: str
    severe: bool = True
    """False for good news."""
    split: str = TRAIN
    """Of the data that were measured."""
    names: tuple[str, ...] = ()
    """Of the classes, if they have any."""
    epoch: float | None = None
    """When it was raised; the monitor says it."""
    step: int | None = None

    @property
    def key(self) -> Key:
        """An alarm of the same key is raised only once."""
        return self.name, self.layer, self.classes

    def __str__(self) -> str:
        called = self.names or tuple(map(str, self.classes))
        of = {0: "", 1: f" (class {called[0]})" if called else ""}
        where = of.get(len(called), f" (classes {', '.join(called)})")
        data = "" if self.split == TRAIN else f", {self.split}"
        when = "" if self.epoch is None else f"epoch {self.epoch:g}, "
        return f"{when}{self.layer}{data}: {self.message}{where}"

    def __repr__(self) -> str:
        return f"<Alarm {self.name}: {self}>"


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """A measurement at a moment of training."""

    step: int
    epoch: float
    """Epochs done; with a fraction where the length of an epoch is known."""
    source: Source
    """"training": a running estimate from the batches as they were trained on, while the weights
    moved and layers were in training mode. "loader": an exact measurement."""
    report: Report
    nonfinite: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Layer -> class -> features left out because they held nan or infinity."""
    fired: frozenset[Key] = frozenset()
    """The alarms raised before, on the same split."""
    alarms: tuple[Alarm, ...] = ()
    """The alarms raised by this event."""
    split: str = TRAIN
    """Of the data that were measured: train, test, val, ..."""
    picture: Mapping[str, Any] | None = None
    """The last layer in 3-D, where the monitor keeps features for it, see `geometry`."""
    total_steps: int | None = None
    """Of the whole training, where the monitor knows it."""
    total_epochs: int | None = None

    def __repr__(self) -> str:
        layers = ", ".join(str(collapse.layer) for collapse in self.layers) or "nothing"
        alarms = f", {len(self.alarms)} alarms" if self.alarms else ""
        when = f"step {self.step}, epoch {self.epoch:g}"
        return f"<Event: {when}, {self.source} on {self.split}, measured {layers}{alarms}>"

    @property
    def layers(self) -> tuple[Collapse, ...]:
        """The layers that could be measured, in order."""
        return self.report.layers

    def scalars(self, metrics: Collection[str] | None = None) -> dict[str, float]:
        """What was measured, by the names loggers use: `nc/<layer>/<metric>`.

        Of other data than those of training `nc/<split>/<layer>/<metric>`. All metrics, or those
        that are named.
        """
        data = "" if self.split == TRAIN else f"{self.split}/"
        return {
            f"nc/{data}{collapse.layer}/{name}": value
            for collapse in self.layers
            for name, value in (collapse.scalars() | _toward(collapse)).items()
            if value is not None and (metrics is None or name in metrics)
        }

    @property
    def own_target(self) -> str:
        """Of the layer that the classifier reads: how far its own optimum is, in words."""
        found = next((one.toward for one in reversed(self.layers) if one.toward), None)
        return "" if found is None else found.in_words()

    def to_record(self) -> dict[str, Any]:
        """One line of a journal: plain JSON values."""
        record: MeasurementRecord = {
            "kind": MEASUREMENT,
            "step": self.step,
            "epoch": self.epoch,
            "source": self.source,
            "split": self.split,
            "layers": [collapse.to_dict() for collapse in self.layers],
            "train": self.train(),
        }
        return dict(record)

    def picture_record(self) -> dict[str, Any] | None:
        """The picture as a line of a journal, None where there is none."""
        if self.picture is None:
            return None
        return {"kind": GEOMETRY, "step": self.step, "epoch": self.epoch, **self.picture}

    def train(self) -> dict[str, float | None]:
        """Loss and accuracy of the classifier on the data of this event."""
        read = [collapse for collapse in self.layers if collapse.loss is not None]
        if not read:
            return {}
        return {"loss": read[-1].loss, "accuracy": read[-1].accuracy}


def chosen_metrics(names: str | Collection[str] | None) -> tuple[str, ...] | None:
    """The metrics that a logger is to write; None for all, a wrong name is refused at once.

    >>> chosen_metrics(["cdnv", "loss"]), chosen_metrics(None)
    (('cdnv', 'loss'), None)
    >>> chosen_metrics("cdvn")
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected metrics= names of metrics, got 'cdvn'. Did you mean cdnv?
    """
    if names is None:
        return None
    wanted = (names,) if isinstance(names, str) else tuple(names)
    known = {**every_metric(), **MEANINGS}
    for name in wanted:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "docs/metrics.md lists them."
            raise NclabError(f"Expected metrics= names of metrics, got {name!r}. {hint}")
    return wanted


def _toward(collapse: Collapse) -> dict[str, float | None]:
    return {} if collapse.toward is None else collapse.toward.values()


MOST = 20_000
"""Rows, about 75 MB; a training of so many measurements is no longer read row by row."""


def thin_history(rows: list[dict[str, Any]], most: int | None = None) -> None:
    """Of more rows than `most`, drop every second event of the older half, split by split.

    The first event of each split stays, and so does the newer half. Records on disk keep all.

    >>> rows = [{"event": number} for number in range(1, 7)]
    >>> thin_history(rows, most=5)
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
        from nclab.figures.matplotlib_renderer import plot
        from nclab.figures.measured import history_picture

        return plot(history_picture(self.rows, metrics), dark)

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
        >>> History([{**row, "event": 1}, {**now, "event": 2}]).progress()[:40]
        '68 % of the way to its target (distance '
        """
        own, etf = (
            self.series(name, layer, split=split)[1] for name in ("target_distance", "etf_distance")
        )
        return progress(own, etf)

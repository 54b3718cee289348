"""Event: one measurement of the monitor, as alarms and sinks receive it; History: all of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nclab.errors import NclabError
from nclab.measurement.collapse import Collapse, Report
from nclab.metrics.catalogue import TARGET_MEANINGS, every_metric, target_progress
from nclab.records.schema import GEOMETRY, MEASUREMENT, TRAIN, MeasurementRecord, split_of
from nclab.text import as_frame, counted

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.matplotlib_renderer import Drawing

Source = Literal["training", "loader"]
Key = tuple[str, str, tuple[int, ...]]
"""Identity of an alarm: its name, layer and classes."""


class Alarm(NamedTuple):
    """A problem or milestone of a layer, raised once.

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
    """Whether it is a problem; False for good news."""
    split: str = TRAIN
    """Split of the data that were measured."""
    names: tuple[str, ...] = ()
    """Names of the classes, if they have names."""
    epoch: float | None = None
    """Epoch at which it was raised; set by the monitor."""
    step: int | None = None
    """Step at which it was raised; set by the monitor."""

    @property
    def key(self) -> Key:
        """Identity of the alarm; the monitor raises each key once."""
        return self.name, self.layer, self.classes

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {**self._asdict(), "classes": list(self.classes), "names": list(self.names)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Alarm":
        """Return the alarm with the fields that `to_dict` returned."""
        alarm = cls(**fields)
        return alarm._replace(classes=tuple(alarm.classes), names=tuple(alarm.names))

    def __str__(self) -> str:
        names = self.names or tuple(map(str, self.classes))
        classes = f" (classes {', '.join(names)})"
        if len(names) < 2:
            classes = f" (class {names[0]})" if names else ""
        split = "" if self.split == TRAIN else f", {self.split}"
        epoch = "" if self.epoch is None else f"epoch {self.epoch:g}, "
        return f"{epoch}{self.layer}{split}: {self.message}{classes}"

    def __repr__(self) -> str:
        return f"<Alarm {self.name}: {self}>"


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """A measurement at one moment of a training."""

    step: int
    epoch: float
    """Finished epochs; with a fraction if the length of an epoch is known."""
    source: Source
    """"training": a running estimate from the training batches, while the weights moved and layers
    were in training mode. "loader": an exact measurement."""
    report: Report
    nonfinite: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Layer -> class -> number of features skipped because they held nan or infinity."""
    fired: frozenset[Key] = frozenset()
    """Alarms raised before on the same split."""
    alarms: tuple[Alarm, ...] = ()
    """Alarms raised by this event."""
    split: str = TRAIN
    """Split of the data that were measured: train, test, val, ..."""
    picture: Mapping[str, Any] | None = None
    """The last layer in 3-D, if the monitor keeps features for it; see `points` of `Monitor`."""
    total_steps: int | None = None
    """Steps of the whole training, if known."""
    total_epochs: int | None = None
    """Epochs of the whole training, if known."""

    def __repr__(self) -> str:
        layers = ", ".join(str(collapse.layer) for collapse in self.layers) or "nothing"
        alarms = f", {len(self.alarms)} alarms" if self.alarms else ""
        moment = f"step {self.step}, epoch {self.epoch:g}"
        return f"<Event: {moment}, {self.source} on {self.split}, measured {layers}{alarms}>"

    @property
    def layers(self) -> tuple[Collapse, ...]:
        """Results of the layers that could be measured, in order."""
        return self.report.layers

    def scalars(self, metrics: Collection[str] | None = None) -> dict[str, float]:
        """Return all values, or those of the given metrics, by the names `nc/<layer>/<metric>`.

        On data other than the training data the names are `nc/<split>/<layer>/<metric>`.
        """
        split = "" if self.split == TRAIN else f"{self.split}/"
        return {
            f"nc/{split}{collapse.layer}/{name}": value
            for collapse in self.layers
            for name, value in (collapse.scalars() | _target_scalars(collapse)).items()
            if value is not None and (metrics is None or name in metrics)
        }

    def to_record(self) -> dict[str, Any]:
        """Return the event as one line of a journal: plain JSON values."""
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
        """Return the picture as one line of a journal; None without a picture."""
        if self.picture is None:
            return None
        return {"kind": GEOMETRY, "step": self.step, "epoch": self.epoch, **self.picture}

    def train(self) -> dict[str, float | None]:
        """Return loss and accuracy of the classifier on the data of this event."""
        with_loss = [collapse for collapse in self.layers if collapse.loss is not None]
        if not with_loss:
            return {}
        return {"loss": with_loss[-1].loss, "accuracy": with_loss[-1].accuracy}


def chosen_metrics(names: str | Collection[str] | None) -> tuple[str, ...] | None:
    """Return the names of metrics that a logger writes; None for all. Raise on an unknown name.

    >>> chosen_metrics(["cdnv", "loss"]), chosen_metrics(None)
    (('cdnv', 'loss'), None)
    >>> chosen_metrics("cdvn")
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected metrics= names of metrics, got 'cdvn'. Did you mean cdnv?
    """
    if names is None:
        return None
    wanted = (names,) if isinstance(names, str) else tuple(names)
    known = {**every_metric(), **TARGET_MEANINGS}
    for name in wanted:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "docs/metrics.md lists them."
            raise NclabError(f"Expected metrics= names of metrics, got {name!r}. {hint}")
    return wanted


def _target_scalars(collapse: Collapse) -> dict[str, float | None]:
    return {} if collapse.optimum_distance is None else collapse.optimum_distance.values()


@dataclass(repr=False)
class History:
    """The scalars of every event in memory: one row for each layer; `event` counts the events.

    `monitor.history.to_frame()` returns them as a table, `plot()` draws them.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        number = self.rows[-1].get("event", 0) + 1 if self.rows else 1
        moment = {"event": number, "step": event.step, "epoch": event.epoch}
        moment |= {"source": event.source, "split": event.split}
        self.rows.extend({**moment, **collapse.to_row()} for collapse in event.layers)

    def __repr__(self) -> str:
        if not self.rows:
            return "<History: nothing measured yet>"
        layers = counted(len({row["layer"] for row in self.rows}), "layer")
        epochs = sorted({row["epoch"] for row in self.rows})
        ends = f"epoch {epochs[0]:g}" + (f" to {epochs[-1]:g}" if len(epochs) > 1 else "")
        return f"<History: {counted(len(self.rows), 'row')}, {layers}, {ends}>"

    def to_frame(self) -> "DataFrame":
        """Return the rows as a pandas table."""
        return as_frame(self.rows)

    def plot(self, *metrics: str, dark: bool = False) -> "Drawing":
        """Draw metrics over epochs, a curve for each layer and split; by default one of each kind.

        >>> rows = [{"epoch": e, "layer": "a", "cdnv": 1 / e, "event": e} for e in (1, 2)]
        >>> History(rows).plot("cdnv")
        <Drawing: 1 panels, 3.1 x 2.92 inches>
        """
        from nclab.figures.matplotlib_renderer import plot
        from nclab.figures.measured import history_picture

        return plot(history_picture(self.rows, metrics), dark)

    @property
    def splits(self) -> list[str]:
        """Splits of the data, in the order of their first measurement."""
        return list(dict.fromkeys(split_of(row) for row in self.rows))

    def series(
        self, metric: str, layer: str | None = None, *, split: str | None = None
    ) -> tuple[list[float], list[float]]:
        """Return epochs and values of one metric, by default of the last layer of each event.

        The default split is that of training or, without one, the first that was measured.

        >>> history = History([{"epoch": 1, "layer": "a", "cdnv": 2.0, "event": 1}])
        >>> history.series("cdnv")
        ([1], [2.0])
        """
        # Rows from an older state have no event number; their steps distinguish them.
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
        """Describe how far the training has moved towards the layer's target since the start.

        >>> row = {"layer": "a", "target_distance": 0.5, "etf_distance": 0.6, "epoch": 1}
        >>> now = {**row, "target_distance": 0.16, "etf_distance": 0.5, "epoch": 9}
        >>> History([{**row, "event": 1}, {**now, "event": 2}]).progress()[:40]
        '68 % of the way to its target (distance '
        """
        target, etf = (
            self.series(name, layer, split=split)[1] for name in ("target_distance", "etf_distance")
        )
        return target_progress(target, etf)

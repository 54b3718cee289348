"""Events of the monitor and what receives them: alarm rules, the history, sinks.

An alarm rule is any callable that takes an `Event` and returns an `Alarm`, several alarms, or None.
The monitor raises each alarm once for the same name, layer and classes; `event.fired` holds the
alarms raised before. A sink is any callable that takes an `Event`.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from nclab.errors import NclabError, NclabWarning
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
THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {"nc1_trace_ratio": 0.05, "nc2_equiangularity_means": 0.1}
)
"""A metric counts as collapsed if it differs from its value at collapse by at most this."""
BLOCK = 512
"""Number of classes whose distances to all others are computed at a time."""


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
    """Whether the alarm reports a problem; False for good news."""
    split: str = TRAIN
    """Split of the data that were measured."""
    names: tuple[str, ...] = ()
    """Names of `classes`; empty if the classes have no names."""
    epoch: float | None = None
    """Epoch of the event that raised the alarm; set by the monitor."""
    step: int | None = None
    """Step of the event that raised the alarm; set by the monitor."""

    @property
    def key(self) -> Key:
        """Identity of the alarm; the monitor raises one alarm for each key."""
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
    """Number of features skipped because they held nan or infinity, by layer and class."""
    fired: frozenset[Key] = frozenset()
    """Identities of the alarms that were raised before on the same split."""
    alarms: tuple[Alarm, ...] = ()
    """Alarms raised by this event."""
    split: str = TRAIN
    """Split of the data that were measured: train, test, val, ..."""
    picture: Mapping[str, Any] | None = None
    """3-D picture of the last layer's features; None without the option `points` of `Monitor`."""
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
        scalars = {}
        for collapse in self.layers:
            target = collapse.optimum_distance
            values = collapse.scalars() | ({} if target is None else target.values())
            for name, value in values.items():
                if value is not None and (metrics is None or name in metrics):
                    scalars[f"nc/{split}{collapse.layer}/{name}"] = value
        return scalars

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
        """Draw metrics against epochs, with a curve for each layer and split.

        By default these are one metric each of NC1, NC2 and NC3, and the loss.

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
        """Return epochs and values of one metric, by default for the last layer of each event.

        The default split is the training data or, if it was not measured, the first split.

        >>> history = History([{"epoch": 1, "layer": "a", "cdnv": 2.0, "event": 1}])
        >>> history.series("cdnv")
        ([1], [2.0])
        """
        # Rows saved by older versions have no event number; the step replaces it.
        splits = self.splits
        split = split or (TRAIN if TRAIN in splits else next(iter(splits), TRAIN))
        rows = [row for row in self.rows if split_of(row) == split]
        last = {row.get("event", ("step", row.get("step"))): row for row in rows}
        chosen = last.values() if layer is None else rows
        known = [row for row in chosen if row.get(metric) is not None]
        points = [row for row in known if layer in (None, row["layer"])]
        return [row["epoch"] for row in points], [row[metric] for row in points]

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


AlarmRule = Callable[[Event], Alarm | Iterable[Alarm] | None]
Sink = Callable[[Event], object]
"""Callable that takes each event. A method `close(error)`, if there is one, is called at the end;
`error` is None after a success."""


def raised(rule: AlarmRule, event: Event) -> list[Alarm]:
    """Call a rule with an event and return the alarms as a list."""
    result: Any = rule(event)
    if result is None:
        return []
    several = isinstance(result, Iterable) and not isinstance(result, Alarm)
    alarms: list[Alarm] = list(result) if several else [result]
    if not all(isinstance(alarm, Alarm) for alarm in alarms):
        raise NclabError(
            f"Expected an alarm rule to return an Alarm, a list of them or None, got {result!r}."
        )
    return alarms


def _check_thresholds(thresholds: Mapping[str, float]) -> None:
    """Raise before training if a threshold is negative or its metric has no value at collapse."""
    known = [name for name, metric in every_metric().items() if metric.ideal]
    if not thresholds or not set(thresholds) <= set(known):
        raise NclabError(
            f"Expected thresholds of one or more of {', '.join(known)}; got "
            f"{', '.join(thresholds) or 'none'}."
        )
    for name, value in thresholds.items():
        _check_number(f"threshold of {name}", value, 0.0, math.inf)


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise NclabError(f"Expected a {name} in [{low:g}, {high:g}), got {value!r}.")


@dataclass(frozen=True)
class CollapseReached:
    """Alarm rule: all given metrics of a layer are near their values at collapse."""

    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)

    def __post_init__(self) -> None:
        _check_thresholds(self.thresholds)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            name, distance = _farthest(collapse, self.thresholds, self.thresholds)
            if distance <= self.thresholds[name]:
                message = (
                    f"collapse reached, {name} is within {distance:.3g} of its value at collapse"
                )
                layer = collapse.layer or ""
                yield Alarm("collapse reached", layer, (), distance, message, severe=False)


@dataclass(frozen=True)
class CollapseLost:
    """Alarm rule: after collapse, a metric exceeds `factor` times its threshold again."""

    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)
    factor: float = 2.0

    def __post_init__(self) -> None:
        _check_thresholds(self.thresholds)
        _check_number("factor", self.factor, 1.0, math.inf)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        reached = {layer for name, layer, _ in event.fired if name == "collapse reached"}
        for collapse in event.layers:
            if collapse.layer not in reached:
                continue
            measured = [name for name in self.thresholds if collapse.values.get(name) is not None]
            if not measured:
                continue
            name, distance = _farthest(collapse, measured, self.thresholds)
            if distance > self.factor * self.thresholds[name]:
                message = (
                    f"collapse lost: {name} differs from its value at collapse by {distance:.3g}, "
                    f"threshold {self.thresholds[name]:g}"
                )
                yield Alarm("collapse lost", collapse.layer or "", (), distance, message)


@dataclass(frozen=True)
class MinorityCollapse:
    """Alarm rule: two class means merge, as the means of rare classes may under imbalance.

    Their distance is below `distance` times the root mean square distance between class means.
    """

    distance: float = 0.1

    def __post_init__(self) -> None:
        _check_number("distance", self.distance, 0.0, 1.0)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            layer = collapse.layer or ""
            known = {classes for _, other, classes in event.fired if other == layer}
            for ratio, classes in _near_pairs(collapse, self.distance):
                if classes not in known:  # one new pair per layer and event
                    message = f"two class means merge: {ratio:.3g} of the typical distance"
                    yield Alarm("minority collapse", layer, classes, ratio, message)
                    break


@dataclass(frozen=True)
class DeadFeatures:
    """Alarm rule: more than `share` of the feature vectors of a class are exactly zero."""

    share: float = 0.05

    def __post_init__(self) -> None:
        _check_number("share", self.share, 0.0, 1.0)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            layer = collapse.layer or ""
            shares = collapse.moments.zero_counts / collapse.moments.counts
            share, index = (float(part) for part in shares.max(0))
            if share > self.share and _is_new("dead features", layer, event):
                message = f"{share:.1%} of the features are zero vectors"
                classes = (collapse.classes[int(index)],)
                yield Alarm("dead features", layer, classes, share, message)


@dataclass(frozen=True)
class NotFinite:
    """Alarm rule: features hold nan or infinity; the alarm has their number in the worst class."""

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for layer, counts in event.nonfinite.items():
            if counts and _is_new("not finite", layer, event):
                worst = max(counts, key=lambda number: counts[number])
                message = f"{counts[worst]} features hold nan or infinity"
                yield Alarm("not finite", layer, (worst,), float(counts[worst]), message)


DEFAULT_ALARMS: tuple[AlarmRule, ...] = (
    CollapseReached(),
    CollapseLost(),
    MinorityCollapse(),
    DeadFeatures(),
    NotFinite(),
)
"""Rules of a monitor created without `alarms`."""


def _is_new(name: str, layer: str, event: Event) -> bool:
    return not any(key[:2] == (name, layer) for key in event.fired)


def _farthest(
    collapse: Collapse, names: Iterable[str], thresholds: Mapping[str, float]
) -> tuple[str, float]:
    """Return the metric with the largest distance from collapse, relative to its threshold.

    The second result is the distance itself, infinite for a metric without a value.
    """
    distances = {}
    for name in names:
        ideal, value = every_metric()[name].ideal, collapse.values.get(name)
        assert ideal is not None
        known = value is not None and not math.isnan(value)
        distances[name] = abs((value or 0.0) - ideal(collapse.num_classes)) if known else math.inf
    name = max(distances, key=lambda name: distances[name] / thresholds[name])
    return name, distances[name]


def _near_pairs(collapse: Collapse, share: float) -> list[tuple[float, tuple[int, int]]]:
    """Return pairs of classes with near means and their relative distances, the nearest first."""
    size = collapse.num_classes
    if size < 3:  # two means have only one distance, so nothing to compare
        return []
    means = collapse.moments.centred_means
    typical = math.sqrt(2 * size / (size - 1) * float(means.square().sum()) / size)  # rms of pairs
    if typical == 0:
        return []
    pairs = []
    for start in range(0, size, BLOCK):
        ratios = torch.cdist(means[start : start + BLOCK], means).div_(typical)
        for a, b in (ratios < share).nonzero().tolist():
            if start + a < b:
                classes = (collapse.classes[start + a], collapse.classes[b])
                pairs.append((float(ratios[a, b]), classes))
    return sorted(pairs)


class SinkCalls:
    """Calls every sink; a sink that fails causes one warning, and training goes on."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        for sink in self.sinks:
            self._call(sink, sink, event)

    def close(self, error: BaseException | None = None) -> None:
        """Close the sinks that have `close`; their errors never hide the error of the training."""
        for sink in self.sinks:
            close = getattr(sink, "close", None)
            if callable(close):
                self._call(sink, close, error)

    def _call(self, sink: Sink, function: Callable[[Any], object], argument: Any) -> None:
        try:
            function(argument)
        except Exception as error:  # noqa: BLE001 - a sink may be anyone's, a logger or a network
            if id(sink) in self._failed:
                return
            self._failed.add(id(sink))
            name = getattr(sink, "__name__", None) or type(sink).__name__
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            warnings.warn(
                f"The sink {name} failed and misses events ({reason}); the training goes on.",
                NclabWarning,
                stacklevel=4,
            )


def as_callables(option: str, given: Any) -> list[Any]:
    """Return one callable or several as a list; raise if an item is not callable."""
    single = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    items = [given] if single else list(given)
    for item in items:
        if not callable(item):
            raise NclabError(f"Expected {option}= callables that take an Event, got {item!r}.")
    return items

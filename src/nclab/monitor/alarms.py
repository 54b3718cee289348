"""Alarms: plain callables that look at an event and say what is worth knowing.

An alarm is any callable that takes an `Event` and returns an `Alarm`, several, or None. The
monitor raises each once for the same name, layer and classes; `event.fired` holds those before.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from nclab.errors import NclabError
from nclab.measurement.collapse import Collapse
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import Alarm, Event

AlarmRule = Callable[[Event], Alarm | Iterable[Alarm] | None]

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {"nc1_trace_ratio": 0.05, "nc2_equiangularity_means": 0.1}
)
"""Distances from the value at collapse that count as reached."""
BLOCK = 512
"""Classes whose distances to all others are taken at a time."""


def raised(rule: AlarmRule, event: Event) -> list[Alarm]:
    """What a rule says about an event, as a list.

    >>> raised(lambda event: None, None)
    []
    """
    found = rule(event)
    if found is None:
        return []
    if isinstance(found, Alarm):
        return [found]
    alarms = list(found) if isinstance(found, Iterable) else [found]
    if not all(isinstance(alarm, Alarm) for alarm in alarms):
        raise NclabError(f"Expected an alarm to return an Alarm, several or None, got {found!r}.")
    return alarms


def _check(thresholds: Mapping[str, float]) -> None:
    """Refuse at once what would stop a training later."""
    metrics = every_metric()
    known = ", ".join(metric for metric in metrics if metrics[metric].ideal)
    if not thresholds:
        raise NclabError(f"Expected thresholds of one or more of {known}; got none.")
    for name, value in thresholds.items():
        if name not in metrics or metrics[name].ideal is None:
            raise NclabError(f"Expected thresholds of {known}; got {name!r}.")
        if not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise NclabError(f"Expected a threshold of {name} above 0, got {value!r}.")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not (isinstance(value, (int, float)) and low <= value < high):
        raise NclabError(f"Expected a {name} in [{low:g}, {high:g}), got {value!r}.")


@dataclass(frozen=True)
class CollapseReached:
    """All given metrics of a layer are near their values at collapse."""

    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)

    def __post_init__(self) -> None:
        _check(self.thresholds)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            distances = _distances(collapse, self.thresholds)
            name, worst = _worst(distances, self.thresholds)
            if worst <= self.thresholds[name]:
                message = f"collapse reached, {name} is within {worst:.3g} of its value there"
                yield Alarm("collapse reached", _layer(collapse), (), worst, message, severe=False)


@dataclass(frozen=True)
class CollapseLost:
    """After collapse was reached, a metric is `factor` times beyond its threshold again."""

    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)
    factor: float = 2.0

    def __post_init__(self) -> None:
        _check(self.thresholds)
        _check_number("factor", self.factor, 1.0, math.inf)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        reached = {layer for name, layer, _ in event.fired if name == "collapse reached"}
        for collapse in event.layers:
            if collapse.layer not in reached:
                continue
            measured = [name for name in self.thresholds if collapse.values.get(name) is not None]
            if not measured:
                continue
            name, worst = _worst(_distances(collapse, measured), self.thresholds)
            if worst > self.factor * self.thresholds[name]:
                message = f"collapse lost again, {name} is {worst:.3g} off its value there"
                yield Alarm("collapse lost", _layer(collapse), (), worst, message)


@dataclass(frozen=True)
class MinorityCollapse:
    """Two class means are merging: nearer than `distance` times the distance of pairs, rms.

    Under imbalance the features of rare classes may fall together, as if they were one class.
    """

    distance: float = 0.1

    def __post_init__(self) -> None:
        _check_number("distance", self.distance, 0.0, 1.0)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            layer = _layer(collapse)
            known = {classes for name, where, classes in event.fired if where == layer}
            for value, classes in _near_pairs(collapse, self.distance):
                if classes not in known:  # one new pair of a layer at a time
                    message = f"class means merge, at {value:.3g} of the typical distance"
                    yield Alarm("minority collapse", layer, classes, value, message)
                    break


@dataclass(frozen=True)
class DeadFeatures:
    """More than this share of a class's feature vectors is exactly zero."""

    share: float = 0.05

    def __post_init__(self) -> None:
        _check_number("share", self.share, 0.0, 1.0)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            shares = collapse.moments.zero_counts / collapse.moments.counts
            value, place = (float(part) for part in shares.max(0))
            if value > self.share and _new("dead features", _layer(collapse), event):
                message = f"{value:.1%} of the features are zero vectors"
                own = (collapse.classes[int(place)],)
                yield Alarm("dead features", _layer(collapse), own, value, message)


@dataclass(frozen=True)
class NotFinite:
    """Features hold nan or infinity; the value is how many feature vectors of the class do."""

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for layer, classes in event.nonfinite.items():
            if classes and _new("not finite", layer, event):
                own = max(classes, key=lambda key: classes[key])
                message = f"{classes[own]} features hold nan or infinity"
                yield Alarm("not finite", layer, (own,), float(classes[own]), message)


DEFAULT_ALARMS: tuple[AlarmRule, ...] = (
    CollapseReached(),
    CollapseLost(),
    MinorityCollapse(),
    DeadFeatures(),
    NotFinite(),
)
"""The rules of a monitor that is given none."""


def _layer(collapse: Collapse) -> str:
    return collapse.layer or ""


def _new(name: str, layer: str, event: Event) -> bool:
    return not any(key[:2] == (name, layer) for key in event.fired)


def _distances(collapse: Collapse, names: Iterable[str]) -> dict[str, float]:
    """How far each metric is from its value at collapse; without a number, infinitely far."""
    gaps = {}
    for name in names:
        ideal, value = every_metric()[name].ideal, collapse.values.get(name)
        assert ideal is not None
        known = value is not None and not math.isnan(value)
        gaps[name] = abs((value or 0.0) - ideal(collapse.num_classes)) if known else math.inf
    return gaps


def _worst(gaps: Mapping[str, float], thresholds: Mapping[str, float]) -> tuple[str, float]:
    """The metric that is farthest from collapse, in units of its threshold."""
    name = max(gaps, key=lambda name: gaps[name] / thresholds[name])
    return name, gaps[name]


def _near_pairs(collapse: Collapse, share: float) -> list[tuple[float, tuple[int, int]]]:
    """Pairs of classes whose means are near, the nearest first, with their relative distance."""
    size = collapse.num_classes
    if size < 3:  # two means that merge leave no other distance to compare with
        return []
    means = collapse.moments.centred_means
    typical = math.sqrt(2 * size / (size - 1) * float(means.square().sum()) / size)  # rms of pairs
    if typical == 0:
        return []
    found = []
    for start in range(0, size, BLOCK):
        ratios = torch.cdist(means[start : start + BLOCK], means).div_(typical)
        for a, b in (ratios < share).nonzero().tolist():
            if start + a < b:
                classes = (collapse.classes[start + a], collapse.classes[b])
                found.append((float(ratios[a, b]), classes))
    return sorted(found)

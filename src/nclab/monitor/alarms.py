"""Alarms: rules that check every event and report problems and milestones.

A rule is any callable that takes an `Event` and returns an `Alarm`, several alarms, or None. The
monitor raises each alarm once for the same name, layer and classes; `event.fired` holds the alarms
raised before.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from nclab.errors import NclabError
from nclab.measurement.collapse import Collapse
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import Alarm, Event

AlarmRule = Callable[[Event], Alarm | Iterable[Alarm] | None]

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {"nc1_trace_ratio": 0.05, "nc2_equiangularity_means": 0.1}
)
"""Metric -> largest distance from its value at collapse that counts as reached."""
BLOCK = 512
"""Number of classes whose distances to all others are computed at a time."""


def raised(rule: AlarmRule, event: Event) -> list[Alarm]:
    """Return the alarms that a rule raises for an event, as a list.

    >>> raised(lambda event: None, None)
    []
    """
    result: Any = rule(event)
    if result is None:
        return []
    several = isinstance(result, Iterable) and not isinstance(result, Alarm)
    alarms: list[Alarm] = list(result) if several else [result]
    if not all(isinstance(alarm, Alarm) for alarm in alarms):
        raise NclabError(
            f"Expected an alarm rule to return an Alarm, several or None, got {result!r}."
        )
    return alarms


def _check_thresholds(thresholds: Mapping[str, float]) -> None:
    """Raise if a threshold is unusable, before training starts."""
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
    """Raises when all given metrics of a layer are near their values at collapse."""

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
    """Raises when, after collapse, a metric exceeds `factor` times its threshold again."""

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
    """Raises when two class means merge: closer than `distance` times the rms distance of pairs.

    Under imbalance the features of rare classes may merge, as if they were one class.
    """

    distance: float = 0.1

    def __post_init__(self) -> None:
        _check_number("distance", self.distance, 0.0, 1.0)

    def __call__(self, event: Event) -> Iterator[Alarm]:
        for collapse in event.layers:
            layer = collapse.layer or ""
            known = {classes for _, other, classes in event.fired if other == layer}
            for ratio, classes in _near_pairs(collapse, self.distance):
                if classes not in known:  # one new pair of a layer at a time
                    message = f"two class means merge: {ratio:.3g} of the typical distance"
                    yield Alarm("minority collapse", layer, classes, ratio, message)
                    break


@dataclass(frozen=True)
class DeadFeatures:
    """Raises when more than this share of a class's feature vectors is exactly zero."""

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
    """Raises when features hold nan or infinity; the value is the count in the worst class."""

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
    """Return the metric farthest from collapse, in units of its threshold, and its distance.

    A metric without a number is infinitely far.
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
    if size < 3:  # with two means there is no other distance to compare with
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

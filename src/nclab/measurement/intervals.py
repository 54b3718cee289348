"""Error bars: a delete-a-group jackknife over random groups of samples, kept as moments.

Samples are dealt to G groups, class by class, so that every group has its share of each. A value
without group g comes from the merged statistics of the others; what needs a second pass gets one
around the means without g. So every interval is about new samples of the same classes in the same
proportions, with the network as it is; another training is another question.

Costs the first pass twice and G - 1 second passes for every one of the measurement. Memory: the
moments of two sets of groups.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from nclab.errors import NclabWarning
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import Extras, gather
from nclab.measurement.interval import FEW, Interval, jackknife, share_interval
from nclab.measurement.null import empty_like, logits_like
from nclab.measurement.row_order import RowOrder
from nclab.metrics.catalogue import EXTRAS, METRICS, Metric, plugin_metrics
from nclab.statistics import ClassMoments, DirectionalSpread, LogitStatistics, SecondPass
from nclab.statistics.second_pass import ReferencePass

if TYPE_CHECKING:
    from nclab.measurement.layer_stream import Head

State = dict[str, Tensor]
Summed = TypeVar("Summed", LogitStatistics, SecondPass, DirectionalSpread, ReferencePass)
GROUPS = 10
MUCH = 2**30
"""Bytes from which on the memory for the groups is announced."""
SHARES = {metric.name for metric in METRICS if metric.group == "NC4"} | {"accuracy"}
"""Metrics that are shares of the samples."""
EXTREME = "a smallest or largest value: a jackknife knows no error of it"
FIXED = "of the weights alone: it has no sampling error"
SINGLE = "a class has a single sample"
OTHER_ORDER = "the second pass brought the samples in another order; do not shuffle the loader"
BIASED = "finite samples alone move it from its value at collapse by as much; take more of them"
FLOOR = 0.25
"""Share of the distance from collapse that is bias from which on there is no interval: a distance
that noise makes as large as the truth is, sqrt(truth^2 + noise^2), has this bias."""


class Groups:
    """The statistics of one layer without each of its groups, beside the stream of all of them."""

    def __init__(
        self, moments: ClassMoments, head: "Head | None", extras: Extras, *, count: int
    ) -> None:
        self._like, self._head, self._extras, self.count = moments, head, extras, count
        self._moments: list[ClassMoments] = []
        self._logits: list[LogitStatistics] = []
        self._looks: list[SecondPass] = []
        self._spreads: list[DirectionalSpread] = []
        self._order = RowOrder()
        self._dealt = torch.zeros_like(moments.counts)
        self._left_out = False

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """First pass."""
        size = self._like.num_classes
        if not self._moments:
            _announce(memory(self._like, self.count), self._like)
            self._moments = [empty_like(self._like) for _ in range(self.count)]
        if len(self._dealt) < size:
            self._dealt = torch.cat([self._dealt, self._dealt.new_zeros(size - len(self._dealt))])
        for moments in self._moments if self._moments[0].num_classes < size else []:
            moments.grow(size)
        if self._head is not None and not self._logits:
            self._logits = [logits_like(moments) for moments in self._moments]
        groups = self._deal(classes)
        for group, moments in enumerate(self._moments):
            part = (groups == group).nonzero().flatten()
            own, labels = rows[part.to(rows.device)], classes[part]
            moments.add_checked(own, labels)
            if self._head is not None and len(own):
                self._logits[group].update(self._head.logits(own.to(self._head.weight)), labels)
        self._order.add(classes)

    def look(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Second pass."""
        if not self._looks:
            self._leave_out()
            if (self._like.counts == 1).any():
                return
            self._looks = [SecondPass(moments) for moments in self._moments]
            if self._extras.directional:
                self._spreads = [DirectionalSpread(moments) for moments in self._moments]
        groups = self._deal(classes)
        for group, look in enumerate(self._looks):
            part = (groups != group).nonzero().flatten()
            own, labels = rows[part.to(rows.device)], classes[part]
            look.add_checked(own, labels, None if predicted is None else predicted[part])
            if self._spreads:
                self._spreads[group].add_checked(own, labels)
        self._order.look(classes)

    def attached(self, collapse: Collapse) -> Collapse:
        """The measurement with `intervals`; what has none is said in `no_interval`."""
        self._leave_out()
        found: list[Mapping[str, float | None]] = []
        single = bool((self._like.counts == 1).any())
        usable = self._order.same and not single
        for group, moments in enumerate([] if single else self._moments):
            spread = self._spreads[group] if self._spreads and usable else None
            found.append(
                gather(
                    moments,
                    weight=None if self._head is None else self._head.weight,
                    logits=self._logits[group] if self._logits else None,
                    look=self._looks[group] if self._looks and usable else None,
                    extras=self._extras._replace(spread=spread),
                ).values
            )
        intervals, reasons = {}, {}
        for metric in (*METRICS, *plugin_metrics(), *EXTRAS):
            value = collapse.values.get(metric.name)
            if value is None:
                continue
            answer = SINGLE if single else _interval(metric, value, found, collapse)
            if isinstance(answer, Interval):
                intervals[metric.name] = answer
            else:
                reasons[metric.name] = answer
        return replace(collapse, intervals=intervals, no_interval=reasons)

    def begin_at(self, dealt: Tensor) -> None:
        """Deal on where others end, which have dealt so many samples of every class."""
        self._dealt = dealt.clone().to(self._dealt.device)

    def first_sums(self) -> list[tuple[State, State | None]]:
        """Moments and logits of every group, or of all others once that is what they are."""
        logits = [None] * len(self._moments) if not self._logits else self._logits
        return [
            (moments.state_dict(), None if own is None else own.sums())
            for moments, own in zip(self._moments, logits, strict=True)
        ]

    def join_first(
        self, moments: ClassMoments, parts: Sequence[Sequence[tuple[State, State | None]]]
    ) -> None:
        """Take over what several have seen in the first pass; `moments` are those of all."""
        self._like = moments
        for part in parts:
            own = [ClassMoments.from_state_dict(state) for state, _ in part]
            logits = []
            for state in (sums for _, sums in part if sums is not None):
                logits.append(logits_like(moments))
                logits[-1].load_sums(state)
            if not self._moments:
                self._moments, self._logits = own, logits
                continue
            for one, other in zip(self._moments, own, strict=True):
                one.merge(other)
            for seen, more in zip(self._logits, logits, strict=True):
                seen.merge(more)
        self._leave_out()

    def look_on(self, moments: ClassMoments, all_but_one: Sequence[tuple[State, Any]]) -> None:
        """Begin a second pass with the `first_sums` of `join_first`."""
        self._like, self._left_out = moments, True
        self._moments = [ClassMoments.from_state_dict(state) for state, _ in all_but_one]

    def second_sums(self) -> list[tuple[State, State | None]]:
        """Looks and spreads around the means without every group."""
        spreads = [None] * len(self._looks) if not self._spreads else self._spreads
        return [
            (look.sums(), None if own is None else own.sums())
            for look, own in zip(self._looks, spreads, strict=True)
        ]

    def join_second(self, parts: Sequence[Sequence[tuple[State, State | None]]]) -> None:
        """Take over what several have seen in the second pass."""
        for place, moments in enumerate(self._moments if any(parts) else []):
            own = [part[place] for part in parts if part]
            self._looks.append(summed(partial(SecondPass, moments), (look for look, _ in own)))
            spreads = [spread for _, spread in own if spread is not None]
            if spreads:
                self._spreads.append(summed(partial(DirectionalSpread, moments), spreads))

    def _deal(self, classes: Tensor) -> Tensor:
        """(B,) groups: the samples of a class come round by round, each round turned at random."""
        order = classes.argsort(stable=True)
        own = classes[order]
        counts = own.bincount(minlength=len(self._dealt))
        place = torch.arange(len(own), device=own.device) - (counts.cumsum(0) - counts)[own]
        place += self._dealt[own]
        self._dealt += counts
        turn = _mixed(own * 1_000_003 + place // self.count)
        groups = torch.empty_like(own)
        groups[order] = (place + turn) % self.count
        return groups

    def _leave_out(self) -> None:
        """Turn the statistics of each group into those of all the others, once."""
        if self._left_out:
            return
        self._left_out = True
        self._dealt.zero_()
        self._moments = _all_but_one(self._moments)
        self._logits = _all_but_one(self._logits)


def _announce(needed: int, moments: ClassMoments) -> None:
    """Say how much memory will be used, if it is much."""
    if needed > MUCH:
        warnings.warn(
            f"The intervals keep groups of moments, about {needed / 1e9:.1f} GB for "
            f"{moments.num_classes} classes in dimension {moments.dim}.",
            NclabWarning,
            stacklevel=2,
        )


def memory(moments: ClassMoments, count: int = GROUPS) -> int:
    """Bytes that intervals need at most: two sets of groups of moments, and a look for each.

    >>> memory(ClassMoments(10, 512, scatter=True)) // 10**6
    46
    """
    return group_bytes(moments.num_classes, moments.dim, count, scatter=moments.has_scatter)


def group_bytes(classes: int, dim: int, count: int, *, scatter: bool) -> int:
    """`memory` by sizes."""
    one = 3 * classes * dim + (dim * dim if scatter else 0)
    return 8 * count * (2 * one + 4 * classes * dim)


def summed(blank: Callable[[], Summed], states: Iterable[State]) -> Summed:
    """One stream with the sums of several, which `blank` makes without any."""
    total = blank()
    for place, state in enumerate(states):
        if place == 0:
            total.load_sums(state)
        else:
            part = blank()
            part.load_sums(state)
            total.merge(part)
    return total


Kind = TypeVar("Kind", ClassMoments, LogitStatistics)


def _all_but_one(parts: list[Kind]) -> list[Kind]:
    """The merge of all parts but each: from what comes before it and what comes after."""
    after: list[Kind] = []
    for part in reversed(parts):
        after.append(_merged(after[-1], part) if after else part)
    after.reverse()
    found: list[Kind] = []
    before: Kind | None = None
    for place, part in enumerate(parts):
        rest = after[place + 1] if place + 1 < len(parts) else None
        after[place] = part  # what came from here on is needed no more
        if before is None or rest is None:
            only = rest if before is None else before
            assert only is not None, "more than one group"
            found.append(only)
        else:
            found.append(_merged(before, rest))
        before = part if before is None else _merged(before, part)
    return found


def _merged(left: Kind, right: Kind) -> Kind:
    both = copy.deepcopy(left)
    both.merge(right)
    return both


def _interval(
    metric: Metric, value: float, found: Sequence[Mapping[str, float | None]], collapse: Collapse
) -> Interval | str:
    """The interval of one scalar, or why it has none."""
    if metric.of_weights:
        return FIXED
    if metric.extreme:
        return EXTREME
    if metric.name in SHARES:
        hits, total = round(value * collapse.samples), collapse.samples
        if min(hits, total - hits) < FEW:
            return share_interval(hits, total)
    left_out = [values[metric.name] for values in found]
    known = [one for one in left_out if one is not None]
    if not all(map(math.isfinite, [value, *known])):
        return "infinite, or infinite without one of the groups"
    if len(known) < len(left_out):
        looked = metric.needs in ("second pass", "both")
        return OTHER_ORDER if looked else "undefined without one of the groups"
    interval = jackknife(value, known)
    if metric.name in SHARES:  # steps, of which a jackknife knows the spread but not the bias
        low, high = value - interval.half, value + interval.half
        return Interval(max(low, 0.0), min(high, 1.0))
    ideal = None if metric.ideal is None else metric.ideal(collapse.num_classes)
    if ideal == 0.0 or ideal == 1.0:
        # The best value is the end of the range: an interval does not go beyond it.
        if abs(interval.bias) > FLOOR * abs(value - ideal):
            return BIASED
        least, most = (0.0, math.inf) if ideal == 0.0 else (-1.0, 1.0)  # cosines, but for shares
        interval = interval._replace(low=max(interval.low, least), high=min(interval.high, most))
    return interval


def _mixed(numbers: Tensor) -> Tensor:
    """Non-negative integers that look random, the same for the same numbers."""
    mixed = numbers * 0x2545F4914F6CDD1D
    mixed = (mixed ^ (mixed >> 29)) * 0x1B873593CC9E2D51
    return (mixed >> 33) & 0x3FFFFFFF

"""Approximate 95 % intervals of scalars, by a jackknife over groups of samples.

Samples are assigned to G random groups, class by class, so that every group has its share of each
class. A value without group g comes from the merged statistics of the other groups; the second
pass uses the means without g. So an interval describes new samples of the same classes in the same
proportions, for the same trained network.

The intervals are approximate: 95 % is their coverage for many samples without heavy tails.
`benchmarks/interval_coverage.py` measures the coverage for few samples and for heavy tails.

With intervals, a measurement does the work of its first pass twice and that of its second pass G
times. It keeps up to 2 G `ClassMoments` in memory.
"""

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from scipy.special import betaincinv, stdtrit
from torch import Tensor

from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import scalars, view_of
from nclab.measurement.heavy_tails import LossTails, SpreadTails, heavy_tail_warnings
from nclab.measurement.options import Head, MeasureOptions
from nclab.measurement.results import Interval
from nclab.metrics.catalogue import EXTRAS, METRICS, Metric, plugin_metrics
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass

Kind = TypeVar("Kind", ClassMoments, LogitStatistics)

LEVEL = 0.95
FEW = 10
"""A share of samples gets an exact binomial interval if fewer than this many samples are right, or
fewer than this many are wrong."""
SHARES = {metric.name for metric in METRICS if metric.group == "NC4"} | {"accuracy"}
"""Metrics that are shares of the samples."""
EXTREME = "it is a smallest or largest value, for which a jackknife is not valid"
FIXED = "it depends on the weights alone and has no sampling error"
SINGLE = "a class has a single sample"
OTHER_ORDER = "the second pass had the samples in another order; do not shuffle the loader"
BIASED = "its finite-sample bias is too large for its distance from collapse; use more samples"
MOST_BIAS = 0.25
"""A metric has no interval if its bias is more than this share of its distance from collapse. A
measured distance sqrt(truth^2 + noise^2) has about this bias if noise and truth are equal."""
DISTANCES = {
    "nc2_norm_variation_means",
    "nc2_equiangularity_means",
    "nc2_cosine_std_means",
    "nc3_self_duality",
    "nc3_gram",
}
"""Distances from the simplex ETF that noise of the class means alone makes positive. At a distance
of 0 they have a kink, where a jackknife is not valid."""
MOST_BIAS_OF_DISTANCE, LEAST_ERRORS = 0.1, 5
"""A metric in `DISTANCES` has no interval if its bias is more than the first number times its
value, or if its value is less than the second number of standard errors."""
MOST_LOG = 700.0
"""Logarithm of the largest end of an interval, just below overflow."""
NEAR_ZERO = "the class means may be an exact simplex up to noise; use more samples"
RATIOS = {metric.name for metric in METRICS if metric.group == "NC1"}
"""Ratios of variances, whose intervals are computed for the logarithm."""


def jackknife(value: float, left_out: Sequence[float]) -> Interval:
    r"""Return the interval of a value, given G values, each computed without one of G groups.

    $$\theta - b \pm t_{G-1}\sqrt{\tfrac{G-1}G\sum_g(\theta_{(g)}-\bar\theta)^2},\quad
      b=(G-1)(\bar\theta-\theta)$$

    $\theta_{(g)}$ are the values without group g, $\bar\theta$ is their mean, and $t_{G-1}$ is the
    97.5 % quantile of Student's distribution. Exact for a mean of normal numbers in equal groups,
    and correct to first order for other smooth functions of means.

    >>> low, high, bias = jackknife(2.0, [2.5, 2.0, 1.5])  # the mean of 1, 2 and 3
    >>> round(low, 6), round(high, 6), bias
    (-0.484138, 4.484138, 0.0)
    """
    count = len(left_out)
    mean = math.fsum(left_out) / count
    half = float(stdtrit(count - 1, 1 - (1 - LEVEL) / 2)) * standard_error(left_out)
    bias = (count - 1) * (mean - value)
    return Interval(value - bias - half, value - bias + half, bias)


def standard_error(left_out: Sequence[float]) -> float:
    """Return the jackknife's standard error from G values, each computed without one of G groups.

    >>> round(standard_error([2.5, 2.0, 1.5]), 6)  # the mean of 1, 2 and 3
    0.57735
    """
    count = len(left_out)
    mean = math.fsum(left_out) / count
    squares = math.fsum((other - mean) ** 2 for other in left_out)
    return math.sqrt((count - 1) / count * squares)


def log_jackknife(value: float, left_out: Sequence[float]) -> Interval:
    """Return the `jackknife` interval of log(value), transformed back; `bias` is that of the value.

    The estimate of a ratio of variances is skewed. Its logarithm is more nearly normal.

    >>> low, high, bias = log_jackknife(2.0, [2.0, 4.0, 1.0])
    >>> round(low * high, 6), round(bias, 6)
    (4.0, 0.666667)
    """
    if not min(value, *left_out) > 0:
        return jackknife(value, left_out)
    logs = jackknife(math.log(value), [math.log(other) for other in left_out])
    low, high = (math.exp(min(end, MOST_LOG)) for end in logs[:2])
    return Interval(low, high, jackknife(value, left_out).bias)


def share_interval(hits: int, total: int) -> Interval:
    """Return the exact interval of Clopper and Pearson for a share.

    It has a positive width even if all samples agree.

    >>> low, high, _ = share_interval(100, 100)
    >>> round(low, 4), high
    (0.9638, 1.0)
    """
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(hits, total - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, total - hits, 1 - tail)) if hits < total else 1.0
    return Interval(low, high)


class GroupJackknife:
    """Statistics of one layer for intervals: G sets, each without one of G groups of samples.

    `moments` are the moments of all samples of the layer; pass them while they are still empty.
    """

    def __init__(self, moments: ClassMoments, head: Head | None, options: MeasureOptions) -> None:
        self._all, self._head, self.count = moments, head, options.groups
        self._extra_metrics = options.extra_metrics
        self._moments = [copy.deepcopy(moments) for _ in range(self.count)]
        size, ignored = moments.num_classes, moments.ignore_index
        self._logits = [
            LogitStatistics(size, ignore_index=ignored, device=moments.device)
            for _ in range(0 if head is None else self.count)
        ]
        self._second: list[SecondPass] = []
        self._spread_tails: SpreadTails | None = None
        self._loss_tails = None if head is None else LossTails(moments.counts)
        self._checksums = [0, 0]  # of the labels in the first and the second pass
        self._assigned = torch.zeros_like(moments.counts)
        self._complements = False  # whether the statistics are those of all other groups

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """Add a batch of the first pass."""
        size = self._all.num_classes
        if len(self._assigned) < size:
            more = self._assigned.new_zeros(size - len(self._assigned))
            self._assigned = torch.cat([self._assigned, more])
            for moments in self._moments:
                moments.grow(size)
        groups = self._assign(classes)
        for group, moments in enumerate(self._moments):
            index = (groups == group).nonzero().flatten()
            group_rows, labels = rows[index.to(rows.device)], classes[index]
            moments.add_checked(group_rows, labels)
            if self._head is not None and self._loss_tails is not None and len(group_rows):
                logits = self._head.logits(group_rows.to(self._head.weight))
                self._loss_tails.add(logits, labels)
                self._logits[group].update(logits, labels)
        self._checksums[0] = _checksum(classes, self._checksums[0])

    def add_second(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Add a batch of the second pass."""
        if not self._second:
            self._take_complements()
            if (self._all.counts == 1).any():
                return
            self._second = [SecondPass(moments) for moments in self._moments]
            self._spread_tails = SpreadTails(self._all)
        if self._spread_tails is not None:
            self._spread_tails.add(rows, classes)
        groups = self._assign(classes)
        for group, second_pass in enumerate(self._second):
            index = (groups != group).nonzero().flatten()
            group_rows, labels = rows[index.to(rows.device)], classes[index]
            decided = None if predicted is None else predicted[index]
            second_pass.add_checked(group_rows, labels, decided)
        self._checksums[1] = _checksum(classes, self._checksums[1])

    def attach(self, collapse: Collapse) -> Collapse:
        """Return the measurement with its confidence intervals in `intervals`.

        `no_interval` gives the reason for each scalar without one. A warning is added if heavy
        tails make intervals too short.
        """
        self._take_complements()
        single = bool((self._all.counts == 1).any())
        usable = self._checksums[0] == self._checksums[1] and not single
        without: list[Mapping[str, float | None]] = []
        for group, moments in enumerate([] if single else self._moments):
            view = view_of(
                moments,
                None if self._head is None else self._head.weight,
                self._logits[group] if self._logits else None,
                self._second[group] if self._second and usable else None,
            )
            incomplete = bool(moments.missing)
            without.append(scalars(view, self._extra_metrics, {}, incomplete=incomplete)[0])
        intervals, reasons = {}, {}
        for metric in (*METRICS, *plugin_metrics(), *EXTRAS):
            value = collapse.values.get(metric.name)
            if value is None:
                continue
            interval = SINGLE if single else _interval(metric, value, without, collapse)
            if isinstance(interval, Interval):
                intervals[metric.name] = interval
            else:
                reasons[metric.name] = interval
        warnings = heavy_tail_warnings(
            intervals, self._spread_tails, self._loss_tails, self._all.counts
        )
        return replace(
            collapse,
            intervals=intervals,
            no_interval=reasons,
            warnings=(*collapse.warnings, *warnings),
        )

    def _assign(self, classes: Tensor) -> Tensor:
        """Return the (B,) group of each sample.

        The samples of a class go to the groups in rounds. Each round starts at a random group.
        """
        order = classes.argsort(stable=True)
        sorted_classes = classes[order]
        counts = sorted_classes.bincount(minlength=len(self._assigned))
        index = torch.arange(len(classes), device=classes.device)
        index -= (counts.cumsum(0) - counts)[sorted_classes]
        index += self._assigned[sorted_classes]
        self._assigned += counts
        start = _pseudorandom(sorted_classes * 1_000_003 + index // self.count)
        groups = torch.empty_like(sorted_classes)
        groups[order] = (index + start) % self.count
        return groups

    def _take_complements(self) -> None:
        """Replace the statistics of each group by those of all other groups, on the first call."""
        if self._complements:
            return
        self._complements = True
        self._assigned.zero_()
        self._moments = _all_but_one(self._moments)
        self._logits = _all_but_one(self._logits)


def _all_but_one(parts: list[Kind]) -> list[Kind]:
    """Return for each part the merge of all other parts.

    Merges the parts before each part with those after it, so that 3 G merges suffice for G parts.
    """
    suffixes: list[Kind] = []
    for part in reversed(parts):
        suffixes.append(_merged(suffixes[-1], part) if suffixes else part)
    suffixes.reverse()
    complements: list[Kind] = []
    prefix: Kind | None = None
    for index, part in enumerate(parts):
        suffix = suffixes[index + 1] if index + 1 < len(parts) else None
        suffixes[index] = part  # releases the memory of a suffix that is not needed again
        if prefix is None or suffix is None:
            only = suffix if prefix is None else prefix
            assert only is not None, "more than one group"
            complements.append(only)
        else:
            complements.append(_merged(prefix, suffix))
        prefix = part if prefix is None else _merged(prefix, part)
    return complements


def _merged(left: Kind, right: Kind) -> Kind:
    both = copy.deepcopy(left)
    both.merge(right)
    return both


def _interval(
    metric: Metric, value: float, without: Sequence[Mapping[str, float | None]], collapse: Collapse
) -> Interval | str:
    """Return the interval of one scalar, or the reason why it has none."""
    if metric.of_weights:
        return FIXED
    if metric.extreme:
        return EXTREME
    if metric.name in SHARES:
        hits, total = round(value * collapse.samples), collapse.samples
        if min(hits, total - hits) < FEW:
            return share_interval(hits, total)
    left_out = [values[metric.name] for values in without]
    known = [other for other in left_out if other is not None]
    if not all(map(math.isfinite, [value, *known])):
        return "it is infinite, or infinite without one of the groups"
    if len(known) < len(left_out):
        needs_second_pass = metric.needs in ("second pass", "both")
        return OTHER_ORDER if needs_second_pass else "it is undefined without one of the groups"
    in_logs = metric.name in RATIOS
    interval = log_jackknife(value, known) if in_logs else jackknife(value, known)
    if metric.name in SHARES:  # step functions: the jackknife knows their spread, not their bias
        low, high = value - interval.half, value + interval.half
        return Interval(max(low, 0.0), min(high, 1.0))
    ideal = None if metric.ideal is None else metric.ideal(collapse.num_classes)
    if ideal == 0.0 or ideal == 1.0:
        # The ideal value is the end of the range: an interval does not go beyond it.
        distance = metric.name in DISTANCES
        most_bias = MOST_BIAS_OF_DISTANCE if distance else MOST_BIAS
        if distance and value < LEAST_ERRORS * standard_error(known):
            return NEAR_ZERO
        if abs(interval.bias) > most_bias * abs(value - ideal):
            return BIASED
        least, most = (0.0, math.inf) if ideal == 0.0 else (-1.0, 1.0)  # cosines
        interval = interval._replace(low=max(interval.low, least), high=min(interval.high, most))
    return interval


def _pseudorandom(numbers: Tensor) -> Tensor:
    """Return non-negative pseudorandom integers that depend on `numbers` only."""
    mixed = numbers * 0x2545F4914F6CDD1D
    mixed = (mixed ^ (mixed >> 29)) * 0x1B873593CC9E2D51
    return (mixed >> 33) & 0x3FFFFFFF


def _checksum(classes: Tensor, start: int) -> int:
    """Return the checksum of labels in their order, continuing from that of earlier batches."""
    return zlib.crc32(classes.cpu().contiguous().numpy().tobytes(), start)

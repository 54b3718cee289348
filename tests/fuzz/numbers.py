"""Campaign of extreme but valid features and classifiers.

Every metric must be within its documented error, see `errors.documented`. If its error exceeds one
millionth, a warning or a note must also mention the metric.
"""

import random
import re
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError
from nclab.measurement.arrays import measure_features
from nclab.measurement.collapse import Collapse
from nclab.statistics import blocks
from tests.fuzz import errors
from tests.reference import slow
from tests.reference.digits import mp, mpf
from tests.reference.slow import ExactData

Array = NDArray[Any]
WARN_ABOVE = mpf("1e-6")
"""Error above which a warning or note is required."""
ABSOLUTE = (
    "intra", "inter", "nc0", "nc2", "nc3", "unc3", "nc4", "accuracy", "agreement", "minority",
    "within_variation", "test_collapse", "mean_shift",
)  # fmt: skip
"""Parts of names of metrics with absolute errors; errors of the others are relative."""
DECISIONS = ("nc4", "accuracy", "agreement", "weak_test_collapse")
"""Parts of names of metrics that count samples. Rounding may change the class of samples between
two classes; `documented` counts them."""
BY_TABLE = (
    *("loss", "balanced_loss", "optimal_loss", "excess_loss", "margin", "normalised_margin"),
    "rankme",
)
"""Metrics without required warnings: their documented error grows with the logits, or with d."""

OF_ERRORS = (
    "relative error of about",
    "accurate to about",
    "rounding",
    "may be off",
    "underflow",
    "leaves out",
)
"""Words of warnings about the error of a number."""


class Input(NamedTuple):
    """Data of one measurement, and the way to measure it."""

    features: Any
    labels: list[int]
    weight: Array
    bias: Array
    test: Array
    compiled: bool
    batches: int


def power(chance: random.Random, low: float, high: float) -> float:
    return float(10.0 ** chance.uniform(low, high))


def scaled(chance: random.Random, rows: Array, labels: Array) -> Array:
    return rows * power(chance, -150, 149)


def small_class(chance: random.Random, rows: Array, labels: Array) -> Array:
    selected = labels == chance.choice(labels.tolist())
    rows[selected] *= power(chance, -310, 0)
    return rows


def large_sample(chance: random.Random, rows: Array, labels: Array) -> Array:
    rows[chance.randrange(len(rows))] *= power(chance, -30, 30)
    return rows


def wide_direction(chance: random.Random, rows: Array, labels: Array) -> Array:
    rows[:, chance.randrange(rows.shape[1])] *= power(chance, -20, 20)
    return rows


def shifted(chance: random.Random, rows: Array, labels: Array) -> Array:
    return rows + power(chance, 0, 17) * np.array([chance.gauss(0, 1) for _ in rows[0]])


def outlying_mean(chance: random.Random, rows: Array, labels: Array) -> Array:
    selected = labels == chance.choice(labels.tolist())
    rows[selected] += power(chance, 0, 20) * chance.choice((-1, 1))
    return rows


def collapsed(chance: random.Random, rows: Array, labels: Array) -> Array:
    first = {label: rows[entry].copy() for entry, label in reversed([*enumerate(labels)])}
    noise = power(chance, -18, -3)
    return np.array([first[label] + noise * row for row, label in zip(rows, labels, strict=True)])


def doubled(chance: random.Random, rows: Array, labels: Array) -> Array:
    for _ in range(chance.randrange(1, len(rows))):
        rows[chance.randrange(len(rows))] = rows[chance.randrange(len(rows))]
    return rows


def zeroed(chance: random.Random, rows: Array, labels: Array) -> Array:
    rows[chance.randrange(len(rows))] = 0.0
    return rows


def rounded(chance: random.Random, rows: Array, labels: Array) -> Array:
    """Round to small integers, which gives exact ties, equal means and rows at the centre."""
    return np.round(rows * chance.choice((1, 2, 3)))


def near_means(chance: random.Random, rows: Array, labels: Array) -> Array:
    first, second = chance.choice(labels.tolist()), chance.choice(labels.tolist())
    gap = rows[labels == first].mean(0) - rows[labels == second].mean(0)
    rows[labels == second] += gap * (1 - power(chance, -17, -1))
    return rows


def denormal(chance: random.Random, rows: Array, labels: Array) -> Array:
    for _ in range(3):
        entry = chance.randrange(len(rows)), chance.randrange(rows.shape[1])
        rows[entry] = chance.randrange(-1000, 1000) * 5e-324
    return rows


CHANGES = (
    scaled, small_class, large_sample, wide_direction, shifted, outlying_mean, collapsed, doubled,
    zeroed, rounded, near_means, denormal,
)  # fmt: skip


def drawn(chance: random.Random) -> Input:
    """Draw one input, which depends only on the state of `chance`."""
    count = chance.choice((2, 2, 3, 3, 4))
    dim = chance.choice((1, 2, 3, 4, 5)) if count == 2 else chance.choice((2, 2, 3, 4, 5))
    labels = [c for c in range(count) for _ in range(chance.choice((1, 2, 2, 3, 5)))]
    chance.shuffle(labels)
    features = changed(chance, rows_of(chance, len(labels), dim), np.array(labels))
    test = features * (1 + power(chance, -16, 0) * rows_of(chance, *features.shape))
    if chance.random() < 0.3:
        means = [features[np.array(labels) == c].mean(0) for c in range(count)]
        weight = np.array(means) * power(chance, -3, 3)
    else:
        weight = changed(chance, rows_of(chance, count, dim), np.arange(count))
    bias = np.zeros(count) if chance.random() < 0.5 else rows_of(chance, 1, count)[0]
    rows: Any = bounded(features)
    if chance.random() < 0.3:
        with np.errstate(over="ignore", under="ignore"):
            rows = rows.clip(-1e38, 1e38).astype(np.float32)
    return Input(
        *(rows, labels, bounded(weight), bias * power(chance, -2, 3), bounded(test)),
        compiled=chance.random() < 0.5,
        batches=chance.choice((1, 1, 2)),
    )


def rows_of(chance: random.Random, count: int, dim: int) -> Array:
    return np.array([[chance.gauss(0, 1) for _ in range(dim)] for _ in range(count)])


def changed(chance: random.Random, rows: Array, labels: Array) -> Array:
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3))):
        with np.errstate(all="ignore"):
            rows = bounded(chance.choice(CHANGES)(chance, rows, labels))
    return rows


def bounded(rows: Array) -> Array:
    """Limit the numbers to the accepted range."""
    return np.clip(np.nan_to_num(rows), -1e150, 1e150)


def measured(case: Input, **options: Any) -> Collapse:
    """Measure an input, also with the compiled kernels and the float32 screen.

    Without lowered limits, these would need more rows.
    """
    features, labels = case.features, np.array(case.labels)
    arguments: tuple[Any, ...] = (features, labels)
    if case.batches > 1:
        half = len(labels) // 2
        parts = [(features[:half], labels[:half]), (features[half:], labels[half:])]
        arguments = ([part for part in parts if len(part[1])],)
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.compiled:
            stack.enter_context(patch.object(blocks, "COMPILED_SIZE", 0))
        head: dict[str, Any] = {"weight": case.weight, "bias": case.bias, **options}
        return measure_features(*arguments, **head)


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Return the attack, which reports whether a measurement warned about its numbers."""
    import torch

    torch.set_num_threads(1)
    return attack


def attack(chance: random.Random) -> bool:
    """Measure one input and compare all numbers; return whether it was rejected or warned about."""
    case = drawn(chance)
    try:
        collapse = measured(case, metrics="all")
    except DataError as error:
        return rejected(error)
    with mp.workprec(slow.precision(case.features, case.weight, case.bias)):
        data = ExactData.of(case.features, case.labels, case.weight, case.bias)
        values = slow.exact_metrics(data)
        compare(collapse, values, errors.documented(data, values))
    if case.features.dtype == np.float32 or case.batches > 1:
        return mentioned(collapse, "rounding")
    try:
        second = measured(case._replace(features=case.test), reference=collapse)
    except DataError as error:
        return rejected(error)
    with mp.workprec(slow.precision(case.features, case.test, case.weight, case.bias)):
        data = ExactData.of(case.features, case.labels, case.weight, case.bias)
        test = ExactData.of(case.test, case.labels, case.weight, case.bias)
        values = slow.reference_metrics(data, test, case.labels)
        if values:
            compare(second, values, errors.beside_reference(data, test, values))
    return mentioned(collapse, "rounding")


def rejected(error: DataError) -> bool:
    """Assert that only too large or too small numbers are rejected; return True."""
    assert "Rescale" in str(error), error
    return True


def mentioned(collapse: Collapse, name: str) -> bool:
    """Whether a warning or a note mentions a metric."""
    return name in collapse.notes or warned(collapse, name)


def warned(collapse: Collapse, name: str) -> bool:
    """Whether a warning about errors mentions a metric; other warnings also name metrics."""
    lines = (line for line in collapse.warnings if any(word in line for word in OF_ERRORS))
    return any(re.search(rf"\b{name}\b", line) for line in lines)


def compare(collapse: Collapse, values: dict[str, Any], allowed: dict[str, Any]) -> None:
    """Raise an error with a line for each metric whose number is wrong."""
    lines = []
    for name, truth in values.items():
        value, limit = collapse.values[name], allowed[name]
        warned_of = mentioned(collapse, name)
        if value is None or not np.isfinite(value):
            defined = mp.isfinite(truth) and limit < WARN_ABOVE and not warned(collapse, name)
            if defined or (value is None and name not in collapse.notes):
                lines.append(f"{name}: {value} for {mp.nstr(truth, 17)}")
            continue
        if not mp.isfinite(truth):
            if not warned_of:
                lines.append(f"{name}: {value!r} for an undefined metric, without a warning")
            continue
        error = abs(mpf(value) - truth)
        scale = max(abs(truth), mpf(any(part in name for part in ABSOLUTE)))
        above_limit = error > limit + errors.SMALLEST and not warned_of
        no_warning = (
            error > WARN_ABOVE * scale + errors.SMALLEST and not warned_of and name not in BY_TABLE
        )
        if no_warning and not any(part in name for part in DECISIONS):
            lines.append(f"{name}: {value!r} for {mp.nstr(truth, 17)}, without a warning")
        elif above_limit:
            limits = f"error {mp.nstr(error, 3)}, allowed {mp.nstr(limit, 3)}"
            lines.append(f"{name}: {value!r} for {mp.nstr(truth, 17)}, {limits}")
    assert not lines, "\n".join(lines)

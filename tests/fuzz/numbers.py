"""Extreme but valid features and classifiers: every metric within its documented error, or a word.

`documented` says how far a metric may be off; where it is off by more than a millionth, a warning
or a note must say so, too.
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
from nclab.statistics import blocks, nearest
from tests.fuzz import errors
from tests.reference import slow
from tests.reference.digits import mp, mpf
from tests.reference.slow import ExactData

Array = NDArray[Any]
SAID = mpf("1e-6")
"""An error beyond this is to be said."""
ABSOLUTE = (
    "intra", "inter", "nc0", "nc2", "nc3", "unc3", "nc4", "accuracy", "agreement", "minority",
    "within_variation", "error_bound", "directional", "test_collapse", "mean_shift",
)  # fmt: skip
"""Of these an error is absolute; of the others relative to the value."""
DECIDED = ("nc4", "accuracy", "agreement", "weak_test_collapse")
"""A sample between two classes may go to either; how many there are, `documented` knows."""
BY_TABLE = (
    *("loss", "balanced_loss", "optimal_loss", "excess_loss", "margin", "normalised_margin"),
    "rankme",
)
"""Held to the documented error alone: it grows with the logits, or, of `rankme`, with d."""

OF_ERRORS = (
    "right to about",
    "accurate to about",
    "rounding",
    "may be off",
    "vanish",
    "leaves out",
)
"""What a warning says that is about the error of a number."""


class Input(NamedTuple):
    """What is measured, in which way."""

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
    own = labels == chance.choice(labels.tolist())
    rows[own] *= power(chance, -310, 0)
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
    own = labels == chance.choice(labels.tolist())
    rows[own] += power(chance, 0, 20) * chance.choice((-1, 1))
    return rows


def collapsed(chance: random.Random, rows: Array, labels: Array) -> Array:
    first = {label: rows[place].copy() for place, label in reversed([*enumerate(labels)])}
    noise = power(chance, -18, -3)
    return np.array([first[label] + noise * row for row, label in zip(rows, labels, strict=True)])


def doubled(chance: random.Random, rows: Array, labels: Array) -> Array:
    for _ in range(chance.randrange(1, len(rows))):
        rows[chance.randrange(len(rows))] = rows[chance.randrange(len(rows))]
    return rows


def zeroed(chance: random.Random, rows: Array, labels: Array) -> Array:
    rows[chance.randrange(len(rows))] = 0.0
    return rows


def whole(chance: random.Random, rows: Array, labels: Array) -> Array:
    """Small integers: exact ties, equal means, rows on the centre."""
    return np.round(rows * chance.choice((1, 2, 3)))


def near_means(chance: random.Random, rows: Array, labels: Array) -> Array:
    one, other = chance.choice(labels.tolist()), chance.choice(labels.tolist())
    gap = rows[labels == one].mean(0) - rows[labels == other].mean(0)
    rows[labels == other] += gap * (1 - power(chance, -17, -1))
    return rows


def denormal(chance: random.Random, rows: Array, labels: Array) -> Array:
    for _ in range(3):
        place = chance.randrange(len(rows)), chance.randrange(rows.shape[1])
        rows[place] = chance.randrange(-1000, 1000) * 5e-324
    return rows


CHANGES = (
    scaled, small_class, large_sample, wide_direction, shifted, outlying_mean, collapsed, doubled,
    zeroed, whole, near_means, denormal,
)  # fmt: skip


def drawn(chance: random.Random) -> Input:
    """One input; the same for the same chance."""
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
    """Within what is accepted."""
    return np.clip(np.nan_to_num(rows), -1e150, 1e150)


def measured(given: Input, **options: Any) -> Collapse:
    """By the compiled kernels and the float32 screen, too, which otherwise wait for more rows."""
    features, labels = given.features, np.array(given.labels)
    arguments: tuple[Any, ...] = (features, labels)
    if given.batches > 1:
        half = len(labels) // 2
        parts = [(features[:half], labels[:half]), (features[half:], labels[half:])]
        arguments = ([part for part in parts if len(part[1])],)
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if given.compiled:
            stack.enter_context(patch.object(blocks, "COMPILED_SIZE", 0))
            stack.enter_context(patch.object(nearest, "SCREENED_SIZE", 0))
        head: dict[str, Any] = {"weight": given.weight, "bias": given.bias, **options}
        return measure_features(*arguments, **head)


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Measurements of extreme input; each tells whether something was said about its numbers."""
    import torch

    torch.set_num_threads(1)
    return attack


def attack(chance: random.Random) -> bool:
    """One input; whether it was refused or warned of. Fails where a number is wrong."""
    given = drawn(chance)
    try:
        found = measured(given, metrics="all")
    except DataError as error:
        return refused(error)
    with mp.workprec(slow.precision(given.features, given.weight, given.bias)):
        data = ExactData.of(given.features, given.labels, given.weight, given.bias)
        values = slow.exact_metrics(data)
        compare(found, values, errors.documented(data, values))
    if given.features.dtype == np.float32 or given.batches > 1:
        return said(found, "rounding")
    try:
        other = measured(given._replace(features=given.test), reference=found)
    except DataError as error:
        return refused(error)
    with mp.workprec(slow.precision(given.features, given.test, given.weight, given.bias)):
        data = ExactData.of(given.features, given.labels, given.weight, given.bias)
        beside = ExactData.of(given.test, given.labels, given.weight, given.bias)
        values = slow.reference_metrics(data, beside, given.labels)
        if values:
            compare(other, values, errors.beside_reference(data, beside, values))
    return said(found, "rounding")


def refused(error: DataError) -> bool:
    """Only what is too large or too small may be."""
    assert "Rescale" in str(error), error
    return True


def said(found: Collapse, name: str) -> bool:
    """Whether a warning or a note speaks of a metric."""
    return name in found.notes or warned(found, name)


def warned(found: Collapse, name: str) -> bool:
    """By a line about its error; others name metrics, too."""
    lines = (line for line in found.warnings if any(word in line for word in OF_ERRORS))
    return any(re.search(rf"\b{name}\b", line) for line in lines)


def compare(found: Collapse, values: dict[str, Any], allowed: dict[str, Any]) -> None:
    """Fail with a line for each metric that is off."""
    lines = []
    for name, truth in values.items():
        value, limit = found.values[name], allowed[name]
        told = said(found, name)
        if value is None or not np.isfinite(value):
            defined = mp.isfinite(truth) and limit < SAID and not warned(found, name)
            if defined or (value is None and name not in found.notes):
                lines.append(f"{name}: {value} for {mp.nstr(truth, 17)}")
            continue
        if not mp.isfinite(truth):
            if not told:
                lines.append(f"{name}: {value!r} where there is none, without a word")
            continue
        off = abs(mpf(value) - truth)
        scale = max(abs(truth), mpf(any(part in name for part in ABSOLUTE)))
        beyond = off > limit + errors.SMALLEST and not told
        unsaid = off > SAID * scale + errors.SMALLEST and not told and name not in BY_TABLE
        if unsaid and not any(part in name for part in DECIDED):
            lines.append(f"{name}: {value!r} for {mp.nstr(truth, 17)}, unsaid")
        elif beyond:
            limits = f"{mp.nstr(off, 3)} off, {mp.nstr(limit, 3)} allowed"
            lines.append(f"{name}: {value!r} for {mp.nstr(truth, 17)}, {limits}")
    assert not lines, "\n".join(lines)

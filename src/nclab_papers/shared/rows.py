"""Rows of a study: storage as columns, and comparison of arms cell by cell.

A cell is a combination of settings other than the compared one. A network counts if its training
accuracy is at least 0.99. A comparison uses the cells in which all arms count and averages over
them, so that the arms differ only in the compared setting.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Numbers, Verdict
from nclab.claims.judging import Part
from nclab.claims.tables import Row

COUNTS = 0.99
"""Smallest training accuracy of a network that counts."""
SMALLEST = 1e-30
"""Lower limit of values before taking logarithms."""
BySeed = dict[int, float]
Value = Callable[[Row], float]


def as_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Store rows as lists by column, which takes a third of the space in a file.

    >>> as_columns([{"seed": 0, "nc1": 0.5}, {"seed": 1}])
    {'seed': [0, 1], 'nc1': [0.5, None]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(numbers: Numbers) -> list[Row]:
    """Return the networks of an experiment as rows.

    >>> as_rows({"networks": {"seed": [0, 1], "nc1": [0.5, None]}})
    [{'seed': 0, 'nc1': 0.5}, {'seed': 1, 'nc1': None}]
    """
    columns = numbers["networks"]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def counts(row: Row) -> bool:
    """Whether a network counts in comparisons."""
    return row["accuracy"] is not None and float(row["accuracy"]) >= COUNTS


def log10(name: str) -> Value:
    """Return a function that reads the base 10 logarithm of a column."""
    return lambda row: math.log10(max(float(row[name]), SMALLEST))


def optional(value: Value) -> Callable[[Row], float | None]:
    """Return a function that gives None for rows in which a number is missing.

    >>> [optional(plain("nc1"))(row) for row in ({"nc1": 0.5}, {"nc1": None})]
    [0.5, None]
    """

    def read(row: Row) -> float | None:
        try:
            return value(row)
        except TypeError:  # a missing number is None
            return None

    return read


def plain(name: str) -> Value:
    """Return a function that reads a column."""
    return lambda row: float(row[name])


def having(rows: Iterable[Row], **match: Any) -> list[Row]:
    """Return the rows with the given values of columns; a tuple or list permits several values."""
    allowed = {
        name: value if isinstance(value, tuple | list) else (value,)
        for name, value in match.items()
    }
    return [row for row in rows if all(row[name] in values for name, values in allowed.items())]


def together(rows: Sequence[Row], arm: str, *keys: str) -> list[Row]:
    """Return the rows of cells in which all arms count, which a picture may compare.

    An arm without any network that counts is ignored.

    >>> rows = [{"arm": a, "seed": s, "accuracy": v} for a, s, v in
    ...         (("a", 0, 1.0), ("b", 0, 1.0), ("a", 1, 1.0), ("b", 1, 0.5), ("c", 0, 0.5))]
    >>> [(row["arm"], row["seed"]) for row in together(rows, "arm")]
    [('a', 0), ('b', 0)]
    """
    arms = {row[arm] for row in rows if counts(row)}
    arms_by_cell: dict[tuple[Any, ...], set[Any]] = {}
    for row in rows:
        if counts(row):
            arms_by_cell.setdefault((row["seed"], *(row[key] for key in keys)), set()).add(row[arm])
    return [
        row
        for row in rows
        if counts(row) and arms_by_cell.get((row["seed"], *(row[key] for key in keys))) == arms
    ]


def by_cell(rows: Iterable[Row], value: Value, *keys: str) -> dict[tuple[Any, ...], float]:
    """Return the value of every network that counts, by seed and the other keys.

    Networks without a value are left out.

    >>> by_cell([{"seed": 0, "rate": 1, "v": 2.0, "accuracy": 1.0}] * 2, plain("v"), "rate")
    Traceback (most recent call last):
    ...
    ValueError: Expected one network per seed, rate; got two at (0, 1).
    """
    cells: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if counts(row):
            cell = (int(row["seed"]), *(row[key] for key in keys))
            if cell in cells:
                names = ", ".join(("seed", *keys))
                raise ValueError(f"Expected one network per {names}; got two at {cell}.")
            try:
                cells[cell] = value(row)
            except TypeError:  # the number is None
                continue
    return cells


def averaged(cells: Mapping[tuple[Any, ...], float]) -> BySeed:
    """Return the mean over the cells of each seed; the seed comes first in the keys.

    >>> averaged({(0, "a"): 1.0, (0, "b"): 3.0, (1, "a"): 5.0})
    {0: 2.0, 1: 5.0}
    """
    seeds: dict[int, list[float]] = {}
    for key in sorted(cells, key=repr):
        seeds.setdefault(int(key[0]), []).append(cells[key])
    return {seed: fmean(values) for seed, values in sorted(seeds.items())}


def differences(
    left: Mapping[tuple[Any, ...], float], right: Mapping[tuple[Any, ...], float]
) -> BySeed:
    """Return by seed the mean of left - right over the cells that both have.

    >>> differences({(0, 4): 3.0, (0, 5): 9.0, (1, 4): 2.0}, {(0, 4): 1.0, (1, 4): 1.5})
    {0: 2.0, 1: 0.5}
    """
    return averaged({key: left[key] - right[key] for key in left.keys() & right.keys()})


def slopes(
    rows: Iterable[Row], value: Value, *, along: str, at: Sequence[float], keys: Sequence[str]
) -> BySeed:
    """Return by seed the mean slope of a value per decade of a column.

    The mean is over the cells whose networks count at all values `at` of the column `along`.

    >>> rows = [{"seed": 0, "rate": 1, "decay": d, "v": v, "accuracy": 1.0}
    ...         for d, v in ((0.1, 2.0), (1.0, 5.0))]
    >>> by_seed = slopes(rows, plain("v"), along="decay", at=(0.1, 1.0), keys=("rate",))
    >>> {seed: round(slope, 9) for seed, slope in by_seed.items()}
    {0: 3.0}
    """
    cells = by_cell(having(rows, **{along: tuple(at)}), value, *keys, along)
    curves: dict[tuple[Any, ...], dict[float, float]] = {}
    for (*cell, position), number in cells.items():
        curves.setdefault(tuple(cell), {})[position] = number
    decades = [math.log10(position) for position in at]
    slopes_by_cell = {
        cell: float(np.polyfit(decades, [curve[position] for position in at], 1)[0])
        for cell, curve in curves.items()
        if len(curve) == len(at) > 1
    }
    return averaged(slopes_by_cell)


def signed(values: BySeed, sign: float, plus: float = 0.0) -> BySeed:
    """Return plus + sign * value for each seed."""
    return {seed: plus + sign * value for seed, value in values.items()}


def within(name: str, values: BySeed, reach: float) -> list[Part]:
    """Return two parts: a difference is below `reach`, and above `-reach`."""
    return [
        Part(f"{name}, below {reach:g}", signed(values, -1, reach)),
        Part(f"{name}, above −{reach:g}", signed(values, 1, reach)),
    ]


def of_the_source(finding: Finding, numbers: Numbers, *, universal: bool = False) -> Finding:
    """Return an open verdict if a claim is about other networks than those trained here.

    Args:
        universal: the claim is about all networks ("cannot"), so any network may contradict it.
    """
    if numbers["config"]["networks"]["source"] or finding.verdict is Verdict.OPEN:
        return finding
    if universal and finding.verdict is Verdict.CONTRADICTED:
        return finding
    evidence = f"on other networks than the source's {finding.verdict.value}: {finding.evidence}"
    return Finding(Verdict.OPEN, evidence, {**finding.numbers, "there": finding.verdict.value})


def ideal_study(rows: Sequence[Row], **config: Any) -> dict[str, Any]:
    """Return numbers of a study as if the networks were those of its source, for tests."""
    seeds = sorted({int(row["seed"]) for row in rows})
    return {
        "config": {**config, "networks": {"source": True}},
        "seeds": seeds,
        "size": "as the paper",
        "networks": as_columns(rows),
    }


def seed_noise(seed: int) -> float:
    """Return a small deviation that differs between seeds, for ideal numbers in tests."""
    return 0.001 * (-1) ** seed

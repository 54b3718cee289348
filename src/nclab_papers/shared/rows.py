"""Rows of a study: kept as columns, compared cell by cell, one value for each seed.

A network counts if its training accuracy is at least 0.99. A comparison takes the cells of the
design in which all its arms count, and averages over them, so that arms differ in nothing else.
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
"""Training accuracy from which on a network counts."""
SMALLEST = 1e-30
"""Logarithms of less are those of this."""
BySeed = dict[int, float]
Value = Callable[[Row], float]


def as_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Rows as lists by column, a third of the size in a file.

    >>> as_columns([{"seed": 0, "nc1": 0.5}, {"seed": 1}])
    {'seed': [0, 1], 'nc1': [0.5, None]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(numbers: Numbers) -> list[Row]:
    """The networks of an experiment as rows again.

    >>> as_rows({"networks": {"seed": [0, 1], "nc1": [0.5, None]}})
    [{'seed': 0, 'nc1': 0.5}, {'seed': 1, 'nc1': None}]
    """
    columns = numbers["networks"]
    return [dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)]


def counts(row: Row) -> bool:
    """Whether a network is compared at all."""
    return row["accuracy"] is not None and float(row["accuracy"]) >= COUNTS


def log10(name: str) -> Value:
    """The logarithm of a column."""
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
    """A column as it is."""
    return lambda row: float(row[name])


def having(rows: Iterable[Row], **match: Any) -> list[Row]:
    """The rows with these values of their columns; a tuple or list allows any of its values."""
    wanted = {
        name: value if isinstance(value, tuple | list) else (value,)
        for name, value in match.items()
    }
    return [row for row in rows if all(row[name] in own for name, own in wanted.items())]


def together(rows: Sequence[Row], arm: str, *keys: str) -> list[Row]:
    """The rows of cells in which all arms count: what pictures may show beside each other.

    An arm of which no network counts anywhere is left out.

    >>> rows = [{"arm": a, "seed": s, "accuracy": v} for a, s, v in
    ...         (("a", 0, 1.0), ("b", 0, 1.0), ("a", 1, 1.0), ("b", 1, 0.5), ("c", 0, 0.5))]
    >>> [(row["arm"], row["seed"]) for row in together(rows, "arm")]
    [('a', 0), ('b', 0)]
    """
    arms = {row[arm] for row in rows if counts(row)}
    found: dict[tuple[Any, ...], set[Any]] = {}
    for row in rows:
        if counts(row):
            found.setdefault((row["seed"], *(row[key] for key in keys)), set()).add(row[arm])
    return [
        row
        for row in rows
        if counts(row) and found.get((row["seed"], *(row[key] for key in keys))) == arms
    ]


def by_cell(rows: Iterable[Row], value: Value, *keys: str) -> dict[tuple[Any, ...], float]:
    """The value of every network that counts and has one, by seed and the other keys.

    >>> by_cell([{"seed": 0, "rate": 1, "v": 2.0, "accuracy": 1.0}] * 2, plain("v"), "rate")
    Traceback (most recent call last):
    ...
    ValueError: Expected one network for every seed, rate; got two at (0, 1).
    """
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if counts(row):
            cell = (int(row["seed"]), *(row[key] for key in keys))
            if cell in found:
                names = ", ".join(("seed", *keys))
                raise ValueError(f"Expected one network for every {names}; got two at {cell}.")
            try:
                found[cell] = value(row)
            except TypeError:  # a number that does not exist is None
                continue
    return found


def averaged(cells: Mapping[tuple[Any, ...], float]) -> BySeed:
    """The mean over the cells of each seed, which comes first in their keys.

    >>> averaged({(0, "a"): 1.0, (0, "b"): 3.0, (1, "a"): 5.0})
    {0: 2.0, 1: 5.0}
    """
    found: dict[int, list[float]] = {}
    for key in sorted(cells, key=repr):
        found.setdefault(int(key[0]), []).append(cells[key])
    return {seed: fmean(values) for seed, values in sorted(found.items())}


def differences(
    left: Mapping[tuple[Any, ...], float], right: Mapping[tuple[Any, ...], float]
) -> BySeed:
    """By seed, the mean of left minus right over the cells that both have.

    >>> differences({(0, 4): 3.0, (0, 5): 9.0, (1, 4): 2.0}, {(0, 4): 1.0, (1, 4): 1.5})
    {0: 2.0, 1: 0.5}
    """
    return averaged({key: left[key] - right[key] for key in left.keys() & right.keys()})


def slopes(
    rows: Iterable[Row], value: Value, *, along: str, at: Sequence[float], keys: Sequence[str]
) -> BySeed:
    """By seed, the mean slope per decade of a column, over the cells that count at all its values.

    >>> rows = [{"seed": 0, "rate": 1, "decay": d, "v": v, "accuracy": 1.0}
    ...         for d, v in ((0.1, 2.0), (1.0, 5.0))]
    >>> found = slopes(rows, plain("v"), along="decay", at=(0.1, 1.0), keys=("rate",))
    >>> {seed: round(slope, 9) for seed, slope in found.items()}
    {0: 3.0}
    """
    cells = by_cell(having(rows, **{along: tuple(at)}), value, *keys, along)
    lines: dict[tuple[Any, ...], dict[float, float]] = {}
    for (*place, where), number in cells.items():
        lines.setdefault(tuple(place), {})[where] = number
    decades = [math.log10(one) for one in at]
    found = {
        place: float(np.polyfit(decades, [line[one] for one in at], 1)[0])
        for place, line in lines.items()
        if len(line) == len(at) > 1
    }
    return averaged(found)


def signed(values: BySeed, sign: float, plus: float = 0.0) -> BySeed:
    """plus + sign * value, for each seed."""
    return {seed: plus + sign * value for seed, value in values.items()}


def within(what: str, values: BySeed, reach: float) -> list[Part]:
    """Two parts: a difference is below and above minus a reach."""
    return [
        Part(f"{what}, below {reach:g}", signed(values, -1, reach)),
        Part(f"{what}, above −{reach:g}", signed(values, 1, reach)),
    ]


def of_the_source(found: Finding, numbers: Numbers, *, universal: bool = False) -> Finding:
    """A sentence about a source's networks stays open where they are not those that were trained.

    A universal one ("cannot") is contradicted by any network.
    """
    if numbers["config"]["networks"]["source"] or found.verdict is Verdict.OPEN:
        return found
    if universal and found.verdict is Verdict.CONTRADICTED:
        return found
    evidence = f"on other networks than the source's {found.verdict.value}: {found.evidence}"
    return Finding(Verdict.OPEN, evidence, {**found.numbers, "there": found.verdict.value})


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

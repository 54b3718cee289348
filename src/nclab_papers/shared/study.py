"""Steps that studies share: train networks, compare arms cell by cell, minimise over free features.

A study compares the values of one setting (its arms), for example optimisers. A cell is a
combination of all other settings and the seed. A network counts if its training accuracy is at
least 0.99. Arms are compared in the cells in which the networks of all arms count, and the
differences are averaged over these cells; so the arms differ only in the compared setting.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from nclab.claims.claim import Claim, Finding, Judge, Kind, Numbers, Verdict, claim
from nclab.claims.effects import Part
from nclab.claims.pictures import Line, line_panel
from nclab.claims.tables import Column, Row, Table, Value, summarise
from nclab.engine import Engine
from nclab.figures.picture import Picture
from nclab.theory.layer_peeled import FloatArray
from nclab.training.sweep import SweepConfig
from nclab.training.sweep.rows_only import MeasureRow, train_rows

COUNTS = 0.99
"""Training accuracy that a network needs to be included in comparisons."""
SMALLEST = 1e-30
"""Smaller values are replaced by this number before taking logarithms."""
BySeed = dict[int, float]
Cells = dict[tuple[Any, ...], float]
"""A number for each cell; the key of a cell is the seed, followed by the values of its settings."""


def as_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return rows as one list for each column, which takes a third of the space in a file."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(numbers: Numbers, **match: Any) -> list[Row]:
    """Return the networks of an experiment as rows; `match` selects rows as in `having`.

    >>> as_rows({"networks": {"seed": [0, 1], "nc1": [0.5, None]}})
    [{'seed': 0, 'nc1': 0.5}, {'seed': 1, 'nc1': None}]
    """
    columns = numbers["networks"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return having(rows, **match)


def counts(row: Row) -> bool:
    """Whether the training accuracy of a network is at least `COUNTS`."""
    return row["accuracy"] is not None and float(row["accuracy"]) >= COUNTS


def log10(name: str) -> Value:
    """Return a function that reads log10 of a column in a row, or None if the value is None."""

    def read(row: Row) -> float | None:
        value = row[name]
        return None if value is None else math.log10(max(float(value), SMALLEST))

    return read


def column(name: str, minus: str = "") -> Value:
    """Return a function that reads a column of a row, or the difference of two columns.

    The function returns None if a value is None.

    >>> column("nc1")({"nc1": None}), column("raw", minus="centred")({"raw": 3, "centred": 1})
    (None, 2.0)
    """

    def read(row: Row) -> float | None:
        values = [row[key] for key in (name, minus) if key]
        if None in values:
            return None
        return float(values[0]) - (float(values[1]) if minus else 0.0)

    return read


def having(rows: Iterable[Row], **match: Any) -> list[Row]:
    """Return the rows whose columns have the given values.

    A tuple or list in place of a value allows several values.
    """
    allowed = {
        name: value if isinstance(value, tuple | list) else (value,)
        for name, value in match.items()
    }
    return [row for row in rows if all(row[name] in values for name, values in allowed.items())]


def by_cell(rows: Iterable[Row], value: Value, *keys: str) -> Cells:
    """Return the value of each network, by cell: the seed and the columns `keys`.

    Networks that do not count and values that are None are left out.
    """
    cells: Cells = {}
    for row in rows:
        measured = value(row) if counts(row) else None
        if measured is not None:
            cells[int(row["seed"]), *(row[key] for key in keys)] = measured
    return cells


def averaged(cells: Cells) -> BySeed:
    """Return by seed the mean of the values of its cells.

    >>> averaged({(0, "a"): 1.0, (0, "b"): 3.0, (1, "a"): 5.0})
    {0: 2.0, 1: 5.0}
    """
    seeds: dict[int, list[float]] = {}
    for key in sorted(cells, key=repr):
        seeds.setdefault(int(key[0]), []).append(cells[key])
    return {seed: fmean(values) for seed, values in sorted(seeds.items())}


def differences(left: Cells, right: Cells) -> BySeed:
    """Return by seed the mean of left - right over the cells that both have."""
    return averaged({key: left[key] - right[key] for key in left.keys() & right.keys()})


def slopes(
    rows: Iterable[Row], value: Value, *, along: str, at: Sequence[float], keys: Sequence[str]
) -> BySeed:
    """Return by seed how much a value changes if the column `along` grows by a factor of ten.

    In each cell, a line is fitted to the values at the positions `at` of this column. The result is
    the mean slope over the cells whose networks count at all positions.

    Args:
        keys: columns that define a cell, besides the seed.
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


def within(name: str, values: BySeed, reach: float) -> Part:
    """Return a part of a claim: that a difference lies between `-reach` and `reach`.

    Args:
        name: what differs, in words.
        values: difference by seed.
    """
    return Part(name, values, above=-reach, below=reach)


def of_the_source(finding: Finding, numbers: Numbers, *, universal: bool = False) -> Finding:
    """Return the finding, or an open one if the claim is about networks that we did not train.

    Args:
        universal: the claim is about all networks ("cannot"). Then the finding is unchanged if it
            contradicts the claim, because any network can do so.
    """
    if numbers["config"]["networks"]["source"] or finding.verdict is Verdict.OPEN:
        return finding
    if universal and finding.verdict is Verdict.CONTRADICTED:
        return finding
    verdict, where = finding.verdict.value, "on networks that are not the source's"
    return replace(
        finding,
        verdict=Verdict.OPEN,
        evidence=f"{verdict} {where}: {finding.evidence}",
        numbers={**finding.numbers, "there": verdict},
        answer=f"{verdict} {where}: {finding.sentence}",
    )


def ideal_study(rows: Sequence[Row], **config: Any) -> dict[str, Any]:
    """Return `rows` as the results of a study on the networks of its source, for tests."""
    seeds = sorted({int(row["seed"]) for row in rows})
    return {
        "config": {**config, "networks": {"source": True}},
        "seeds": seeds,
        "size": "as the paper",
        "networks": as_columns(rows),
    }


def seed_noise(seed: int) -> float:
    """Return 0.001 with a sign that alternates between seeds, for invented numbers in tests."""
    return 0.001 * (-1) ** seed


def claims_about(experiment: str) -> Callable[..., Callable[[Judge], Claim]]:
    """Return a decorator like `claim`, for empirical claims on the results of one experiment."""

    def decorator(id: str, text: str, source: str, code: str = "") -> Callable[[Judge], Claim]:
        return claim(id, Kind.RESULT, text, source, needs=experiment, figure=experiment, code=code)

    return decorator


def table(
    title: str, numbers: Numbers, keys: Sequence[Column], columns: Sequence[Column]
) -> list[Table]:
    """Return a table with one line for each combination of the keys, sorted by them.

    A key that has names is sorted in the order of its names.
    """

    def position(row: Row) -> tuple[Any, ...]:
        values = [(list(key.names), key.value_of(row)) for key in keys]
        return tuple(names.index(value) if names else value for names, value in values)

    rows = sorted(as_rows(numbers), key=position)
    return [summarise(title, rows, keys, columns, counts=counts, count_heading="count")]


def arms(value: str | Value, column: str, labels: Mapping[Any, str], **where: Any) -> list[Line]:
    """Return one line for each value of a column, each with a different colour.

    Args:
        value: quantity on the vertical axis.
        labels: values of the column, with the label of each line.
        where: values of other columns that the rows of all lines have.
    """
    return [
        Line(label, value, {**where, column: arm}, colour)
        for colour, (arm, label) in enumerate(labels.items())
    ]


def picture(
    name: str,
    title: str,
    rows: Iterable[Row],
    along: str,
    panels: Iterable[tuple[str, str, Sequence[Line]]],
    *,
    caption: str = "",
    columns: int = 2,
    **options: Any,
) -> list[Picture]:
    """Return a list with a picture of mean values against a column; empty if no network counts.

    Args:
        along: column on the horizontal axis.
        panels: title, label of the vertical axis, and lines of every panel.
        options: further fields of `Panel`.
    """
    counted = [row for row in rows if counts(row)]
    if not counted:
        return []
    drawn = tuple(
        line_panel(heading, counted, along, lines, y_label=y_label, **options)
        for heading, y_label, lines in panels
    )
    text = (
        f"Lines: mean over the networks with training accuracy {COUNTS:g} or more. Bands: from the "
        f"smallest to the largest mean of a seed. {caption}"
    )
    return [Picture(name, title, drawn, columns, text.rstrip())]


def train_and_measure(
    config: Any,
    fleets: Sequence[tuple[Row, SweepConfig]],
    measure: MeasureRow,
    *,
    seeds: Sequence[int],
    out: Path,
    engine: Engine,
) -> dict[str, Any]:
    """Train the networks that `out` lacks; return the numbers of a study.

    Each network has a row with its setting and its metrics; rows are stored as `as_columns`. The
    accuracy of a diverged network is None.

    Args:
        config: configuration of the study with its field `networks`.
        fleets: pairs of a setting, which becomes part of the rows, and a sweep.
    """
    measured = train_rows(
        [fleet for _, fleet in fleets],
        out / "field",
        measure,
        workers=config.networks.workers,
        engine=engine,
    )
    rows = [
        {**setting, "accuracy": None} | {name: row[name] for name in row if name != "why"}
        for (setting, _), members in zip(fleets, measured, strict=True)
        for row in members
    ]
    return {
        "config": {**asdict(config), "seeds": list(seeds)},
        "seeds": list(seeds),
        "size": f"{len(rows):,} networks; {config.networks.size}",
        "networks": as_columns(rows),
    }


def minimise_freely(loss: Callable[[Tensor, Tensor], Tensor], classes: int) -> FloatArray:
    """Return (2, C, C) the classifier W and the features H that minimise loss(W, H).

    L-BFGS starts at a random point; W and H have no constraints.
    """

    def value_and_gradient(x: FloatArray) -> tuple[float, FloatArray]:
        theta = torch.tensor(x, requires_grad=True)
        value = loss(*theta.view(2, classes, classes))
        (gradient,) = torch.autograd.grad(value, theta)
        return float(value.detach()), gradient.numpy()

    start = np.random.default_rng(0).standard_normal(2 * classes * classes)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 40}
    end = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    point: FloatArray = end.x.reshape(2, classes, classes)
    return point

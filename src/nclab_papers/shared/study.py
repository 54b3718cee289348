"""Steps that studies share: train networks, assemble numbers, minimise over free features."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from nclab.claims.tables import Row
from nclab.engine import Engine
from nclab.figures.picture import Panel, Picture, Scale, Series
from nclab.training.sweep import SweepConfig
from nclab.training.sweep.rows_only import MeasureRow, train_rows
from nclab_papers.shared.rows import Value, as_columns, averaged, by_cell, having

Array = NDArray[np.float64]


def train_and_measure(
    config: Any,
    fleets: Sequence[tuple[Row, SweepConfig]],
    measure: MeasureRow,
    *,
    seeds: Sequence[int],
    out: Path,
    engine: Engine,
) -> dict[str, Any]:
    """Train the networks that `out` lacks; return the numbers of a study, networks as columns.

    Each network has a row with its setting and its metrics; the accuracy of a diverged network is
    None.

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


def band(
    rows: Sequence[Row], value: Value, along: str, keys: Sequence[str], label: str, colour: int
) -> Series:
    """Return the mean over seeds against a column, with a band from the smallest to the largest.

    Args:
        along: column on the horizontal axis.
        keys: other columns that define a cell; a seed is first averaged over its cells.
    """
    points = []
    for position in sorted({float(row[along]) for row in rows}):
        cells = by_cell(having(rows, **{along: position}), value, *keys)
        means = list(averaged(cells).values())
        if means:
            points.append((position, fmean(means), min(means), max(means)))
    x, y, low, high = ([point[index] for point in points] for index in range(4))
    return Series(label, x, y, low, high, colour=colour, marker="filled")


def band_panel(
    title: str,
    x_label: str,
    y_label: str,
    along: str,
    keys: Sequence[str],
    lines: Iterable[tuple[Sequence[Row], Value, str]],
    *,
    x_scale: Scale = "linear",
) -> Panel:
    """Return a panel with one `band` for each tuple of rows, value and label."""
    series = tuple(
        band(rows, value, along, keys, label, colour)
        for colour, (rows, value, label) in enumerate(lines)
    )
    return Panel(title, x_label, y_label, series, x_scale)


def if_drawn(picture: Picture) -> list[Picture]:
    """Return the picture, or no picture if no network counts."""
    panels = [panel for panel in picture.panels if isinstance(panel, Panel)]
    return [picture] if any(line.x for panel in panels for line in panel.series) else []


def minimise_freely(
    loss: Callable[[Tensor, Tensor], Tensor], classes: int, *, seed: int = 0
) -> Array:
    """Return (2, C, C) the free classifier and features at the end of descent on a loss."""

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        theta = torch.tensor(x, requires_grad=True)
        value = loss(*theta.view(2, classes, classes))
        (gradient,) = torch.autograd.grad(value, theta)
        return float(value.detach()), gradient.numpy()

    start = np.random.default_rng(seed).standard_normal(2 * classes * classes)
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 40}
    end = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    point: Array = end.x.reshape(2, classes, classes)
    return point

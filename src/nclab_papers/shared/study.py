"""Steps that every study shares: train its networks and assemble its numbers."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.claims.tables import Row
from nclab.engine import Engine
from nclab.figures.picture import Series
from nclab.training.sweep import SweepConfig
from nclab.training.sweep.rows_only import MeasureRow, train_rows
from nclab_papers.shared.networks import FieldNetworks
from nclab_papers.shared.rows import Value, as_columns, averaged, by_cell, having


def trained(
    fleets: Sequence[tuple[Row, SweepConfig]],
    networks: FieldNetworks,
    measure: MeasureRow,
    *,
    out: Path,
    engine: Engine,
) -> list[Row]:
    """Train the networks that `out` lacks; return one row per network with setting and metrics.

    The accuracy of a diverged network is None.

    Args:
        fleets: pairs of a setting, which becomes part of the rows, and a sweep.
    """
    measured = train_rows(
        [fleet for _, fleet in fleets],
        out / "field",
        measure,
        workers=networks.workers,
        engine=engine,
    )
    return [
        {**setting, "accuracy": None} | {name: row[name] for name in row if name != "why"}
        for (setting, _), members in zip(fleets, measured, strict=True)
        for row in members
    ]


def numbers_of(config: Any, seeds: Sequence[int], rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of a study; the rows of its networks are stored as columns."""
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

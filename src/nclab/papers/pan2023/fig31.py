"""Collapse against weight decay, for three kinds of batch norm.

Claim: significant collapse emerges only with affine batch norm and enough weight decay.
Source: pan2023, Fig. 3.1
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.figures.spread import column, gap
from nclab.models.mlp import Norm
from nclab.papers.pan2023 import pictures as pan2023
from nclab.papers.pan2023.networks import (
    DECAYS,
    PAPER,
    QUICK,
    QUICK_DECAYS,
    Networks,
    preset_of,
)
from nclab.papers.pan2023.training_claims import findings
from nclab.papers.tables import Row, Table, as_rich, cell, group, verdicts

NAME = "pan2023_fig31"


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 6
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    weight_decays: tuple[float, ...] = DECAYS


PRESETS = {"quick": Config(QUICK, weight_decays=QUICK_DECAYS), "paper": Config(PAPER)}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return figure(preset_of(PRESETS, preset), seeds=seeds, out=out, engine=engine)


def figure(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The experiment at any size: rows of networks, and what they say about the claims."""
    rows = config.networks.train(
        out,
        seeds=seeds,
        layers=config.layers,
        norms=config.norms,
        weight_decays=config.weight_decays,
        engine=engine,
    )
    numbers: dict[str, Any] = {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
    }
    return {**numbers, "findings": findings(NAME, numbers)}


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Cosines by norm and weight decay, and the verdicts."""
    rows: list[tuple[str, ...]] = []
    for (norm, decay), own in group(numbers["rows"], "norm", "weight_decay").items():
        rows.append((pan2023.NORMS[norm], f"{decay:g}", *_cells(own)))
    columns = ("norm", "weight decay", "accuracy", "min intra", "max inter", "difference", "α", "β")
    return [Table("Last-layer features", columns, rows), verdicts(numbers["findings"])]


def _cells(rows: list[Row]) -> tuple[str, ...]:
    if not any(row["converged"] for row in rows):
        reached = max(row["accuracy"] or 0.0 for row in rows)
        return (f"{reached:.3f}, not converged", "–", "–", "–", "–", "–")
    return (
        cell(rows, column("accuracy"), ".4f"),
        cell(rows, column("min_intra")),
        cell(rows, column("max_inter")),
        cell(rows, gap),
        cell(rows, column("alpha"), ".2f"),
        cell(rows, column("beta"), ".2f"),
    )


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Figure 3.1 and the difference behind its claims."""
    return pan2023.fig31(numbers)

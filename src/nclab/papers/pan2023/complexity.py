"""Collapse against the complexity of the data: teachers of 1, 3, 6 and 9 layers.

Claim: a data set of lower complexity can achieve more significant collapse.
Source: pan2023, Sec. 1.4
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.figures.spread import column, gap
from nclab.papers.pan2023 import pictures_theory as pan2023_theory
from nclab.papers.pan2023.networks import PAPER, QUICK, Networks, preset_of
from nclab.papers.pan2023.training_claims import findings
from nclab.papers.tables import Table, as_rich, cell, group, verdicts

NAME = "pan2023_complexity"


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 6
    teacher_depths: tuple[int, ...] = (1, 3, 6, 9)
    weight_decays: tuple[float, ...] = (1e-3, 3e-3)
    """Where collapse is under way, and where it is nearly complete."""


PRESETS = {"quick": Config(QUICK), "paper": Config(PAPER)}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return compare(preset_of(PRESETS, preset), seeds=seeds, out=out, engine=engine)


def compare(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The experiment at any size: rows of networks by the depth of their teacher."""
    rows = [
        {**row, "teacher_depth": depth}
        for depth in config.teacher_depths
        for row in config.networks.train(
            out,
            seeds=seeds,
            layers=config.layers,
            weight_decays=config.weight_decays,
            teacher_depth=depth,
            engine=engine,
        )
    ]
    numbers: dict[str, Any] = {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
    }
    return {**numbers, "findings": findings(NAME, numbers)}


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Cosines by weight decay and depth of the teacher, and the verdicts."""
    ordered = sorted(numbers["rows"], key=lambda row: (row["weight_decay"], row["teacher_depth"]))
    rows = [
        (
            f"{decay:g}",
            str(depth),
            cell(own, column("accuracy"), ".4f"),
            cell(own, column("min_intra")),
            cell(own, column("max_inter")),
            cell(own, gap),
        )
        for (decay, depth), own in group(ordered, "weight_decay", "teacher_depth").items()
    ]
    columns = ("weight decay", "teacher depth", "accuracy", "min intra", "max inter", "difference")
    return [Table("Last-layer features", columns, rows), verdicts(numbers["findings"])]


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Cosines against the depth of the teacher."""
    return pan2023_theory.complexity(numbers)

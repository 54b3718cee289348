"""Collapse in every layer of a deep network, and its effective depth, against weight decay.

Claim: collapse sharpens from layer to layer, and weight decay lowers the effective depth.
Source: pan2023, Fig. 3.3
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.figures.spread import column, of_converged
from nclab.metrics.effective_depth import effective_depth
from nclab.papers.pan2023 import pictures as pan2023
from nclab.papers.pan2023.depth_judges import middle_inter
from nclab.papers.pan2023.networks import (
    DEEP_DECAYS,
    PAPER,
    QUICK_DEEP,
    Networks,
    last_layers,
    preset_of,
)
from nclab.papers.pan2023.training_claims import findings
from nclab.papers.tables import Table, as_rich, cell, group, plus_minus, verdicts

NAME = "pan2023_fig33"
EPSILONS = (0.005, 0.01, 0.05)
"""Errors of nearest class centres at which the effective depth is taken."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 15
    weight_decays: tuple[float, ...] = DEEP_DECAYS
    epsilons: tuple[float, ...] = EPSILONS


PRESETS = {"quick": Config(QUICK_DEEP), "paper": Config(PAPER)}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return figure(preset_of(PRESETS, preset), seeds=seeds, out=out, engine=engine)


def figure(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The experiment at any size: rows of layers, depths of networks, and the claims."""
    runs = config.networks.train(
        out,
        seeds=seeds,
        layers=config.layers,
        weight_decays=config.weight_decays,
        engine=engine,
    )
    rows = [layer for run in runs for layer in layer_rows(out, run)]
    numbers: dict[str, Any] = {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
        "depths": depth_rows(rows, config.epsilons),
        "runs": runs,
    }
    return {**numbers, "findings": findings(NAME, numbers)}


def layer_rows(out: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured in every layer of a network, counted from 1."""
    return [
        {
            "weight_decay": run["weight_decay"],
            "seed": run["seed"],
            "layer": place,
            "ncc_accuracy": layer["nc4_ncc_accuracy"],
            "min_intra": layer["min_intra"],
            "max_inter": layer["max_inter"],
        }
        for place, layer in enumerate(last_layers(out, run), start=1)
    ]


def depth_rows(rows: list[dict[str, Any]], epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Effective depths of every network whose layers all have a nearest class centre."""
    found = []
    for (decay, seed), layers in group(rows, "weight_decay", "seed").items():
        accuracies = [layer["ncc_accuracy"] for layer in layers]
        if any(accuracy is None for accuracy in accuracies):
            continue
        found += [
            {
                "weight_decay": decay,
                "seed": seed,
                "epsilon": epsilon,
                "depth": effective_depth(accuracies, epsilon=epsilon),
            }
            for epsilon in epsilons
        ]
    return found


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Depths and middle layers of converged networks by weight decay, and the verdicts."""
    errors = sorted({row["epsilon"] for row in numbers["depths"]})
    depths = group(of_converged(numbers["depths"], numbers["runs"]), "weight_decay", "epsilon")
    layers = group(of_converged(numbers["rows"], numbers["runs"]), "weight_decay")
    rows = []
    for (decay,), runs in group(numbers["runs"], "weight_decay").items():
        own = group(layers.get((decay,), []), "seed").values()
        shares = [middle_inter(found) for found in own if _known(found)]
        tops = [max(row["max_inter"] for row in found[1:-1]) for found in own if _known(found)]
        reached = plus_minus([run["accuracy"] for run in runs], ".4f")
        rows.append(
            (
                f"{decay:g}",
                reached if any(run["converged"] for run in runs) else f"{reached}, not converged",
                *(
                    plus_minus([row["depth"] for row in depths.get((decay, error), [])], ".1f")
                    for error in errors
                ),
                cell(runs, column("min_intra")),
                cell(runs, column("max_inter")),
                plus_minus(tops),
                plus_minus(shares, ".2f"),
            )
        )
    columns = (
        "weight decay",
        "accuracy",
        *(f"depth, ε = {error:g}" for error in errors),
        "last min intra",
        "last max inter",
        "largest inter in the middle",
        "share of middle layers with inter > 0",
    )
    return [Table("Networks", columns, rows), verdicts(numbers["findings"])]


def _known(layers: Sequence[Any]) -> bool:
    return len(layers) > 2 and all(row["max_inter"] is not None for row in layers)


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Figure 3.3, and effective depth and middle layers against weight decay."""
    return pan2023.fig33(numbers)

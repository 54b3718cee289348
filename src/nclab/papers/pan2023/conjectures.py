"""The thesis's three conjectures: the smallest e with which each is true, on two kinds of data.

Claim: collapse improves with weight decay and with depth, and effective depth falls.
Source: pan2023, Conj. 3.1.1
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.figures.spread import gap
from nclab.papers.bootstrap import median_interval
from nclab.papers.pan2023 import pictures_theory as pan2023_theory
from nclab.papers.pan2023.depth_judges import SMALL
from nclab.papers.pan2023.networks import (
    DECAYS,
    DEEP_DECAYS,
    PAPER,
    QUICK,
    QUICK_DECAYS,
    QUICK_DEEP,
    Data,
    Networks,
    last_layers,
    preset_of,
)
from nclab.papers.pan2023.training_claims import findings
from nclab.papers.tables import Table, as_rich, group, verdicts
from nclab.theory.statements.conjectures import (
    smallest_decay_slack,
    smallest_depth_error,
    smallest_layer_slack,
)

NAME = "pan2023_conjectures"


@dataclass(frozen=True)
class Place:
    """Networks and data on which the conjectures are tried."""

    networks: Networks
    data: Data
    layers: int
    weight_decays: tuple[float, ...]


@dataclass(frozen=True)
class Config:
    """Where the conjectures are tried; teacher data are those of figures 3.1 and 3.3."""

    places: tuple[Place, ...]


PRESETS = {
    "quick": Config(
        (
            Place(QUICK, "teacher", 6, QUICK_DECAYS),
            Place(QUICK_DEEP, "teacher", 15, DEEP_DECAYS),
            Place(QUICK, "conic", 6, QUICK_DECAYS),
        )
    ),
    "paper": Config(
        (
            Place(PAPER, "teacher", 6, DECAYS),
            Place(PAPER, "teacher", 15, DEEP_DECAYS),
            Place(PAPER, "conic", 6, DECAYS),
        )
    ),
}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return conjectures(preset_of(PRESETS, preset), seeds=seeds, out=out, engine=engine)


def conjectures(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The experiment at any size: the smallest e of every seed, and intervals over seeds."""
    rows, skipped = [], 0
    for place in config.places:
        runs = place.networks.train(
            out,
            seeds=seeds,
            layers=place.layers,
            weight_decays=place.weight_decays,
            data=place.data,
            engine=engine,
        )
        for (seed,), own in group(runs, "seed").items():
            networks = [
                {**run, "measured": last_layers(out, dict(run))} for run in own if run["converged"]
            ]
            known = [network for network in networks if defined(network)]
            skipped += len(networks) - len(known)
            where = {"data": place.data, "layers": place.layers, "seed": seed}
            rows += [{**where, **row} for row in smallest(known)]
    worst = worst_of_seeds(rows)
    numbers: dict[str, Any] = {
        "config": {
            **asdict(config.places[0].networks),
            **asdict(config),
            "seeds": list(seeds),
        },
        "rows": rows,
        "worst": worst,
        "intervals": intervals(worst),
        "small": SMALL,
        "skipped": skipped,
    }
    return {**numbers, "findings": findings(NAME, numbers)}


def defined(network: Mapping[str, Any]) -> bool:
    """Whether cosines and nearest class centres are defined in every layer of a network."""
    layers = network["measured"]
    return gap(network) is not None and all(
        gap(layer) is not None and layer["nc4_ncc_accuracy"] is not None for layer in layers
    )


def smallest(networks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The smallest e of each conjecture for one seed's converged and defined networks."""
    rows: list[dict[str, Any]] = [
        {
            "conjecture": "3.2.1",
            "weight_decay": network["weight_decay"],
            "smallest_e": smallest_layer_slack([_gap(layer) for layer in network["measured"]]),
        }
        for network in networks
    ]
    if len(networks) < 2:
        return rows
    decays = [float(network["weight_decay"]) for network in networks]
    gaps = [_gap(network) for network in networks]
    accuracies = [[layer["nc4_ncc_accuracy"] for layer in net["measured"]] for net in networks]
    for name, value in (
        ("3.1.1", smallest_decay_slack(decays, gaps)),
        ("3.2.2", smallest_depth_error(decays, accuracies)),
    ):
        rows.append({"conjecture": name, "weight_decay": None, "smallest_e": value})
    return rows


def worst_of_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a conjecture needs in one seed: the largest e over its weight decays."""
    return [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "seed": seed,
            "smallest_e": max(row["smallest_e"] for row in own),
        }
        for (name, data, layers, seed), own in group(
            rows, "conjecture", "data", "layers", "seed"
        ).items()
    ]


def intervals(worst: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The median over seeds with its bootstrap interval, which one seed does not have."""
    return [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "seeds": len(own),
            **median_interval([row["smallest_e"] for row in own])._asdict(),
            **({} if len(own) > 1 else {"low": None, "high": None}),
        }
        for (name, data, layers), own in group(worst, "conjecture", "data", "layers").items()
    ]


def _gap(row: dict[str, Any]) -> float:
    value = gap(row)
    assert value is not None, "networks without cosines are left out before"
    return value


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The smallest e by conjecture and data, and the verdicts."""
    ordered = sorted(numbers["intervals"], key=lambda row: row["conjecture"])
    rows = [
        (
            row["conjecture"],
            row["data"],
            str(row["layers"]),
            f"{row['median']:.4f}",
            "–" if row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}",
            ", ".join(
                f"{one['smallest_e']:.4f}"
                for one in numbers["worst"]
                if all(one[key] == row[key] for key in ("conjecture", "data", "layers"))
            ),
        )
        for row in ordered
    ]
    columns = ("conjecture", "data", "layers", "median e", "95 % interval", "seed by seed")
    return [Table("Smallest e", columns, rows), verdicts(numbers["findings"])]


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The smallest e of every conjecture, seed by seed."""
    return pan2023_theory.conjectures(numbers)

"""The thesis's three conjectures: the smallest e with which each is true, on two kinds of data.

Claim: collapse improves with weight decay and with depth, and effective depth falls.
Source: pan2023, Conj. 3.1.1
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.papers.bootstrap import median_interval
from nclab.papers.claim import Claim, Kind, Numbers
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
)
from nclab.papers.pan2023.rows import degree, gap, noting
from nclab.papers.tables import Row, Table, group
from nclab.papers.verdict import Finding, Verdict
from nclab.text import number
from nclab.theory.statements.conjectures import (
    smallest_decay_slack,
    smallest_depth_error,
    smallest_layer_slack,
)

SMALL = 0.05
"""An e of a conjecture up to this is small: a twentieth of a cosine, or of the samples."""
TITLES = {
    "3.1.1": "3.1.1: grows with weight decay",
    "3.2.1": "3.2.1: sharpens with depth",
    "3.2.2": "3.2.2: effective depth falls",
}


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
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The smallest e of every seed, and intervals over seeds."""
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
    return {
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


def defined(network: Row) -> bool:
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
            "smallest_e": smallest_layer_slack([degree(layer) for layer in network["measured"]]),
        }
        for network in networks
    ]
    if len(networks) < 2:
        return rows
    decays = [float(network["weight_decay"]) for network in networks]
    gaps = [degree(network) for network in networks]
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


def tables(numbers: Numbers) -> list[Table]:
    """The smallest e by conjecture and data."""
    ordered = sorted(numbers["intervals"], key=lambda row: row["conjecture"])
    rows = [
        (
            row["conjecture"],
            row["data"],
            str(row["layers"]),
            f"{row['median']:.4f}",
            "–" if row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}",
            ", ".join(f"{one['smallest_e']:.4f}" for one in _matching(numbers["worst"], row)),
        )
        for row in ordered
    ]
    columns = ("conjecture", "data", "layers", "median e", "95 % interval", "seed by seed")
    return [Table("Smallest e", columns, rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """The smallest e of every conjecture: seeds as circles, the median with its interval."""
    places = sorted({(row["data"], int(row["layers"])) for row in numbers["intervals"]})
    panels: list[Panel] = []
    for name, title in TITLES.items():
        lines = []
        for place, (data, layers) in enumerate(places):
            where = {"conjecture": name, "data": data, "layers": layers}
            for row in _matching(numbers["intervals"], where):
                lines.append(
                    Series(
                        "" if place else "median with its bootstrap interval",
                        [place + 1.1],
                        [row["median"]],
                        None if row["low"] is None else [row["low"]],
                        None if row["high"] is None else [row["high"]],
                        place,
                        "none",
                        "filled",
                    )
                )
            values = [float(row["smallest_e"]) for row in _matching(numbers["worst"], where)]
            beside = [place + 0.9] * len(values)
            label = "" if place else "one seed"
            lines.append(Series(label, beside, values, colour=place, style="none", marker="hollow"))
        panels.append(
            Panel(
                title,
                "",
                "" if panels else "smallest e",
                tuple(lines),
                references=(Reference("called small", y=float(numbers["small"])),),
                x_ticks=tuple(range(1, len(places) + 1)),
                x_names=tuple(f"{data},\n{layers} layers" for data, layers in places),
            )
        )
    return [
        Picture(
            "pan2023_conjectures",
            "The smallest e with which each conjecture is true",
            tuple(panels),
            3,
            "Each conjecture says that something holds up to an e; smaller is better. Circles are "
            "the seeds, dots their medians with bootstrap intervals.",
        )
    ]


def _matching(rows: Iterable[Row], where: Row) -> list[Row]:
    keys = ("conjecture", "data", "layers")
    return [row for row in rows if all(row[key] == where[key] for key in keys)]


def judged(name: str, numbers: Numbers) -> Finding:
    """A conjecture holds with a small e: at every place the whole interval is at most `SMALL`.

    Partly needs one place whose median is. It is also the most that can be said if a place or a
    seed has no e, for want of converged networks, or if there is one seed and hence no interval.
    Being about every network and data set, a conjecture cannot be proved this way.
    """
    own = [row for row in numbers["intervals"] if row["conjecture"] == name]
    if not own:
        return Finding(Verdict.OPEN, "no two converged runs to compare", {"intervals": []})
    missing = _without_e(numbers["config"], own)
    if not missing and all(row["high"] is not None and row["high"] <= SMALL for row in own):
        verdict = Verdict.REPRODUCED
    elif any(row["median"] <= SMALL for row in own):
        verdict = Verdict.PARTLY
    else:
        verdict = Verdict.NOT_REPRODUCED
    evidence = f"smallest e against {SMALL:g}: " + "; ".join([*map(_interval, own), *missing])
    known = {"small": SMALL, "intervals": [dict(row) for row in own], "missing": missing}
    return noting(Finding(verdict, evidence, known), int(numbers.get("skipped", 0)))


def _interval(row: Row) -> str:
    several = "s" * (row["seeds"] != 1)
    middle = f"{row['data']}, {row['layers']} layers: median {number(row['median'])}"
    if row["high"] is None:
        return f"{middle}, {row['seeds']} seed{several}, no interval"
    ends = f"{number(row['low'])} to {number(row['high'])}"
    return f"{middle}, {row['level']:.0%} interval {ends}, {row['seeds']} seed{several}"


def _without_e(config: Row, own: Sequence[Row]) -> list[str]:
    """The places that lack an e for some or all of the seeds, in words."""
    total = len(config["seeds"])
    found = {(row["data"], row["layers"]): int(row["seeds"]) for row in own}
    return [
        f"{place['data']}, {place['layers']} layers: {total - known} of {total} seeds have no e"
        for place in config["places"]
        for known in [found.get((place["data"], place["layers"]), 0)]
        if known < total
    ]


grows_with_decay = Claim(
    "pan2023/conjecture-3.1.1",
    Kind.CONJECTURE,
    "Collapse improves with weight decay, up to e log(λ₂/λ₁).",
    "pan2023, Conj. 3.1.1",
    partial(judged, "3.1.1"),
    needs="pan2023_conjectures",
    figure="pan2023_conjectures",
)

sharpens_with_depth = Claim(
    "pan2023/conjecture-3.2.1",
    Kind.CONJECTURE,
    "Collapse sharpens from layer to layer, up to e.",
    "pan2023, Conj. 3.2.1",
    partial(judged, "3.2.1"),
    needs="pan2023_conjectures",
    figure="pan2023_conjectures",
)

depth_falls = Claim(
    "pan2023/conjecture-3.2.2",
    Kind.CONJECTURE,
    "Effective depth at some small error e does not grow with weight decay.",
    "pan2023, Conj. 3.2.2",
    partial(judged, "3.2.2"),
    needs="pan2023_conjectures",
    figure="pan2023_conjectures",
)

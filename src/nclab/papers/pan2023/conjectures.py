"""The thesis's three conjectures: the smallest e with which each is true, on two kinds of data.

The conjectures speak of conic hulls and are judged there; what teacher data say is a finding of
ours.

Claim: collapse improves with weight decay and with depth, and effective depth falls.
Source: pan2023, Conj. 3.1.1
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.papers.claim import Claim, Kind, Numbers
from nclab.papers.judging import Part, judge_effects, t_interval
from nclab.papers.pan2023.networks import (
    DECAYS,
    DEEP_DECAYS,
    PAPER,
    QUICK,
    Data,
    Networks,
    last_layers,
)
from nclab.papers.pan2023.rows import degree, gap, noting
from nclab.papers.tables import Row, Table, group
from nclab.papers.verdict import Finding
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


def _places(networks: Networks) -> tuple[Place, ...]:
    """Both kinds of data at both depths of the thesis."""
    return tuple(
        Place(networks, data, layers, decays)
        for data in ("conic", "teacher")
        for layers, decays in ((6, DECAYS), (15, DEEP_DECAYS))
    )


PRESETS = {"quick": Config(_places(QUICK)), "paper": Config(_places(PAPER))}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The smallest e of every seed."""
    rows, trained, skipped = [], [], 0
    for place in config.places:
        runs = place.networks.train(
            out,
            seeds=seeds,
            layers=place.layers,
            weight_decays=place.weight_decays,
            data=place.data,
            engine=engine,
        )
        trained += [f"fleet/{run['run']}" for run in runs]
        for (seed,), own in group(runs, "seed").items():
            networks = [
                {**run, "measured": last_layers(out, dict(run))} for run in own if run["converged"]
            ]
            known = [network for network in networks if defined(network)]
            skipped += len(networks) - len(known)
            where = {"data": place.data, "layers": place.layers, "seed": seed}
            rows += [{**where, **row} for row in smallest(known)]
    return {
        "config": {
            **asdict(config.places[0].networks),
            **asdict(config),
            "seeds": list(seeds),
        },
        "size": _size(config),
        "runs": trained,
        "rows": rows,
        "worst": worst_of_seeds(rows),
        "small": SMALL,
        "skipped": skipped,
    }


def _size(config: Config) -> str:
    """Of all places, in words."""
    networks = config.places[0].networks
    depths = dict.fromkeys(str(place.layers) for place in config.places)
    return (
        f"{' and '.join(depths)} layers of width {networks.width}, {networks.samples} samples, "
        f"{networks.epochs} epochs"
    )


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


def tables(numbers: Numbers) -> list[Table]:
    """The smallest e by conjecture and data."""
    rows = []
    ordered = sorted(numbers["worst"], key=lambda row: str(row["conjecture"]))
    for (name, data, layers), own in group(ordered, "conjecture", "data", "layers").items():
        values = [float(row["smallest_e"]) for row in own]
        ends = t_interval(values)
        rows.append(
            (
                name,
                data,
                str(layers),
                f"{fmean(values):.4f}",
                "–" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}",
                ", ".join(f"{value:.4f}" for value in values),
            )
        )
    columns = ("conjecture", "data", "layers", "mean e", "95 % interval", "seed by seed")
    return [Table("Smallest e", columns, rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """The smallest e of every conjecture: seeds as circles, their mean with its interval."""
    places = sorted({(row["data"], int(row["layers"])) for row in numbers["worst"]})
    panels: list[Panel] = []
    for name, title in TITLES.items():
        lines = []
        for place, (data, layers) in enumerate(places):
            values = list(_smallest_e(numbers, name, data, layers).values())
            if not values:
                continue
            low, high = ([end] for end in ends) if (ends := t_interval(values)) else (None, None)
            lines += [
                Series(
                    "" if place else "mean with its 95 % interval",
                    [place + 1.1],
                    [fmean(values)],
                    low,
                    high,
                    place,
                    "none",
                    "filled",
                ),
                Series(
                    "" if place else "one seed",
                    [place + 0.9] * len(values),
                    values,
                    colour=place,
                    style="none",
                    marker="hollow",
                ),
            ]
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
            "Each conjecture says that something holds up to an e; smaller is better. The "
            "conjectures are about conic hulls. Circles are the seeds, dots their means with "
            "95 % intervals.",
        )
    ]


def _smallest_e(numbers: Numbers, name: str, data: str, layers: int) -> dict[int, float]:
    """By seed, at one place."""
    where = {"conjecture": name, "data": data, "layers": layers}
    return {
        int(row["seed"]): float(row["smallest_e"])
        for row in numbers["worst"]
        if all(row[key] == value for key, value in where.items())
    }


def judged(name: str, data: Data, numbers: Numbers) -> Finding:
    """Whether e is small at both depths: how far it stays below `SMALL`.

    A place without any e, for want of converged networks, leaves the conjecture undecided. Being
    about every network and data set, a conjecture cannot be proved this way.
    """
    places = [place for place in numbers["config"]["places"] if place["data"] == data]
    parts = [
        Part(
            f"{SMALL:g} − e, {data}, {layers} layers",
            {seed: SMALL - e for seed, e in found.items()},
        )
        for layers in sorted({int(place["layers"]) for place in places})
        for found in [_smallest_e(numbers, name, data, layers)]
    ]
    found = judge_effects(parts, margin=0.0)
    return noting(found, int(numbers.get("skipped", 0)))


E = {
    "3.1.1": "smallest_decay_slack",
    "3.2.1": "smallest_layer_slack",
    "3.2.2": "smallest_depth_error",
}
"""What computes the smallest e of each conjecture."""


def _conjecture(number: str, text: str, quote: str, data: Data) -> Claim:
    own = data == "conic"
    return Claim(
        f"pan2023/conjecture-{number}" if own else f"beyond/conjecture-{number}-{data}",
        Kind.CONJECTURE if own else Kind.RESULT,
        text if own else f"On data of a teacher, too: {text[0].lower()}{text[1:]}",
        f"pan2023, Conj. {number} “{quote}”",
        partial(judged, number, data),
        needs="pan2023_conjectures",
        code=f"nclab.theory.statements.conjectures.{E[number]}",
        figure="pan2023_conjectures",
    )


GROWS = (
    "3.1.1",
    "Collapse improves with weight decay, up to e log(λ₂/λ₁).",
    "NC improves with weight decay",
)
SHARPENS = (
    "3.2.1",
    "Collapse sharpens from layer to layer, up to e.",
    "NC sharpens with model depth",
)
FALLS = (
    "3.2.2",
    "Effective depth at some small error e does not grow with weight decay.",
    "Depth minimization improves with weight decay",
)
grows_with_decay = _conjecture(*GROWS, "conic")
sharpens_with_depth = _conjecture(*SHARPENS, "conic")
depth_falls = _conjecture(*FALLS, "conic")
grows_with_decay_teacher = _conjecture(*GROWS, "teacher")
sharpens_with_depth_teacher = _conjecture(*SHARPENS, "teacher")
depth_falls_teacher = _conjecture(*FALLS, "teacher")

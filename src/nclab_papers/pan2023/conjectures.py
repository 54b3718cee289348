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

from nclab.claims.claim import Claim, Finding, Kind, Numbers
from nclab.claims.judging import Part, judge_choices, t_interval
from nclab.claims.tables import Row, Table, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab_papers.pan2023.networks import (
    DECAYS,
    DEEP_DECAYS,
    PAPER,
    QUICK,
    Data,
    Networks,
    last_layers,
)
from nclab_papers.pan2023.rows import degree, gap, noting
from nclab_papers.pan2023.statements.conjectures import (
    smallest_decay_slack,
    smallest_depth_error,
    smallest_layer_slack,
)

SMALL = 0.05
"""An e of a conjecture up to this is small: a twentieth of a cosine, or of the samples."""
CONVERGED, PERFECT = "accuracy 0.99 or more", "accuracy 1"
"""How "perfect accuracy", which 3.1.1 and 3.2.2 ask of their networks, may be read, and the
convergence that 3.2.1 asks for, as the thesis speaks of it where accuracy is perfect."""
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
    most: int | None = None
    """So many seeds at the most, all by default; set by the time they take."""


@dataclass(frozen=True)
class Config:
    """Where the conjectures are tried; teacher data are those of figures 3.1 and 3.3."""

    places: tuple[Place, ...]


def _places(networks: Networks, most: int | None = None) -> tuple[Place, ...]:
    """Both kinds of data at both depths of the thesis.

    Args:
        most: seeds of the teacher's data, which the conjectures are not about, at 6 layers; those
            at 15 layers are the networks of Figure 3.3.
    """
    return tuple(
        Place(networks, data, layers, decays, most if (data, layers) == ("teacher", 6) else None)
        for data in ("conic", "teacher")
        for layers, decays in ((6, DECAYS), (15, DEEP_DECAYS))
    )


PRESETS = {"quick": Config(_places(QUICK)), "paper": Config(_places(PAPER, most=3))}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The smallest e of every seed."""
    rows, accuracies, trained, skipped = [], [], [], 0
    planned = [
        (place, sweep)
        for place in config.places
        for sweep in place.networks.sweeps(
            seeds=seeds[: place.most],
            layers=place.layers,
            weight_decays=place.weight_decays,
            data=place.data,
        )
    ]
    # All places together, so that no core waits for the last network of each.
    found = config.places[0].networks.train(out, [sweep for _, sweep in planned], engine=engine)
    for (place, sweep), own in zip(planned, found, strict=True):
        trained += [f"fleet/{run['run']}" for run in own]
        networks = [
            {**run, "measured": last_layers(out, dict(run))} for run in own if run["converged"]
        ]
        known = [network for network in networks if defined(network)]
        skipped += len(networks) - len(known)
        where = {"data": place.data, "layers": place.layers, "seed": sweep.seeds[0]}
        rows += [{**where, **row} for row in smallest(known)]
        accuracies += [
            {**where, **{name: run[name] for name in ("weight_decay", "accuracy")}} for run in own
        ]
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
        "accuracies": accuracies,
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
    rows: list[dict[str, Any]] = []
    perfect = [network for network in networks if network["accuracy"] == 1]
    for reading, own in ((CONVERGED, networks), (PERFECT, perfect)):
        for network in own:
            slack = smallest_layer_slack([degree(layer) for layer in network["measured"]])
            rows.append(_needed("3.2.1", reading, network["weight_decay"], slack))
        if len(own) > 1:
            decays = [float(network["weight_decay"]) for network in own]
            gaps = [degree(network) for network in own]
            right = [[layer["nc4_ncc_accuracy"] for layer in one["measured"]] for one in own]
            rows += [
                _needed("3.1.1", reading, None, smallest_decay_slack(decays, gaps)),
                _needed("3.2.2", reading, None, smallest_depth_error(decays, right)),
            ]
    return rows


def _needed(name: str, reading: str, decay: float | None, e: float) -> dict[str, Any]:
    return {"conjecture": name, "reading": reading, "weight_decay": decay, "smallest_e": e}


def worst_of_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a conjecture needs in one seed: the largest e over its weight decays."""
    return [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "reading": reading,
            "seed": seed,
            "smallest_e": max(row["smallest_e"] for row in own),
        }
        for (name, data, layers, reading, seed), own in group(
            rows, "conjecture", "data", "layers", "reading", "seed"
        ).items()
    ]


def tables(numbers: Numbers) -> list[Table]:
    """The smallest e by conjecture and data."""
    rows = []
    ordered = sorted(numbers["worst"], key=lambda row: str(row["conjecture"]))
    keys = ("conjecture", "data", "layers", "reading")
    for (name, data, layers, reading), own in group(ordered, *keys).items():
        values = [float(row["smallest_e"]) for row in own]
        ends = t_interval(values)
        rows.append(
            (
                name,
                data,
                str(layers),
                reading,
                f"{fmean(values):.4f}",
                f"{ends[0]:.4f} to {ends[1]:.4f}" if ends and ends[0] < ends[1] else "–",
                ", ".join(f"{value:.4f}" for value in values),
            )
        )
    columns = ("mean e", "95 % interval", "seed by seed")
    networks = [
        (
            data,
            str(layers),
            f"{decay:g}",
            ", ".join(f"{row['accuracy']:.4g}" for row in own),
        )
        for (data, layers, decay), own in group(
            numbers["accuracies"], "data", "layers", "weight_decay"
        ).items()
    ]
    return [
        Table("Smallest e", ("conjecture", "data", "layers", "networks of", *columns), rows),
        Table(
            "Training accuracy, seed by seed",
            ("data", "layers", "weight decay", "accuracy"),
            networks,
        ),
    ]


def pictures(numbers: Numbers) -> list[Picture]:
    """The smallest e of every conjecture: seeds as circles, their mean with its interval."""
    places = sorted({(row["data"], int(row["layers"])) for row in numbers["worst"]})
    panels: list[Panel] = []
    for name, title in TITLES.items():
        lines = []
        for reading, colour, shift in ((CONVERGED, 0, -0.2), (PERFECT, 1, 0.2)):
            named = False
            for place, (data, layers) in enumerate(places):
                values = list(_smallest_e(numbers, name, data, layers, reading).values())
                if not values:
                    continue
                ends = t_interval(values)
                lines += [
                    Series(
                        "" if named else reading,
                        [place + 1 + shift + 0.06],
                        [fmean(values)],
                        [ends[0]] if ends else None,
                        [ends[1]] if ends else None,
                        colour,
                        "none",
                        "filled",
                    ),
                    Series(
                        "",
                        [place + 1 + shift - 0.06] * len(values),
                        values,
                        colour=colour,
                        style="none",
                        marker="hollow",
                    ),
                ]
                named = True
        panels.append(
            Panel(
                title,
                "",
                "" if panels else "smallest e",
                tuple(lines),
                references=(Reference("", y=float(numbers["small"])),),
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
            "95 % intervals; by colour, which networks count as perfect. Dashed: up to there an e "
            "is called small.",
        )
    ]


def _smallest_e(
    numbers: Numbers, name: str, data: str, layers: int, reading: str
) -> dict[int, float]:
    """By seed, at one place."""
    where = {"conjecture": name, "data": data, "layers": layers, "reading": reading}
    return {
        int(row["seed"]): float(row["smallest_e"])
        for row in numbers["worst"]
        if all(row[key] == value for key, value in where.items())
    }


def judged(name: str, data: Data, numbers: Numbers) -> Finding:
    """Whether e is small at both depths: how far it stays below `SMALL`.

    Both readings of "perfect accuracy" must say so. A place without any e, for want of converged
    networks, leaves the conjecture undecided. Being about every network and data set, a conjecture
    cannot be proved this way.
    """
    places = [place for place in numbers["config"]["places"] if place["data"] == data]
    choices = {
        reading: [
            Part(
                f"{SMALL:g} − e, {data}, {layers} layers",
                {seed: SMALL - e for seed, e in found.items()},
            )
            for layers in sorted({int(place["layers"]) for place in places})
            for found in [_smallest_e(numbers, name, data, layers, reading)]
        ]
        for reading in (CONVERGED, PERFECT)
    }
    return noting(judge_choices(choices, margin=0.0), int(numbers.get("skipped", 0)))


E = {
    "3.1.1": "smallest_decay_slack",
    "3.2.1": "smallest_layer_slack",
    "3.2.2": "smallest_depth_error",
}
"""What computes the smallest e of each conjecture."""


def _conjecture(number: str, text: str, quote: str, data: Data) -> Claim:
    own = data == "conic"
    return Claim(
        f"pan2023/conjecture-{number}" if own else f"findings/conjecture-{number}-{data}",
        Kind.CONJECTURE if own else Kind.RESULT,
        text if own else text.replace("On conic hulls", "On data of a teacher, too"),
        f"pan2023, Conj. {number} “{quote}”",
        partial(judged, number, data),
        needs="pan2023_conjectures",
        code=f"nclab_papers.pan2023.statements.conjectures.{E[number]}",
        figure="pan2023_conjectures",
    )


GROWS = (
    "3.1.1",
    "On conic hulls, of networks with perfect accuracy, collapse improves with weight decay, up to "
    "e log(λ₂/λ₁).",
    "NC improves with weight decay",
)
SHARPENS = (
    "3.2.1",
    "On conic hulls, collapse sharpens from layer to layer, up to e.",
    "NC sharpens with model depth",
)
FALLS = (
    "3.2.2",
    "On conic hulls, of networks with perfect accuracy, the effective depth at some small error e "
    "does not grow with weight decay.",
    "Depth minimization improves with weight decay",
)
grows_with_decay = _conjecture(*GROWS, "conic")
sharpens_with_depth = _conjecture(*SHARPENS, "conic")
depth_falls = _conjecture(*FALLS, "conic")
grows_with_decay_teacher = _conjecture(*GROWS, "teacher")
sharpens_with_depth_teacher = _conjecture(*SHARPENS, "teacher")
depth_falls_teacher = _conjecture(*FALLS, "teacher")

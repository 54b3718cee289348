"""The smallest e with which each of the thesis's three conjectures is true, on two kinds of data.

Each conjecture says that a quantity improves with weight decay or depth up to an error e: it may
fall by at most e. The conjectures are about conic hull data and are judged on these. Results on
teacher data are findings of this project.

Claim: collapse improves with weight decay and with depth, and effective depth falls.
Source: pan2023, Conj. 3.1.1
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from nclab.claims.claim import Claim, Finding, Kind, Numbers
from nclab.claims.effects import Part, median_interval
from nclab.claims.judging import judge_effects, with_readings
from nclab.claims.pictures import Points, point_panel
from nclab.claims.tables import Row, Table, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab_papers.pan2023 import networks as trained

SMALL = 0.05
"""Largest e that counts as small: a cosine of 0.05, or 5 % of the samples."""
CONVERGED, PERFECT = "accuracy 0.99 or more", "accuracy 1"
"""Networks that a conjecture is about, in two readings. Conjecture 3.2.1 speaks of networks that
converged, 3.1.1 and 3.2.2 of networks with "perfect accuracy"."""
TITLES = {
    "3.1.1": "3.1.1: grows with weight decay",
    "3.2.1": "3.2.1: sharpens with depth",
    "3.2.2": "3.2.2: effective depth falls",
}


def smallest_decay_slack(weight_decays: Sequence[float], gaps: Sequence[float]) -> float:
    r"""Return the smallest e for which Conjecture 3.1.1 is true: collapse grows with weight decay.

    $$e = \max_{\lambda_1<\lambda_2}
    \frac{\mathrm{gap}(\lambda_1)-\mathrm{gap}(\lambda_2)}{\log(\lambda_2/\lambda_1)}\Big|_+,\quad
    \mathrm{gap} = \min_c \mathrm{intra}_c - \max_{c\ne c'} \mathrm{inter}_{c,c'}$$

    Source: pan2023, Conj. 3.1.1
    Range: [0, inf); 0 if the gap never falls. The gap is the degree of collapse at weight decay λ;
    |₊ is the positive part.

    >>> smallest_decay_slack([1e-4, 1e-3, 1e-2], [0.5, 1.25, 1.0]) == 0.25 / math.log(10)
    True
    """
    ordered = sorted(zip(weight_decays, gaps, strict=True))
    falls = (
        (before - after) / math.log(larger / smaller)
        for (smaller, before), (larger, after) in combinations(ordered, 2)
    )
    return max(0.0, *falls)


def smallest_layer_slack(gaps: Sequence[float]) -> float:
    r"""Return the smallest e for which Conjecture 3.2.1 is true: collapse grows layer by layer.

    $$e = \max_l \bigl(\mathrm{gap}^{(l)} - \mathrm{gap}^{(l+1)}\bigr)\big|_+$$

    Source: pan2023, Conj. 3.2.1
    Range: [0, inf); 0 if the gap, the degree of collapse of layer l, never falls. |₊ is the
    positive part.

    >>> smallest_layer_slack([0.25, 0.75, 0.5, 1.0])
    0.25
    """
    return max(0.0, *(before - after for before, after in pairwise(gaps)))


def smallest_depth_error(
    weight_decays: Sequence[float], ncc_accuracies: Sequence[Sequence[float]]
) -> float:
    r"""Return the smallest e for which the e-effective depth d^e does not grow with weight decay.

    $$\min\{e \ge e_0 : d^e(\lambda_1) \ge d^e(\lambda_2) \text{ for all } \lambda_1<\lambda_2\}$$

    The e-effective depth is the first layer whose error of the nearest class centre is at most e,
    or the number of layers if there is none; e_0 is the smallest e at which every network has such
    a layer. Depths change only where e is the error of a layer, so only these values are tried.

    Source: pan2023, Conj. 3.2.2
    Range: [0, 1]; only a small e is informative, because every depth is 1 at the largest error.

    >>> smallest_depth_error([1e-4, 1e-3], [[0.75, 1.0, 1.0], [0.5, 0.75, 1.0]])
    0.5
    """
    ordered = [layers for _, layers in sorted(zip(weight_decays, ncc_accuracies, strict=True))]
    errors = [[max(1 - float(value), 0.0) for value in layers] for layers in ordered]
    reached = max(map(min, errors))
    candidates = {error for layers in errors for error in layers if reached <= error < 1}
    for error in sorted(candidates):
        depths = [effective_depth(layers, epsilon=error) for layers in ordered]
        if all(before >= after for before, after in pairwise(depths)):
            return error
    return 1.0  # some layer gets every sample wrong


@dataclass(frozen=True)
class ConjectureSetting:
    """Networks and data on which the conjectures are tested."""

    networks: trained.Networks
    data: trained.Data
    layers: int
    weight_decays: tuple[float, ...]
    most: int | None = None
    """Largest number of seeds to train, which saves time; None means all seeds."""


@dataclass(frozen=True)
class Config:
    """Settings of the tests; the teacher data are those of figures 3.1 and 3.3."""

    places: tuple[ConjectureSetting, ...]


def _settings(networks: trained.Networks, most: int | None = None) -> tuple[ConjectureSetting, ...]:
    """Return the settings for both kinds of data and both depths of the thesis, 6 and 15 layers.

    Args:
        most: largest number of seeds of networks with 6 layers on teacher data, which the
            conjectures are not about. Networks with 15 layers are trained for Figure 3.3 anyway.
    """
    return tuple(
        ConjectureSetting(
            networks, data, layers, decays, most if (data, layers) == ("teacher", 6) else None
        )
        for data in ("conic", "teacher")
        for layers, decays in ((6, trained.DECAYS), (15, trained.DEEP_DECAYS))
    )


PRESETS = {
    "quick": Config(_settings(trained.QUICK)),
    "paper": Config(_settings(trained.PAPER, most=3)),
}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks and return the smallest e of every seed."""
    rows, runs, skipped = [], [], 0
    planned = [
        (setting, sweep)
        for setting in config.places
        for sweep in setting.networks.sweeps(
            seeds=seeds[: setting.most],
            layers=setting.layers,
            weight_decays=setting.weight_decays,
            data=setting.data,
        )
    ]
    # All settings are trained together, so no core waits for the last network of a setting.
    results = config.places[0].networks.train(out, [sweep for _, sweep in planned], engine=engine)
    for (setting, sweep), members in zip(planned, results, strict=True):
        runs += [f"{trained.RECORDED.folder}/{run['run']}" for run in members]
        networks = [
            {**run, "measured": trained.last_layers(out, run)}
            for run in members
            if run["converged"]
        ]
        complete = [network for network in networks if is_defined(network)]
        skipped += len(networks) - len(complete)
        keys = {"data": setting.data, "layers": setting.layers, "seed": sweep.seeds[0]}
        rows += [{**keys, **row} for row in smallest(complete)]
    networks_config = config.places[0].networks
    depths = dict.fromkeys(str(setting.layers) for setting in config.places)
    return {
        "config": {**asdict(networks_config), **asdict(config), "seeds": list(seeds)},
        "size": f"{' and '.join(depths)} layers of width {networks_config.width}, "
        f"{networks_config.samples} samples, {networks_config.epochs} epochs",
        "runs": runs,
        "rows": rows,
        "worst": worst_of_seeds(rows),
        "small": SMALL,
        "skipped": skipped,
    }


def is_defined(network: Row) -> bool:
    """Whether cosines and nearest class centres are defined in every layer of a network."""
    return trained.degree_or_none(network) is not None and all(
        trained.degree_or_none(layer) is not None and layer["nc4_ncc_accuracy"] is not None
        for layer in network["measured"]
    )


def smallest(networks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the smallest e of each conjecture for the networks of one seed, as rows.

    3.2.1 is about a single network, so it has a row for each weight decay.
    """
    rows: list[dict[str, Any]] = []

    def append(name: str, reading: str, decay: float | None, e: float) -> None:
        keys = {"conjecture": name, "reading": reading, "weight_decay": decay}
        rows.append({**keys, "smallest_e": e})

    perfect = [network for network in networks if network["accuracy"] == 1]
    for reading, members in ((CONVERGED, networks), (PERFECT, perfect)):
        for network in members:
            slack = smallest_layer_slack([trained.degree(layer) for layer in network["measured"]])
            append("3.2.1", reading, network["weight_decay"], slack)
        if len(members) > 1:
            decays = [float(network["weight_decay"]) for network in members]
            gaps = [trained.degree(network) for network in members]
            accuracies = [
                [layer["nc4_ncc_accuracy"] for layer in network["measured"]] for network in members
            ]
            append("3.1.1", reading, None, smallest_decay_slack(decays, gaps))
            append("3.2.2", reading, None, smallest_depth_error(decays, accuracies))
    return rows


def worst_of_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each conjecture, setting and seed the largest e of the rows."""
    keys = ("conjecture", "data", "layers", "reading", "seed")
    worst = []
    for setting, members in group(rows, *keys).items():
        e = max(row["smallest_e"] for row in members)
        worst.append({**dict(zip(keys, setting, strict=True)), "smallest_e": e})
    return worst


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the smallest e by conjecture and data."""
    ordered = sorted(numbers["worst"], key=lambda row: str(row["conjecture"]))
    keys = ("conjecture", "data", "layers", "reading")
    lines = []
    for setting, members in group(ordered, *keys).items():
        values = [float(row["smallest_e"]) for row in members]
        ends = median_interval(values)
        interval = f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else "–"
        by_seed = ", ".join(f"{value:.4f}" for value in values)
        lines.append((*map(str, setting), f"{median(values):.4f}", interval, by_seed))
    headings = ("conjecture", "data", "layers", "networks with", "median e", "95 % interval")
    return [Table("Smallest e for which each conjecture holds", (*headings, "e by seed"), lines)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of the smallest e of every conjecture: means over seeds with intervals."""
    settings = sorted({(row["data"], int(row["layers"])) for row in numbers["worst"]})
    names = [f"{data},\n{layers} layers" for data, layers in settings]
    panels: list[Panel] = []
    for name, title in TITLES.items():
        readings = []
        for colour, reading in enumerate((CONVERGED, PERFECT)):
            values = [
                list(_smallest_e(numbers, name, data, layers, reading).values())
                for data, layers in settings
            ]
            medians = [median(members) if members else None for members in values]
            ends = [median_interval(members) if members else None for members in values]
            low, high = ([float(pair[end]) if pair else None for pair in ends] for end in (0, 1))
            readings.append(Points(reading, medians, low, high, colour))
        limit = (Reference("", y=float(numbers["small"])),)
        y_label = "" if panels else "smallest e"
        panels.append(point_panel(title, names, readings, y_label=y_label, references=limit))
    return [
        Picture(
            "pan2023_conjectures",
            "The smallest e with which each conjecture is true",
            tuple(panels),
            3,
            "Each conjecture states that something holds up to an e; a smaller e is a stronger "
            "statement. The conjectures are about conic hulls. Dots: medians of the seeds, "
            "with 95 % intervals from six seeds on. Colours: which networks count as perfect. "
            "Dashed: the largest e that we call small.",
        )
    ]


def _smallest_e(
    numbers: Numbers, name: str, data: str, layers: int, reading: str
) -> dict[int, float]:
    """Return the smallest e by seed in one setting."""
    match = {"conjecture": name, "data": data, "layers": layers, "reading": reading}
    return {
        int(row["seed"]): float(row["smallest_e"])
        for row in numbers["worst"]
        if all(row[key] == value for key, value in match.items())
    }


def judged(name: str, data: trained.Data, numbers: Numbers) -> Finding:
    """Judge a conjecture: its smallest e must be below `SMALL` at every depth.

    Networks count if their training accuracy is at least 0.99; another reading requires 1. A depth
    at which no network counts leaves the conjecture undecided. These networks can contradict a
    conjecture about all networks, but not prove it.

    Args:
        name: number of the conjecture in the thesis, such as 3.1.1.
        data: data set on which the conjecture is tested.
        numbers: smallest e by conjecture, data set, depth, reading and seed.
    """
    places = [place for place in numbers["config"]["places"] if place["data"] == data]
    findings = {}
    for reading in (CONVERGED, PERFECT):
        parts = [
            Part(
                f"smallest e on {data} data with {layers} layers",
                _smallest_e(numbers, name, data, layers, reading),
                below=SMALL,
            )
            for layers in sorted({int(place["layers"]) for place in places})
        ]
        findings[reading] = judge_effects(parts)
    other = {"perfect means that every sample is correct": findings[PERFECT]}
    finding = with_readings(findings[CONVERGED], other)
    return trained.note_skipped(finding, int(numbers.get("skipped", 0)))


def _conjecture(number: str, text: str, quote: str, code: str, data: trained.Data) -> Claim:
    stated = data == "conic"
    return Claim(
        f"pan2023/conjecture-{number}" if stated else f"findings/conjecture-{number}-{data}",
        Kind.CONJECTURE if stated else Kind.RESULT,
        text if stated else text.replace("On conic hulls", "Also on data of a teacher"),
        f"pan2023, Conj. {number} “{quote}”",
        partial(judged, number, data),
        needs="pan2023_conjectures",
        code=f"nclab_papers.pan2023.conjectures.{code}",
        figure="pan2023_conjectures",
    )


GROWS = (
    "3.1.1",
    "On conic hulls, of networks with perfect accuracy, collapse improves with weight decay, up to "
    r"$e \log(\lambda_2/\lambda_1)$.",
    "NC improves with weight decay",
    "smallest_decay_slack",
)
SHARPENS = (
    "3.2.1",
    "On conic hulls, collapse sharpens from layer to layer, up to $e$.",
    "NC sharpens with model depth",
    "smallest_layer_slack",
)
FALLS = (
    "3.2.2",
    "On conic hulls, of networks with perfect accuracy, the effective depth at some small error "
    "$e$ does not grow with weight decay.",
    "Depth minimization improves with weight decay",
    "smallest_depth_error",
)
grows_with_decay = _conjecture(*GROWS, "conic")
sharpens_with_depth = _conjecture(*SHARPENS, "conic")
depth_falls = _conjecture(*FALLS, "conic")
grows_with_decay_teacher = _conjecture(*GROWS, "teacher")
sharpens_with_depth_teacher = _conjecture(*SHARPENS, "teacher")
depth_falls_teacher = _conjecture(*FALLS, "teacher")

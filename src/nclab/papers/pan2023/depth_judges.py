"""Judges of the thesis's section 3.2: collapse across the layers, depth minimisation, conjectures.

Rows are one layer of one network each; `runs` says which networks converged.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nclab.papers.comparisons import Comparison, Line, weigh, weigh_lines
from nclab.papers.pan2023.weight_decay_judges import VISIBLE, gap, seeds
from nclab.papers.verdict import Finding, Verdict
from nclab.text import number

Numbers = Mapping[str, Any]
Row = Mapping[str, Any]

FEW_EXCEPTIONS = 0.9
"""Share of the layers that must obey where the thesis speaks of very few exceptions."""
EARLY = 0.5
"""Share of the layers that still count as early."""
MANY = 1 / 3
"""Share of the middle layers that counts as many."""
NEAR_PERFECT = 0.01
"""Nearest-class-centre error of a layer that classifies near-perfectly."""
UNSTABLE_DECAYS = (3e-3, 5e-3)
"""Where the thesis sees positive inter-class cosines in the middle layers."""
FAILING_DECAY = 1e-2
"""Where the thesis's 15 layers fail to converge."""
SMALL = 0.05
"""An e of a conjecture up to this is small: a twentieth of a cosine, or of the samples."""


def layers_of(numbers: Numbers, run: Row) -> list[Row]:
    """The layers of one network, in order."""
    found = [row for row in numbers["rows"] if _same(row, run)]
    return sorted(found, key=lambda row: int(row["layer"]))


def depth_of(numbers: Numbers, run: Row, epsilon: float = NEAR_PERFECT) -> int | None:
    """The effective depth of one network; None if it was not measured for this error."""
    for row in numbers["depths"]:
        if _same(row, run) and row["epsilon"] == epsilon:
            return int(row["depth"])
    return None


def early_layers_separate(numbers: Numbers) -> Finding:
    """Nearest class centres are near-perfect in the first half of every converged network."""
    found = []
    for run in _converged(numbers):
        depth, layers = depth_of(numbers, run), len(layers_of(numbers, run))
        if depth is not None:
            found.append(Comparison(_place(run), EARLY * layers - depth))
    return weigh(found)


def largest_decay_fails(numbers: Numbers) -> Finding:
    """At weight decay 1e-2 training fails."""
    return weigh(
        Comparison(_place(run), -1.0 if run["converged"] else 1 - float(run["accuracy"] or 0.0))
        for run in numbers["runs"]
        if run["weight_decay"] == FAILING_DECAY
    )


def accuracy_rises(numbers: Numbers) -> Finding:
    """Nearest-class-centre accuracy rises from layer to layer, with very few exceptions."""
    return _along_layers(numbers, lambda row: float(row["ncc_accuracy"]), "ncc_accuracy")


def intra_rises(numbers: Numbers) -> Finding:
    """Min intra rises from layer to layer, with very few exceptions."""
    return _along_layers(numbers, lambda row: float(row["min_intra"]), "min_intra")


def gap_rises(numbers: Numbers) -> Finding:
    """Min intra - max inter rises from layer to layer, with very few exceptions."""
    return _along_layers(numbers, gap, "min_intra", "max_inter")


def depth_falls(numbers: Numbers) -> Finding:
    """Effective depth never grows with weight decay, and ends at least a layer lower."""
    lines = []
    for seed in seeds(numbers["runs"]):
        runs = [run for run in _converged(numbers) if run["seed"] == seed]
        known = [(run, depth_of(numbers, run)) for run in runs]
        line = [(float(run["weight_decay"]), float(d)) for run, d in known if d is not None]
        decays, depths = [decay for decay, _ in line], [depth for _, depth in line]
        lines.append(Line(f"seed {seed}, weight decay", decays, depths, sign=-1))
    return weigh_lines(lines, visible=1.0, back=0.0)


def middle_inter(layers: Sequence[Row]) -> float:
    """Share of the middle layers, all but the first and the last, with a positive max inter.

    >>> middle_inter([{"max_inter": value} for value in (0.4, 0.2, 0.1, -0.1, -0.3)])
    0.6666666666666666
    """
    middle = layers[1:-1]
    return sum(row["max_inter"] > 0 for row in middle) / max(len(middle), 1)


def inter_positive(numbers: Numbers) -> Finding:
    """At 3e-3 and 5e-3 many middle layers of converged networks have a positive max inter."""
    networks, skipped = _measured(numbers, "max_inter")
    found = weigh(
        Comparison(_place(run), middle_inter(layers) - MANY)
        for run, layers in networks
        if run["weight_decay"] in UNSTABLE_DECAYS
    )
    return _noting(found, skipped)


def inter_unstable(numbers: Numbers) -> Finding:
    """Somewhere from 3e-3 on max inter climbs across the layers more than at any smaller decay."""
    networks, skipped = _measured(numbers, "max_inter")
    found = []
    for seed in seeds(numbers["runs"]):
        climbs = [
            (run["weight_decay"] >= min(UNSTABLE_DECAYS), _ascent(layers))
            for run, layers in networks
            if run["seed"] == seed
        ]
        large = [climb for is_large, climb in climbs if is_large]
        small = [climb for is_large, climb in climbs if not is_large]
        if large and small:
            found.append(Comparison(f"seed {seed}", max(large) - max(small) - VISIBLE))
    return _noting(weigh(found), skipped)


def conjecture(numbers: Numbers, *, name: str) -> Finding:
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
    return _noting(Finding(verdict, evidence, known), int(numbers.get("skipped", 0)))


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


def conjecture_311(numbers: Numbers) -> Finding:
    """Conjecture 3.1.1: collapse improves with weight decay."""
    return conjecture(numbers, name="3.1.1")


def conjecture_321(numbers: Numbers) -> Finding:
    """Conjecture 3.2.1: collapse sharpens with depth."""
    return conjecture(numbers, name="3.2.1")


def conjecture_322(numbers: Numbers) -> Finding:
    """Conjecture 3.2.2: depth minimisation improves with weight decay."""
    return conjecture(numbers, name="3.2.2")


def _along_layers(numbers: Numbers, value: Callable[[Row], float], *needs: str) -> Finding:
    networks, skipped = _measured(numbers, *needs)
    lines = [
        Line(
            f"{_place(run)}: layer",
            [float(row["layer"]) for row in layers],
            [value(row) for row in layers],
        )
        for run, layers in networks
    ]
    return _noting(weigh_lines(lines, visible=VISIBLE, enough=FEW_EXCEPTIONS), skipped)


def _measured(numbers: Numbers, *needs: str) -> tuple[list[tuple[Row, list[Row]]], int]:
    """Converged networks with their layers, and how many more lack one of these in some layer."""
    known = [(run, layers_of(numbers, run)) for run in _converged(numbers)]
    found = [
        (run, layers)
        for run, layers in known
        if all(row[name] is not None for row in layers for name in needs)
    ]
    return found, len(known) - len(found)


def _noting(finding: Finding, skipped: int) -> Finding:
    """The finding, with a word on converged networks that could not be judged."""
    if not skipped:
        return finding
    note = f"left out, undefined in some layer: {skipped} converged network{'s' * (skipped > 1)}"
    return Finding(
        finding.verdict, f"{finding.evidence}; {note}", {**finding.numbers, "skipped": skipped}
    )


def _ascent(layers: Sequence[Row]) -> float:
    """By how much max inter climbs from layer to layer, in all: 0 if it only falls."""
    return float(sum(max(b["max_inter"] - a["max_inter"], 0.0) for a, b in pairwise(layers)))


def _converged(numbers: Numbers) -> list[Row]:
    found = [run for run in numbers["runs"] if run["converged"]]
    return sorted(found, key=lambda run: (int(run["seed"]), float(run["weight_decay"])))


def _same(row: Row, run: Row) -> bool:
    return bool(row["weight_decay"] == run["weight_decay"] and row["seed"] == run["seed"])


def _place(run: Row) -> str:
    return f"seed {run['seed']}, weight decay {run['weight_decay']:g}"

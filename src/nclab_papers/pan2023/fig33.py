"""Collapse in every layer of a deep network, and its effective depth, against weight decay.

Claim: collapse sharpens from layer to layer, and weight decay lowers the effective depth.
Source: pan2023, Fig. 3.3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, Share, judge_effects, judge_shares
from nclab.claims.tables import Row, Table, cell, group, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.seeds import SEED_CAPTION, LineStyle, column, mean_over_seeds
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab_papers.pan2023.lines import (
    ACCURACY,
    COSINES,
    DECAY,
    INTER,
    INTRA,
    TICKS,
    failed_note,
    simplex,
)
from nclab_papers.pan2023.networks import DEEP_DECAYS, PAPER, QUICK, Networks, last_layers
from nclab_papers.pan2023.rows import COSINE, by_seed, decade_slopes, degree, noting

EPSILONS = (0.005, 0.01, 0.05)
"""Errors of nearest class centres at which the effective depth is taken."""
FEW_EXCEPTIONS = 0.8
"""Net share of rising steps where the thesis speaks of very few exceptions: one in ten may fall."""
EARLY = 0.5
"""Share of the layers that still count as early."""
LAYER = 0.5
"""Depths that differ by less than half a layer do not."""
MANY = 1 / 3
"""Share of the intermediate layers that counts as many."""
NEAR_PERFECT = 0.01
"""Nearest-class-centre error of a layer that classifies near-perfectly."""
UNSTABLE_DECAYS = (3e-3, 5e-3)
"""Where the thesis sees positive inter-class cosines in the middle layers."""
FAILING_DECAY = 1e-2
"""Where the thesis's 15 layers fail to converge."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 15
    weight_decays: tuple[float, ...] = DEEP_DECAYS
    epsilons: tuple[float, ...] = EPSILONS


PRESETS = {"quick": Config(QUICK), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Rows of layers, and the depths of networks."""
    sweeps = config.networks.sweeps(
        seeds=seeds, layers=config.layers, weight_decays=config.weight_decays
    )
    runs = [*chain.from_iterable(config.networks.train(out, sweeps, engine=engine))]
    rows = [layer for run in runs for layer in layer_rows(out, run)]
    return {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
        "depths": depth_rows(rows, config.epsilons),
        "runs": runs,
    }


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


ALONG_LAYERS: dict[str, tuple[Callable[[Row], float], tuple[str, ...]]] = {
    "NCC accuracy": (lambda row: float(row["ncc_accuracy"]), ("ncc_accuracy",)),
    "min intra": (lambda row: float(row["min_intra"]), ("min_intra",)),
    "min intra − max inter": (degree, ("min_intra", "max_inter")),
}
"""What rises from layer to layer in the thesis's words, and what it is made of."""


def tables(numbers: Numbers) -> list[Table]:
    """Depths and middle layers of converged networks by weight decay."""
    errors = sorted({row["epsilon"] for row in numbers["depths"]})
    depths = group(of_converged(numbers["depths"], numbers["runs"]), "weight_decay", "epsilon")
    layers = group(of_converged(numbers["rows"], numbers["runs"]), "weight_decay")
    rows = []
    for (decay,), runs in group(numbers["runs"], "weight_decay").items():
        own = [
            found
            for found in group(layers.get((decay,), []), "seed").values()
            if len(found) > 2 and all(row["max_inter"] is not None for row in found)
        ]
        tops = [max(row["max_inter"] for row in found[1:-1]) for found in own]
        reached = mean_and_deviation([run["accuracy"] for run in runs], ".4f")
        rows.append(
            (
                f"{decay:g}",
                reached if any(run["converged"] for run in runs) else f"{reached}, not converged",
                *(
                    mean_and_deviation(
                        [row["depth"] for row in depths.get((decay, error), [])], ".1f"
                    )
                    for error in errors
                ),
                cell(runs, column("min_intra")),
                cell(runs, column("max_inter")),
                mean_and_deviation(tops),
                mean_and_deviation(map(middle_inter, own), ".2f"),
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
    return [Table("Networks", columns, rows), _steps(numbers)]


def _steps(numbers: Numbers) -> Table:
    """How many steps from layer to layer rise and fall by what a reader of the figure would see."""
    rows = []
    for name, (value, needs) in ALONG_LAYERS.items():
        steps: dict[int, list[float]] = {}
        for run, layers in _measured(numbers, *needs)[0]:
            line = [value(row) for row in layers]
            steps.setdefault(int(run["seed"]), []).extend(b - a for a, b in pairwise(line))
        known = [own for own in steps.values() if own]
        shares = [
            [fmean(step > COSINE for step in own) for own in known],
            [fmean(abs(step) <= COSINE for step in own) for own in known],
            [fmean(step < -COSINE for step in own) for own in known],
        ]
        rows.append((name, *(mean_and_deviation(share, ".2f") for share in shares)))
    visible = f"by more than {COSINE:g}"
    return Table(
        "Steps from layer to layer", ("", f"rise {visible}", "less", f"fall {visible}"), rows
    )


def pictures(numbers: Numbers) -> list[Picture]:
    """Every layer, one panel a weight decay, as in the thesis; and the effective depth."""
    rows, runs = numbers["rows"], numbers["runs"]
    classes = int(numbers["config"]["classes"])
    lines = (
        ("ncc_accuracy", LineStyle("NCC accuracy", ACCURACY, marker="none")),
        ("min_intra", LineStyle("min intra", INTRA, marker="none")),
        ("max_inter", LineStyle("max inter", INTER, marker="none")),
    )
    panels: list[Panel] = []
    for decay in sorted({row["weight_decay"] for row in rows}):
        every = [row for row in rows if row["weight_decay"] == decay]
        own = of_converged(every, runs) or every
        failed = sum(not run["converged"] for run in runs if run["weight_decay"] == decay)
        some = sum(run["weight_decay"] == decay for run in runs)
        title = f"wd = {decay:g}" + (f", {failed} of {some} not converged" if failed else "")
        panels.append(
            Panel(
                title,
                "layer",
                "" if len(panels) % 4 else "accuracy, cosine",
                (
                    *(mean_over_seeds(own, "layer", column(name), look) for name, look in lines),
                    simplex(classes, [float(row["layer"]) for row in own]),
                ),
                y_range=COSINES,
            )
        )
    note = SEED_CAPTION + failed_note(runs)
    lost = any(
        not any(run["converged"] for run in own) for own in group(runs, "weight_decay").values()
    )
    shown = " Where no seed converged, the panel shows all of them." if lost else ""
    layers = Picture(
        "pan2023_fig33",
        "Collapse in every layer of a deep network",
        tuple(panels),
        4,
        "Figure 3.3 of the thesis: nearest-class-centre accuracy (green), smallest intra-class "
        f"(blue) and largest inter-class cosine (yellow) of the features after batch norm. "
        f"{note}{shown}",
        (2.6, 2.3),
    )
    return [layers, _depths(numbers, note)]


def _depths(numbers: Numbers, note: str) -> Picture:
    """Effective depth against weight decay, and the middle layers' largest inter."""
    kept = of_converged(numbers["depths"], numbers["runs"])
    depths = [
        mean_over_seeds(
            [row for row in kept if row["epsilon"] == epsilon],
            "weight_decay",
            column("depth"),
            LineStyle(f"ε = {epsilon:g}", colour),
        )
        for colour, epsilon in enumerate(sorted({row["epsilon"] for row in kept}))
    ]
    networks = group(of_converged(numbers["rows"], numbers["runs"]), "weight_decay", "seed")
    middle = [
        {"weight_decay": decay, "value": max(row["max_inter"] for row in layers)}
        for (decay, _), found in networks.items()
        for layers in [sorted(found, key=lambda row: int(row["layer"]))[1:-1]]
        if layers and all(row["max_inter"] is not None for row in layers)
    ]
    inter = mean_over_seeds(middle, "weight_decay", column("value"), LineStyle("", INTER))
    return Picture(
        "pan2023_fig33_depth",
        "Weight decay and depth",
        (
            Panel("effective depth", DECAY, "layers", tuple(depths), "log", x_ticks=TICKS),
            Panel(
                "max inter, middle layers",
                DECAY,
                "cosine similarity",
                (inter,),
                x_scale="log",
                references=(Reference("zero", y=0.0),),
                x_ticks=TICKS,
            ),
        ),
        2,
        "The first layer at which nearest class centres err at most ε, and the largest "
        f"inter-class cosine of all layers but the first and the last. {note}",
    )


def of_converged(rows: Iterable[Row], runs: Iterable[Row]) -> list[Row]:
    """The rows, such as one a layer, whose weight decay and seed are those of a converged run.

    >>> runs = [{"weight_decay": 0.1, "seed": seed, "converged": seed == 1} for seed in (0, 1)]
    >>> of_converged([{"weight_decay": 0.1, "seed": 0}, {"weight_decay": 0.1, "seed": 1}], runs)
    [{'weight_decay': 0.1, 'seed': 1}]
    """
    done = {(run["weight_decay"], run["seed"]) for run in runs if run["converged"]}
    return [row for row in rows if (row["weight_decay"], row["seed"]) in done]


def middle_inter(layers: Sequence[Row]) -> float:
    """Share of the middle layers, all but the first and the last, with a positive max inter.

    >>> middle_inter([{"max_inter": value} for value in (0.4, 0.2, 0.1, -0.1, -0.3)])
    0.6666666666666666
    """
    middle = layers[1:-1]
    return sum(row["max_inter"] > 0 for row in middle) / max(len(middle), 1)


claimed = partial(claim, needs="pan2023_fig33", figure="pan2023_fig33")


@claimed(
    "pan2023/sec-3.2-early-layers",
    Kind.RESULT,
    "Early layers already classify near-perfectly by nearest class centres.",
    "pan2023, Sec. 3.2.2 “NCC classification accuracy achieved in the early layers”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def early_layers_separate(numbers: Numbers) -> Finding:
    """How far below half of the layers the effective depth is, at every weight decay below 1e-2."""
    half = EARLY * int(numbers["config"]["layers"])
    depths = _depths_of(numbers)
    parts = [
        Part(f"weight decay {decay:g}", by_seed(depths, early, weight_decay=decay), step=1.0)
        for decay in sorted({run["weight_decay"] for run in numbers["runs"]} - {FAILING_DECAY})
        for early in [lambda row: half - float(row["depth"])]
    ]
    return judge_effects(parts, margin=LAYER, unit="layers")


@claimed(
    "pan2023/sec-3.2-largest-decay-fails",
    Kind.RESULT,
    "At weight decay 0.01 the 15 layers fail to converge.",
    "pan2023, Sec. 3.2.2 “weight decay parameter was set to 0.01, causing the model to fail”",
)
def largest_decay_fails(numbers: Numbers) -> Finding:
    """In how many seeds."""
    failed = {
        int(run["seed"]): not run["converged"]
        for run in numbers["runs"]
        if run["weight_decay"] == FAILING_DECAY
    }
    return judge_shares([Share(f"weight decay {FAILING_DECAY:g} fails", failed)])


@claimed(
    "pan2023/sec-3.2-accuracy-rises",
    Kind.RESULT,
    "Nearest-class-centre accuracy rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “with very few exceptions, the NCC classification accuracy”",
)
def accuracy_rises(numbers: Numbers) -> Finding:
    """Judged along the layers of all converged networks, as are the next two."""
    return _along_layers(numbers, "NCC accuracy")


@claimed(
    "pan2023/sec-3.2-intra-rises",
    Kind.RESULT,
    "The smallest intra-class cosine rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “minimum average intra-class cosine similarity”",
)
def intra_rises(numbers: Numbers) -> Finding:
    return _along_layers(numbers, "min intra")


@claimed(
    "pan2023/sec-3.2-gap-rises",
    Kind.RESULT,
    "Intra minus inter rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “difference between intra-class and inter-class cosine similarity”",
    code="nclab_papers.pan2023.rows.degree",
)
def gap_rises(numbers: Numbers) -> Finding:
    return _along_layers(numbers, "min intra − max inter")


@claimed(
    "pan2023/sec-3.2-depth-falls",
    Kind.RESULT,
    "The number of layers needed for near-perfect accuracy falls with weight decay.",
    "pan2023, Sec. 3.2.2 “the number of layers needed for the NCC classification”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def depth_falls(numbers: Numbers) -> Finding:
    """The slope of the effective depth over weight decay, turned round."""
    falls = decade_slopes(_depths_of(numbers), lambda row: float(row["depth"]), sign=-1)
    return judge_effects([Part("fall", falls)], margin=LAYER, unit="layers a decade")


@claimed(
    "pan2023/sec-3.2-inter-positive",
    Kind.RESULT,
    "At 3e-3 and 5e-3 the largest inter-class cosine is above zero in many intermediate layers, "
    "though they classify perfectly.",
    "pan2023, Sec. 3.2.2 “exceeded zero in many intermediate layers, despite”",
)
def inter_positive(numbers: Numbers) -> Finding:
    """The share of such layers among the intermediate ones of near-perfect accuracy."""
    networks, skipped = _measured(numbers, "max_inter", "ncc_accuracy")
    parts = []
    for decay in UNSTABLE_DECAYS:
        values, items = {}, 0
        for run, layers in networks:
            perfect = [row for row in layers[1:-1] if row["ncc_accuracy"] >= 1 - NEAR_PERFECT]
            if run["weight_decay"] == decay and perfect:
                share = sum(row["max_inter"] > 0 for row in perfect) / len(perfect)
                values[int(run["seed"])] = share - MANY
                items += len(perfect)
        what = f"weight decay {decay:g}, share beyond a third"
        parts.append(Part(what, values, trials=items, share_range=(-MANY, 1 - MANY)))
    return noting(judge_effects(parts, margin=0.0), skipped)


@claimed(
    "pan2023/sec-3.2-inter-unstable",
    Kind.RESULT,
    "The largest inter-class cosine becomes unstable as weight decay grows.",
    "pan2023, Sec. 3.2.2 “becomes unstable when the weight decay parameter increases”",
    code="nclab_papers.pan2023.fig33.roughness",
)
def inter_unstable(numbers: Numbers) -> Finding:
    """How much rougher max inter becomes along the layers, per decade of weight decay."""
    networks, skipped = _measured(numbers, "max_inter")
    rough = [{**run, "roughness": roughness(layers)} for run, layers in networks if len(layers) > 2]
    slopes = decade_slopes(rough, lambda row: float(row["roughness"]))
    found = judge_effects([Part("slope of roughness", slopes)], margin=COSINE, unit="a decade")
    return noting(found, skipped)


def roughness(layers: Sequence[Row]) -> float:
    """Mean absolute second difference of max inter over layers: 0 along any straight line.

    >>> roughness([{"max_inter": value} for value in (0.4, 0.2, 0.0, 0.2)])
    0.2
    """
    return float(np.abs(np.diff([row["max_inter"] for row in layers], 2)).mean())


def _depths_of(numbers: Numbers) -> list[Row]:
    """The effective depths of converged networks at the error that is called near-perfect."""
    return [
        {**row, "converged": True}
        for row in of_converged(numbers["depths"], numbers["runs"])
        if row["epsilon"] == NEAR_PERFECT
    ]


def _along_layers(numbers: Numbers, name: str) -> Finding:
    """Net shares over all converged networks of a seed: of the steps from layer to layer that do
    not fall, and of the networks whose last layer is visibly above the first, lest a line on
    which nothing happens passes."""
    value, needs = ALONG_LAYERS[name]
    networks, skipped = _measured(numbers, *needs)
    steps: dict[int, list[bool]] = {}
    ends: dict[int, list[bool]] = {}
    for run, layers in networks:
        line = [value(row) for row in layers]
        steps.setdefault(int(run["seed"]), []).extend(b >= a for a, b in pairwise(line))
        ends.setdefault(int(run["seed"]), []).append(line[-1] - line[0] > COSINE)
    parts = [
        Part(
            what,
            {seed: 2 * fmean(own) - 1 for seed, own in found.items() if own},
            trials=sum(map(len, found.values())),
        )
        for what, found in (("steps that do not fall", steps), ("first to last", ends))
    ]
    found = judge_effects(parts, margin=FEW_EXCEPTIONS, unit="net share", stated=True)
    return noting(found, skipped)


def _measured(numbers: Numbers, *needs: str) -> tuple[list[tuple[Row, list[Row]]], int]:
    """Converged networks with their layers, and how many more lack one of these in some layer."""
    layers = group(numbers["rows"], "weight_decay", "seed")
    known = [
        (run, sorted(own, key=lambda row: int(row["layer"])))
        for run in numbers["runs"]
        if run["converged"]
        for own in [layers.get((run["weight_decay"], run["seed"]), [])]
        if own
    ]
    found = [
        (run, own)
        for run, own in known
        if all(row[name] is not None for row in own for name in needs)
    ]
    return found, len(known) - len(found)

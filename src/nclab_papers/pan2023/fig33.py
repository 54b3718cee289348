"""Collapse in every layer of a deep network, and its effective depth, against weight decay.

Claim: collapse sharpens from layer to layer, and weight decay lowers the effective depth.
Source: pan2023, Fig. 3.3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, Share, judge_effects, judge_shares
from nclab.claims.pictures import Line, line_panel
from nclab.claims.tables import Column, Row, Table, group, mean_and_deviation, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.seeds import SEED_CAPTION
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab_papers.pan2023.networks import (
    ACCURACY_COLOUR,
    COSINE_MARGIN,
    COSINE_RANGE,
    DECAY_AXIS,
    DECAY_COLUMN,
    DEEP_DECAYS,
    INTER_COLOUR,
    INTRA_COLOUR,
    PAPER,
    QUICK,
    Networks,
    by_seed,
    decade_slopes,
    degree,
    describe_config,
    describe_failures,
    last_layers,
    note_skipped,
    simplex_line,
)

EPSILONS = (0.005, 0.01, 0.05)
"""Errors of the nearest class centre at which the effective depth is computed."""
FEW_EXCEPTIONS = 0.8
"""Net share of rising steps that "very few exceptions" requires: one step in ten may fall."""
EARLY = 0.5
"""Share of the layers that count as early."""
LAYER = 0.5
"""Smallest difference of depths of interest, in layers."""
MANY = 1 / 3
"""Share of the intermediate layers that counts as "many"."""
NEAR_PERFECT = 0.01
"""Largest error of the nearest class centre in a layer that classifies near-perfectly."""
UNSTABLE_DECAYS = (3e-3, 5e-3)
"""Weight decays at which the thesis reports positive inter-class cosines in middle layers."""
FAILING_DECAY = 1e-2
"""Weight decay at which the thesis's 15 layers fail to converge."""


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
    """Train the networks; return one row per layer, per network, and per network and error."""
    sweeps = config.networks.sweeps(
        seeds=seeds, layers=config.layers, weight_decays=config.weight_decays
    )
    runs = [*chain.from_iterable(config.networks.train(out, sweeps, engine=engine))]
    rows = [layer for run in runs for layer in layer_rows(out, run)]
    return {
        "config": describe_config(config, seeds),
        "rows": rows,
        "depths": depth_rows(rows, config.epsilons),
        "runs": runs,
    }


def layer_rows(out: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per layer of a network at its end; layers are counted from 1."""
    return [
        {
            "weight_decay": run["weight_decay"],
            "seed": run["seed"],
            "layer": number,
            "ncc_accuracy": layer["nc4_ncc_accuracy"],
            "min_intra": layer["min_intra"],
            "max_inter": layer["max_inter"],
        }
        for number, layer in enumerate(last_layers(out, run), start=1)
    ]


def depth_rows(rows: list[dict[str, Any]], epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Return the effective depths of all networks whose layers have nearest class centres."""
    depths = []
    for (decay, seed), layers in group(rows, "weight_decay", "seed").items():
        accuracies = [layer["ncc_accuracy"] for layer in layers]
        if any(accuracy is None for accuracy in accuracies):
            continue
        depths += [
            {
                "weight_decay": decay,
                "seed": seed,
                "epsilon": epsilon,
                "depth": effective_depth(accuracies, epsilon=epsilon),
            }
            for epsilon in epsilons
        ]
    return depths


ALONG_LAYERS: dict[str, tuple[Callable[[Row], float], tuple[str, ...]]] = {
    "NCC accuracy": (lambda row: float(row["ncc_accuracy"]), ("ncc_accuracy",)),
    "min intra": (lambda row: float(row["min_intra"]), ("min_intra",)),
    "min intra − max inter": (degree, ("min_intra", "max_inter")),
}
"""Quantities that rise from layer to layer according to the thesis, and the fields they need."""


def tables(numbers: Numbers) -> list[Table]:
    """Return depths and middle layers by weight decay, and the steps from layer to layer."""
    depths = {
        (row["weight_decay"], row["seed"], row["epsilon"]): row["depth"]
        for row in numbers["depths"]
    }
    layers = group(numbers["rows"], "weight_decay", "seed")

    def depth_column(error: float) -> Column:
        def depth(run: Row) -> float | None:
            return depths.get((run["weight_decay"], run["seed"], error))

        return Column(f"depth, ε = {error:g}", depth, ".1f")

    def of_middle(value: Callable[[Sequence[Row]], float]) -> Callable[[Row], float | None]:
        def of_run(run: Row) -> float | None:
            members = layers.get((run["weight_decay"], run["seed"]), [])
            defined = len(members) > 2 and all(row["max_inter"] is not None for row in members)
            return value(members) if defined else None

        return of_run

    columns = (
        Column("accuracy, all networks", "accuracy", summarised=_accuracy_of_all),
        *map(depth_column, sorted({row["epsilon"] for row in numbers["depths"]})),
        Column("last min intra", "min_intra"),
        Column("last max inter", "max_inter"),
        Column("largest inter in the middle", of_middle(_largest_middle_inter)),
        Column("share of middle layers with inter > 0", of_middle(middle_inter), ".2f"),
    )
    return [summarise("Networks", numbers["runs"], (DECAY_COLUMN,), columns), _steps(numbers)]


def _accuracy_of_all(rows: Sequence[Row], _: Sequence[Row]) -> str:
    """Return the mean accuracy of all networks, whether or not they converged."""
    return mean_and_deviation([row["accuracy"] for row in rows], ".4f")


def _largest_middle_inter(layers: Sequence[Row]) -> float:
    """Return the largest max inter of all layers except the first and the last."""
    return max(float(row["max_inter"]) for row in layers[1:-1])


def _steps(numbers: Numbers) -> Table:
    """Return the shares of steps from layer to layer that visibly rise or fall."""
    lines = []
    for name, (value, fields) in ALONG_LAYERS.items():
        steps: dict[int, list[float]] = {}
        for run, layers in _measured(numbers, *fields)[0]:
            values = [value(row) for row in layers]
            steps.setdefault(int(run["seed"]), []).extend(b - a for a, b in pairwise(values))
        by_seed_steps = [members for members in steps.values() if members]
        shares = [
            [fmean(step > COSINE_MARGIN for step in members) for members in by_seed_steps],
            [fmean(abs(step) <= COSINE_MARGIN for step in members) for members in by_seed_steps],
            [fmean(step < -COSINE_MARGIN for step in members) for members in by_seed_steps],
        ]
        lines.append((name, *(mean_and_deviation(share, ".2f") for share in shares)))
    visible = f"by more than {COSINE_MARGIN:g}"
    headings = ("", f"rise {visible}", "change by less", f"fall {visible}")
    return Table("Share of steps from layer to layer", headings, lines)


def pictures(numbers: Numbers) -> list[Picture]:
    """Return metrics of every layer for each weight decay, and the effective depth."""
    rows, runs = numbers["rows"], numbers["runs"]
    classes = int(numbers["config"]["classes"])
    lines = (
        Line("NCC accuracy", "ncc_accuracy", colour=ACCURACY_COLOUR, marker="none"),
        Line("min intra", "min_intra", colour=INTRA_COLOUR, marker="none"),
        Line("max inter", "max_inter", colour=INTER_COLOUR, marker="none"),
    )
    panels: list[Panel] = []
    for decay in sorted({row["weight_decay"] for row in rows}):
        members = [row for row in rows if row["weight_decay"] == decay]
        shown = of_converged(members, runs) or members
        converged = [run["converged"] for run in runs if run["weight_decay"] == decay]
        failed = converged.count(False)
        note = f", {failed} of {len(converged)} not converged" if failed else ""
        panels.append(
            line_panel(
                f"wd = {decay:g}{note}",
                shown,
                "layer",
                lines,
                more=[simplex_line(classes, [float(row["layer"]) for row in shown])],
                x_label="layer",
                y_label="" if len(panels) % 4 else "accuracy, cosine",
                y_range=COSINE_RANGE,
            )
        )
    note = SEED_CAPTION + describe_failures(runs)
    by_decay = group(runs, "weight_decay").values()
    if not all(any(run["converged"] for run in members) for members in by_decay):
        note += " If no seed converged, the panel shows all seeds."
    layers = Picture(
        "pan2023_fig33",
        "Collapse in every layer of a deep network",
        tuple(panels),
        4,
        "Figure 3.3 of the thesis: nearest-class-centre accuracy (green), smallest intra-class "
        f"cosine (blue) and largest inter-class cosine (yellow) of features after batch norm. "
        f"{note}",
        (2.6, 2.3),
    )
    return [layers, _depth_picture(numbers, SEED_CAPTION + describe_failures(runs))]


def _depth_picture(numbers: Numbers, note: str) -> Picture:
    """Return effective depth and largest inter of the middle layers against weight decay."""
    depths = of_converged(numbers["depths"], numbers["runs"])
    networks = group(of_converged(numbers["rows"], numbers["runs"]), "weight_decay", "seed")
    middle = [
        {"weight_decay": decay, "seed": seed, "inter": max(row["max_inter"] for row in layers)}
        for (decay, seed), members in networks.items()
        for layers in [sorted(members, key=lambda row: int(row["layer"]))[1:-1]]
        if layers and all(row["max_inter"] is not None for row in layers)
    ]
    lines = [
        Line(f"ε = {epsilon:g}", "depth", {"epsilon": epsilon}, colour)
        for colour, epsilon in enumerate(sorted({row["epsilon"] for row in depths}))
    ]
    return Picture(
        "pan2023_fig33_depth",
        "Weight decay and depth",
        (
            line_panel(
                "effective depth", depths, "weight_decay", lines, y_label="layers", **DECAY_AXIS
            ),
            line_panel(
                "max inter, middle layers",
                middle,
                "weight_decay",
                [Line("", "inter", colour=INTER_COLOUR)],
                y_label="cosine similarity",
                references=(Reference("zero", y=0.0),),
                **DECAY_AXIS,
            ),
        ),
        2,
        "Left: the first layer in which the error of nearest class centres is at most ε. Right: "
        f"the largest inter-class cosine of all layers except the first and the last. {note}",
    )


def of_converged(rows: Iterable[Row], runs: Iterable[Row]) -> list[Row]:
    """Return the rows whose weight decay and seed belong to a converged run.

    >>> runs = [{"weight_decay": 0.1, "seed": seed, "converged": seed == 1} for seed in (0, 1)]
    >>> of_converged([{"weight_decay": 0.1, "seed": 0}, {"weight_decay": 0.1, "seed": 1}], runs)
    [{'weight_decay': 0.1, 'seed': 1}]
    """
    done = {(run["weight_decay"], run["seed"]) for run in runs if run["converged"]}
    return [row for row in rows if (row["weight_decay"], row["seed"]) in done]


def middle_inter(layers: Sequence[Row]) -> float:
    """Return the share of layers with a positive max inter, without the first and last layer.

    >>> middle_inter([{"max_inter": value} for value in (0.4, 0.2, 0.1, -0.1, -0.3)])
    0.6666666666666666
    """
    middle = layers[1:-1]
    return sum(row["max_inter"] > 0 for row in middle) / max(len(middle), 1)


def _along_layers(numbers: Numbers, *, name: str) -> Finding:
    """Judge two net shares per seed, over the layers of all its converged networks.

    The first is the share of steps between layers that do not fall. The second is the share of
    networks whose last layer is visibly above the first; without it a constant line would pass.
    """
    value, fields = ALONG_LAYERS[name]
    networks, skipped = _measured(numbers, *fields)
    steps: dict[int, list[bool]] = {}
    rises: dict[int, list[bool]] = {}
    for run, layers in networks:
        values = [value(row) for row in layers]
        seed = int(run["seed"])
        steps.setdefault(seed, []).extend(b >= a for a, b in pairwise(values))
        rises.setdefault(seed, []).append(values[-1] - values[0] > COSINE_MARGIN)
    parts = [
        Part(
            name,
            {seed: 2 * fmean(cases) - 1 for seed, cases in by_seed.items() if cases},
            trials=sum(map(len, by_seed.values())),
        )
        for name, by_seed in (
            ("layer-to-layer steps that do not fall", steps),
            ("networks that rise from the first to the last layer", rises),
        )
    ]
    finding = judge_effects(parts, margin=FEW_EXCEPTIONS, stated=True)
    return note_skipped(finding, skipped)


def _measured(numbers: Numbers, *fields: str) -> tuple[list[tuple[Row, list[Row]]], int]:
    """Return converged networks with their layers, and the number of those with missing fields."""
    layers = group(numbers["rows"], "weight_decay", "seed")
    networks = [
        (run, sorted(members, key=lambda row: int(row["layer"])))
        for run in numbers["runs"]
        if run["converged"]
        for members in [layers.get((run["weight_decay"], run["seed"]), [])]
        if members
    ]
    complete = [
        (run, members)
        for run, members in networks
        if all(row[name] is not None for row in members for name in fields)
    ]
    return complete, len(networks) - len(complete)


claimed = partial(claim, needs="pan2023_fig33", figure="pan2023_fig33")


@claimed(
    "pan2023/sec-3.2-early-layers",
    Kind.RESULT,
    "Early layers already classify near-perfectly by nearest class centres.",
    "pan2023, Sec. 3.2.2 “NCC classification accuracy achieved in the early layers”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def early_layers_separate(numbers: Numbers) -> Finding:
    """Judge how far the effective depth is below half of the layers, for decays below 1e-2."""
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
    """Count the seeds in which training fails."""
    failed = {
        int(run["seed"]): not run["converged"]
        for run in numbers["runs"]
        if run["weight_decay"] == FAILING_DECAY
    }
    return judge_shares([Share(f"weight decay {FAILING_DECAY:g} fails", failed)])


accuracy_rises = claimed(
    "pan2023/sec-3.2-accuracy-rises",
    Kind.RESULT,
    "Nearest-class-centre accuracy rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “with very few exceptions, the NCC classification accuracy”",
)(partial(_along_layers, name="NCC accuracy"))
intra_rises = claimed(
    "pan2023/sec-3.2-intra-rises",
    Kind.RESULT,
    "The smallest intra-class cosine rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “minimum average intra-class cosine similarity”",
)(partial(_along_layers, name="min intra"))
gap_rises = claimed(
    "pan2023/sec-3.2-gap-rises",
    Kind.RESULT,
    "Intra minus inter rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “difference between intra-class and inter-class cosine similarity”",
    code="nclab_papers.pan2023.networks.degree",
)(partial(_along_layers, name="min intra − max inter"))


@claimed(
    "pan2023/sec-3.2-depth-falls",
    Kind.RESULT,
    "The number of layers needed for near-perfect accuracy falls with weight decay.",
    "pan2023, Sec. 3.2.2 “the number of layers needed for the NCC classification”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def depth_falls(numbers: Numbers) -> Finding:
    """Judge the negative slope of the effective depth over the logarithm of weight decay."""
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
    """Judge the share of layers with a positive cosine among near-perfect intermediate layers."""
    networks, skipped = _measured(numbers, "max_inter", "ncc_accuracy")
    parts = []
    for decay in UNSTABLE_DECAYS:
        values, cases = {}, 0
        for run, layers in networks:
            perfect = [row for row in layers[1:-1] if row["ncc_accuracy"] >= 1 - NEAR_PERFECT]
            if run["weight_decay"] == decay and perfect:
                share = sum(row["max_inter"] > 0 for row in perfect) / len(perfect)
                values[int(run["seed"])] = share - MANY
                cases += len(perfect)
        name = f"weight decay {decay:g}, layers with a positive cosine"
        parts.append(Part(name, values, trials=cases, share_range=(-MANY, 1 - MANY)))
    return note_skipped(judge_effects(parts, margin=0.0), skipped)


@claimed(
    "pan2023/sec-3.2-inter-unstable",
    Kind.RESULT,
    "The largest inter-class cosine becomes unstable as weight decay grows.",
    "pan2023, Sec. 3.2.2 “becomes unstable when the weight decay parameter increases”",
    code="nclab_papers.pan2023.fig33.roughness",
)
def inter_unstable(numbers: Numbers) -> Finding:
    """Judge how the roughness of max inter along the layers grows with weight decay."""
    networks, skipped = _measured(numbers, "max_inter")
    rough = [{**run, "roughness": roughness(layers)} for run, layers in networks if len(layers) > 2]
    slopes = decade_slopes(rough, lambda row: float(row["roughness"]))
    finding = judge_effects(
        [Part("slope of roughness", slopes)], margin=COSINE_MARGIN, unit="a decade"
    )
    return note_skipped(finding, skipped)


def roughness(layers: Sequence[Row]) -> float:
    """Return the mean absolute second difference of max inter over layers; 0 for a straight line.

    >>> roughness([{"max_inter": value} for value in (0.4, 0.2, 0.0, 0.2)])
    0.2
    """
    return float(np.abs(np.diff([row["max_inter"] for row in layers], 2)).mean())


def _depths_of(numbers: Numbers) -> list[Row]:
    """Return the effective depths of converged networks at a near-perfect error."""
    return [
        {**row, "converged": True}
        for row in of_converged(numbers["depths"], numbers["runs"])
        if row["epsilon"] == NEAR_PERFECT
    ]

"""Collapse in every layer of a deep network, and its effective depth, against weight decay.

Claim: collapse sharpens from layer to layer, and weight decay lowers the effective depth.
Source: pan2023, Fig. 3.3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.effects import Part, Share
from nclab.claims.judging import judge_effects
from nclab.claims.pictures import Line, line_panel
from nclab.claims.tables import Column, Row, Table, group, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab_papers.pan2023 import networks as trained

EPSILONS = (0.005, 0.01, 0.05)
"""Largest errors that a layer may have to count for the effective depth.

The effective depth is the first layer whose features the nearest class mean classifies with at most
this share of errors."""
FEW_EXCEPTIONS = 0.9
"""Smallest share of cases in which the thesis's "with very few exceptions" counts as true."""
EARLY = 0.5
"""Share of the layers that count as early."""
LAYER = 0.5
"""Smallest difference of effective depths that is of interest, in layers."""
MANY = 1 / 3
"""Share of the intermediate layers that counts as "many"."""
NEAR_PERFECT = 0.01
"""A layer classifies near-perfectly if the nearest class centre is wrong for at most this share."""
UNSTABLE_DECAYS = (3e-3, 5e-3)
"""Weight decays at which the thesis reports positive inter-class cosines in middle layers."""
FAILING_DECAY = 1e-2
"""Weight decay at which the thesis's 15 layers fail to converge."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: trained.Networks
    layers: int = 15
    weight_decays: tuple[float, ...] = trained.DEEP_DECAYS
    epsilons: tuple[float, ...] = EPSILONS


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks; return rows of layers, of networks, and of effective depths."""
    runs = config.networks.rows(
        out, seeds=seeds, engine=engine, layers=config.layers, weight_decays=config.weight_decays
    )
    rows = [layer for run in runs for layer in layer_rows(out, run)]
    return {
        "config": trained.describe_config(config, seeds),
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
        for number, layer in enumerate(trained.last_layers(out, run), start=1)
    ]


def depth_rows(rows: list[dict[str, Any]], epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Return the effective depth of every network for every epsilon, as rows.

    Networks are left out if the nearest-class-centre accuracy of a layer is undefined.
    """
    depths = []
    for (decay, seed), layers in group(rows, "weight_decay", "seed").items():
        accuracies = [layer["ncc_accuracy"] for layer in layers]
        if None not in accuracies:
            key = {"weight_decay": decay, "seed": seed}
            depths += [
                {**key, "epsilon": epsilon, "depth": effective_depth(accuracies, epsilon=epsilon)}
                for epsilon in epsilons
            ]
    return depths


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of effective depths and of cosines of the last layer, by weight decay."""
    depths = {
        (row["weight_decay"], row["seed"], row["epsilon"]): row["depth"]
        for row in numbers["depths"]
    }

    def depth_column(error: float) -> Column:
        def depth(run: Row) -> float | None:
            return depths.get((run["weight_decay"], run["seed"], error))

        return Column(f"depth, ε = {error:g}", depth, ".1f")

    columns = (
        trained.ACCURACY_COLUMN,
        *map(depth_column, sorted({row["epsilon"] for row in numbers["depths"]})),
        Column("last min intra", "min_intra"),
        Column("last max inter", "max_inter"),
    )
    title = "Effective depth at several errors ε, and cosines of the last layer"
    return [summarise(title, numbers["runs"], (trained.DECAY_COLUMN,), columns)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of the metrics of every layer for each weight decay."""
    runs, classes = numbers["runs"], int(numbers["config"]["classes"])
    lines = (
        Line("NCC accuracy", "ncc_accuracy", colour=trained.ACCURACY_COLOUR, marker="none"),
        *(line._replace(marker="none") for line in trained.COSINE_LINES),
    )
    panels: list[Panel] = []
    note = trained.line_caption(runs)
    for (decay,), members in sorted(group(numbers["rows"], "weight_decay").items()):
        shown = of_converged(members, runs)
        converged = [run["converged"] for run in runs if run["weight_decay"] == decay]
        failed = converged.count(False)
        failures = f", {failed} of {len(converged)} not converged" if failed else ""
        if not shown:
            shown = members
            note += f" The panel of weight decay {decay:g} shows all seeds; none converged."
        panels.append(
            line_panel(
                f"wd = {decay:g}{failures}",
                shown,
                "layer",
                lines,
                more=[trained.simplex_line(classes, [float(row["layer"]) for row in shown])],
                x_label="layer",
                y_label="" if len(panels) % 4 else "accuracy, cosine",
                y_range=trained.COSINE_RANGE,
            )
        )
    return [
        Picture(
            "pan2023_fig33",
            "Collapse in every layer of a deep network",
            tuple(panels),
            4,
            "Figure 3.3 of the thesis: nearest-class-centre accuracy (green), smallest intra-class "
            "cosine (blue) and largest inter-class cosine (yellow) of features after batch norm. "
            f"{note}",
            (2.6, 2.3),
        )
    ]


def of_converged(rows: Iterable[Row], runs: Iterable[Row]) -> list[Row]:
    """Return the rows whose weight decay and seed belong to a converged run.

    >>> runs = [{"weight_decay": 0.1, "seed": seed, "converged": seed == 1} for seed in (0, 1)]
    >>> of_converged([{"weight_decay": 0.1, "seed": 0}, {"weight_decay": 0.1, "seed": 1}], runs)
    [{'weight_decay': 0.1, 'seed': 1}]
    """
    converged = {(run["weight_decay"], run["seed"]) for run in runs if run["converged"]}
    return [row for row in rows if (row["weight_decay"], row["seed"]) in converged]


def _along_layers(
    numbers: Numbers, *, value: Callable[[Row], float], fields: Sequence[str]
) -> Finding:
    """Judge whether a quantity rises from layer to layer, in the converged networks of each seed.

    Two shares must exceed `FEW_EXCEPTIONS`: that of the steps to the next layer at which the
    quantity does not fall, and that of the networks whose last layer exceeds the first by more
    than 0.01. Without the second share, a constant would pass.

    Args:
        value: function that reads the quantity from a layer.
        fields: fields of a layer that `value` needs; networks without them are skipped.
    """
    networks, skipped = _measured(numbers, *fields)
    steps: dict[int, list[bool]] = {}
    rises: dict[int, list[bool]] = {}
    for run, layers in networks:
        values, seed = [float(value(row)) for row in layers], int(run["seed"])
        steps.setdefault(seed, []).extend(b >= a for a, b in pairwise(values))
        rises.setdefault(seed, []).append(values[-1] - values[0] > trained.COSINE_MARGIN)
    parts = [
        Part(
            name,
            {seed: fmean(cases) for seed, cases in shares.items() if cases},
            above=FEW_EXCEPTIONS,
            unit="%",
        )
        for name, shares in (
            ("layer-to-layer steps do not fall", steps),
            ("networks rise from the first to the last layer", rises),
        )
    ]
    answer = "{estimate} of {what} ({interval}); “very few exceptions” needs {needed}."
    finding = judge_effects(parts, answer=answer)
    return trained.note_skipped(finding, skipped)


def _measured(numbers: Numbers, *fields: str) -> tuple[list[tuple[Row, list[Row]]], int]:
    """Return converged networks with their layers, and the number of networks left out.

    Networks are left out if one of `fields` is None in a layer.
    """
    layers = group(numbers["rows"], "weight_decay", "seed")
    complete, skipped = [], 0
    for run in numbers["runs"]:
        members = layers.get((run["weight_decay"], run["seed"]), [])
        if not (run["converged"] and members):
            continue
        if all(row[name] is not None for row in members for name in fields):
            complete.append((run, sorted(members, key=lambda row: int(row["layer"]))))
        else:
            skipped += 1
    return complete, skipped


claimed = partial(claim, needs="pan2023_fig33", figure="pan2023_fig33")


@claimed(
    "pan2023/sec-3.2-early-layers",
    Kind.RESULT,
    "Early layers already classify near-perfectly by nearest class centres.",
    "pan2023, Sec. 3.2.2 “NCC classification accuracy achieved in the early layers”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def early_layers_separate(numbers: Numbers) -> Finding:
    """Judge how far effective depth is below half of the layers, at weight decays below 1e-2."""
    half = EARLY * int(numbers["config"]["layers"])
    depths = _depths_of(numbers)
    parts = [
        Part(
            f"effective depth at weight decay {decay:g}",
            trained.by_seed(depths, lambda row: float(row["depth"]), weight_decay=decay),
            below=half,
            step=1.0,
            unit="layers",
        )
        for decay in sorted({run["weight_decay"] for run in numbers["runs"]} - {FAILING_DECAY})
    ]
    return judge_effects(parts, margin=LAYER)


@claimed(
    "pan2023/sec-3.2-largest-decay-fails",
    Kind.RESULT,
    "At weight decay 0.01 the 15 layers fail to converge.",
    "pan2023, Sec. 3.2.2 “weight decay parameter was set to 0.01, causing the model to fail”",
)
def largest_decay_fails(numbers: Numbers) -> Finding:
    """Count the seeds in which training fails at the largest weight decay."""
    failed = {
        int(run["seed"]): not run["converged"]
        for run in numbers["runs"]
        if run["weight_decay"] == FAILING_DECAY
    }
    return judge_effects([Share(f"training fails at weight decay {FAILING_DECAY:g}", failed)])


accuracy_rises = claimed(
    "pan2023/sec-3.2-accuracy-rises",
    Kind.RESULT,
    "Nearest-class-centre accuracy rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “with very few exceptions, the NCC classification accuracy”",
)(partial(_along_layers, value=itemgetter("ncc_accuracy"), fields=("ncc_accuracy",)))
intra_rises = claimed(
    "pan2023/sec-3.2-intra-rises",
    Kind.RESULT,
    "The smallest intra-class cosine rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “minimum average intra-class cosine similarity”",
)(partial(_along_layers, value=itemgetter("min_intra"), fields=("min_intra",)))
gap_rises = claimed(
    "pan2023/sec-3.2-gap-rises",
    Kind.RESULT,
    "Intra minus inter rises from layer to layer, with very few exceptions.",
    "pan2023, Sec. 3.2.2 “difference between intra-class and inter-class cosine similarity”",
    code="nclab_papers.pan2023.networks.degree",
)(partial(_along_layers, value=trained.degree, fields=("min_intra", "max_inter")))


@claimed(
    "pan2023/sec-3.2-depth-falls",
    Kind.RESULT,
    "The number of layers needed for near-perfect accuracy falls with weight decay.",
    "pan2023, Sec. 3.2.2 “the number of layers needed for the NCC classification”",
    code="nclab.metrics.nc4_nearest_center.effective_depth",
)
def depth_falls(numbers: Numbers) -> Finding:
    """Judge how much the effective depth falls per decade of weight decay."""
    slopes = trained.decade_slopes(_depths_of(numbers), lambda row: float(row["depth"]))
    unit = "layers per decade of weight decay"
    return judge_effects(
        [Part("slope of the effective depth", slopes, below=0.0, unit=unit)], margin=LAYER
    )


@claimed(
    "pan2023/sec-3.2-inter-positive",
    Kind.RESULT,
    "At 3e-3 and 5e-3 the largest inter-class cosine is above zero in many intermediate layers, "
    "though they classify perfectly.",
    "pan2023, Sec. 3.2.2 “exceeded zero in many intermediate layers, despite”",
)
def inter_positive(numbers: Numbers) -> Finding:
    """Judge the share of near-perfect intermediate layers with a positive inter-class cosine."""
    networks, skipped = _measured(numbers, "max_inter", "ncc_accuracy")
    parts = []
    for decay in UNSTABLE_DECAYS:
        values = {}
        for run, layers in networks:
            perfect = [row for row in layers[1:-1] if row["ncc_accuracy"] >= 1 - NEAR_PERFECT]
            if run["weight_decay"] == decay and perfect:
                share = sum(row["max_inter"] > 0 for row in perfect) / len(perfect)
                values[int(run["seed"])] = share
        name = f"near-perfect layers have a positive cosine at weight decay {decay:g}"
        parts.append(Part(name, values, above=MANY, unit="%"))
    return trained.note_skipped(judge_effects(parts), skipped)


@claimed(
    "pan2023/sec-3.2-inter-unstable",
    Kind.RESULT,
    "The largest inter-class cosine becomes unstable as weight decay grows.",
    "pan2023, Sec. 3.2.2 “becomes unstable when the weight decay parameter increases”",
    code="nclab_papers.pan2023.fig33.roughness",
)
def inter_unstable(numbers: Numbers) -> Finding:
    """Judge how the `roughness` of max inter, its jumps between layers, grows with weight decay."""
    networks, skipped = _measured(numbers, "max_inter")
    rough = [{**run, "roughness": roughness(layers)} for run, layers in networks if len(layers) > 2]
    slopes = trained.decade_slopes(rough, lambda row: float(row["roughness"]))
    finding = judge_effects(
        [Part("slope of the roughness of max inter", slopes, unit="per decade of weight decay")],
        margin=trained.COSINE_MARGIN,
    )
    return trained.note_skipped(finding, skipped)


def roughness(layers: Sequence[Row]) -> float:
    """Return how much the largest inter-class cosine jumps between layers.

    This is its mean absolute second difference; it is 0 if the cosine is linear in the layer.

    >>> roughness([{"max_inter": value} for value in (0.4, 0.2, 0.0, 0.2)])
    0.2
    """
    return float(np.abs(np.diff([row["max_inter"] for row in layers], 2)).mean())


def _depths_of(numbers: Numbers) -> list[Row]:
    """Return the rows of effective depths of converged networks for epsilon = `NEAR_PERFECT`."""
    return [
        {**row, "converged": True}
        for row in of_converged(numbers["depths"], numbers["runs"])
        if row["epsilon"] == NEAR_PERFECT
    ]

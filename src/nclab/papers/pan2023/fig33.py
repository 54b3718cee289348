"""Collapse in every layer of a deep network, and its effective depth, against weight decay.

Claim: collapse sharpens from layer to layer, and weight decay lowers the effective depth.
Source: pan2023, Fig. 3.3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.spread import SPREAD, Look, column, spread
from nclab.metrics.effective_depth import effective_depth
from nclab.papers.claim import Kind, Numbers, claim
from nclab.papers.comparisons import Comparison, weigh, weigh_lines
from nclab.papers.pan2023.lines import (
    ACCURACY,
    COSINES,
    DECAY,
    INTER,
    INTRA,
    TICKS,
    failed_note,
    simplex,
)
from nclab.papers.pan2023.networks import DEEP_DECAYS, PAPER, QUICK_DEEP, Networks, last_layers
from nclab.papers.pan2023.rows import VISIBLE, degree, failing, line, noting, seeds
from nclab.papers.tables import Row, Table, cell, group, plus_minus
from nclab.papers.verdict import Finding

EPSILONS = (0.005, 0.01, 0.05)
"""Errors of nearest class centres at which the effective depth is taken."""
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


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 15
    weight_decays: tuple[float, ...] = DEEP_DECAYS
    epsilons: tuple[float, ...] = EPSILONS


PRESETS = {"quick": Config(QUICK_DEEP), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Rows of layers, and the depths of networks."""
    runs = config.networks.train(
        out,
        seeds=seeds,
        layers=config.layers,
        weight_decays=config.weight_decays,
        engine=engine,
    )
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
                plus_minus(map(middle_inter, own), ".2f"),
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
    return [Table("Networks", columns, rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Every layer, one panel a weight decay, as in the thesis; and the effective depth."""
    rows, runs = numbers["rows"], numbers["runs"]
    classes = int(numbers["config"]["classes"])
    lines = (
        ("ncc_accuracy", Look("NCC accuracy", ACCURACY, marker="none")),
        ("min_intra", Look("min intra", INTRA, marker="none")),
        ("max_inter", Look("max inter", INTER, marker="none")),
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
                    *(spread(own, "layer", column(name), look) for name, look in lines),
                    simplex(classes, [float(row["layer"]) for row in own]),
                ),
                y_range=COSINES,
            )
        )
    note = SPREAD + failed_note(runs)
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
        spread(
            [row for row in kept if row["epsilon"] == epsilon],
            "weight_decay",
            column("depth"),
            Look(f"ε = {epsilon:g}", colour),
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
    inter = spread(middle, "weight_decay", column("value"), Look("", INTER))
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
    "pan2023, Sec. 3.2.2",
)
def early_layers_separate(numbers: Numbers) -> Finding:
    """Nearest class centres are near-perfect in the first half of every converged network."""
    found = []
    for run in _converged(numbers):
        depth, layers = _depth_of(numbers, run), len(_layers_of(numbers, run))
        if depth is not None:
            found.append(Comparison(_place(run), EARLY * layers - depth))
    return weigh(found)


@claimed(
    "pan2023/sec-3.2-largest-decay-fails",
    Kind.RESULT,
    "At weight decay 0.01 the 15 layers fail to converge.",
    "pan2023, Sec. 3.2.2",
)
def largest_decay_fails(numbers: Numbers) -> Finding:
    return weigh(
        Comparison(_place(run), failing(run))
        for run in numbers["runs"]
        if run["weight_decay"] == FAILING_DECAY
    )


@claimed(
    "pan2023/sec-3.2-accuracy-rises",
    Kind.RESULT,
    "Nearest-class-centre accuracy rises from layer to layer, with very few exceptions.",
    "pan2023, Fig. 3.3",
)
def accuracy_rises(numbers: Numbers) -> Finding:
    """Judged along the layers of every converged network, as are the next two."""
    return _along_layers(numbers, lambda row: float(row["ncc_accuracy"]), "ncc_accuracy")


@claimed(
    "pan2023/sec-3.2-intra-rises",
    Kind.RESULT,
    "The smallest intra-class cosine rises from layer to layer, with very few exceptions.",
    "pan2023, Fig. 3.3",
)
def intra_rises(numbers: Numbers) -> Finding:
    return _along_layers(numbers, lambda row: float(row["min_intra"]), "min_intra")


@claimed(
    "pan2023/sec-3.2-gap-rises",
    Kind.RESULT,
    "Intra minus inter rises from layer to layer, with very few exceptions.",
    "pan2023, Fig. 3.3",
)
def gap_rises(numbers: Numbers) -> Finding:
    return _along_layers(numbers, degree, "min_intra", "max_inter")


@claimed(
    "pan2023/sec-3.2-depth-falls",
    Kind.RESULT,
    "The number of layers needed for near-perfect accuracy falls with weight decay.",
    "pan2023, Sec. 3.2.2",
)
def depth_falls(numbers: Numbers) -> Finding:
    """Effective depth never grows with weight decay, and ends at least a layer lower."""
    lines = []
    for seed in seeds(numbers["runs"]):
        what = f"seed {seed}, weight decay"
        known = [
            {"weight_decay": run["weight_decay"], "depth": depth}
            for run in _converged(numbers)
            if run["seed"] == seed and (depth := _depth_of(numbers, run)) is not None
        ]
        lines.append(line(what, known, lambda row: float(row["depth"]), sign=-1))
    return weigh_lines(lines, visible=1.0, back=0.0)


@claimed(
    "pan2023/sec-3.2-inter-positive",
    Kind.RESULT,
    "At 3e-3 and 5e-3 the largest inter-class cosine is above zero in many middle layers.",
    "pan2023, Sec. 3.2.2",
)
def inter_positive(numbers: Numbers) -> Finding:
    """At 3e-3 and 5e-3 many middle layers of converged networks have a positive max inter."""
    networks, skipped = _measured(numbers, "max_inter")
    found = weigh(
        Comparison(_place(run), middle_inter(layers) - MANY)
        for run, layers in networks
        if run["weight_decay"] in UNSTABLE_DECAYS
    )
    return noting(found, skipped)


@claimed(
    "pan2023/sec-3.2-inter-unstable",
    Kind.RESULT,
    "The largest inter-class cosine becomes unstable as weight decay grows.",
    "pan2023, Sec. 3.2.2",
)
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
    return noting(weigh(found), skipped)


def _layers_of(numbers: Numbers, run: Row) -> list[Row]:
    """The layers of one network, in order."""
    found = [row for row in numbers["rows"] if _same(row, run)]
    return sorted(found, key=lambda row: int(row["layer"]))


def _depth_of(numbers: Numbers, run: Row, epsilon: float = NEAR_PERFECT) -> int | None:
    """The effective depth of one network; None if it was not measured for this error."""
    for row in numbers["depths"]:
        if _same(row, run) and row["epsilon"] == epsilon:
            return int(row["depth"])
    return None


def _along_layers(numbers: Numbers, value: Callable[[Row], float], *needs: str) -> Finding:
    networks, skipped = _measured(numbers, *needs)
    lines = [line(f"{_place(run)}: layer", own, value, key="layer") for run, own in networks]
    return noting(weigh_lines(lines, visible=VISIBLE, enough=FEW_EXCEPTIONS), skipped)


def _measured(numbers: Numbers, *needs: str) -> tuple[list[tuple[Row, list[Row]]], int]:
    """Converged networks with their layers, and how many more lack one of these in some layer."""
    known = [(run, _layers_of(numbers, run)) for run in _converged(numbers)]
    found = [
        (run, layers)
        for run, layers in known
        if all(row[name] is not None for row in layers for name in needs)
    ]
    return found, len(known) - len(found)


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

"""Figures of the thesis's chapter 3: rows of trained networks -> pictures."""

from collections.abc import Iterable, Mapping
from typing import Any

from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.figures.spread import (
    SPREAD,
    Look,
    Row,
    column,
    converged,
    failures,
    gap,
    of_converged,
    spread,
)

Numbers = Mapping[str, Any]

INTRA, INTER, ACCURACY, BLACK = 0, 4, 2, 6
"""Blue, yellow and green as in the thesis's figure 3.3."""
NORMS = {"affine": "BN with affine", "plain": "BN without affine", "none": "no BN"}
COSINES = (-0.45, 1.05)
DECAY = "weight decay"
TICKS = (1e-4, 1e-3, 1e-2)


def simplex(num_classes: int, places: Iterable[float]) -> Series:
    """The inter-class cosine of a simplex ETF, across the given places."""
    known = list(places)
    ends = [min(known), max(known)]
    height = -1 / (num_classes - 1)
    return Series("simplex ETF, −1/(C−1)", ends, [height] * 2, colour=BLACK, style="dotted")


def failed_note(rows: Iterable[Row]) -> str:
    """One sentence on the runs that are left out of the lines; empty if there are none.

    >>> failed_note([{"norm": "none", "weight_decay": 0.01, "seed": 0, "converged": False}])
    ' Not converged and left out of the lines: no BN at 0.01 (1 seed).'
    """
    counts: dict[tuple[str, float], int] = {}
    for row in rows:
        if not row["converged"]:
            place = (NORMS[row["norm"]], float(row["weight_decay"]))
            counts[place] = counts.get(place, 0) + 1
    parts = [
        f"{norm} at {decay:g} ({count} seed{'s' if count > 1 else ''})"
        for (norm, decay), count in sorted(counts.items())
    ]
    return f" Not converged and left out of the lines: {', '.join(parts)}." if parts else ""


def fig31(numbers: Numbers) -> list[Picture]:
    """Figure 3.1: cosines against weight decay, one panel a norm; and their difference."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    cosines = (
        (column("min_intra"), Look("min intra", INTRA)),
        (column("max_inter"), Look("max inter", INTER)),
    )
    decays = [float(row["weight_decay"]) for row in rows]
    panels: list[Panel] = []
    for norm, title in NORMS.items():
        own = [row for row in rows if row["norm"] == norm]
        lines = [spread(converged(own), "weight_decay", value, look) for value, look in cosines]
        crosses = failures(own, "weight_decay", [value for value, _ in cosines])
        panels.append(
            Panel(
                title,
                DECAY,
                "" if panels else "cosine similarity",
                (*lines, simplex(classes, decays), *crosses),
                x_scale="log",
                y_range=COSINES,
                x_ticks=TICKS,
            )
        )
    lines = [
        spread(
            [row for row in converged(rows) if row["norm"] == norm],
            "weight_decay",
            gap,
            Look(title, place),
        )
        for place, (norm, title) in enumerate(NORMS.items())
    ]
    difference = Panel(
        "min intra − max inter",
        DECAY,
        "difference of cosines",
        (*lines, *failures(rows, "weight_decay", [gap])),
        x_scale="log",
        references=(Reference("simplex ETF, 1 + 1/(C−1)", y=1 + 1 / (classes - 1)),),
        y_range=(-0.06, 1.14 * (1 + 1 / (classes - 1))),
        x_ticks=TICKS,
    )
    note = SPREAD + failed_note(rows)
    return [
        Picture(
            "pan2023_fig31",
            "Cosines of last-layer features against weight decay",
            tuple(panels),
            3,
            f"Figure 3.1 of the thesis, with weight decay on a logarithmic axis. {note}",
        ),
        Picture(
            "pan2023_fig31_gap",
            "Degree of collapse, three kinds of batch norm",
            (difference,),
            1,
            f"The difference that the claims are about. {note}",
            (4.6, 3.2),
        ),
    ]


def fig33(numbers: Numbers) -> list[Picture]:
    """Figure 3.3: every layer, one panel a weight decay; and the effective depth."""
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
    shown = " Where no seed converged, the panel shows all of them." if _lost(runs) else ""
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


def _lost(runs: Iterable[Row]) -> bool:
    """Whether there is a weight decay at which no run converged."""
    known = list(runs)
    done = {run["weight_decay"] for run in converged(known)}
    return any(run["weight_decay"] not in done for run in known)


def _depths(numbers: Numbers, note: str) -> Picture:
    """Effective depth against weight decay, and the middle layers' largest inter."""
    done = {(run["weight_decay"], run["seed"]) for run in converged(numbers["runs"])}
    kept = [row for row in numbers["depths"] if (row["weight_decay"], row["seed"]) in done]
    depths = [
        spread(
            [row for row in kept if row["epsilon"] == epsilon],
            "weight_decay",
            column("depth"),
            Look(f"ε = {epsilon:g}", place),
        )
        for place, epsilon in enumerate(sorted({row["epsilon"] for row in kept}))
    ]
    groups: dict[tuple[float, int], list[Row]] = {}
    for row in numbers["rows"]:
        groups.setdefault((row["weight_decay"], row["seed"]), []).append(row)
    middle = [
        {"weight_decay": decay, "value": max(row["max_inter"] for row in layers)}
        for (decay, seed), found in groups.items()
        if (decay, seed) in done
        for layers in [sorted(found, key=lambda row: int(row["layer"]))[1:-1]]
        if layers and all(row["max_inter"] is not None for row in layers)
    ]
    inter = spread(middle, "weight_decay", column("value"), Look("largest in the middle", INTER))
    return Picture(
        "pan2023_fig33_depth",
        "Weight decay and depth",
        (
            Panel(
                "effective depth",
                DECAY,
                "layers",
                tuple(depths),
                x_scale="log",
                x_ticks=TICKS,
            ),
            Panel(
                "max inter, middle layers",
                DECAY,
                "cosine similarity",
                (inter._replace(label=""),),
                x_scale="log",
                references=(Reference("zero", y=0.0),),
                x_ticks=TICKS,
            ),
        ),
        2,
        "The first layer at which nearest class centres err at most ε, and the largest "
        f"inter-class cosine of all layers but the first and the last. {note}",
    )

"""For which classes, norms and excess loss a guarantee says something: the regime of the theorem.

Claim: outside of epsilon << 1 the bound is vacuous; how small is small enough depends on C and
alpha * beta.
Source: pan2023, Thm 2.3.1

Computed, not trained: the certificate of nclab, and the thesis's chain with its steps repaired and
the best curvature that it could use, for the same fraction of the classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nclab.claims.tables import Table, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import HeatMap, Panel, Picture, Series, Style
from nclab.progress import track
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.certificates.theorem_constants import curvature_reachable, thesis_bounds
from nclab.theory.layer_peeled import g

HALF = 0.5
"""The intra-class cosine that the largest excess is asked for."""
STEPS = 40
"""Halvings of the search for it."""
SEARCHED = (-30.0, 1.0)
"""Base 10 logarithms of the excess losses between which it is searched."""


@dataclass(frozen=True)
class Config:
    """Where the guarantees are computed."""

    classes: tuple[int, ...] = (3, 10, 100)
    products: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0)
    """alpha * beta."""
    excess: tuple[float, ...] = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
    delta: float = 0.05
    """The thesis's chain speaks of a fraction 1 - 2 delta of the classes."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """What is guaranteed on the grid, and the largest excess at which it is a half; no seeds."""
    cells = [(classes, product) for classes in config.classes for product in config.products]
    grid, limits = [], []
    for classes, product in track(cells, "regimes"):
        place = {"classes": classes, "product": product}
        grid += [
            {**place, "excess": excess, "intra": certified(classes, product, excess)}
            for excess in config.excess
        ]
        every = largest_excess(partial(certified, classes, product))
        chain = largest_excess(partial(of_the_chain, classes, product, delta=config.delta))
        limits.append(
            {**place, "optimal_loss": g(product, classes), "certify": every, "thesis": chain}
        )
    return {
        "config": asdict(config),
        "size": f"C = {', '.join(map(str, config.classes))}, "
        f"αβ = {config.products[0]:g} to {config.products[-1]:g}",
        "grid": grid,
        "limits": limits,
    }


def certified(classes: int, product: float, excess: float) -> float:
    """The intra-class cosine that nclab guarantees every class; 0 says nothing.

    >>> [round(certified(10, product, 0.01), 4) for product in (5.0, 15.0, 30.0)]
    [0.4362, 0.0013, 0.0]
    """
    root = math.sqrt(product)
    found = certify(classes, root, root, g(product, classes) + excess, pairs=False).intra_lower
    return float(found.value or 0.0) if found.valid else 0.0


def of_the_chain(classes: int, product: float, excess: float, *, delta: float) -> float:
    """The same by the thesis's proof, repaired, for most classes.

    >>> [round(of_the_chain(10, 5.0, excess, delta=0.05), 2) for excess in (1e-5, 1e-3)]
    [0.71, 0.0]
    """
    root = math.sqrt(product)
    given = norms_and_loss(classes, root, root, g(product, classes) + excess)
    curvature = curvature_reachable(given)
    return thesis_bounds(given, delta, curvature).intra_lower if curvature > 0 else 0.0


def largest_excess(guaranteed: Callable[[float], float]) -> float | None:
    """The largest excess loss at which an intra-class cosine of a half is guaranteed.

    None where there is none down to 1e-30: losses of that size round to the optimal one.

    >>> round(largest_excess(lambda excess: 1 - excess), 6)
    0.5
    """
    low, high = SEARCHED
    if guaranteed(10**low) < HALF:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if guaranteed(10**middle) >= HALF else (low, middle)
    return float(10**low)


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """How small the excess must be."""
    return [
        Table(
            "Largest excess loss ε at which an intra-class cosine of 0.5 is guaranteed: to every "
            f"class by nclab, to {1 - 2 * numbers['config']['delta']:.0%} of them by the thesis's "
            "chain, repaired",
            ("C", "αβ", "smallest loss m", "ε by nclab", "ε/m", "ε by the thesis's chain"),
            [
                (
                    str(row["classes"]),
                    f"{row['product']:g}",
                    number(row["optimal_loss"]),
                    number(row["certify"]),
                    number(row["certify"] and row["certify"] / row["optimal_loss"]),
                    number(row["thesis"]),
                )
                for row in numbers["limits"]
            ],
        )
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """What is guaranteed over excess and norms, a panel for each number of classes."""
    maps = [
        _map(int(classes), rows) for (classes,), rows in group(numbers["grid"], "classes").items()
    ]
    return [
        Picture(
            "certified",
            "Where the loss guarantees something",
            tuple(maps),
            len(maps),
            "The intra-class cosine that `nclab certify` guarantees every class; 0 says nothing. A "
            "small excess is not enough. Where αβ is large, 1 − intra begins as 2(C−1)ε/(mαβ), and "
            "the smallest loss m is about (C−1) exp(−Cαβ/(C−1)).",
            (4.6, 4.2),
        ),
        Picture(
            "certified_limits",
            "How small the excess loss must be",
            (_limits(numbers["limits"]),),
            1,
            "The largest excess loss at which an intra-class cosine of 0.5 is guaranteed, by nclab "
            "to every class (solid), by the thesis's chain, repaired, to most of them (dashed). "
            "From αβ of a few on both fall exponentially in αβ.",
            (5.4, 4.0),
        ),
    ]


def _map(classes: int, rows: Sequence[Mapping[str, Any]]) -> HeatMap:
    products = sorted({float(row["product"]) for row in rows}, reverse=True)
    excess = sorted({float(row["excess"]) for row in rows})
    found = {(row["product"], row["excess"]): float(row["intra"]) for row in rows}
    return HeatMap(
        f"C = {classes}",
        "excess loss ε",
        "αβ",
        [[found[product, one] for one in excess] for product in products],
        x_names=tuple(f"{one:g}" for one in excess),
        y_names=tuple(f"{product:g}" for product in products),
        value_range=(0.0, 1.0),
        value_label="certified intra-class cosine",
    )


def _limits(rows: Sequence[Mapping[str, Any]]) -> Panel:
    series = []
    styles: tuple[tuple[str, str, Style], ...] = (
        ("certify", "", "solid"),
        ("thesis", ", the thesis's chain", "dashed"),
    )
    for colour, ((classes,), own) in enumerate(group(rows, "classes").items()):
        products = [float(row["product"]) for row in own]
        for key, label, style in styles:
            values = [row[key] for row in own]
            line = Series(f"C = {classes}{label}", products, values, colour=colour, style=style)
            series.append(line)
    return Panel("", "αβ", "largest excess loss ε", tuple(series), "linear", "log")

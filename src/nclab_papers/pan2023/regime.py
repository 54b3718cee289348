"""Regime of the theorem: classes, norms and excess losses for which a guarantee is not vacuous.

Claim: outside of epsilon << 1 the bound is vacuous; how small is small enough depends on C and
alpha * beta.
Source: pan2023, Thm 2.3.1

No network is trained. The certificate of nclab is compared with the bound that the proof of the
thesis gives if its errors are corrected and lambda, the strong convexity of the loss, is as large
as the norms and the loss allow.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nclab.claims.tables import Table, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import HeatMap, Picture
from nclab.progress import track
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.certificates.theorem_constants import curvature_reachable, thesis_bounds
from nclab.theory.layer_peeled import g

HALF = 0.5
"""Guaranteed intra-class cosine for which `largest_excess` finds the excess loss."""


@dataclass(frozen=True)
class Config:
    """Grid on which the guarantees are computed."""

    classes: tuple[int, ...] = (3, 10, 100)
    products: tuple[float, ...] = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0)
    """Products alpha * beta of the norms."""
    excess: tuple[float, ...] = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
    delta: float = 0.05
    """Half of the fraction of classes to which the bound of the thesis does not apply."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Return the guaranteed cosines on the grid, and `largest_excess` for each C and alpha beta.

    Seeds are ignored, as nothing is random.
    """
    cells = [(classes, product) for classes in config.classes for product in config.products]
    grid, limits = [], []
    for classes, product in track(cells, "regimes"):
        setting = {"classes": classes, "product": product}
        grid += [
            {**setting, "excess": excess, "intra": certified(classes, product, excess)}
            for excess in config.excess
        ]
        printed = partial(thesis_bound, classes, product, delta=config.delta)
        largest = {
            "optimal_loss": g(product, classes),
            "certify": largest_excess(partial(certified, classes, product)),
            "thesis": largest_excess(printed),
        }
        limits.append({**setting, **largest})
    return {
        "config": asdict(config),
        "size": f"C = {', '.join(map(str, config.classes))}, "
        f"αβ = {config.products[0]:g} to {config.products[-1]:g}",
        "grid": grid,
        "limits": limits,
    }


def certified(classes: int, product: float, excess: float) -> float:
    """Return the intra-class cosine that nclab guarantees every class; 0 means no guarantee.

    >>> [round(certified(10, product, 0.01), 4) for product in (5.0, 15.0, 30.0)]
    [0.4362, 0.0013, 0.0]
    """
    root = math.sqrt(product)
    bound = certify(classes, root, root, g(product, classes) + excess, pairs=False).intra_lower
    return float(bound.value or 0.0) if bound.valid else 0.0


def thesis_bound(classes: int, product: float, excess: float, *, delta: float) -> float:
    """Return the intra-class cosine that the thesis guarantees a fraction 1 - 2 delta of classes.

    Errors of its proof are corrected; 0 means no guarantee.

    >>> [round(thesis_bound(10, 5.0, excess, delta=0.05), 2) for excess in (1e-5, 1e-3)]
    [0.71, 0.0]
    """
    root = math.sqrt(product)
    given = norms_and_loss(classes, root, root, g(product, classes) + excess)
    curvature = curvature_reachable(given)
    return thesis_bounds(given, delta, curvature).intra_lower if curvature > 0 else 0.0


def largest_excess(guaranteed: Callable[[float], float]) -> float | None:
    """Return the largest excess loss at which an intra-class cosine of one half is guaranteed.

    Return None if an excess loss of 1e-30 is too large; smaller ones are lost in rounding.

    Args:
        guaranteed: returns the guaranteed cosine for an excess loss.

    >>> round(largest_excess(lambda excess: 1 - excess), 6)
    0.5
    """
    low, high = -30.0, 1.0  # log10 of the excess loss
    if guaranteed(10**low) < HALF:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if guaranteed(10**middle) >= HALF else (low, middle)
    return float(10**low)


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return a table of the largest excess loss with a guarantee, by C and alpha beta."""
    return [
        Table(
            "Largest excess loss ε at which an intra-class cosine of 0.5 is guaranteed: to every "
            f"class by nclab, to {1 - 2 * numbers['config']['delta']:.0%} of them by the thesis's "
            "repaired proof",
            ("C", "αβ", "smallest loss m", "ε by nclab", "ε/m", "ε by the thesis's proof"),
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
    """Return heat maps of the guaranteed cosine by excess loss and alpha beta."""
    maps = [
        _map(int(classes), rows) for (classes,), rows in group(numbers["grid"], "classes").items()
    ]
    return [
        Picture(
            "certified",
            "Intra-class cosine guaranteed by the loss",
            tuple(maps),
            len(maps),
            "The intra-class cosine that `nclab certify` guarantees every class; 0 means no "
            "guarantee. A small excess is not enough. Where αβ is large, 1 − intra begins as "
            "2(C−1)ε/(mαβ), and the smallest loss m is about (C−1) exp(−Cαβ/(C−1)).",
            (4.6, 4.2),
        )
    ]


def _map(classes: int, rows: Sequence[Mapping[str, Any]]) -> HeatMap:
    products = sorted({float(row["product"]) for row in rows}, reverse=True)
    excess = sorted({float(row["excess"]) for row in rows})
    values = {(row["product"], row["excess"]): float(row["intra"]) for row in rows}
    return HeatMap(
        f"C = {classes}",
        "excess loss ε",
        "αβ",
        [[values[product, loss] for loss in excess] for product in products],
        x_names=tuple(f"{loss:g}" for loss in excess),
        y_names=tuple(f"{product:g}" for product in products),
        value_range=(0.0, 1.0),
        value_label="certified intra-class cosine",
    )

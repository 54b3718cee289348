"""The second half of pan2023, Theorem 2.3.1: a share 1 - delta of the pairs of classes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.fraction_of_pairs import pairs_upper
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import sample_losses, units

POWER = 1 / 6
"""Of epsilon / delta in the theorem."""
SLACK = 0.02
"""By how much a slope over the grid may differ from its limit."""
NEAR = 1.05
"""What is certified over what is attained, where the two are near."""
REGIMES = 3
"""So many numbers of classes and products of norms must have a network that is near."""
CLASSES, PRODUCTS = (4, 6, 10), (1.0, 3.0, 6.0)
DEGREES = (1, 2, 3)
"""Every class is in so many of the raised pairs: with all classes alike the worst network at small
excess is known."""
MOVES = (1e-4, 1e-3, 1e-2, 0.05)
"""How far features and weights are moved along the pairs."""
EXCESS = (1e-6, 1e-5, 1e-4)
"""In units of the optimal loss, where the dependence is told from."""
BEYOND = ((10, 5.0, 1e-4, 0.1), (10, 5.0, 1e-4, 0.2), (12, 8.0, 1e-5, 0.08))
"""Classes, product, excess and delta where two means may have a positive cosine."""


def raised(classes: int, degree: int) -> FloatArray:
    """Adjacency of the pairs that are raised: neighbours on a circle, opposite ones first if odd.

    >>> raised(4, 1).tolist()[0], raised(6, 2).sum(0).tolist()
    ([0.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    """
    steps = [classes // 2] if degree % 2 else []
    steps += range(1, 1 + degree // 2)
    one = np.eye(classes)
    return np.asarray(sum(np.roll(one, s, 0) + np.roll(one, -s, 0) for s in steps) > 0, float)


def worst_network(classes: int, product: float, pairs: FloatArray, move: float) -> FloatArray:
    """Weights and features (2, C, d) with the cosines of these pairs raised, as the worst have.

    >>> W, H = worst_network(4, 3.0, raised(4, 1), 0.1)
    >>> [round(float(np.square(rows).sum(1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    stretch = classes * product / (classes - 1)
    ratio = (classes - stretch) / (classes + stretch)  # how much less the weights move
    both = np.stack([frame + size * move * pairs @ frame for size in (ratio, 1.0)])
    return np.asarray(both * np.sqrt(product / np.square(both).sum(-1).mean(-1))[:, None, None])


def _pairs(preset: str) -> Numbers:
    rows, grid = [], []
    for classes in CLASSES:
        total = classes * (classes - 1) // 2
        for product in PRODUCTS:
            best = g(product, classes)
            for degree in DEGREES:
                count = degree * classes // 2
                if count >= total:
                    continue
                share = (count - 0.5) / total
                sizes: dict[str, Any] = {"classes": classes, "product": product, "delta": share}
                for move in MOVES:
                    W, H = worst_network(classes, product, raised(classes, degree), move)
                    loss = float(sample_losses(W, H[:, None]).mean())
                    own = units(H) @ units(H).T
                    attained = float(np.sort(own[np.triu_indices(classes, 1)])[-count])
                    upper = pairs_upper(norms_and_loss(classes, product, 1.0, loss), count - 1)
                    rows.append(
                        {**sizes, "excess": loss - best} | _bounds(classes, attained, upper)
                    )
                for relative in EXCESS:
                    loss = best * (1 + relative)
                    upper = pairs_upper(norms_and_loss(classes, product, 1.0, loss), count - 1)
                    grid.append(
                        {**sizes, "excess": best * relative} | _bounds(classes, None, upper)
                    )
    beyond = []
    for classes, product, excess, delta in BEYOND:
        root = math.sqrt(product)
        found = certify(classes, root, root, g(product, classes) + excess, delta)
        beyond.append({"all": found.inter_upper.value, "most": found.fraction_inter_upper.value})
    return {"rows": rows, "grid": grid, "beyond": beyond}


def _bounds(classes: int, attained: float | None, upper: float | None) -> dict[str, float | None]:
    """As deviations from -1/(C-1)."""
    known = {"attained": attained, "certified": upper}
    return {k: None if v is None else v + 1 / (classes - 1) for k, v in known.items()}


def slopes(grid: Sequence[Numbers], power: float = 0.5) -> dict[str, float]:
    """Powers of epsilon and of delta in what is certified, and its rate per unit of alpha beta;
    the least favourable over the rest of the grid.

    Args:
        power: of epsilon with which what is certified falls, by which that at different epsilon is
            compared.

    >>> grid = [{"classes": 4, "product": a, "excess": e, "delta": d,
    ...          "certified": math.exp(a) * (e / d) ** 0.5}
    ...         for a in (1.0, 2.0) for e in (1e-6, 1e-5) for d in (0.1, 0.2)]
    >>> {name: round(value, 9) for name, value in slopes(grid).items()}
    {'epsilon': 0.5, 'delta': -0.5, 'product': 0.75}
    """
    found: dict[str, list[float]] = {"epsilon": [], "delta": [], "product": []}
    for name, key in (("epsilon", "excess"), ("delta", "delta")):
        groups: dict[tuple[float, ...], list[Numbers]] = {}
        for row in grid:
            rest = tuple(row[k] for k in ("classes", "product", "excess", "delta") if k != key)
            groups.setdefault(rest, []).append(row)
        found[name] = [slope(own, key) for own in groups.values() if len(own) > 1]
    places = {(row["classes"], row["delta"]) for row in grid}
    for classes, delta in places:
        own = [row for row in grid if (row["classes"], row["delta"]) == (classes, delta)]
        small = {
            p: min((r for r in own if r["product"] == p), key=lambda r: r["excess"])
            for p in {row["product"] for row in own}
        }
        logs = [math.log(r["certified"] / r["excess"] ** power) for r in small.values()]
        rate = float(np.polyfit(list(small), logs, 1)[0])
        found["product"].append(rate * (classes - 1) / classes)
    return {
        "epsilon": min(found["epsilon"]),
        "delta": min(found["delta"]),
        "product": max(found["product"]),
    }


def slope(rows: Sequence[Numbers], key: str, of: str = "certified") -> float:
    """The power of one number of the rows in another."""
    logs = np.log([[row[key], row[of]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def printed(row: Numbers, power: float) -> float:
    """The deviation that the theorem allows with constant 1 in both of its O: the exponent of its
    remark, over alpha beta, times a power of epsilon / delta."""
    classes, product = int(row["classes"]), float(row["product"])
    factor = math.exp(classes / (classes - 1) * product) / product
    return float(factor * (row["excess"] / row["delta"]) ** power)


@claim(
    "pan2023/thm-2.3.1-pairs",
    Kind.THEOREM,
    "For at least 1 - delta of the pairs of classes the inter-class cosine is at most -1/(C-1) + "
    "O(e^O(alpha beta)/(alpha beta) (epsilon/delta)^(1/6)), where epsilon/delta is small.",
    "pan2023, Thm 2.3.1 “fraction of all pairs of classes”",
    gather=_pairs,
    code="nclab.theory.certificates.fraction_of_pairs.pairs_upper",
    figure="guarantees",
)
def pairs(numbers: Numbers) -> Finding:
    """Refuted by a network above what is certified; open where nothing, or too little, is."""
    rows, grid, beyond = numbers["rows"], numbers["grid"], numbers["beyond"]
    if any(row["certified"] is None for row in (*rows, *grid)):
        return Finding(Verdict.OPEN, "the proof does not cover 1 of these sizes", numbers)
    over = [row["attained"] - row["certified"] for row in rows]
    near = {
        (row["classes"], row["product"])
        for row in rows
        if row["attained"] > 0 and row["certified"] <= NEAR * row["attained"]
    }
    constant = max(row["certified"] / printed(row, POWER) for row in (*rows, *grid))
    evidence = (
        f"C = {CLASSES[0]} to {CLASSES[-1]}, alpha beta = {PRODUCTS[0]:g} to {PRODUCTS[-1]:g}: of "
        f"{len(rows)} networks with raised pairs {sum(o > 1e-9 for o in over)} exceed what is "
        f"certified, in {len(near)} regimes one comes within {NEAR - 1:.0%} of it"
    )
    if max(over) > 1e-9 or min(row["certified"] for row in grid) <= 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    rates = slopes(grid)
    finite = sum(one["all"] is None and one["most"] is not None for one in beyond)
    evidence += (
        f"; inter + 1/(C-1) is certified with power {rates['epsilon']:.3f} of epsilon (printed "
        f"1/6), {rates['delta']:.3f} of delta and a rate of {rates['product']:.3f} C/(C-1) per "
        f"unit of alpha beta (printed 1); constant {number(constant)} in place of the O is enough; "
        f"at {finite} of {len(beyond)} sizes it is finite where nothing is certified of all pairs"
    )
    right = rates["epsilon"] >= POWER - SLACK and rates["product"] <= 1 + SLACK and constant <= 1
    covered = right and len(near) >= REGIMES and finite == len(beyond)
    return Finding(
        Verdict.HOLDS if covered else Verdict.OPEN, evidence, {**numbers, "rates": rates}
    )

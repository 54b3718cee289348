"""Claims about both halves of the main theorem of pan2023: a share of the classes or of the pairs.

Networks that are known to be bad test the certified bounds. The powers of epsilon and delta and the
rate in alpha beta are then estimated from the bounds on a grid of sizes.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.tables import Row, group
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.fraction_of_pairs import pairs_upper
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import sample_losses, units
from nclab.theory.worst_case import worst_intra

POWER, POWER_OF_PAIRS = 1 / 2, 1 / 6
"""Powers of epsilon / delta in the two halves of the theorem."""
SLACK = 0.02
"""Largest accepted difference between a fitted slope and its limit."""
NEAR = 1.05
"""Largest ratio of certified and attained deviation that counts as close."""
REGIMES = 3
"""Number of pairs (classes, product of norms) for which a network must come close to the bound."""
CASES = {
    "quick": {"classes": 4, "product": 3.0, "starts": 2},
    "paper": {"classes": 10, "product": 5.0, "starts": 6},
}
CLASSES, PRODUCTS = (4, 6, 10), (1.0, 3.0, 6.0)
SPREADS = (1e-3, 1e-2, 0.05, 0.2)
"""Distances of features from their class mean, relative to its norm."""
DEGREES = (1, 2, 3)
"""Numbers of raised pairs per class, whose cosine is larger than that of a simplex. If all classes
are alike, the worst network is known."""
MOVES = (1e-4, 1e-3, 1e-2, 0.05)
"""Distances by which the two classes of a raised pair move towards each other."""
EXCESS = (1e-6, 1e-5, 1e-4)
"""Excess losses, in units of the optimal loss, from which the powers are estimated."""
BEYOND = ((10, 5.0, 1e-4, 0.1), (10, 5.0, 1e-4, 0.2), (12, 8.0, 1e-5, 0.08))
"""Classes, product, excess and delta at which two means may have a positive cosine."""


@cache
def _curve(preset: str) -> dict[str, Any]:
    """Return the true worst case of one class and the certified bound at three excess losses."""
    classes, product = int(CASES[preset]["classes"]), float(CASES[preset]["product"])
    best, root = g(product, classes), math.sqrt(product)
    rows = []
    for relative in (1e-4, 1e-3, 1e-2) if preset == "quick" else (1e-5, 1e-4, 1e-3):
        excess = relative * best
        worst = worst_intra(classes, product, excess, starts=int(CASES[preset]["starts"]))
        certified = certify(classes, root, root, best + excess, pairs=False).intra_lower.value
        rows.append(
            {
                "excess": excess,
                "certified": 1 - float(certified or 0.0),
                "attained": 1 - worst.value,
                "feasible": worst.feasible,
            }
        )
    return {"classes": classes, "product": product, "worst": rows}


def spread_network(classes: int, product: float, count: int, spread: float) -> list[FloatArray]:
    """Return a simplex as weights (C, d) and features (C, 2, d), with spread in `count` classes.

    >>> W, H = spread_network(4, 3.0, 1, 0.1)
    >>> [round(float(np.square(rows).sum(-1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    orthogonal = np.linalg.svd(frame)[2][-1]  # to the whole simplex
    moved = (np.arange(classes) < count)[:, None] * spread * orthogonal
    both = [frame, np.stack([frame + moved, frame - moved], 1)]
    return [rows * math.sqrt(product / np.square(rows).sum(-1).mean()) for rows in both]


def _certified(sizes: Mapping[str, float], loss: float) -> dict[str, float]:
    """Return the excess loss and the certified 1 - intra of all classes but a share delta."""
    classes, root = int(sizes["classes"]), math.sqrt(sizes["product"])
    bound = certify(classes, root, root, loss, sizes["delta"], pairs=False).fraction_intra_lower
    excess = loss - g(sizes["product"], classes)
    return {"excess": excess, "certified": 1 - float(bound.value or 0.0)}


def _classes(preset: str) -> Numbers:
    rows, grid = [], []
    for classes, product, count in itertools.product(CLASSES, PRODUCTS, (1, 2, 3)):
        best = g(product, classes)
        sizes = {"classes": classes, "product": product, "delta": (count - 0.5) / classes}
        for spread in SPREADS:
            W, H = spread_network(classes, product, count, spread)
            intra = np.sort(np.square(units(H).mean(1)).sum(-1))[count - 1]
            loss = float(sample_losses(W, H).mean())
            rows.append({**sizes, "attained": 1 - float(intra), **_certified(sizes, loss)})
        grid += [{**sizes, **_certified(sizes, best * (1 + relative))} for relative in EXCESS]
    return {**_curve(preset), "rows": rows, "grid": grid}


def raised(classes: int, degree: int) -> FloatArray:
    """Return the adjacency of raised pairs: neighbours on a circle, for odd degrees also opposites.

    >>> raised(4, 1).tolist()[0], raised(6, 2).sum(0).tolist()
    ([0.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    """
    steps = [classes // 2] if degree % 2 else []
    steps += range(1, 1 + degree // 2)
    identity = np.eye(classes)
    neighbours = sum(np.roll(identity, s, 0) + np.roll(identity, -s, 0) for s in steps)
    return np.asarray(neighbours > 0, float)


def worst_network(classes: int, product: float, pairs: FloatArray, move: float) -> FloatArray:
    """Return the weights and features (2, C, d) of the worst network with these pairs raised.

    >>> W, H = worst_network(4, 3.0, raised(4, 1), 0.1)
    >>> [round(float(np.square(rows).sum(1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    stretch = classes * product / (classes - 1)
    ratio = (classes - stretch) / (classes + stretch)  # displacement of weights over features
    both = np.stack([frame + size * move * pairs @ frame for size in (ratio, 1.0)])
    return np.asarray(both * np.sqrt(product / np.square(both).sum(-1).mean(-1))[:, None, None])


def _certified_pairs(classes: int, product: float, loss: float, exempt: int) -> float | None:
    """Return the certified inter + 1/(C-1) of all pairs but a number of exempt ones."""
    upper = pairs_upper(norms_and_loss(classes, product, 1.0, loss), exempt)
    return None if upper is None else upper + 1 / (classes - 1)


def _pairs(preset: str) -> Numbers:
    rows: list[Numbers] = []
    grid: list[Numbers] = []
    for classes, product, degree in itertools.product(CLASSES, PRODUCTS, DEGREES):
        count, total = degree * classes // 2, classes * (classes - 1) // 2
        if count >= total:
            continue
        best = g(product, classes)
        sizes = {"classes": classes, "product": product, "delta": (count - 0.5) / total}
        for move in MOVES:
            W, H = worst_network(classes, product, raised(classes, degree), move)
            loss = float(sample_losses(W, H[:, None]).mean())
            cosines = units(H) @ units(H).T
            attained = float(np.sort(cosines[np.triu_indices(classes, 1)])[-count])
            certified = _certified_pairs(classes, product, loss, count - 1)
            known = {"attained": attained + 1 / (classes - 1), "certified": certified}
            rows.append({**sizes, "excess": loss - best, **known})
        for relative in EXCESS:
            certified = _certified_pairs(classes, product, best * (1 + relative), count - 1)
            known = {"attained": None, "certified": certified}
            grid.append({**sizes, "excess": best * relative, **known})
    beyond = []
    for classes, product, excess, delta in BEYOND:
        root = math.sqrt(product)
        bounds = certify(classes, root, root, g(product, classes) + excess, delta)
        beyond.append({"all": bounds.inter_upper.value, "most": bounds.fraction_inter_upper.value})
    return {"rows": rows, "grid": grid, "beyond": beyond}


def slopes(grid: Sequence[Row], power: float = 0.5) -> dict[str, float]:
    """Return powers of epsilon and delta in the certified deviation, and its rate in alpha beta.

    Each is the least favourable value over the other sizes of the grid.

    Args:
        power: power of epsilon by which certified deviations at different epsilon are normalised.

    >>> grid = [{"classes": 4, "product": a, "excess": e, "delta": d,
    ...          "certified": math.exp(a) * (e / d) ** 0.5}
    ...         for a in (1.0, 2.0) for e in (1e-6, 1e-5) for d in (0.1, 0.2)]
    >>> {name: round(value, 9) for name, value in slopes(grid).items()}
    {'epsilon': 0.5, 'delta': -0.5, 'product': 0.75}
    """

    def smallest_power(key: str) -> float:
        others = {"classes", "product", "excess", "delta"} - {key}
        groups = group(grid, *others).values()
        return min(slope(rows, key) for rows in groups if len(rows) > 1)

    rates = []
    for (classes, _), rows in group(grid, "classes", "delta").items():
        members = group(rows, "product").values()
        small = [min(same, key=lambda row: float(row["excess"])) for same in members]
        logs = [math.log(row["certified"] / row["excess"] ** power) for row in small]
        rate = float(np.polyfit([row["product"] for row in small], logs, 1)[0])
        rates.append(rate * (classes - 1) / classes)
    return {
        "epsilon": smallest_power("excess"),
        "delta": smallest_power("delta"),
        "product": max(rates),
    }


def slope(rows: Sequence[Row], key: str, of: str = "certified") -> float:
    """Return the power of the field `key` in the field `of`, fitted over the rows."""
    logs = np.log([[row[key], row[of]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def largest_constant(rows: Sequence[Row], power: float) -> float:
    """Return the constant that the theorem needs in place of both O.

    It multiplies the exponential of the remark, divided by alpha beta, times a power of
    epsilon / delta.
    """
    constants = []
    for row in rows:
        classes, product = int(row["classes"]), float(row["product"])
        factor = math.exp(classes / (classes - 1) * product) / product
        printed = factor * (row["excess"] / row["delta"]) ** power
        constants.append(row["certified"] / printed)
    return float(max(constants))


def _near(rows: Sequence[Row]) -> int:
    """Count the pairs (classes, product of norms) with a network close to the certified bound."""
    regimes = {
        (row["classes"], row["product"])
        for row in rows
        if row["attained"] > 0 and row["certified"] <= NEAR * row["attained"]
    }
    return len(regimes)


def _describe(rows: Sequence[Row], over: Sequence[float], networks: str) -> str:
    """Return how the networks compare with the certified bound.

    Args:
        over: attained minus certified deviations.
    """
    return (
        f"C = {CLASSES[0]} to {CLASSES[-1]}, alpha beta = {PRODUCTS[0]:g} to {PRODUCTS[-1]:g}: "
        f"{sum(o > 1e-9 for o in over)} of {len(rows)} networks with {networks} exceed the "
        f"certified bound, and for {_near(rows)} pairs of C and alpha beta a network comes within "
        f"{NEAR - 1:.0%} of it"
    )


@claim(
    "pan2023/thm-2.3.1",
    Kind.THEOREM,
    r"If the loss is within $\varepsilon$ of $m$, at least $1 - \delta$ of the classes have an "
    "intra-class cosine of at least $1 - "
    r"O\left(\frac{e^{O(\alpha\beta)}}{\alpha\beta}\sqrt{\varepsilon/\delta}\right)$, where "
    r"$\varepsilon/\delta$ is small.",
    "pan2023, Thm 2.3.1 “fraction of all classes”",
    gather=_classes,
    code="nclab.theory.certificates.certification.certify",
    figure="guarantees",
)
def theorem(numbers: Numbers) -> Finding:
    """Judge whether the certified bound falls at least as fast as printed.

    The constants are those of the remark on the theorem. The rate is sharp if the attained worst
    case does not fall faster.
    """
    worst, rows, grid = (numbers[name] for name in ("worst", "rows", "grid"))
    over = [row["attained"] - row["certified"] for row in (*worst, *rows)]
    slopes_of = {kind: slope(worst, "excess", kind) for kind in ("certified", "attained")}
    evidence = (
        f"{_describe(rows, over, 'spread classes')}; "
        f"at C = {numbers['classes']}, alpha beta = {numbers['product']:g} the proved power of "
        f"epsilon in 1 - intra is {slopes_of['certified']:.3f}, the attained one "
        f"{slopes_of['attained']:.3f} (printed 1/2)"
    )
    numbers = {**numbers, "slopes": slopes_of}
    if slopes_of["attained"] < POWER - SLACK:
        return Finding(Verdict.REFUTED, f"{evidence}: slower than printed", numbers)
    if max(over) > 1e-9 or min(row["certified"] for row in grid) <= 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    rates = slopes(grid, power=1.0)
    constant = largest_constant([*rows, *grid], POWER)
    evidence += (
        f"; on the grid the certified power of epsilon is {rates['epsilon']:.3f}, that of delta "
        f"{rates['delta']:.3f}, and the rate per unit of alpha beta {rates['product']:.3f} C/(C-1) "
        f"(printed 1); the constant {number(constant)} suffices in place of the O; "
    )
    proved = min(rates["epsilon"], slopes_of["certified"]) >= POWER - SLACK
    proved = proved and rates["product"] <= 1 + SLACK and constant <= 1 and _near(rows) >= REGIMES
    if not (proved and all(row["feasible"] for row in worst)):
        return Finding(Verdict.OPEN, f"{evidence}the proof does not cover it", numbers)
    sharp = slopes_of["attained"] <= POWER + SLACK
    words = "the rate may be sharp" if sharp else "the rate is right but not sharp"
    return Finding(Verdict.HOLDS, evidence + words, {**numbers, "rates": rates})


@claim(
    "pan2023/thm-2.3.1-pairs",
    Kind.THEOREM,
    r"For at least $1 - \delta$ of the pairs of classes the inter-class cosine is at most "
    r"$-\frac{1}{C-1} + "
    r"O\left(\frac{e^{O(\alpha\beta)}}{\alpha\beta}(\varepsilon/\delta)^{1/6}\right)$, where "
    r"$\varepsilon/\delta$ is small.",
    "pan2023, Thm 2.3.1 “fraction of all pairs of classes”",
    gather=_pairs,
    code="nclab.theory.certificates.fraction_of_pairs.pairs_upper",
    figure="guarantees",
)
def pairs(numbers: Numbers) -> Finding:
    """Judge by networks that exceed the certified bound; open if too little is certified."""
    rows, grid, beyond = numbers["rows"], numbers["grid"], numbers["beyond"]
    if any(row["certified"] is None for row in (*rows, *grid)):
        return Finding(Verdict.OPEN, "the proof does not cover one of these sizes", numbers)
    over = [row["attained"] - row["certified"] for row in rows]
    evidence = _describe(rows, over, "raised pairs")
    if max(over) > 1e-9 or min(row["certified"] for row in grid) <= 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    rates, constant = slopes(grid), largest_constant([*rows, *grid], POWER_OF_PAIRS)
    finite = sum(size["all"] is None and size["most"] is not None for size in beyond)
    evidence += (
        f"; in the certified inter + 1/(C-1) the power of epsilon is {rates['epsilon']:.3f} "
        f"(printed 1/6), that of delta {rates['delta']:.3f}, and the rate per unit of alpha beta "
        f"{rates['product']:.3f} C/(C-1) (printed 1); the constant {number(constant)} suffices in "
        f"place of the O; at {finite} of {len(beyond)} sizes most pairs have a bound although all "
        f"pairs together have none"
    )
    right = rates["epsilon"] >= POWER_OF_PAIRS - SLACK and rates["product"] <= 1 + SLACK
    covered = right and constant <= 1 and _near(rows) >= REGIMES and finite == len(beyond)
    verdict = Verdict.HOLDS if covered else Verdict.OPEN
    return Finding(verdict, evidence, {**numbers, "rates": rates})

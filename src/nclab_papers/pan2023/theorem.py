"""Claims about the main theorem of pan2023 and the minimal loss m in its hypothesis."""

import itertools
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import draws, judge_statement, relative_error, tally, with_hand_check
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import sample_losses, units
from nclab.theory.worst_case import worst_intra
from nclab_papers.pan2023.data_sets import lowest_loss, networks
from nclab_papers.pan2023.fractions import (
    CLASSES,
    EXCESS,
    NEAR,
    PRODUCTS,
    REGIMES,
    printed,
    slope,
    slopes,
)
from nclab_papers.pan2023.statements.loss_steps import minimal_loss

POWER = 1 / 2
"""Power of epsilon / delta in the first half of the theorem."""
SLACK = 0.02
"""Largest accepted difference between a slope fitted over three decades and its limit."""
CASES = {
    "quick": {"classes": 4, "product": 3.0, "starts": 2},
    "paper": {"classes": 10, "product": 5.0, "starts": 6},
}
SPREADS = (1e-3, 1e-2, 0.05, 0.2)
"""Distances of features from their class mean, relative to its norm."""


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
    near = {
        (row["classes"], row["product"])
        for row in rows
        if row["certified"] <= NEAR * row["attained"]
    }
    evidence = (
        f"C = {CLASSES[0]} to {CLASSES[-1]}, alpha beta = {PRODUCTS[0]:g} to {PRODUCTS[-1]:g}: "
        f"{sum(o > 1e-9 for o in over)} of {len(rows)} networks with spread classes exceed the "
        f"certified bound, and in {len(near)} regimes a network comes within {NEAR - 1:.0%} of it; "
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
    constant = max(row["certified"] / printed(row, POWER) for row in (*rows, *grid))
    evidence += (
        f"; on the grid the certified power of epsilon is {rates['epsilon']:.3f}, that of delta "
        f"{rates['delta']:.3f}, and the rate per unit of alpha beta {rates['product']:.3f} C/(C-1) "
        f"(printed 1); the constant {number(constant)} suffices in place of the O; "
    )
    proved = min(rates["epsilon"], slopes_of["certified"]) >= POWER - SLACK
    proved = proved and rates["product"] <= 1 + SLACK and constant <= 1 and len(near) >= REGIMES
    if not (proved and all(row["feasible"] for row in worst)):
        return Finding(Verdict.OPEN, f"{evidence}the proof does not cover it", numbers)
    sharp = slopes_of["attained"] <= POWER + SLACK
    words = "the rate may be sharp" if sharp else "the rate is right but not sharp"
    return Finding(Verdict.HOLDS, evidence + words, {**numbers, "rates": rates})


def _minimum(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches, gaps = [], []
    for classes in (2, 3, 4, 7):
        for per_class in (1, 3):
            batches.append(minimal_loss(*networks(rng, draws(preset) // 20, classes, per_class)))
        frame = 1.7 * simplex_etf(classes, classes - 1).numpy()
        attained = minimal_loss(frame, 2 * frame[:, None])
        gaps.append(float(abs(attained.left / attained.right - 1)))
    hand = minimal_loss([[1.0], [-1.0]], [[[2.0], [0.0]], [[-2.0], [-2.0]]])
    left = (3 * math.log1p(math.exp(-4)) + math.log(2)) / 4
    return {
        **tally(*batches),
        "hand_error": relative_error(
            (hand.left, left), (hand.right, math.log1p(math.exp(-2 * 3**0.5)))
        ),
        "etf_gap": max(gaps),
        "plane_loss": lowest_loss(6, 2, product=3.0),
        "plane_minimum": g(3.0, 6),
    }


@claim(
    "pan2023/thm-2.3.1-minimum",
    Kind.THEOREM,
    r"$m = \log\left(1 + (C-1)\exp\left(-\frac{C}{C-1}\alpha\beta\right)\right)$ is the smallest "
    "loss of any weights and features with these norms.",
    "pan2023, Thm 2.3.1 “is the minimum achievable loss for any set of weight and feature”",
    gather=_minimum,
    code="nclab_papers.pan2023.statements.loss_steps.minimal_loss",
)
@with_hand_check
def minimum(numbers: Numbers) -> Finding:
    finding = judge_statement(numbers)
    evidence = (
        f"no loss is below m: {finding.evidence}; simplex ETFs attain m (relative gap "
        f"{number(numbers['etf_gap'])}), but they need d >= C - 1: six classes in two dimensions "
        f"reach only {number(numbers['plane_loss'])}, where m is "
        f"{number(numbers['plane_minimum'])}"
    )
    if finding.verdict is not Verdict.HOLDS or numbers["etf_gap"] > 1e-9:
        worse = Verdict.REFUTED if finding.verdict is Verdict.HOLDS else finding.verdict
        return Finding(worse, evidence, numbers)
    return Finding(Verdict.HOLDS, evidence, numbers)

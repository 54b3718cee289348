"""The main theorem of pan2023 and the minimum it starts from."""

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
from nclab_papers.pan2023.most_pairs import (
    CLASSES,
    EXCESS,
    NEAR,
    PRODUCTS,
    REGIMES,
    printed,
    slope,
    slopes,
)
from nclab_papers.pan2023.small_dimension import lowest_loss
from nclab_papers.pan2023.statements.loss_steps import minimal_loss
from nclab_papers.pan2023.trial_data import networks

POWER = 1 / 2
"""Of epsilon / delta in the first half of the theorem."""
SLACK = 0.02
"""By how much a slope fitted over three decades may differ from its limit."""
CASES = {
    "quick": {"classes": 4, "product": 3.0, "starts": 2},
    "paper": {"classes": 10, "product": 5.0, "starts": 6},
}
SPREADS = (1e-3, 1e-2, 0.05, 0.2)
"""How far features are from their class mean, over its norm."""


@cache
def _curve(preset: str) -> dict[str, Any]:
    """The true worst case of one class at three excesses beside what is certified."""
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
    """Weights (C, d) and features (C, 2, d) at a simplex, the features of `count` classes apart.

    >>> W, H = spread_network(4, 3.0, 1, 0.1)
    >>> [round(float(np.square(rows).sum(-1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    aside = np.linalg.svd(frame)[2][-1]  # orthogonal to all of the simplex
    moved = (np.arange(classes) < count)[:, None] * spread * aside
    both = [frame, np.stack([frame + moved, frame - moved], 1)]
    return [rows * math.sqrt(product / np.square(rows).sum(-1).mean()) for rows in both]


def _certified(sizes: Mapping[str, float], loss: float) -> dict[str, float]:
    """1 - intra that is guaranteed to all but a share delta of the classes, beside its excess."""
    classes, root = int(sizes["classes"]), math.sqrt(sizes["product"])
    found = certify(classes, root, root, loss, sizes["delta"], pairs=False).fraction_intra_lower
    excess = loss - g(sizes["product"], classes)
    return {"excess": excess, "certified": 1 - float(found.value or 0.0)}


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
    "If the loss is within epsilon of m, at least 1 - delta of the classes have an intra-class "
    "cosine of at least 1 - O(e^O(alpha beta)/(alpha beta) sqrt(epsilon/delta)), where "
    "epsilon/delta is small.",
    "pan2023, Thm 2.3.1 “fraction of all classes”",
    gather=_classes,
    code="nclab.theory.certificates.certification.certify",
    figure="guarantees",
)
def theorem(numbers: Numbers) -> Finding:
    """True where what is proved falls at least as fast as printed, with the constants of the
    remark on them; sharp where what is attained does not fall faster."""
    worst, rows, grid = (numbers[name] for name in ("worst", "rows", "grid"))
    over = [row["attained"] - row["certified"] for row in (*worst, *rows)]
    slopes_of = {how: slope(worst, "excess", how) for how in ("certified", "attained")}
    near = {
        (row["classes"], row["product"])
        for row in rows
        if row["certified"] <= NEAR * row["attained"]
    }
    evidence = (
        f"C = {CLASSES[0]} to {CLASSES[-1]}, alpha beta = {PRODUCTS[0]:g} to {PRODUCTS[-1]:g}: of "
        f"{len(rows)} networks with spread classes {sum(o > 1e-9 for o in over)} exceed what is "
        f"certified, in {len(near)} regimes one comes within {NEAR - 1:.0%} of it; at C = "
        f"{numbers['classes']}, alpha beta = {numbers['product']:g} 1 - intra is proved with slope "
        f"{slopes_of['certified']:.3f} of epsilon and attained with {slopes_of['attained']:.3f} "
        f"(printed 1/2)"
    )
    numbers = {**numbers, "slopes": slopes_of}
    if slopes_of["attained"] < POWER - SLACK:
        return Finding(Verdict.REFUTED, f"{evidence}: slower than printed", numbers)
    if max(over) > 1e-9 or min(row["certified"] for row in grid) <= 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    rates = slopes(grid, power=1.0)
    constant = max(row["certified"] / printed(row, POWER) for row in (*rows, *grid))
    evidence += (
        f"; on the grid with power {rates['epsilon']:.3f} of epsilon, {rates['delta']:.3f} of "
        f"delta and a rate of {rates['product']:.3f} C/(C-1) per unit of alpha beta (printed 1); "
        f"constant {number(constant)} in place of the O is enough; "
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
    "m = log(1 + (C-1) exp(-C/(C-1) alpha beta)) is the smallest loss of any weights and "
    "features with these norms.",
    "pan2023, Thm 2.3.1 “is the minimum achievable loss for any set of weight and feature”",
    gather=_minimum,
    code="nclab_papers.pan2023.statements.loss_steps.minimal_loss",
)
@with_hand_check
def minimum(numbers: Numbers) -> Finding:
    found = judge_statement(numbers)
    evidence = (
        f"no loss is below m: {found.evidence}; simplex ETFs attain it "
        f"(relative gap {number(numbers['etf_gap'])}), which need d >= C - 1: six classes in two "
        f"dimensions reach only {number(numbers['plane_loss'])}, m is "
        f"{number(numbers['plane_minimum'])}"
    )
    if found.verdict is not Verdict.HOLDS or numbers["etf_gap"] > 1e-9:
        worse = Verdict.REFUTED if found.verdict is Verdict.HOLDS else found.verdict
        return Finding(worse, evidence, numbers)
    return Finding(Verdict.HOLDS, evidence, numbers)

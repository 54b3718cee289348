"""Statements of the thesis about a fraction of all classes or of all pairs of classes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nclab.claims.claim import Claim, Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import draws, judge_statement, relative_error, tally, with_hand_check
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.fraction_of_pairs import pairs_upper
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import Inequality, sample_losses, units
from nclab_papers.pan2023.data_sets import networks
from nclab_papers.pan2023.statements import near_optimum as steps

POWER = 1 / 6
"""Power of epsilon / delta in the theorem."""
SLACK = 0.02
"""Largest accepted difference between a slope over the grid and its limit."""
NEAR = 1.05
"""Largest ratio of certified and attained deviation that counts as close."""
REGIMES = 3
"""Number of regimes (classes and products of norms) that need a network close to the bound."""
CLASSES, PRODUCTS = (4, 6, 10), (1.0, 3.0, 6.0)
DEGREES = (1, 2, 3)
"""Numbers of raised pairs per class; if all classes are alike, the worst network is known."""
MOVES = (1e-4, 1e-3, 1e-2, 0.05)
"""Displacements of features and weights along the pairs."""
EXCESS = (1e-6, 1e-5, 1e-4)
"""Excess losses, in units of the optimal loss, from which the powers are estimated."""
BEYOND = ((10, 5.0, 1e-4, 0.1), (10, 5.0, 1e-4, 0.2), (12, 8.0, 1e-5, 0.08))
"""Classes, product, excess and delta at which two means may have a positive cosine."""


def raised(classes: int, degree: int) -> FloatArray:
    """Return the adjacency of raised pairs: neighbours on a circle, for odd degrees also opposites.

    >>> raised(4, 1).tolist()[0], raised(6, 2).sum(0).tolist()
    ([0.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    """
    steps = [classes // 2] if degree % 2 else []
    steps += range(1, 1 + degree // 2)
    identity = np.eye(classes)
    return np.asarray(
        sum(np.roll(identity, s, 0) + np.roll(identity, -s, 0) for s in steps) > 0, float
    )


def worst_network(classes: int, product: float, pairs: FloatArray, move: float) -> FloatArray:
    """Return the weights and features (2, C, d) of the worst network with these pairs raised.

    >>> W, H = worst_network(4, 3.0, raised(4, 1), 0.1)
    >>> [round(float(np.square(rows).sum(1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    stretch = classes * product / (classes - 1)
    ratio = (classes - stretch) / (
        classes + stretch
    )  # displacement of the weights relative to the features
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
                    cosines = units(H) @ units(H).T
                    attained = float(np.sort(cosines[np.triu_indices(classes, 1)])[-count])
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
        bounds = certify(classes, root, root, g(product, classes) + excess, delta)
        beyond.append({"all": bounds.inter_upper.value, "most": bounds.fraction_inter_upper.value})
    return {"rows": rows, "grid": grid, "beyond": beyond}


def _bounds(classes: int, attained: float | None, upper: float | None) -> dict[str, float | None]:
    """Return attained and certified cosines as deviations from -1/(C-1)."""
    known = {"attained": attained, "certified": upper}
    return {k: None if v is None else v + 1 / (classes - 1) for k, v in known.items()}


def slopes(grid: Sequence[Numbers], power: float = 0.5) -> dict[str, float]:
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
    estimates: dict[str, list[float]] = {"epsilon": [], "delta": [], "product": []}
    for name, key in (("epsilon", "excess"), ("delta", "delta")):
        groups: dict[tuple[float, ...], list[Numbers]] = {}
        for row in grid:
            others = tuple(row[k] for k in ("classes", "product", "excess", "delta") if k != key)
            groups.setdefault(others, []).append(row)
        estimates[name] = [slope(rows, key) for rows in groups.values() if len(rows) > 1]
    settings = {(row["classes"], row["delta"]) for row in grid}
    for classes, delta in settings:
        rows = [row for row in grid if (row["classes"], row["delta"]) == (classes, delta)]
        small = {
            p: min((r for r in rows if r["product"] == p), key=lambda r: r["excess"])
            for p in {row["product"] for row in rows}
        }
        logs = [math.log(r["certified"] / r["excess"] ** power) for r in small.values()]
        rate = float(np.polyfit(list(small), logs, 1)[0])
        estimates["product"].append(rate * (classes - 1) / classes)
    return {
        "epsilon": min(estimates["epsilon"]),
        "delta": min(estimates["delta"]),
        "product": max(estimates["product"]),
    }


def slope(rows: Sequence[Numbers], key: str, of: str = "certified") -> float:
    """Return the power of the field `key` in the field `of`, fitted over the rows."""
    logs = np.log([[row[key], row[of]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def printed(row: Numbers, power: float) -> float:
    """Return the deviation that the theorem permits with the constant 1 in both O.

    It is the exponential of the remark, divided by alpha beta, times a power of epsilon / delta.
    """
    classes, product = int(row["classes"]), float(row["product"])
    factor = math.exp(classes / (classes - 1) * product) / product
    return float(factor * (row["excess"] / row["delta"]) ** power)


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
    near = {
        (row["classes"], row["product"])
        for row in rows
        if row["attained"] > 0 and row["certified"] <= NEAR * row["attained"]
    }
    constant = max(row["certified"] / printed(row, POWER) for row in (*rows, *grid))
    evidence = (
        f"C = {CLASSES[0]} to {CLASSES[-1]}, alpha beta = {PRODUCTS[0]:g} to {PRODUCTS[-1]:g}: "
        f"{sum(o > 1e-9 for o in over)} of {len(rows)} networks with raised pairs exceed the "
        f"certified bound, and in {len(near)} regimes a network comes within {NEAR - 1:.0%} of it"
    )
    if max(over) > 1e-9 or min(row["certified"] for row in grid) <= 0:
        return Finding(Verdict.REFUTED, evidence, numbers)
    rates = slopes(grid)
    finite = sum(size["all"] is None and size["most"] is not None for size in beyond)
    evidence += (
        f"; in the certified inter + 1/(C-1) the power of epsilon is {rates['epsilon']:.3f} "
        f"(printed 1/6), that of delta {rates['delta']:.3f}, and the rate per unit of alpha beta "
        f"{rates['product']:.3f} C/(C-1) (printed 1); the constant {number(constant)} suffices in "
        f"place of the O; at {finite} of {len(beyond)} sizes most pairs have a bound although all "
        f"pairs together have none"
    )
    right = rates["epsilon"] >= POWER - SLACK and rates["product"] <= 1 + SLACK and constant <= 1
    covered = right and len(near) >= REGIMES and finite == len(beyond)
    return Finding(
        Verdict.HOLDS if covered else Verdict.OPEN, evidence, {**numbers, "rates": rates}
    )


Step = Callable[[ArrayLike, ArrayLike, float], Inequality]

DELTAS = (0.05, 0.2, 0.45)
"""Fractions delta of the exempt classes."""
SMALL = 0.03
"""Factor that makes norms small."""
PAIR: FloatArray = np.array([[1.0], [-1.0]])
"""Weights of the case with two classes that was worked out by hand. Its scores are 2 and 1, its
arguments -4 and -2, and C/(C-1) is 2."""
SCORES: FloatArray = np.array([[[2.0]], [[-1.0]]])
HAND_DELTA = 0.4
ROW: FloatArray = np.array([[2.0], [0.0], [1.0]])
"""Weights of the case with three classes, in which every feature is 1."""


def _apply(
    step: Step, preset: str, seed: int, classes: Sequence[int] = (2, 3, 4, 10)
) -> list[Inequality]:
    """Apply a step to networks near and far from the minimum, some with one heavy class."""
    rng = np.random.default_rng(seed)
    results = []
    for count in classes:
        W, H = networks(rng, draws(preset) // 20, count, 2)
        # Weights and features of one class are longer, and its features point elsewhere.
        heavy = np.where(np.arange(count) == 0, rng.uniform(1, 3, (len(W), 1)), 1.0)
        away = rng.normal(size=(len(W), 1, H.shape[-1])) * (heavy - 1)[..., None]
        for rows, columns in (
            (W, H),
            (W * heavy[..., None], (H * heavy[..., None, None]) + away[:, :, None]),
        ):
            results += [step(rows, columns, delta) for delta in DELTAS]
    return results


def _gaps() -> tuple[float, float, float]:
    """Return alpha beta, epsilon_3 and the root in (2.19) and (2.20) for two classes."""

    def loss(x: float) -> float:
        return math.log1p(math.exp(x))

    second = (loss(-4) + loss(-2)) / 2 - loss(-3)
    curvature = math.exp(-4) / (1 + math.exp(-4)) ** 2
    root = math.sqrt(2 * second * (1 - HAND_DELTA) / (curvature * HAND_DELTA))
    return math.sqrt(2.5), -3 + 2 * math.sqrt(2.5), root


def _low_scores(preset: str) -> Numbers:
    hand = steps.low_scores(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product - (third + root) / 2
    return {
        **tally(*_apply(steps.low_scores, preset, 10)),
        "hand_error": relative_error((hand.left, 1.0), (hand.right, right)),
    }


eq_2_19 = Claim(
    "pan2023/eq-2.19",
    Kind.EQUATION,
    r"At most $\delta C$ classes have a score $w_c h_c$ below $\alpha\beta - "
    r"\frac{C-1}{C}\left(\varepsilon_3 + "
    r"\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.19) “Therefore, there are at most”",
    with_hand_check(judge_statement),
    _low_scores,
    code="nclab_papers.pan2023.statements.near_optimum.low_scores",
)


def _large_norms(preset: str) -> Numbers:
    hand = steps.large_norms(PAIR, SCORES, HAND_DELTA)
    product, third, root = _gaps()
    right = product + (1.5 * third + root) / 2
    return {
        **tally(*_apply(steps.large_norms, preset, 11)),
        "hand_error": relative_error((hand.left, 2.0), (hand.right, right)),
    }


eq_2_20 = Claim(
    "pan2023/eq-2.20",
    Kind.EQUATION,
    r"At most $\delta C$ classes have a product of norms $\alpha_c\beta_c$ above $\alpha\beta + "
    r"\frac{C-1}{C}\left(\frac{1-\delta}{\delta}\varepsilon_3 + "
    r"\sqrt{2\varepsilon_2(1-\delta)/(\lambda\delta)}\right)$.",
    "pan2023, Eq. (2.20) “and also there are at most”",
    with_hand_check(judge_statement),
    _large_norms,
    code="nclab_papers.pan2023.statements.near_optimum.large_norms",
)


def _others(preset: str, *, step: Step, centred: bool) -> Numbers:
    hand = step(ROW, np.ones((3, 1, 1)), HAND_DELTA)
    left, right = [], []
    for score, others in ((1.0, (-1.0, 0.0)), (-1.0, (1.0, 0.0)), (0.0, (1.0, -1.0))):
        middle = sum(others) / 2 - score
        lost = sum(math.exp(other - score) for other in others) - 2 * math.exp(middle)
        rise = math.sqrt(2 * lost / (math.exp(middle) * HAND_DELTA))
        left.append(max(others) - (0.0 if centred else score))
        right.append((-score / 2 if centred else middle) + rise)
    return {
        **tally(*_apply(step, preset, 12 + centred)),
        "hand_error": relative_error((hand.left, left), (hand.right, right)),
    }


eq_2_22 = Claim(
    "pan2023/eq-2.22",
    Kind.EQUATION,
    r"For at least $(1-\delta)(C-1)$ classes $c'$ the difference $(w_{c'} - w_c)h_c$ is at most "
    r"$m_c + \sqrt{2\varepsilon_{1c}/(\exp(m_c)\delta)}$ with $m_c = -\frac{C}{C-1}w_c h_c$.",
    "pan2023, Eq. (2.22) “using the definition that”",
    with_hand_check(judge_statement),
    partial(_others, step=steps.high_differences, centred=False),
    code="nclab_papers.pan2023.statements.near_optimum.high_differences",
)

eq_2_23 = Claim(
    "pan2023/eq-2.23",
    Kind.EQUATION,
    r"For the same classes $c'$ the score $w_{c'}h_c$ is at most $-\frac{1}{C-1}w_c h_c + "
    r"\sqrt{2\varepsilon_{1c}/(\exp(m_c)\delta)}$.",
    "pan2023, Eq. (2.23) “Combining with”",
    with_hand_check(judge_statement),
    partial(_others, step=steps.high_scores_of_others, centred=True),
    code="nclab_papers.pan2023.statements.near_optimum.high_scores_of_others",
)


def _self_duality(preset: str) -> Numbers:
    rng = np.random.default_rng(14)
    batches = _apply(steps.self_duality, preset, 15, classes=(3, 4, 10))
    telling = sum(int((both.right > 0).sum()) for both in batches)
    for classes in (3, 10):
        W, H = networks(rng, draws(preset) // 50, classes, 2)
        batches += [steps.self_duality(SMALL * W, SMALL * H, delta) for delta in DELTAS]
    hand = steps.self_duality(PAIR, SCORES, HAND_DELTA)
    reach = 2 * math.sqrt(2.5)
    lost = (math.log1p(math.exp(-4)) + math.log1p(math.exp(-2))) / 2 - math.log1p(math.exp(-reach))
    curvature = math.exp(-reach) / (1 + math.exp(-reach)) ** 2
    right = 1 - 2 * math.sqrt(2 * lost * (1 - HAND_DELTA) / (curvature * HAND_DELTA)) / reach
    return {
        **tally(*batches),
        "telling": telling,
        "hand_error": relative_error((hand.left, 1.0), (hand.right, right)),
    }


@claim(
    "pan2023/proof-nc3",
    Kind.PROOF_STEP,
    r"For at least $(1 - 2\delta)C$ classes the cosine of weight and mean feature is at least $1 "
    r"- \frac{C-1}{C\alpha\beta} \cdot 2\sqrt{2\varepsilon(1-\delta)/(\lambda\delta)}$, which is "
    "the bound on NC3; read with the factor of (2.21), which our copy does not show in this "
    "line.",
    "pan2023, Thm 2.3.1 (proof) “gives the NC3 bound in the theorem”",
    gather=_self_duality,
    code="nclab_papers.pan2023.statements.near_optimum.self_duality",
)
@with_hand_check
def nc3(numbers: Numbers) -> Finding:
    """Judge the bound and count the cases in which it is positive."""
    finding = judge_statement(numbers)
    evidence = f"{finding.evidence} ({numbers['telling']} bounds are positive)"
    return Finding(finding.verdict, evidence, numbers)

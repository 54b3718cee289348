"""Claims about both halves of the main theorem of pan2023: one for classes, one for pairs.

The theorem bounds the deviation from collapse, 1 - intra of a class or inter + 1/(C-1) of a pair,
for all classes or pairs except a share delta. The certified bounds of nclab are tested with
networks that deviate as much as possible. Then the powers of the excess loss epsilon and of delta,
and the growth with alpha beta, are estimated from these bounds on a grid of sizes.
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
"""Powers of epsilon / delta that the theorem states: for classes, and for pairs of classes."""
SLACK = 0.02
"""Amount by which a fitted slope may be on the wrong side of its limit."""
NEAR = 1.05
"""A network comes close to a bound if the bound is at most this multiple of its deviation."""
REGIMES = 3
"""Number of combinations of C and alpha beta in which a network must come close to the bound."""
CASES = {
    "quick": {"classes": 4, "product": 3.0, "starts": 2},
    "paper": {"classes": 10, "product": 5.0, "starts": 6},
}
CLASSES, PRODUCTS = (4, 6, 10), (1.0, 3.0, 6.0)
SPREADS = (1e-3, 1e-2, 0.05, 0.2)
"""Distances of features from their class mean, divided by the norm of the mean."""
DEGREES = (1, 2, 3)
"""Numbers of raised pairs that each class belongs to. A raised pair has a larger cosine than that
of a simplex. With equally many per class, the network that raises them most is known."""
MOVES = (1e-4, 1e-3, 1e-2, 0.05)
"""Values of `move` in `worst_network`: how far the classes of a raised pair approach each other."""
EXCESS = (1e-6, 1e-5, 1e-4)
"""Excess losses, divided by the optimal loss, at which the powers are estimated."""
BEYOND = ((10, 5.0, 1e-4, 0.1), (10, 5.0, 1e-4, 0.2), (12, 8.0, 1e-5, 0.08))
"""Values of C, alpha beta, epsilon and delta at which some pair may have a positive cosine."""


@cache
def _curve(preset: str) -> dict[str, Any]:
    """Return 1 - intra of a class at three excess losses: the worst found, and the bound on it."""
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
    """Return weights (C, d) and features (C, 2, d) of a simplex ETF in which some classes spread.

    Each of the first `count` classes has two different features. `product` is alpha beta.

    >>> W, H = spread_network(4, 3.0, 1, 0.1)
    >>> [round(float(np.square(rows).sum(-1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    orthogonal = np.linalg.svd(frame)[2][-1]  # a unit vector orthogonal to the simplex
    moved = (np.arange(classes) < count)[:, None] * spread * orthogonal
    both = [frame, np.stack([frame + moved, frame - moved], 1)]
    return [rows * math.sqrt(product / np.square(rows).sum(-1).mean()) for rows in both]


def _certified(sizes: Mapping[str, float], loss: float) -> dict[str, float]:
    """Return the excess loss, and the bound on 1 - intra for all classes but a share delta."""
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
    """Return the (C, C) matrix of raised pairs: 1 for classes near each other on a circle, else 0.

    Every class is in `degree` raised pairs; an odd degree includes the opposite class.

    >>> raised(4, 1).tolist()[0], raised(6, 2).sum(0).tolist()
    ([0.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    """
    steps = [classes // 2] if degree % 2 else []
    steps += range(1, 1 + degree // 2)
    identity = np.eye(classes)
    neighbours = sum(np.roll(identity, s, 0) + np.roll(identity, -s, 0) for s in steps)
    return np.asarray(neighbours > 0, float)


def worst_network(classes: int, product: float, pairs: FloatArray, move: float) -> FloatArray:
    """Return the weights and features (2, C, d) of the network that raises the given pairs most.

    `move` is the distance by which the two classes of a pair move towards each other.

    >>> W, H = worst_network(4, 3.0, raised(4, 1), 0.1)
    >>> [round(float(np.square(rows).sum(1).mean()), 9) for rows in (W, H)]
    [3.0, 3.0]
    """
    frame = simplex_etf(classes, classes).numpy()
    stretch = classes * product / (classes - 1)
    ratio = (classes - stretch) / (classes + stretch)  # how far weights move if features move 1
    both = np.stack([frame + size * move * pairs @ frame for size in (ratio, 1.0)])
    return np.asarray(both * np.sqrt(product / np.square(both).sum(-1).mean(-1))[:, None, None])


def _certified_pairs(classes: int, product: float, loss: float, exempt: int) -> float | None:
    """Return the certified bound on inter + 1/(C-1) for all pairs but `exempt` of them."""
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
    """Return how the certified deviation grows: powers of epsilon and delta, rate in alpha beta.

    Each number is the least favourable one over the other sizes of the grid. The rate is the slope
    of log(deviation / epsilon^power) against alpha beta, times (C-1)/C.

    Args:
        power: power of epsilon by which deviations are divided before the rate is fitted.

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
    """Return the slope of the log of field `of` against the log of field `key`, over the rows."""
    logs = np.log([[row[key], row[of]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def largest_constant(rows: Sequence[Row], power: float) -> float:
    r"""Return the smallest constant K for which K times the printed rate bounds every deviation.

    $$K\,\frac{e^{\frac{C}{C-1}\alpha\beta}}{\alpha\beta}
      \Bigl(\frac{\varepsilon}{\delta}\Bigr)^{\mathrm{power}}$$

    The theorem writes O(1) for K and O(alpha beta) for the exponent.
    """
    constants = []
    for row in rows:
        classes, product = int(row["classes"]), float(row["product"])
        factor = math.exp(classes / (classes - 1) * product) / product
        printed = factor * (row["excess"] / row["delta"]) ** power
        constants.append(row["certified"] / printed)
    return float(max(constants))


def _near(rows: Sequence[Row]) -> int:
    """Count the combinations of C and alpha beta in which a network comes close to the bound."""
    regimes = {
        (row["classes"], row["product"])
        for row in rows
        if row["attained"] > 0 and row["certified"] <= NEAR * row["attained"]
    }
    return len(regimes)


def _describe(rows: Sequence[Row], over: Sequence[float], networks: str) -> str:
    """Return a sentence that says how the networks compare with the certified bound.

    Args:
        over: attained minus certified deviation of each row.
        networks: what is special about the networks.
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
    """Refute the claim if a network exceeds the certified bound on pairs.

    Otherwise compare the powers of epsilon and delta in the bound with the printed ones. The
    verdict is open if the bound is missing at some sizes, or falls more slowly than printed.
    """
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

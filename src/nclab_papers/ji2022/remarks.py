"""Section 5.2 of ji2022: remarks on other losses and on weight decay."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import max_abs
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.text import number
from nclab.ulpm.landscape import square_norm, tangent
from nclab.ulpm.problem import Array, Problem, log_gradient

CLASSES = 3
MARGIN = 3.0
"""Of the hinges. A simplex of three classes reaches it at |W||H| = 6."""
PRODUCTS = (1.5, 3.0, 12.0)
"""Of the norms of W and H, the last beyond that."""
Loss = Callable[[Array], float]
"""Of the (C, C) logits of one sample of every class, its own on the diagonal."""


def _margins(logits: Array) -> Array:
    """(C, C - 1) of every sample against the other classes."""
    own = np.diag(logits)
    apart: Array = (own - logits).T[~np.eye(len(logits), dtype=bool)]
    return apart.reshape(len(logits), -1)


def _short(logits: Array) -> Array:
    """By how much every margin falls short of that of the hinges."""
    return np.maximum(MARGIN - _margins(logits), 0.0)


LOSSES: dict[str, Loss] = {
    "cross entropy": lambda z: float(np.log1p(np.exp(-_margins(z)).sum(1)).mean()),
    "exponential": lambda z: float(np.exp(-_margins(z)).sum(1).mean()),
    "logistic of pairs": lambda z: float(np.log1p(np.exp(-_margins(z))).sum(1).mean()),
    "squared hinge": lambda z: float(np.square(_short(z)).sum(1).mean()),
    "hinge": lambda z: float(_short(z).sum(1).mean()),
    "square of margins": lambda z: float(np.square(_margins(z) - 1).sum(1).mean()),
    "square": lambda z: float(np.square(z - np.eye(len(z))).sum(0).mean()),
}
"""Convex in the logits, all of them; all but the last functions of the margins only. The first
three are strictly convex and strictly decreasing in every margin, the fourth while its margin is
not reached, the others are not."""


def kept(loss: str, product: float) -> bool:
    """Whether the corrected sentence speaks of a loss: strictly convex and decreasing margins.

    >>> kept("squared hinge", 3.0), kept("squared hinge", 12.0), kept("hinge", 3.0)
    (True, False, False)
    """
    reached = product / (CLASSES - 1) >= MARGIN  # by the margins of a simplex
    decreasing = ("cross entropy", "exponential", "logistic of pairs")
    return loss in decreasing or (loss == "squared hinge" and not reached)


def lowest(loss: str, *, product: float, seed: int) -> tuple[float, float]:
    """The least loss with |W| |H| at most `product` that a search finds, and a cosine of its means.

    The cosine is the mean one between features of different classes: -1/2 in a simplex of three.

    >>> value, cosine = lowest("cross entropy", product=3.0, seed=0)
    >>> round(cosine, 3)
    -0.5
    """
    from scipy.optimize import minimize

    shape, measure = (2, CLASSES, CLASSES), LOSSES[loss]

    def point(flat: Array) -> Array:
        parts = flat.reshape(shape)
        sizes = np.sqrt(np.square(parts).sum((1, 2), keepdims=True))
        return parts * np.minimum(1.0, math.sqrt(product) / sizes)

    def value(flat: Array) -> float:
        W, H = point(flat)
        return measure(W @ H.T)

    start = np.random.default_rng(seed).normal(size=shape).ravel()
    found = minimize(value, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    H = point(found.x)[1]
    units = H / np.linalg.norm(H, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(CLASSES, dtype=bool)]
    return value(found.x), float(cosines.mean())


FRAMES: dict[str, Array] = {
    "simplex": simplex_etf(CLASSES, CLASSES).numpy(),
    "orthogonal frame": np.eye(CLASSES),
    "line": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]),
}
"""W = H, up to size: collapse, and two points that are none."""


def least_of(frame: str, loss: str, *, product: float) -> float:
    """The least loss of W = H along a frame, of all sizes with |W| |H| at most `product`.

    >>> least_of("orthogonal frame", "square of margins", product=3.0)
    0.0
    """
    logits = FRAMES[frame] @ FRAMES[frame].T
    logits = logits / np.square(FRAMES[frame]).sum()
    return min(LOSSES[loss](size * logits) for size in np.linspace(0, product, 2401))


def _other_losses(preset: str) -> Numbers:
    rows = []
    for loss in LOSSES:
        for product in PRODUCTS:
            row: dict[str, Any] = {"loss": loss, "product": product, "kept": kept(loss, product)}
            row |= {name: least_of(name, loss, product=product) for name in FRAMES}
            if row["kept"]:
                tried = [lowest(loss, product=product, seed=seed) for seed in range(4)]
                row["lowest"], row["cosine"] = min(tried)
            rows.append(row)
    return {"rows": rows}


def _exception(row: Mapping[str, Any]) -> str:
    """A point that is not collapsed and as good as the best collapsed one, if there is any."""
    others = [name for name in FRAMES if name != "simplex"]
    best = min(others, key=lambda name: float(row[name]))
    return best if row[best] <= row["simplex"] + 1e-12 else ""


@claim(
    "ji2022/sec-5.2-convex",
    Kind.REMARK,
    "That collapse is the only global optimum of the norm-constrained model rests on convexity in "
    "the logits only, and so can be generalised to other losses that are convex in them.",
    "ji2022, Sec. 5.2 “thus can be generalized to other convex in”",
    gather=_other_losses,
    code="nclab_papers.ji2022.remarks.lowest",
)
def sec_5_2_convex(numbers: Numbers) -> Finding:
    """The corrected sentence must hold wherever it speaks, and every other loss have an exception.

    Where it speaks a search must end at a simplex, and points that are none be worse.
    """
    rows = numbers["rows"]
    spoken = [row for row in rows if row["kept"]]
    right = all(
        abs(row["lowest"] - row["simplex"]) <= 1e-5 * max(1e-2, row["simplex"])
        and abs(row["cosine"] + 0.5) <= 0.01
        and not _exception(row)
        for row in spoken
    )
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    for row in rows:
        if frame := _exception(row):
            found.setdefault(row["loss"], (row, frame))
    said = "; ".join(
        f"{loss} at |W||H| = {row['product']:g}: {number(row['simplex'])} at a simplex, "
        f"{number(row[frame])} at {'a line' if frame == 'line' else 'an orthogonal frame'}"
        for loss, (row, frame) in found.items()
    )
    names = ", ".join(dict.fromkeys(row["loss"] for row in spoken))
    evidence = (
        f"three classes, |W||H| = {', '.join(f'{product:g}' for product in PRODUCTS)}: the simplex "
        f"is the only optimum for {names}, which fall strictly in every margin and are strictly "
        f"convex in them, the squared hinge while its margin is not reached. Others that are "
        f"convex do not: {said or 'none'}"
    )
    if not right:
        return Finding(Verdict.REFUTED, evidence, numbers)
    if not found:
        return Finding(Verdict.HOLDS, evidence, numbers)
    every = set(found) == {row["loss"] for row in rows if not row["kept"]}
    return Finding(Verdict.CORRECTED if every else Verdict.OPEN, evidence, numbers)


RATE, DECAY, STEPS = 0.05, 0.1, 200
"""Of descent with weight decay, and its steps."""


def decayed(slope: Callable[[Array], Array], start: Array) -> Array:
    """The end of descent with weight decay.

    >>> end = float(decayed(lambda point: 0 * point, np.ones(1))[0])
    >>> round(end / (1 - RATE * DECAY) ** STEPS, 9)
    1.0
    """
    theta = start
    for _ in range(STEPS):
        theta = (1 - RATE * DECAY) * theta - RATE * slope(theta)
    return theta


def rescaled(slope: Callable[[Array], Array], start: Array, *, degree: int) -> Array:
    r"""The end of descent without weight decay, at the rates that are to be equivalent.

    $$\eta_t = \eta\,(1-\eta\lambda)^{(k-2)t-1}$$

    k is the degree of homogeneity of what is minimised; for k = 0 the rates grow exponentially.

    >>> bool(np.allclose(rescaled(lambda point: 0 * point, np.ones(1), degree=0), np.ones(1)))
    True
    """
    theta, shrunk = start, 1 - RATE * DECAY
    for step in range(STEPS):
        theta = theta - RATE * shrunk ** ((degree - 2) * step - 1) * slope(theta)
    return theta


def _apart(one: Array, other: Array) -> float:
    """The distance of two directions."""
    units = [point / math.sqrt(square_norm(point)) for point in (one, other)]
    return float(np.linalg.norm(units[0] - units[1]))


def _decay(preset: str) -> Numbers:
    problem = Problem(3, 2, 4)

    def on_sphere(theta: Array) -> Array:
        """Of the loss at radius 3 in the direction of theta: degree 0."""
        size = math.sqrt(square_norm(theta))
        found = tangent(problem, theta * (3 / size))
        return math.exp(found.log_loss) * found.gradient * (3 / size)

    def model(theta: Array) -> Array:
        """Of the layer-peeled model, whose logits are of degree 2."""
        value, slope = log_gradient(problem, theta)
        return math.exp(value) * slope

    starts = [problem.initial(scale=0.7, seed=seed) for seed in range(5)]
    invariant, homogeneous, turned, moved = [], [], [], []
    for start in starts:
        end, other = decayed(on_sphere, start), rescaled(on_sphere, start, degree=0)
        shrunk = (1 - RATE * DECAY) ** STEPS * other
        invariant.append(float(np.linalg.norm(end - shrunk) / np.linalg.norm(end)))
        moved.append(_apart(end, start))
        homogeneous.append(_apart(decayed(model, start), rescaled(model, start, degree=2)))
        near, far = (tangent(problem, size * start).gradient for size in (1.0, 2.0))
        turned.append(_apart(near, far))
    return {
        "scale_invariant": max_abs(invariant),
        "moved": min(moved),
        "homogeneous": min(homogeneous),
        "turned": min(turned),
    }


@claim(
    "ji2022/sec-5.2-decay",
    Kind.REMARK,
    "Weight decay on homogeneous networks is equivalent to gradient descent with rescaled steps "
    "on the unregularised objective.",
    "ji2022, Sec. 5.2 “network is equivalent to gradient descent with scaling step size”",
    gather=_decay,
    code="nclab_papers.ji2022.remarks.rescaled",
)
def sec_5_2_decay(numbers: Numbers) -> Finding:
    """Equivalent: the same directions. It must hold for degree 0, and as printed for degree 2."""
    evidence = (
        f"where only the direction matters (degree 0) both ends are the same but for a known "
        f"factor, to {number(numbers['scale_invariant'])}, and {number(numbers['moved'])} or more "
        f"from the direction of the start; "
        f"on the layer-peeled model (degree 2) they are {number(numbers['homogeneous'])} or more "
        f"apart, and at twice the norm the loss falls in another direction of the sphere "
        f"({number(numbers['turned'])} apart), so no rates can make up for it"
    )
    if not (numbers["scale_invariant"] <= 1e-9 and numbers["moved"] > 1e-2):
        return Finding(Verdict.REFUTED, evidence, numbers)
    if numbers["homogeneous"] <= 1e-9:
        return Finding(Verdict.HOLDS, evidence, numbers)
    return Finding(
        Verdict.CORRECTED if numbers["turned"] > 1e-2 else Verdict.OPEN, evidence, numbers
    )

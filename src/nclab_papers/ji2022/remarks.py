"""Section 5.2 of ji2022: other losses whose optimum is collapsed, and descent with weight decay."""

import itertools
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
"""Margin above which both hinge losses are zero; a simplex ETF of three classes reaches it at
|W||H| = 6."""
PRODUCTS = (1.5, 3.0, 12.0)
"""Bounds on |W||H|; only the last one lets a simplex ETF exceed the margin of the hinge losses."""
Loss = Callable[[Array], float]
"""Loss as a function of (C, C) logits; column c belongs to the only sample of class c."""


def _margins(logits: Array) -> Array:
    """Return (C, C - 1) margins of every sample against the other classes."""
    correct = np.diag(logits)
    margins: Array = (correct - logits).T[~np.eye(len(logits), dtype=bool)]
    return margins.reshape(len(logits), -1)


def _shortfalls(logits: Array) -> Array:
    """Return for every margin by how much it is below `MARGIN`, or 0 if it is not below."""
    return np.maximum(MARGIN - _margins(logits), 0.0)


LOSSES: dict[str, Loss] = {
    "cross entropy": lambda z: float(np.log1p(np.exp(-_margins(z)).sum(1)).mean()),
    "exponential": lambda z: float(np.exp(-_margins(z)).sum(1).mean()),
    "logistic of pairs": lambda z: float(np.log1p(np.exp(-_margins(z))).sum(1).mean()),
    "squared hinge": lambda z: float(np.square(_shortfalls(z)).sum(1).mean()),
    "hinge": lambda z: float(_shortfalls(z).sum(1).mean()),
    "square of margins": lambda z: float(np.square(_margins(z) - 1).sum(1).mean()),
    "square": lambda z: float(np.square(z - np.eye(len(z))).sum(0).mean()),
}
"""Losses that are convex in the logits. All but the last depend on the margins only. The first
three are strictly convex and strictly decreasing in every margin. The squared hinge has both
properties only where margins are below `MARGIN`; the others lack them."""


STRICT = ("cross entropy", "exponential", "logistic of pairs")
"""Losses that are strictly convex and strictly decreasing in every margin."""


def search_minimum(loss: str, *, product: float, seed: int) -> tuple[float, float]:
    """Return the smallest loss found with |W||H| at most `product`, and the mean feature cosine.

    The mean is over pairs of features of different classes; it is -1/2 for a simplex ETF of three
    classes.
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
    minimum = minimize(value, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    H = point(minimum.x)[1]
    units = H / np.linalg.norm(H, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(CLASSES, dtype=bool)]
    return value(minimum.x), float(cosines.mean())


FRAMES: dict[str, Array] = {
    "simplex": simplex_etf(CLASSES, CLASSES).numpy(),
    "orthogonal frame": np.eye(CLASSES),
    "line": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]),
}
"""Points with W = H, given by their rows up to a factor; only the simplex is collapsed."""


def _other_losses(preset: str) -> Numbers:
    """Return for every loss function and bound on |W||H| the smallest loss of each of `FRAMES`.

    A frame is multiplied by the best number that the bound allows. Where the corrected claim says
    that a simplex ETF is optimal, also search for the smallest loss over all W and H.
    """
    rows = []
    for (loss, measure), product in itertools.product(LOSSES.items(), PRODUCTS):
        reached = product / (CLASSES - 1) >= MARGIN  # a simplex ETF has these margins
        is_covered = loss in STRICT or (loss == "squared hinge" and not reached)
        row: dict[str, Any] = {"loss": loss, "product": product, "kept": is_covered}
        for name, frame in FRAMES.items():
            logits = frame @ frame.T / np.square(frame).sum()
            row[name] = min(measure(size * logits) for size in np.linspace(0, product, 2401))
        if is_covered:
            minima = [search_minimum(loss, product=product, seed=seed) for seed in range(4)]
            row["lowest"], row["cosine"] = min(minima)
        rows.append(row)
    return {"rows": rows}


def _exception(row: Mapping[str, Any]) -> str:
    """Return the name of the best frame without collapse; "" if a simplex has a smaller loss."""
    best = min(("orthogonal frame", "line"), key=lambda name: float(row[name]))
    return best if row[best] <= row["simplex"] + 1e-12 else ""


@claim(
    "ji2022/sec-5.2-convex",
    Kind.REMARK,
    "That collapse is the only global optimum of the norm-constrained model rests on convexity in "
    "the logits only, and so can be generalised to other losses that are convex in them.",
    "ji2022, Sec. 5.2 “thus can be generalized to other convex in”",
    gather=_other_losses,
    code="nclab_papers.ji2022.remarks.search_minimum",
)
def sec_5_2_convex(numbers: Numbers) -> Finding:
    """Require collapse wherever the corrected claim holds; elsewhere, another frame as good.

    Where the corrected claim holds, a search must end at a simplex, and other frames must have a
    larger loss.
    """
    rows = numbers["rows"]
    covered = [row for row in rows if row["kept"]]
    right = all(
        abs(row["lowest"] - row["simplex"]) <= 1e-5 * max(1e-2, row["simplex"])
        and abs(row["cosine"] + 0.5) <= 0.01
        and not _exception(row)
        for row in covered
    )
    exceptions: dict[str, tuple[Mapping[str, Any], str]] = {}
    for row in rows:
        if frame := _exception(row):
            exceptions.setdefault(row["loss"], (row, frame))
    examples = "; ".join(
        f"{loss} at |W||H| = {row['product']:g}: {number(row['simplex'])} at a simplex, "
        f"{number(row[frame])} at {'a line' if frame == 'line' else 'an orthogonal frame'}"
        for loss, (row, frame) in exceptions.items()
    )
    names = ", ".join(dict.fromkeys(row["loss"] for row in covered))
    evidence = (
        f"three classes with |W||H| = {', '.join(f'{product:g}' for product in PRODUCTS)}: the "
        f"simplex is the only optimum for {names}. These losses are strictly decreasing and "
        f"strictly convex in every margin (the squared hinge while its margin is not reached). "
        f"Other convex losses have another optimum: {examples or 'none'}"
    )
    if not right:
        return Finding(Verdict.REFUTED, evidence, numbers)
    if not exceptions:
        return Finding(Verdict.HOLDS, evidence, numbers)
    every = set(exceptions) == {row["loss"] for row in rows if not row["kept"]}
    return Finding(Verdict.CORRECTED if every else Verdict.OPEN, evidence, numbers)


RATE, DECAY, STEPS = 0.05, 0.1, 200
"""Learning rate, weight decay and number of steps of the descents."""


def descend_with_decay(gradient: Callable[[Array], Array], start: Array) -> Array:
    """Return the last point of gradient descent with weight decay."""
    theta = start
    for _ in range(STEPS):
        theta = (1 - RATE * DECAY) * theta - RATE * gradient(theta)
    return theta


def descend_rescaled(gradient: Callable[[Array], Array], start: Array, *, degree: int) -> Array:
    r"""Return the last point of descent without weight decay, with a learning rate that changes.

    $$\eta_t = \eta\,(1-\eta\lambda)^{(k-2)t-1}$$

    The paper claims that this is equivalent to descent with learning rate eta and weight decay
    lambda. t is the step and k the degree of homogeneity of the objective: for k = 0 the rates grow
    exponentially, for k = 2 they are constant.
    """
    theta, shrunk = start, 1 - RATE * DECAY
    for step in range(STEPS):
        theta = theta - RATE * shrunk ** ((degree - 2) * step - 1) * gradient(theta)
    return theta


def _direction_distance(first: Array, second: Array) -> float:
    """Return the distance between the unit vectors of two points."""
    units = [point / math.sqrt(square_norm(point)) for point in (first, second)]
    return float(np.linalg.norm(units[0] - units[1]))


def _decay(preset: str) -> Numbers:
    """Compare descent with weight decay to descent with changing rates, on two objectives.

    The first objective is the loss at a fixed norm, homogeneous of degree 0. The second is the
    layer-peeled model, whose logits are homogeneous of degree 2.
    """
    problem = Problem(3, 2, 4)

    def on_sphere(theta: Array) -> Array:
        """Return the gradient of L(3 theta/|theta|), a loss that has degree 0 in theta."""
        size = math.sqrt(square_norm(theta))
        point = tangent(problem, theta * (3 / size))
        return math.exp(point.log_loss) * point.gradient * (3 / size)

    def model(theta: Array) -> Array:
        """Return the gradient of the layer-peeled model, whose logits have degree 2."""
        value, slope = log_gradient(problem, theta)
        return math.exp(value) * slope

    invariant, homogeneous, turned, moved = [], [], [], []
    for seed in range(5):
        start = problem.initial(scale=0.7, seed=seed)
        end = descend_with_decay(on_sphere, start)
        shrunk = (1 - RATE * DECAY) ** STEPS * descend_rescaled(on_sphere, start, degree=0)
        invariant.append(float(np.linalg.norm(end - shrunk) / np.linalg.norm(end)))
        moved.append(_direction_distance(end, start))
        ends = descend_with_decay(model, start), descend_rescaled(model, start, degree=2)
        homogeneous.append(_direction_distance(*ends))
        near, far = (tangent(problem, size * start).gradient for size in (1.0, 2.0))
        turned.append(_direction_distance(near, far))
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
    code="nclab_papers.ji2022.remarks.descend_rescaled",
)
def sec_5_2_decay(numbers: Numbers) -> Finding:
    """Require that both descents end in the same direction for degree 0, and for degree 2.

    The paper claims both. If only degree 0 agrees, the claim is corrected.
    """
    evidence = (
        f"on an objective of degree 0, where only the direction matters, both descents end at the "
        f"same point up to a known factor (error {number(numbers['scale_invariant'])}), "
        f"{number(numbers['moved'])} or more from the direction of the start. On the layer-peeled "
        f"model (degree 2) the directions at the end differ by {number(numbers['homogeneous'])} or "
        f"more. At twice the norm the loss falls in another direction of the sphere (difference "
        f"{number(numbers['turned'])}), so no learning rates make both descents equivalent"
    )
    if not (numbers["scale_invariant"] <= 1e-9 and numbers["moved"] > 1e-2):
        return Finding(Verdict.REFUTED, evidence, numbers)
    if numbers["homogeneous"] <= 1e-9:
        return Finding(Verdict.HOLDS, evidence, numbers)
    verdict = Verdict.CORRECTED if numbers["turned"] > 1e-2 else Verdict.OPEN
    return Finding(verdict, evidence, numbers)

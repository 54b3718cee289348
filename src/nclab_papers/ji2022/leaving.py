"""Remark 3.3 of ji2022: noise has a part along the ways down from a saddle, and when it leaves."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import max_abs
from nclab.text import number
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.landscape import hessian_product, smallest_eigenpairs
from nclab.ulpm.problem import Array, logit_gradient

DRAWN = 1_000
"""Draws of noise."""
SCALES = (0.5, 1.0, 1.5)
"""Of the point, C in the paper."""
RATE = 0.1
"""On the sum of the losses, as in the runs from the saddle."""
SEEDS = 8
OFF = 0.1
"""Sine of the angle to the ray from which on a run is off it."""
FEW = 1_000
"""Iterations that are a small number: a hundredth of the paper's 1e5 epochs."""
STEPS = 10_000
"""After which nobody waits any longer."""
ONE_SAMPLE = "one sample"
NOISES = {"0.1": 0.1, "0.01": 0.01, "as large as the gradient": 1.0, ONE_SAMPLE: 0.0}
"""Normal noise in every coordinate: of two sizes that stay, and of one that falls with the gradient
(root mean square); and descent on one sample a step, whose noise has no density."""


def _weights(points: Array) -> Array:
    """(R, samples, classes) softmax less one-hot labels, at R points at once."""
    W, H = points[:, :4], points[:, 4:]
    logits = H @ W.transpose(0, 2, 1)
    odds = np.exp(logits - logits.max(2, keepdims=True))
    weights: Array = odds / odds.sum(2, keepdims=True) - np.eye(4)
    return weights


def leave(noise: str, *, steps: int = STEPS, seeds: int = SEEDS) -> tuple[Array, Array]:
    """When descent from the point of Example 3.1 leaves its ray for good, and how far off it ends.

    Two arrays (scales, seeds): the first step from which on the sine of the angle is `OFF` or more,
    nan where it is less at the end, and the sine at the end.

    >>> when, off = leave("0.1", steps=1000, seeds=2)
    >>> bool(np.all(when > 10)), bool(np.all(off > OFF))
    (True, True)
    """
    size, rng = NOISES[noise], np.random.default_rng(0)
    theta = np.concatenate([np.tile(example_point(scale), (seeds, 1, 1)) for scale in SCALES])
    runs = len(theta)
    ray = example_point(1.0) / np.linalg.norm(example_point(1.0))
    inside, sine = np.zeros(runs), np.zeros(runs)
    for step in range(1, steps + 1):
        weights = _weights(theta)
        if noise == ONE_SAMPLE:
            drawn = np.zeros((runs, 4, 1))
            drawn[np.arange(runs), rng.integers(4, size=runs)] = 4.0
            weights = weights * drawn
        W, H = theta[:, :4], theta[:, 4:]
        gradient = np.concatenate([weights.transpose(0, 2, 1) @ H, weights @ W], axis=1)
        falls = noise == "as large as the gradient"
        spread = np.sqrt(np.square(gradient).mean((1, 2), keepdims=True)) if falls else 1.0
        if size:
            gradient = gradient + size * spread * rng.normal(size=gradient.shape)
        theta = theta - RATE * gradient
        along = np.tensordot(theta, ray, 2)
        lengths = np.square(theta).sum((1, 2))
        sine = np.sqrt(np.maximum(0.0, 1.0 - np.square(along) / lengths))
        inside = np.where(sine < OFF, step, inside)
    when = np.where(sine >= OFF, inside + 1, np.nan)
    return when.reshape(len(SCALES), seeds), sine.reshape(len(SCALES), seeds)


def _projections() -> dict[str, Any]:
    """How much of noise is along the two ways down."""
    problem, theta = example_problem(), example_point(1.0)
    pairs = smallest_eigenpairs(problem, theta, count=2)
    bend, down = hessian_product(problem, theta), pairs.vectors.reshape(2, -1)
    bent = [bend(way) - value * way for value, way in zip(*pairs[:2], strict=True)]
    W, H = problem.split(theta)
    samples = []
    for sample in range(problem.samples):
        share = np.zeros(problem.samples)
        share[sample] = 1.0
        weights = logit_gradient(problem, theta, share).weights
        samples.append(np.concatenate([weights.T @ H, weights @ W]).ravel())
    noise = np.array(samples) - np.mean(samples, axis=0)
    normal = np.random.default_rng(2).normal(size=(DRAWN, theta.size))
    shares = np.linalg.norm(normal @ down.T, axis=1) / np.linalg.norm(normal, axis=1)
    return {
        "minibatch": float(np.linalg.norm(noise @ down.T) / np.linalg.norm(noise)),
        "least": float(shares.min()),
        "mean_square": float(np.square(shares).mean()) * theta.size / len(down),
        "eigenvalues": pairs.values.tolist(),
        "eigen_error": max_abs([max_abs(bent), max_abs(down @ down.T - np.eye(2))]),
    }


def _leaving(preset: str) -> Numbers:
    runs = []
    for noise in NOISES:
        for scale, steps, sines in zip(SCALES, *leave(noise), strict=True):
            counts = [None if math.isnan(one) else int(one) for one in steps]
            row = {"noise": noise, "scale": scale, "left": counts, "off": float(sines.max())}
            runs.append(row)
    return {**_projections(), "runs": runs}


def _soon(run: Mapping[str, Any]) -> bool:
    """Whether every seed has left after a small number of iterations."""
    return all(one is not None and 0 < one <= FEW for one in run["left"])


def _said(run: Mapping[str, Any]) -> str:
    """When the seeds of a run leave."""
    left = [one for one in run["left"] if one is not None]
    count = f"{len(left)} of {len(run['left'])} leave"
    return f"C = {run['scale']:g}: {count}" + (f" after {min(left)} to {max(left)}" if left else "")


@claim(
    "ji2022/remark-3.3",
    Kind.REMARK,
    "The noise of a large family of stochastic algorithms has a component along the decreasing "
    "direction with probability 1, so that these algorithms escape the bad point and no longer "
    "move along its direction within a small number of iterations.",
    "ji2022, Remark 3.3 “the projection of noise onto this decreasing direction”",
    gather=_leaving,
    code="nclab.ulpm.landscape.smallest_eigenpairs",
    figure="escape",
)
def remark_3_3(numbers: Numbers) -> Finding:
    """Noise with a density must have the component; then it must leave the ray, and soon.

    The source states neither rate nor size of the noise: where only some leave soon, that is a
    matter of the choice.
    """
    least, mean, runs = numbers["least"], numbers["mean_square"], numbers["runs"]
    told = "; ".join(
        f"{'noise ' if noise != ONE_SAMPLE else ''}{noise}, "
        + ", ".join(_said(run) for run in runs if run["noise"] == noise)
        for noise in NOISES
    )
    evidence = (
        f"{DRAWN} draws of noise with a density in all coordinates have a component along the "
        f"decreasing directions of Example 3.1, {number(least)} of their norm or more and in the "
        f"mean square {number(mean)} times the share of two directions of all; noise of "
        f"single samples, which has no density, has {number(numbers['minibatch'])} there. Off the "
        f"ray for good, by a sine of {OFF:g} or more, within {STEPS} iterations at rate {RATE:g}: "
        f"{told}"
    )
    if not (max(numbers["eigenvalues"]) < 0 and numbers["eigen_error"] <= 1e-9):
        why = f"the decreasing directions are wrong by {number(numbers['eigen_error'])}"
        return Finding(Verdict.OPEN, why, numbers)
    if not (least > 0 and abs(mean - 1) <= 0.2):
        return Finding(Verdict.REFUTED, evidence, numbers)
    soon = {
        noise: all(_soon(run) for run in runs if run["noise"] == noise)
        for noise in NOISES
        if noise != ONE_SAMPLE
    }
    if all(soon.values()):
        return Finding(Verdict.HOLDS, evidence, numbers)
    return Finding(Verdict.UNDECIDED if any(soon.values()) else Verdict.REFUTED, evidence, numbers)

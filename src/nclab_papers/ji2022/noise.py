"""Remark 3.3 of ji2022: which noise makes descent escape from a saddle, and how soon."""

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
from nclab_papers.ji2022.saddle import SCALES

DRAWS = 1_000
"""Number of random draws of noise."""

RATE = 0.1
"""Learning rate on the summed loss, as in the runs from the saddle."""
SEEDS = 8
OFF_RAY = 0.1
"""A run has left the ray of Example 3.1 if the sine of its angle to the ray is at least this."""
FEW_STEPS = 1_000
"""Largest "small number of iterations": one hundredth of the paper's 1e5 epochs."""
STEPS = 10_000
"""Number of steps of every run."""
ONE_SAMPLE = "one sample"
NOISES = {"0.1": 0.1, "0.01": 0.01, "as large as the gradient": 1.0, ONE_SAMPLE: 0.0}
"""Kinds of noise with their sizes. The first three are normal noise on every coordinate of the
gradient: with two constant standard deviations, and with the root mean square of the gradient. The
last is descent on one random sample per step; its noise takes finitely many values, so it has no
density."""


def escape_steps(noise: str, *, steps: int = STEPS, seeds: int = SEEDS) -> tuple[Array, Array]:
    """Return when descent from Example 3.1 leaves its ray for good, and the sine at the end.

    Both arrays have shape (scales, seeds). The sine is that of the angle to the ray. After the step
    in the first array it stays at `OFF_RAY` or more; nan if it is smaller at the end.
    """
    size, rng = NOISES[noise], np.random.default_rng(0)
    theta = np.concatenate([np.tile(example_point(scale), (seeds, 1, 1)) for scale in SCALES])
    runs = len(theta)
    ray = example_point(1.0) / np.linalg.norm(example_point(1.0))
    last_on_ray, sine = np.zeros(runs), np.zeros(runs)
    for step in range(1, steps + 1):
        W, H = theta[:, :4], theta[:, 4:]
        logits = H @ W.transpose(0, 2, 1)  # (runs, samples, classes)
        odds = np.exp(logits - logits.max(2, keepdims=True))
        outputs = odds / odds.sum(2, keepdims=True) - np.eye(4)
        if noise == ONE_SAMPLE:
            weights = np.zeros((runs, 4, 1))
            weights[np.arange(runs), rng.integers(4, size=runs)] = 4.0
            outputs = outputs * weights
        gradient = np.concatenate([outputs.transpose(0, 2, 1) @ H, outputs @ W], axis=1)
        relative = noise == "as large as the gradient"
        unit = np.sqrt(np.square(gradient).mean((1, 2), keepdims=True)) if relative else 1.0
        if size:
            gradient = gradient + size * unit * rng.normal(size=gradient.shape)
        theta = theta - RATE * gradient
        along = np.tensordot(theta, ray, 2)
        squares = np.square(theta).sum((1, 2))
        sine = np.sqrt(np.maximum(0.0, 1.0 - np.square(along) / squares))
        last_on_ray = np.where(sine < OFF_RAY, step, last_on_ray)
    left = np.where(sine >= OFF_RAY, last_on_ray + 1, np.nan)
    return left.reshape(len(SCALES), seeds), sine.reshape(len(SCALES), seeds)


def _projections() -> dict[str, Any]:
    """Measure how much of the noise at Example 3.1 is along the directions of negative curvature.

    There are two such directions. Two noises are measured: normal, and that of single samples.
    """
    problem, theta = example_problem(), example_point(1.0)
    pairs = smallest_eigenpairs(problem, theta, count=2)
    hessian, down = hessian_product(problem, theta), pairs.vectors.reshape(2, -1)
    residuals = [hessian(v) - value * v for value, v in zip(*pairs[:2], strict=True)]
    W, H = problem.split(theta)
    gradients = []
    for sample in range(problem.samples):
        share = np.zeros(problem.samples)
        share[sample] = 1.0
        weights = logit_gradient(problem, theta, share).weights
        gradients.append(np.concatenate([weights.T @ H, weights @ W]).ravel())
    noise = np.array(gradients) - np.mean(gradients, axis=0)
    normal = np.random.default_rng(2).normal(size=(DRAWS, theta.size))
    shares = np.linalg.norm(normal @ down.T, axis=1) / np.linalg.norm(normal, axis=1)
    return {
        "minibatch": float(np.linalg.norm(noise @ down.T) / np.linalg.norm(noise)),
        "least": float(shares.min()),
        "mean_square": float(np.square(shares).mean()) * theta.size / len(down),
        "eigenvalues": pairs.values.tolist(),
        "eigen_error": max_abs([max_abs(residuals), max_abs(down @ down.T - np.eye(2))]),
    }


def _escapes(preset: str) -> Numbers:
    runs = []
    for noise in NOISES:
        for scale, steps, sines in zip(SCALES, *escape_steps(noise), strict=True):
            left = [None if math.isnan(step) else int(step) for step in steps]
            runs.append({"noise": noise, "scale": scale, "left": left, "off": float(sines.max())})
    return {**_projections(), "runs": runs}


def _summary(run: Mapping[str, Any]) -> str:
    """Return text that says how many seeds of a run leave the ray, and after how many steps."""
    left = [step for step in run["left"] if step is not None]
    count = f"{len(left)} of {len(run['left'])} leave"
    return f"C = {run['scale']:g}: {count}" + (f" after {min(left)} to {max(left)}" if left else "")


@claim(
    "ji2022/remark-3.3",
    Kind.REMARK,
    "The noise of a large family of stochastic algorithms has a component along the decreasing "
    "direction with probability 1, so that these algorithms escape the bad point and no longer "
    "move along its direction within a small number of iterations.",
    "ji2022, Remark 3.3 “the projection of noise onto this decreasing direction”",
    gather=_escapes,
    code="nclab.ulpm.landscape.smallest_eigenpairs",
    figure="escape",
)
def remark_3_3(numbers: Numbers) -> Finding:
    """Require that noise with a density points partly downhill, and that such runs escape soon.

    The source states neither learning rate nor noise size. If only some noises escape soon, the
    verdict depends on that choice.
    """
    least, mean, runs = numbers["least"], numbers["mean_square"], numbers["runs"]
    escapes = "; ".join(
        f"{'noise ' if noise != ONE_SAMPLE else ''}{noise}, "
        + ", ".join(_summary(run) for run in runs if run["noise"] == noise)
        for noise in NOISES
    )
    evidence = (
        f"{DRAWS} draws of noise with a density have a component along the two decreasing "
        f"directions of Example 3.1: at least {number(least)} of their norm, in the mean square "
        f"{number(mean)} times what two directions should have. Noise of single samples, which "
        f"has no density, has {number(numbers['minibatch'])}. Runs that leave the ray for good "
        f"(sine at least {OFF_RAY:g}) within {STEPS} iterations at rate {RATE:g}: {escapes}"
    )
    if not (max(numbers["eigenvalues"]) < 0 and numbers["eigen_error"] <= 1e-9):
        reason = f"the decreasing directions have an error of {number(numbers['eigen_error'])}"
        return Finding(Verdict.OPEN, reason, numbers)
    if not (least > 0 and abs(mean - 1) <= 0.2):
        return Finding(Verdict.REFUTED, evidence, numbers)
    soon = {
        noise: all(
            step is not None and 0 < step <= FEW_STEPS
            for run in runs
            if run["noise"] == noise
            for step in run["left"]
        )
        for noise in NOISES
        if noise != ONE_SAMPLE
    }
    few = f"within {FEW_STEPS:,} iterations"
    answer = (
        f"Every noise with a density has the component; the runs leave the direction {few} for "
        f"{sum(soon.values())} of {len(soon)} sizes of noise"
    )
    leaving = ", ".join(noise for noise, leaves in soon.items() if leaves)
    answer += f" ({leaving})." if leaving else "."
    verdict = Verdict.HOLDS if all(soon.values()) else Verdict.REFUTED
    verdict = Verdict.DEPENDS if len(set(soon.values())) > 1 else verdict
    return Finding(verdict, evidence, numbers, answer)

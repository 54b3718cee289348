r"""Lower bounds on what any network of a setting can reach, from a guess of its probabilities.

For distributions q of the samples with targets T, $\ell(z) \ge (q-T)^\top z + H(q)$, so if
$G = (Q-T)/n$ has norm at most t, every (W, H) has
$J \ge \operatorname{mean} H(q) + \langle G, WH\rangle + t\|W\|\|H\| \ge \operatorname{mean} H(q)$.
A bias adds $r^\top b + \lambda_b\|b\|^2/2 \ge -\|r\|^2/2\lambda_b$ with r = G1.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nclab.theory.targets.program import (
    LogitPoint,
    Program,
    Residuals,
    evaluate,
    mean_entropy,
    residuals,
)

BANDS = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 0.3)
"""Singular values of G this near to t, relatively, are tried as t: at the optimum they are."""


class Guess(NamedTuple):
    """Distributions: (G, G) of other classes in each group, (G,) of the own class."""

    others: Tensor
    own: Tensor


def lower_bound(program: Program, point: LogitPoint) -> float:
    """No network of the program has an objective below this number.

    The probabilities of the point are made feasible in two ways: all are moved towards the targets
    until |G| <= t, and the singular values of G next to t are set to t. The second loses only the
    square of the point's distance to the optimum. Costs an SVD of G x G.
    """
    found = residuals(program, evaluate(program, point))
    even = (program.sizes * program.metric).sqrt()
    even = even / even.norm()
    level = found.common - torch.outer(found.common @ even, even)  # G 1 = 0
    if program.bias is None:
        return _feasible(program, found)
    if program.bias == 0:  # else a free bias could gain without end
        return _feasible(program, found._replace(common=level))
    return max(
        _feasible(program, found),
        _feasible(program, found._replace(common=level)),  # better where the penalty is tiny
    )


def _feasible(program: Program, found: Residuals) -> float:
    """The best bound of residuals that are made feasible."""
    left, values, right = torch.linalg.svd(found.common)
    t = program.weight
    largest = max(float(values.max()), float(found.within.max()), 1e-300)
    shrink = min(1.0, t / largest) * (1 - 1e-15)
    base = _guess(program, Residuals(found.common * shrink, found.within * shrink))
    best = _dual_value(program, base)
    for band in BANDS:
        common = (left * _rounded(values, t, band)) @ right
        guess = _guess(program, Residuals(common, _rounded(found.within, t, band)))
        best = max(best, _dual_value(program, _mixed(base, guess)))
    return best


def _rounded(values: Tensor, t: float, band: float) -> Tensor:
    return torch.where(values > t * (1 - band), torch.full_like(values, t * (1 - 1e-15)), values)


def _guess(program: Program, residuals: Residuals) -> Guess:
    """The distributions that have these residuals."""
    slopes = residuals.common * program.scale / program.share
    total = slopes.diagonal()
    spread = residuals.within / program.steepness
    same = (total + spread) / program.sizes
    own = torch.where(program.sizes > 1, same - spread, total)
    others = (slopes + program.mass) / program.sizes[:, None]
    others.diagonal().copy_(torch.where(program.sizes > 1, same + program.same, 0.0))
    return Guess(others, own + program.own)


def _mixed(base: Guess, wanted: Guess) -> Guess:
    """As near to what is wanted as has no negative probability."""
    way = 1.0
    for old, new in zip(base, wanted, strict=True):
        below = new < 0
        if bool(below.any()):
            way = min(way, float((old[below] / (old[below] - new[below])).min()))
    way = max(0.0, way if way == 1.0 else way * (1 - 1e-9))
    return Guess(*(old + way * (new - old) for old, new in zip(base, wanted, strict=True)))


def _dual_value(program: Program, guess: Guess) -> float:
    if float(guess.others.min()) < -1e-15 or float(guess.own.min()) < -1e-15:
        return float("-inf")
    guess = Guess(guess.others.clamp(min=0), guess.own.clamp(min=0))
    value = mean_entropy(guess.others, guess.own, program)
    if program.bias:
        mass = guess.others * program.sizes[:, None]
        mass.diagonal().copy_((program.sizes - 1) * guess.others.diagonal() + guess.own)
        rest = (mass - program.mass) @ program.share / program.sizes
        value -= float(program.sizes @ rest.square()) / (2 * program.bias)
    return value

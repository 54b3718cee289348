"""Example 3.1 of ji2022: a direction in which plain descent is stuck, and what leaves it."""

import math
from dataclasses import dataclass

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.descent import Disturbance, descend, normalised_descent
from nclab.ulpm.problem import Array, Problem, log_loss
from nclab.ulpm.trajectory import Trajectory

DIRECTION = np.array(
    [[1.0, -1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0], [0.0, 0.0, -1.0, 1.0]]
)
"""W = H of Eq. (7) at scale 1."""


def example_problem() -> Problem:
    """Four classes, one sample each, d = 4, the sum loss of Eq. (4).

    >>> example_problem().shape
    (8, 4)
    """
    return Problem(num_classes=4, per_class=1, dim=4, reduction="sum")


def example_point(scale: float = 1.0) -> Array:
    """The point of Eq. (7): two pairs of opposite classes, the pairs orthogonal.

    Source: ji2022, Eq. (7)

    >>> example_point(2.0)[0].tolist()
    [2.0, -2.0, 0.0, 0.0]
    """
    if not (math.isfinite(scale) and scale > 0):
        raise NclabError(f"Expected a positive scale, got {scale}.")
    return scale * np.concatenate([DIRECTION, DIRECTION])


def example_multipliers() -> Array:
    """The multipliers of Eq. (8), right at the scale 1/sqrt(2), where the margin is 1.

    Source: ji2022, Eq. (8)

    >>> example_multipliers()[0].tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    pair = np.ones((2, 2))
    none = np.zeros((2, 2))
    return 0.5 * np.block([[none, pair], [pair, none]])


def gradient_coefficient(scale: float) -> float:
    r"""The gradient at the point is minus this times the point.

    $$\frac{2+2e^{-2c^2}}{2+e^{-2c^2}+e^{2c^2}}$$

    Source: ji2022, Eq. (9) (with its denominator put right)
    Range: (0, 1].

    >>> round(gradient_coefficient(1.0), 7)
    0.2384058
    """
    e = math.exp(-2 * scale**2)
    return (2 + 2 * e) * e / (2 * e + e**2 + 1)


def printed_gradient_coefficient(scale: float) -> float:
    r"""The coefficient as the paper prints it: the denominator has two factors 2 too many.

    $$\frac{2+2e^{-2c^2}}{2+2e^{-2c^2}+2e^{2c^2}}$$

    Source: ji2022, Eq. (9)
    Range: (0, 2/3].

    >>> round(printed_gradient_coefficient(1.0), 7)
    0.1331867
    """
    e = math.exp(-2 * scale**2)
    return (2 + 2 * e) * e / (2 * e + 2 * e**2 + 2)


def family_point(scale: float, beta: float) -> Array:
    r"""The paper's family through the point: beta = 0 is the point, all have its norm.

    $$\alpha^2+2\beta^2=1,\quad \alpha<0$$

    Source: ji2022, Eq. (10)

    >>> bool(np.allclose(family_point(1.0, 0.0), example_point(1.0)))
    True
    """
    if abs(beta) > math.sqrt(0.5):
        raise NclabError(f"Expected |beta| <= sqrt(1/2), got {beta}.")
    alpha = -math.sqrt(1 - 2 * beta**2)
    block = np.array([[1.0, alpha], [alpha, 1.0]])
    across = np.full((2, 2), beta)
    matrix = scale * np.block([[block, across], [across, block]])
    return np.concatenate([matrix, matrix])


def family_change(scale: float, beta: float) -> float:
    r"""Loss on the family minus loss at the point: positive for small beta.

    $$L(W',H')-L(W,H)$$

    Source: ji2022, Eq. (11) (which claims <= 0 arbitrarily close; false for this family)

    The point is a strict saddle all the same, see `landscape.classify`: the way down is another.

    >>> [f"{family_change(1.0, beta):.1e}" for beta in (-0.01, -0.3)]
    ['2.1e-05', '-2.1e-02']
    """
    problem = example_problem()
    before, after = (log_loss(problem, family_point(scale, b)) for b in (0.0, beta))
    return math.exp(before) * math.expm1(after - before)


def off_ray(theta: Array) -> float:
    """Sine of the angle between a point and the ray of Example 3.1.

    >>> off_ray(example_point(3.0))
    0.0
    """
    ray = example_point(1.0)
    ray /= np.linalg.norm(ray)
    along = float(np.vdot(theta, ray)) * ray
    return float(np.linalg.norm(theta - along) / np.linalg.norm(theta))


def off_plane(theta: Array) -> float:
    """The third singular value over the first: 0 while W and H span no more than a plane.

    >>> off_plane(example_point(3.0)) < 1e-15
    True
    """
    values = np.linalg.svd(theta, compute_uv=False)
    return float(values[2] / values[0])


@dataclass(frozen=True)
class EscapeRuns:
    """Four runs around the point of Example 3.1."""

    stuck: Trajectory
    """Plain descent: stays on the ray."""
    stochastic: Trajectory
    """One sample a step: leaves the ray but not the plane of W and H, which holds no ETF."""
    noisy: Trajectory
    """Normal noise in the gradient: leaves the plane."""
    settled: Trajectory
    """Normalised descent from where the noisy run ended: goes to the closed-form optimum."""

    def ends(self) -> dict[str, dict[str, float]]:
        """Where each run ended, as plain JSON values: off the ray, off the plane, and how good."""
        return {
            name: {
                "off_ray": off_ray(run.theta),
                "off_plane": off_plane(run.theta),
                "normalised_margin": run.last.normalised_margin,
                "norm": math.hypot(run.last.weight_norm, run.last.feature_norm),
                "log_loss": run.last.log_loss,
            }
            for name, run in vars(self).items()
        }


def run_escape(
    *,
    scale: float = 1.0,
    steps: int = 10_000,
    rate: float = 0.1,
    noise: float = 0.1,
    noisy_steps: int = 3_000,
    seed: int = 0,
) -> EscapeRuns:
    """Descend from the point of Example 3.1 plainly, stochastically, and with noise.

    Source: ji2022, Example 3.1

    Gradients in W are combinations of features and gradients in H of classifiers, for any batch:
    descent never leaves the span of the rows of W and H. At this point it is a plane, and three
    dimensions are needed. The paper's remedy, stochastic descent, therefore does not work
    here; noise in all coordinates does.

    >>> runs = run_escape(steps=300, noisy_steps=300)
    >>> off_ray(runs.stuck.theta) < 1e-12, off_ray(runs.noisy.theta) > 0.05
    (True, True)
    """
    problem, start = example_problem(), example_point(scale)
    batches, shaken = Disturbance(batch=1, seed=seed), Disturbance(noise=noise, seed=seed)
    noisy = descend(problem, start, steps=noisy_steps, rate=rate, disturbance=shaken)
    return EscapeRuns(
        stuck=descend(problem, start, steps=steps, rate=rate),
        stochastic=descend(problem, start, steps=steps, rate=rate, disturbance=batches),
        noisy=noisy,
        settled=normalised_descent(problem, noisy.theta, steps=steps, rate=5.0),
    )

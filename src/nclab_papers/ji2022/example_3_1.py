"""Facts about Example 3.1 of ji2022: multipliers, gradient and the paper's family of points."""

import math

import numpy as np

from nclab.errors import NclabError
from nclab.ulpm.examination import example_problem
from nclab.ulpm.problem import Array, log_loss


def example_multipliers() -> Array:
    """Return the multipliers of Eq. (8), which hold at the scale 1/sqrt(2), where the margin is 1.

    Source: ji2022, Eq. (8)

    >>> example_multipliers()[0].tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    ones = np.ones((2, 2))
    zeros = np.zeros((2, 2))
    return 0.5 * np.block([[zeros, ones], [ones, zeros]])


def gradient_coefficient(scale: float, *, printed: bool = False) -> float:
    r"""Return the factor c for which the gradient at the point is -c times the point.

    $$\frac{2+2e^{-2c^2}}{2+e^{-2c^2}+e^{2c^2}}$$

    Source: ji2022, Eq. (9) (with a corrected denominator)
    Range: (0, 1].

    Args:
        printed: use the denominator of the paper, in which both exponentials have a factor 2.

    >>> round(gradient_coefficient(1.0), 7), round(gradient_coefficient(1.0, printed=True), 7)
    (0.2384058, 0.1331867)
    """
    e = math.exp(-2 * scale**2)
    factor = 2 if printed else 1
    return (2 + 2 * e) * e / (2 * e + factor * e**2 + factor)


def family_point(scale: float, beta: float) -> Array:
    r"""Return a member of the paper's family of points of equal norm; beta = 0 is the example.

    $$\alpha^2+2\beta^2=1,\quad \alpha<0$$

    Source: ji2022, Eq. (10)

    >>> from nclab.ulpm.examination import example_point
    >>> bool(np.allclose(family_point(1.0, 0.0), example_point(1.0)))
    True
    """
    if abs(beta) > math.sqrt(0.5):
        raise NclabError(f"Expected |beta| <= sqrt(1/2), got {beta}.")
    alpha = -math.sqrt(1 - 2 * beta**2)
    block = np.array([[1.0, alpha], [alpha, 1.0]])
    off_diagonal = np.full((2, 2), beta)
    matrix = scale * np.block([[block, off_diagonal], [off_diagonal, block]])
    return np.concatenate([matrix, matrix])


def family_change(scale: float, beta: float) -> float:
    r"""Return the loss at a member of the family minus the loss at the point; > 0 for small beta.

    $$L(W',H')-L(W,H)$$

    Source: ji2022, Eq. (11) (printed as <= 0 close to the point, which is false for this family)

    The point is still a strict saddle (see `landscape.classify`): the loss falls in another
    direction.

    >>> [f"{family_change(1.0, beta):.1e}" for beta in (-0.01, -0.3)]
    ['2.1e-05', '-2.1e-02']
    """
    problem = example_problem()
    before, after = (log_loss(problem, family_point(scale, b)) for b in (0.0, beta))
    return math.exp(before) * math.expm1(after - before)

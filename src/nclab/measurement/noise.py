"""What features without any class structure score, by their sizes alone.

Of C classes with n samples each in d dimensions, all drawn from one isotropic normal
distribution. With few samples in many dimensions every sample pulls its own class mean towards
itself, and noise looks collapsed.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]

NODES = 80


def noise_nc1_trace_pinv(num_classes: int, per_class: float, dim: int) -> float:
    r"""The mean of `nc1_trace_pinv` under noise.

    The centred means are Gaussian with variance 1/n, independent of $\Sigma_W$, whose mean is
    (1 - 1/n) I; so it is $(n-1)\,E\operatorname{tr}W^{-1}$ of a Wishart matrix W with
    max(C - 1, d) degrees of freedom in min(C - 1, d) dimensions; inf where that has no mean.

    >>> round(noise_nc1_trace_pinv(10, 4, 2000), 5)
    0.01357
    """
    size, freedom = sorted((num_classes - 1, dim))
    return (per_class - 1) * size / (freedom - size - 1) if freedom > size + 1 else math.inf


def noise_nc1_trace_ratio(num_classes: int, per_class: float) -> float:
    """`nc1_trace_ratio` under noise, or under shuffled labels: a ratio of means.

    >>> noise_nc1_trace_ratio(10, 10)
    10.0
    """
    return (per_class - 1) * num_classes / (num_classes - 1)


def noise_ncc_accuracy(num_classes: int, per_class: float, dim: int) -> float:
    r"""About the mean of `nc4_ncc_accuracy` under noise.

    $$E_a\,\Phi\Bigl(\frac{\sqrt{d/n}+s_a a}{s_b}\Bigr)^{C-1},\quad
      s_a^2=1-\tfrac1{2n},\ s_b^2=1+\tfrac1{2n}$$

    from the normal limit of the differences of squared distances, which are 2d/n on average.

    >>> round(noise_ncc_accuracy(10, 4, 2000), 6), round(noise_ncc_accuracy(2, 1e9, 2), 2)
    (1.0, 0.5)
    """
    nodes, weights = _quadrature()
    own, other = math.sqrt(1 - 0.5 / per_class), math.sqrt(1 + 0.5 / per_class)
    single = ndtr((math.sqrt(dim / per_class) + own * nodes) / other)
    return float(weights @ single ** (num_classes - 1))


@cache
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of means over a standard normal number."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()

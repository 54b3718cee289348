"""Optimum in the limit of vanishing weight decay.

It is a simplex ETF for balanced classes, SELI (simplex-encoded labels) for imbalanced classes, and
a softmax code in few dimensions.
"""

import math
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from torch import Tensor

from nclab.compute import one_thread
from nclab.errors import DataError
from nclab.theory.targets.descent import descend
from nclab.theory.targets.setting import CLOSED, Setting, Solution, factor_grams


def limit_grams(counts: Tensor, *, biased: bool = False) -> tuple[Tensor, Tensor]:
    r"""Return the Gram matrices of classifier and means, up to scale, as weight decay goes to 0.

    $$WW^\top \propto (PDP)^{1/2},\qquad \bar H^\top\bar H \propto (PDP)^{-1/2}$$

    D is the diagonal matrix of the counts, P = I - 11^T/C, and the columns of $\bar H$ are the
    class means; the logits become proportional to P. Derived in docs/targets.md for all counts; cf.
    Thrampoulidis et al. 2022 (SELI). With a bias without penalty, the features have mean zero and
    $WW^\top \propto (D - nn^\top/\textstyle\sum n)^{1/2}$ with n the vector of counts.
    """
    D = torch.as_tensor(counts, dtype=torch.float64)
    left, right, _ = factor_grams(_logits(D, biased)[0], D)
    return left, right


def _logits(metric: Tensor, biased: bool) -> tuple[Tensor, Tensor]:
    """Return the logits W H and the bias in the limit of vanishing weight decay, up to scale.

    The bias has no weight decay; it is zero if `biased` is false. The logits plus the bias, added
    to every column, are P = I - 11^T/C.
    """
    P = torch.eye(len(metric), dtype=torch.float64) - 1 / len(metric)
    bias = P @ metric / metric.sum() if biased else torch.zeros_like(metric)
    return P - bias[:, None], bias


def solve_limit(setting: Setting) -> Solution:
    """Return the limit of vanishing weight decay, scaled so that logits plus bias are I - 11^T/C.

    In the limit, the norms are infinite, so only their ratios are meaningful.
    """
    logits, bias = _logits(setting.metric, setting.bias == 0)
    left, right, values = factor_grams(logits, setting.metric)
    return Solution(
        logits=logits,
        bias=bias,
        loss=0.0,
        penalty=0.0,
        left=left,
        right=right,
        lower=0.0,
        proof=CLOSED,
        geometry="simplex ETF" if setting.balanced else "simplex-encoded labels (SELI)",
        source="docs/targets.md, no weight decay; cf. Thrampoulidis et al. 2022",
        norm=float(values.sum()),
        notes=(
            "a limit: norms grow without bound, so only directions and ratios are meaningful",
            "optima approach the limit slowly, like 1 / log(1 / weight decay): for a network, pass "
            "its weight decay",
        ),
    )


SHARPNESS = (5.0, 20.0, 80.0, 320.0, 1280.0, 5e3, 2e4, 1e5)
BEST_FOUND = {
    (7, 3): 0.78985832,
    (8, 3): 0.73879612,
    (9, 3): 0.66666528,
    (10, 3): 0.59462617,
    (11, 3): 0.5527833,
    (13, 3): 0.44781447,
    (14, 3): 0.42264973,
    (15, 3): 0.40739079,
    (16, 3): 0.38770368,
    (20, 3): 0.32352158,
    (9, 4): 0.83797948,
    (10, 4): 0.83333333,
    (11, 4): 0.76959339,
}
"""(C, d) -> largest margin that `softmax_code` found in twelve starts."""


class CodeMargin(NamedTuple):
    """Bounds on the largest softmax margin of C unit vectors in d dimensions (`softmax_margin`)."""

    lower: float
    """Margin of the best known vectors."""
    upper: float
    """Proved upper bound on the margin of any C unit vectors."""
    source: str

    @property
    def exact(self) -> bool:
        """Whether lower and upper bound agree, so that the largest margin is known."""
        return self.upper - self.lower < 1e-12


def softmax_margin(rows: ArrayLike) -> float:
    r"""Return the softmax margin, the smallest distance of a row to the convex hull of the others.

    $$\rho = \min_k \operatorname{dist}(w_k, \operatorname{conv}\{w_j: j\ne k\})
    = \min_k\max_{\|h\|\le1}\min_{j\ne k}\langle w_k-w_j, h\rangle$$

    The result is exact up to rounding: it is computed from C problems of non-negative least
    squares.

    >>> round(softmax_margin([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 12)
    1.0
    """
    W = np.asarray(rows, dtype=np.float64)
    return min(float(np.linalg.norm(_nearest(W, k))) for k in range(len(W)))


def _nearest(W: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the shortest vector from the convex hull of the other rows to row k.

    It is found by non-negative least squares for the weights of the rows.
    """
    differences = np.delete(W, k, 0) - W[k]
    right_side = np.zeros(W.shape[1] + 1)
    right_side[-1] = 1.0
    weights, _ = nnls(np.vstack([differences.T, np.ones(len(differences))]), right_side)
    return -weights @ differences / weights.sum()


def best_margin(num_classes: int, dim: int) -> CodeMargin:
    r"""Return bounds on the largest softmax margin of C unit vectors in d dimensions.

    The largest margin is $C/(C-1)$ for C <= d+1 and 1 for d+2 <= C <= 2d; for larger C, few values
    are known. Removing a vector never lowers the margin, so a known value is an upper bound for
    every larger C.
    """
    C, d = num_classes, dim
    if C < 2 or d < 1 or (d == 1 and C > 2):
        raise DataError(f"Expected at least 2 classes and 2 dimensions, got {C} and {d}.")
    if (known := _known(C, d)) is not None:
        return CodeMargin(known[0], known[0], known[1])
    smaller = [_known(c, d) for c in range(2, C)]
    upper = min(exact[0] for exact in smaller if exact is not None)
    larger_code = "a larger code without some of its rows"
    margins = [
        (exact[0], larger_code) for c in range(C, C + 60) if (exact := _known(c, d)) is not None
    ]
    for (c, e), value in BEST_FOUND.items():
        if e == d and c >= C:
            margins.append((value, "best found by softmax_code" if c == C else larger_code))
    lower, source = max(margins, default=(0.0, "nothing known"))
    return CodeMargin(lower, upper, source)


def _known(C: int, d: int) -> tuple[float, str] | None:
    """Return the exact largest margin and the name of its geometry, or None if it is unknown."""
    if d + 1 >= C:
        return C / (C - 1), "simplex"
    if 2 * d >= C:
        return 1.0, "orthoplex and others: not unique"
    if d == 2:
        return 1 - math.cos(2 * math.pi / C), "polygon"
    exact = {(12, 3): (1 - 1 / math.sqrt(5), "icosahedron"), (24, 4): (0.5, "24-cell")}
    return exact.get((C, d))


def softmax_code(num_classes: int, dim: int, *, starts: int = 6, seed: int = 0) -> Tensor:
    """Return a softmax code: (C, d) unit rows with the largest known softmax margin.

    For some sizes the best rows are known. For other sizes, gradient ascent from random starts
    maximises a smooth approximation of the margin, which becomes more exact step by step.

    >>> rows = softmax_code(4, 2)
    >>> round(softmax_margin(rows), 6)
    1.0
    """
    C, d = num_classes, dim
    best_margin(C, d)
    if (code := _construction(C, d)) is not None:
        return code
    with one_thread():
        codes = [_climbed(C, d, torch.Generator().manual_seed(seed + k)) for k in range(starts)]
    return max(codes, key=softmax_margin)


def _construction(C: int, d: int) -> Tensor | None:
    """Return unit rows whose margin is known to be the largest, or None if they are unknown."""
    if d + 2 <= C <= 2 * d:
        identity = torch.eye(d, dtype=torch.float64)
        return torch.cat([identity, -identity])[:C]
    if d + 1 >= C:
        values, vectors = torch.linalg.eigh(torch.eye(C).double() - 1 / C)
        rows = vectors[:, values > 0.5] * math.sqrt(C / (C - 1))
        return torch.nn.functional.pad(rows, (0, d - rows.shape[1]))
    if d == 2:
        angles = torch.arange(C, dtype=torch.float64) * 2 * math.pi / C
        return torch.stack([angles.cos(), angles.sin()], 1)
    if (C, d) == (12, 3):
        golden = (1 + math.sqrt(5)) / 2
        ones = [(0, a, b * golden) for a in (1, -1) for b in (1, -1)]
        rows = [(p[k % 3], p[(k + 1) % 3], p[(k + 2) % 3]) for p in ones for k in range(3)]
        return torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float64))
    if (C, d) == (24, 4):
        corners = torch.zeros(24, 4, dtype=torch.float64)
        choices = product(combinations(range(4), 2), product((1.0, -1.0), repeat=2))
        for corner, (axes, signs) in zip(corners, choices, strict=True):
            corner[list(axes)] = torch.tensor(signs, dtype=torch.float64)
        return torch.nn.functional.normalize(corners)
    return None


def _climbed(C: int, d: int, generator: torch.Generator) -> Tensor:
    """Return unit rows with a large margin, found by gradient ascent from one random start."""
    off_diagonal = ~torch.eye(C, dtype=torch.bool)
    x = torch.randn(2 * C * d, generator=generator).double()

    def function(x: Tensor) -> tuple[float, Tensor]:
        x = x.detach().requires_grad_()
        W, H = torch.nn.functional.normalize(x.view(2, C, d), dim=2)
        Z = H @ W.T
        gaps = (Z - Z.diagonal()[:, None])[off_diagonal]
        value = (sharp * gaps).logsumexp(0) / sharp
        (slope,) = torch.autograd.grad(value + 2, x)
        return float(value.detach()) + 2, slope

    for sharp in SHARPNESS:  # noqa: B007
        x = descend(function, x, steps=1000, tolerance=1e-13, memory=20).point
    return torch.nn.functional.normalize(x.view(2, C, d)[0])


def code_means(code: Tensor) -> Tensor:
    """Return (C, d) unit features, each with the largest margin for one row of a softmax code."""
    W = code.numpy()
    means = np.stack([_nearest(W, k) for k in range(len(W))])
    return torch.nn.functional.normalize(torch.from_numpy(means))

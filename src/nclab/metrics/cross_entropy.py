"""The loss side: cross-entropy, accuracy, the norms alpha and beta, and the best loss."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics.rows import weight_norm
from nclab.statistics import ClassMoments, LogitStatistics
from nclab.statistics.norms import row_norms

FloatArray = NDArray[np.float64]
Real = TypeVar("Real", float, FloatArray)


def loss(logits: LogitStatistics) -> float:
    r"""Mean cross-entropy over all samples, in nats.

    $$L = \tfrac1N\sum_i \log\bigl(1+\sum_{j\ne y_i} e^{z_j-z_{y_i}}\bigr)$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); log C for a network that knows nothing.
    Invariant to: rotation of both, translation of the classifier.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[0.0, 0.0]], [1])
    >>> round(loss(logits), 6)
    0.693147
    """
    return float(logits.loss_sums.sum()) / int(logits.counts.sum())


def class_loss(logits: LogitStatistics) -> Tensor:
    r"""Mean cross-entropy of every class; nan for a class without samples.

    $$L_c = \tfrac1{n_c}\sum_{i: y_i = c} \ell_i$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf)^C.
    Invariant to: rotation of both, translation of the classifier.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[0.0, 0.0], [0.0, 800.0]], [0, 1])
    >>> [round(value, 6) for value in class_loss(logits).tolist()]
    [0.693147, 0.0]
    """
    return logits.loss_sums / logits.counts


def balanced_loss(logits: LogitStatistics) -> float:
    r"""Cross-entropy averaged over classes: the loss the theory of balanced data speaks of.

    $$\tfrac1C\sum_c L_c$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); equal to `loss` for balanced classes. Classes without samples are left out.
    Invariant to: rotation of both, translation of the classifier.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[0.0, 0.0], [0.0, 0.0], [0.0, 800.0]], [0, 0, 1])
    >>> round(balanced_loss(logits), 6)
    0.346574
    """
    return float(class_loss(logits)[logits.counts > 0].mean())


def accuracy(logits: LogitStatistics) -> float:
    r"""Share of samples whose largest logit is that of their class.

    $$\Pr[\arg\max_c z_c = y]$$

    Source: papyan2020, Sec. 1
    Range: [0, 1].
    Invariant to: rotation of both, translation of the classifier, scale of the classifier,
        a common scale of W and H.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[1.0, 0.0], [1.0, 0.0]], [0, 1])
    >>> accuracy(logits)
    0.5
    """
    return int(logits.correct.sum()) / int(logits.counts.sum())


def class_alpha(moments: ClassMoments) -> Tensor:
    r"""Root mean square feature norm of every class.

    $$\alpha_c = \sqrt{\tfrac1{n_c}\sum_i\|h_{c,i}\|^2}$$

    Source: pan2023, Eq. (2.1)
    Range: [0, inf)^C.
    Invariant to: rotation.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 1.0]], [0, 1])
    >>> class_alpha(moments).tolist()
    [5.0, 1.0]
    """
    square_norms: Tensor = moments.mean_square_norms
    return square_norms.sqrt()


def alpha(moments: ClassMoments) -> float:
    r"""Root mean square feature norm, with classes weighted equally.

    $$\alpha = \sqrt{\tfrac1C\sum_c\alpha_c^2}$$

    Source: pan2023, Eq. (2.1)
    Range: [0, inf). The weighting by class keeps `excess_loss` non-negative without balance.
    Invariant to: rotation.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 1.0]], [0, 1])
    >>> round(alpha(moments), 6)
    3.605551
    """
    return math.sqrt(float(moments.mean_square_norms.mean()))


def class_beta(weight: Tensor) -> Tensor:
    r"""Norm of every centred classifier row.

    $$\beta_c = \|\dot w_c\|$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: [0, inf)^C.
    Invariant to: rotation, translation.

    >>> import torch
    >>> class_beta(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [1.0, 1.0]
    """
    rows = weight.double()
    return row_norms(rows - rows.mean(0))


def beta(weight: Tensor) -> float:
    r"""Root mean square norm of the classifier rows.

    $$\beta = \|W\|_F / \sqrt C$$

    Source: pan2023, Eq. (2.1)
    Range: [0, inf).
    Invariant to: rotation.

    >>> import torch
    >>> beta(torch.tensor([[3.0, 4.0], [3.0, -4.0]]))
    5.0
    """
    return weight_norm(weight) / math.sqrt(len(weight))


def g(s: Real, num_classes: int) -> Real:
    r"""Loss of a class whose centred classifier row and mean feature have inner product s.

    $$g(s) = \log\bigl(1+(C-1)e^{-\frac{C}{C-1}s}\bigr)$$

    Source: pan2023, Thm 2.3.1 (proof)
    Range: (0, inf); convex and decreasing, log C at 0; right to rounding at every real s.

    >>> round(g(5.0, 10), 6), round(g(0.0, 4) - math.log(4), 12)
    (0.034202, 0.0)
    >>> bool(abs(g(np.array([450.0]), 10)[0] / (9 * math.exp(-500)) - 1) < 1e-9)
    True
    """
    others = num_classes - 1
    value = np.logaddexp(0.0, math.log(others) - num_classes / others * s)
    return value if isinstance(s, np.ndarray) else float(value)


def optimal_loss(num_classes: int, product: float) -> float:
    r"""The smallest balanced loss that norms with alpha * beta = `product` allow.

    $$m = \log\bigl(1+(C-1)e^{-\frac{C}{C-1}\alpha\beta}\bigr)$$

    Source: pan2023, Thm 2.3.1
    Range: (0, log C].

    A bias changes nothing: the mean over classes of the centred bias is zero, so it drops out
    of the Jensen bound that gives m (see docs/measuring.md).

    >>> round(optimal_loss(10, 5.0), 6)
    0.034202
    """
    if num_classes < 2 or not product >= 0:
        raise DataError(
            f"Expected at least 2 classes and a product of norms >= 0, "
            f"got {num_classes} and {product}."
        )
    return g(product, num_classes)


def best_loss(moments: ClassMoments, weight: Tensor) -> float:
    """`optimal_loss` for the norms of these features and this classifier.

    Invariant to: rotation of both.
    """
    return optimal_loss(moments.num_classes, alpha(moments) * beta(weight))


def excess_loss(logits: LogitStatistics, moments: ClassMoments, weight: Tensor) -> float:
    r"""How far the balanced loss is above the best that the norms allow.

    $$\varepsilon = \tfrac1C\sum_c L_c - m(\alpha\beta)$$

    Source: pan2023, Thm 2.3.1
    Range: [0, inf); 0 at collapse.
    Invariant to: rotation of both.

    >>> import torch
    >>> moments, logits = ClassMoments(2, 1), LogitStatistics(2)
    >>> moments.update([[1.0], [-1.0]], [0, 1])
    >>> weight = torch.tensor([[2.0], [-2.0]])
    >>> _ = logits.update([[2.0, -2.0], [-2.0, 2.0]], [0, 1])
    >>> round(excess_loss(logits, moments, weight), 12)
    0.0
    """
    return balanced_loss(logits) - best_loss(moments, weight)

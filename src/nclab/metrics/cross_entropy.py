"""Loss, accuracy, margin, the norms alpha and beta, and the smallest loss for these norms."""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics.view import weight_norm
from nclab.statistics import ClassMoments, LogitStatistics
from nclab.statistics.blocks import VANISHES, row_norms

FloatArray = NDArray[np.float64]
Real = TypeVar("Real", float, FloatArray)


def loss(logits: LogitStatistics) -> float:
    r"""Mean cross-entropy over all samples, in nats.

    $$L = \tfrac1N\sum_i \log\bigl(1+\sum_{j\ne y_i} e^{z_j-z_{y_i}}\bigr)$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); log C for equal logits.
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
    r"""Cross-entropy averaged over classes, the loss of theorems about balanced data.

    $$\tfrac1C\sum_c L_c$$

    Source: pan2023, Eq. (2.1)
    Range: (0, inf); equal to `loss` for balanced classes. Classes without samples are skipped.
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
    Range: [0, inf). Equal weights of classes keep `excess_loss` non-negative for unbalanced data.
    Invariant to: rotation.

    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 1.0]], [0, 1])
    >>> round(alpha(moments), 6)
    3.605551
    """
    return math.sqrt(float(moments.mean_square_norms.mean()))


def class_beta(weight: Tensor) -> Tensor:
    r"""Norm of every centred classifier row.

    $$\beta_c = \|\dot w_c\|,\quad \dot w_c = w_c - \tfrac1C\sum_k w_k$$

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
    Range: (0, inf); convex and decreasing, log C at 0; accurate up to rounding for every real s.

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

    A bias does not change m: the mean over classes of the centred bias is zero, so the bias drops
    out of the Jensen bound that gives m (see docs/measuring.md).

    >>> round(optimal_loss(10, 5.0), 6)
    0.034202
    """
    if num_classes < 2 or not product >= 0:
        raise DataError(
            f"Expected at least 2 classes and a product of norms >= 0, "
            f"got {num_classes} classes and the product {product}."
        )
    return g(product, num_classes)


def best_loss(moments: ClassMoments, weight: Tensor) -> float:
    """The smallest balanced loss for the norms of these features and this classifier.

    Invariant to: rotation of both.
    """
    return optimal_loss(moments.num_classes, alpha(moments) * beta(weight))


def excess_loss(logits: LogitStatistics, moments: ClassMoments, weight: Tensor) -> float:
    r"""Balanced loss minus the smallest balanced loss that the norms alpha and beta allow.

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


def margin(logits: LogitStatistics) -> float:
    r"""The smallest gap between the logit of the label and the best other logit.

    $$q_{\min} = \min_{c,i}\bigl(z_c - \max_{j\ne c} z_j\bigr)$$

    Source: ji2022, Def. 3.1
    Range: (-inf, inf); positive when every sample is classified correctly.
    Invariant to: rotation of both, translation of the classifier.

    >>> logits = LogitStatistics(2)
    >>> _ = logits.update([[2.0, 0.0], [0.0, 3.0]], [0, 1])
    >>> margin(logits)
    2.0
    """
    return float(logits.margins.min())


def normalised_margin(logits: LogitStatistics, moments: ClassMoments, weight: Tensor) -> float:
    r"""The smallest margin of a sample, divided by the largest margin that the norms allow.

    $$\frac{2(C-1)\sqrt n\; q_{\min}}{\|W\|_F^2+\|H\|_F^2}$$

    Source: ji2022, Lemma 3.1
    Range: (-inf, 1]; 1 at collapse with $\|W\|_F=\|H\|_F$.
    Invariant to: rotation of both, a common scale of W and H.

    The lemma assumes classes of n samples each. It also holds for unequal classes, if n is the mean
    size of a class and $\|H\|_F^2$ is replaced by $nC\alpha^2$ with alpha averaged over classes. A
    bias does not change the bound.

    >>> import torch
    >>> moments, logits = ClassMoments(2, 1), LogitStatistics(2)
    >>> moments.update([[1.0], [-1.0]], [0, 1])
    >>> weight = torch.tensor([[1.0], [-1.0]])
    >>> _ = logits.update([[1.0, -1.0], [-1.0, 1.0]], [0, 1])
    >>> normalised_margin(logits, moments, weight)
    1.0
    """
    size = moments.total / moments.num_classes
    features_square = moments.total * float(moments.mean_square_norms.mean())
    norm = math.hypot(weight_norm(weight), math.sqrt(features_square))
    if norm == 0:
        return math.nan
    top = margin(logits) * 2 * (moments.num_classes - 1) * size**0.5
    squares = weight_norm(weight) ** 2 + features_square
    # Squares may underflow or overflow even if the quotient does not.
    return top / squares if VANISHES < squares < 1 / VANISHES else top / norm / norm

"""Scores of out-of-distribution samples from the geometry of collapse; larger is more familiar.

Each is a plain function of features (n, d) and of statistics of the training data.
"""

import torch
from torch import Tensor

from nclab.statistics import ClassMoments

TINY = 1e-300
"""Keeps a feature that is zero from dividing by zero: it gets the score 0."""


def principal_directions(moments: ClassMoments, dim: int, *, scale: Tensor) -> Tensor:
    """(d, dim) leading directions of the training features around their mean, each over `scale`.

    From moments with a scatter alone: the total covariance is that within classes and that of the
    class means, so that no feature has to be kept.

    >>> moments = ClassMoments(2, 2, scatter=True)
    >>> moments.update([[2.0, 0.1], [-2.0, 0.1], [2.0, -0.1], [-2.0, -0.1]], [0, 1, 0, 1])
    >>> principal_directions(moments, 1, scale=torch.ones(2)).abs().round(decimals=6).tolist()
    [[1.0], [0.0]]
    """
    covariance = total_covariance(moments) / scale.outer(scale)
    vectors = torch.linalg.eigh(covariance).eigenvectors  # ascending
    return vectors[:, -dim:].flip(1)


def total_covariance(moments: ClassMoments) -> Tensor:
    """(d, d) covariance of all samples around their mean."""
    shares = moments.counts.double() / moments.total
    around = moments.means - moments.sample_mean  # (C, d)
    return moments.within_scatter / moments.total + around.T @ (shares[:, None] * around)


def neco(features: Tensor, directions: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    r"""How much of a feature lies in the directions of the training data.

    $$\|P^\top z\| / \|z\|, \qquad z = (h - \mu) / s$$

    Paper: Ben Ammar et al., NECO, ICLR 2024; the features are standardised as in its code, and the
    score is multiplied by the largest logit there except for ResNets.
    Range: [0, 1].

    >>> axis, zero, one = torch.eye(2)[:, :1], torch.zeros(2), torch.ones(2)
    >>> neco(torch.tensor([[5.0, 0.0], [3.0, 4.0]]), axis, zero, one)
    tensor([1.0000, 0.6000])
    """
    z = (features - centre) / scale
    return (z @ directions).norm(dim=1) / z.norm(dim=1).clamp_min(TINY)


def nci(features: Tensor, rows: Tensor, centre: Tensor, *, alpha: float) -> Tensor:
    r"""How near a feature is to the classifier row of its own prediction, and how long it is.

    $$\frac{w_{\hat y}\cdot(h - \mu_G)}{\|h - \mu_G\|} + \alpha\,\|h\|_1$$

    Paper: Liu and Qin, Detecting out-of-distribution through the lens of neural collapse, CVPR
    2025. `rows` (n, d) are those of the predicted classes.
    Range: (-inf, inf).

    >>> h, w = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0]])
    >>> round(float(nci(h, w, torch.zeros(2), alpha=0.1)), 6)
    1.9
    """
    centred = features - centre
    along = (centred * rows).sum(1) / centred.norm(dim=1).clamp_min(TINY)
    return along + alpha * features.abs().sum(1)


def nc5(means: Tensor, other: Tensor) -> float:
    r"""How far the mean of other data is from being orthogonal to the class means.

    $$\frac1C\sum_c |\cos(\mu_c, \mu_{\mathrm{OOD}})|$$

    Paper: Ben Ammar et al., NECO, ICLR 2024, where training drives it to 0.
    Range: [0, 1].

    >>> nc5(torch.eye(3)[:2], torch.tensor([0.0, 0.0, 2.0]))
    0.0
    """
    cosines = torch.nn.functional.cosine_similarity(means.double(), other.double()[None], dim=1)
    return float(cosines.abs().mean())

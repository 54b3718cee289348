"""What weight decay forces on hidden layers: a bound on their rank, and on their spread."""

import math

import numpy as np
from numpy.typing import NDArray

from nclab.errors import DataError

FloatArray = NDArray[np.float64]


def rank_tail_bound(
    gradient: FloatArray,
    weight: FloatArray,
    weight_decay: float,
    *,
    backprop_rms: float,
    within_trace: float,
) -> float:
    r"""The most that a linear layer's weights can lie away from rank C.

    $$\sqrt{\textstyle\sum_{k>C}\sigma_k(W)^2}\le\frac{\|\nabla+\lambda W\|_F
      +\mathrm{rms}\|\delta\|\sqrt{\operatorname{tr}\Sigma_W(x)}}\lambda$$

    With $\nabla=\operatorname{Avg}\delta x^T$ and x replaced by its class mean, the gradient has
    rank at most C; what the replacement changes is at most rms|delta| times the root of the
    within-class variance (Cauchy and Schwarz), and no matrix of rank C is nearer to W than its
    own tail (Eckart and Young). Holds at every moment of a training, for every batch.

    Args:
        gradient: of the mean loss alone, without the decay, over the samples of the other two.
        backprop_rms: root mean square over samples of the norm of the gradient of a sample's
            loss by the layer's output.
        within_trace: tr Σ_W of the layer's inputs: the mean squared distance to the class mean.

    >>> gradient, weight = np.array([[-1.0, 0.0]]), np.array([[2.0, 0.0]])  # they balance
    >>> rank_tail_bound(gradient, weight, 0.5, backprop_rms=1.0, within_trace=0.25)
    1.0
    """
    if weight_decay <= 0:
        raise DataError(f"Expected a weight decay above 0, got {weight_decay}.")
    if np.shape(gradient) != np.shape(weight):
        raise DataError(
            f"Expected a gradient of the shape of the weight, {np.shape(weight)}, "
            f"got {np.shape(gradient)}."
        )
    unbalanced = float(np.linalg.norm(np.asarray(gradient) + weight_decay * np.asarray(weight)))
    return (unbalanced + backprop_rms * math.sqrt(within_trace)) / weight_decay


def rank_tail(weight: FloatArray, rank: int) -> float:
    """The distance of a matrix from those of a rank: the root of its other squared singular values.

    >>> rank_tail(np.diag([5.0, 4.0, 3.0]), 1)
    5.0
    """
    values = np.linalg.svd(np.asarray(weight, dtype=np.float64), compute_uv=False)
    return float(np.linalg.norm(values[rank:]))


def balancedness(first: FloatArray, second: FloatArray) -> FloatArray:
    r"""How far two consecutive linear layers are from sharing their singular values.

    $$B = W_1W_1^T - W_2^TW_2$$

    Zero where gradient flow with weight decay ends.

    >>> balancedness(np.array([[2.0]]), np.array([[1.0]])).tolist()
    [[3.0]]
    """
    W_1, W_2 = (np.asarray(weight, dtype=np.float64) for weight in (first, second))
    if W_1.ndim != 2 or W_2.ndim != 2 or len(W_1) != W_2.shape[1]:
        raise DataError(
            f"Expected weights of two consecutive layers, (m, d) and (C, m), got {W_1.shape} "
            f"and {W_2.shape}."
        )
    found: FloatArray = W_1 @ W_1.T - W_2.T @ W_2
    return found


def hidden_spread_bound(
    first: FloatArray, second: FloatArray, *, input_trace: float, logit_trace: float
) -> float:
    r"""The most that features between two linear layers can vary within classes.

    $$\operatorname{tr}\Sigma_W(W_1x)\le\min_k\ \frac{\operatorname{tr}\Sigma_W(W_2W_1x)}
      {\sigma_k(W_2)^2}+\bigl(\|B\|_2+\sigma_{k+1}(W_2)^2\bigr)\operatorname{tr}\Sigma_W(x)$$

    Along the k leading right singular vectors of $W_2$ the logits show the spread; across them
    $W_1W_1^T=B+W_2^TW_2$ is at most $\|B\|_2+\sigma_{k+1}^2$, with $\sigma_{C+1}=0$.

    Args:
        input_trace: tr Σ_W of what the first of the two layers reads.
        logit_trace: tr Σ_W of what the second returns.

    >>> W = np.eye(2)
    >>> hidden_spread_bound(W, W, input_trace=3.0, logit_trace=0.5)
    0.5
    """
    unbalanced = float(np.linalg.norm(balancedness(first, second), ord=2))
    squares = np.linalg.svd(np.asarray(second, dtype=np.float64), compute_uv=False) ** 2
    # For k = 0 all of it lies across; where |W_2| has no direction left, nothing is added.
    wide = np.shape(second)[1] > len(squares)
    following = [*squares[1:], 0.0]
    bounds = [(unbalanced + float(squares[0])) * input_trace]
    for place, square in enumerate(squares):
        rest = unbalanced + following[place]
        if place + 1 == len(squares) and not wide:
            rest = 0.0  # nothing lies across a basis of the whole space
        if square > 0:
            bounds.append(logit_trace / float(square) + rest * input_trace)
    return min(bounds)

"""The layer-peeled model as slow, obvious loops, without any code of nclab."""

import math
from typing import Any

import torch


def slow_loss(W: Any, H: Any, per_class: int) -> float:
    """Return the sum of the cross-entropy over samples, term by term."""
    total = 0.0
    for row, h in enumerate(H):
        label = row // per_class
        gaps = [float((W[j] - W[label]) @ h) for j in range(len(W)) if j != label]
        total += math.log1p(sum(math.exp(gap) for gap in gaps))
    return total


def slow_margin(W: Any, H: Any, per_class: int) -> float:
    """Return the smallest margin."""
    return min(
        float((W[row // per_class] - W[j]) @ h)
        for row, h in enumerate(H)
        for j in range(len(W))
        if j != row // per_class
    )


def autograd_loss(flat: torch.Tensor, classes: int, per_class: int, dim: int) -> torch.Tensor:
    """Return the sum of torch's cross-entropies for one flat vector (W, then H)."""
    theta = flat.view(-1, dim)
    labels = torch.arange(classes).repeat_interleave(per_class)
    logits = theta[classes:] @ theta[:classes].T
    return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")


def sphere_hessian(theta: Any, classes: int, per_class: int) -> torch.Tensor:
    """Return the dense Riemannian Hessian of the sum loss on the sphere, from autograd."""
    dim = theta.shape[1]
    flat = torch.tensor(theta, dtype=torch.float64).reshape(-1).requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return autograd_loss(x, classes, per_class, dim)

    gradient = torch.autograd.functional.jacobian(loss, flat)
    hessian = torch.autograd.functional.hessian(loss, flat)
    assert isinstance(gradient, torch.Tensor)
    assert isinstance(hessian, torch.Tensor)
    x = flat.detach()
    project = torch.eye(len(x), dtype=torch.float64) - torch.outer(x, x) / (x @ x)
    return project @ hessian @ project - (gradient @ x) / (x @ x) * project

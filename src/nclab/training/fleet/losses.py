"""Every loss in plain torch with its gradient, for logits (C, n) that lie class by class."""

import torch
from torch import Tensor

from nclab import plugins
from nclab.errors import NclabError
from nclab.training.fleet.recipe import Recipe


def mean_loss(logits: Tensor, labels: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """The mean loss of a batch and its gradient in the logits."""
    if recipe.loss == "mse":
        return _mse(logits, labels)
    if recipe.plugged_loss:
        return _plugged(logits, labels, recipe.loss)
    log_p = logits.log_softmax(0)
    if recipe.loss == "focal":
        return _focal(log_p, labels, recipe.focusing)
    if recipe.loss == "label_smoothing":
        return _label_smoothing(log_p, labels, recipe.smoothing)
    return _cross_entropy(log_p, labels)


def _cross_entropy(log_p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """-log p of the label; (p - onehot) / n."""
    loss = -log_p.gather(0, labels[None]).mean()
    return loss, _add_at(log_p.exp_(), labels, -1.0).div_(len(labels))


def _label_smoothing(log_p: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the targets t = (1 - smoothing) onehot + smoothing / C; (p - t) / n."""
    label = log_p.gather(0, labels[None]).mean()
    loss = -(1 - smoothing) * label - smoothing * log_p.mean()
    G = _add_at(log_p.exp().sub_(smoothing / len(log_p)), labels, smoothing - 1)
    return loss, G.div_(len(labels))


def _focal(log_p: Tensor, labels: Tensor, focusing: float) -> tuple[Tensor, Tensor]:
    """-(1 - p)^focusing log p; the gradient of cross-entropy times -p dloss/dp."""
    surprise = -log_p.gather(0, labels[None])
    missing = -torch.expm1(-surprise)  # 1 - p
    power = missing**focusing
    ratio = torch.where(missing > 0, surprise / missing, 1.0)
    weight = power * (1 + focusing * ratio * (1 - missing))
    G = _add_at(log_p.exp_(), labels, -1.0).mul_(weight).div_(len(labels))
    return (power * surprise).mean(), G


def _mse(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Half of |z - onehot|^2; (z - onehot) / n."""
    rest = _add_at(logits, labels, -1.0)
    loss = rest.square().sum(0).mean() / 2
    return loss, rest.div_(len(labels))


def _plugged(logits: Tensor, labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """A plugin's function of logits (n, C), its gradient by autograd."""
    with torch.enable_grad():
        rows = logits.detach().T.clone().requires_grad_()
        loss = plugins.plugin("losses", name)(rows, labels)
        if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
            raise NclabError(
                f"Expected the loss {name!r} to return the mean over the batch, a tensor of one "
                f"number that depends on the logits, got {loss!r}."
            )
        (G,) = torch.autograd.grad(loss, rows)
    return loss.detach(), G.T


def _add_at(G: Tensor, labels: Tensor, value: float) -> Tensor:
    return G.scatter_add_(0, labels[None], G.new_full((1, len(labels)), value))

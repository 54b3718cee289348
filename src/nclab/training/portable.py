"""One step of stochastic gradient descent in plain torch, its gradients written by hand.

Works on every device and in every dtype. Weight gradients are added to the momenta by the matrix
product that makes them, so that no gradient is ever stored.
"""

import torch
from torch import Tensor

from nclab.training.recipe import Recipe
from nclab.training.state import Layer, State

EPSILON = 1e-5
"""Added to the variance, as `nn.BatchNorm1d` does by default."""
RUNNING = 0.1
"""Share of the batch in the running statistics, as `nn.BatchNorm1d` does by default."""


def train_epoch(
    state: State, inputs: Tensor, labels: Tensor, order: Tensor, recipe: Recipe, **rates: float
) -> tuple[Tensor, Tensor]:
    """The steps of one epoch, in place; the mean loss and the hits of every batch."""
    layers = state.layers()
    losses, hits = [], []
    for rows in order.split(recipe.batch):
        loss, hit = step(
            state, layers, inputs[rows], labels[rows], momentum=recipe.momentum, **rates
        )
        losses.append(loss)
        hits.append(hit)
    return torch.stack(losses).double().cpu(), torch.stack(hits).cpu()


def step(
    state: State,
    layers: list[tuple[Layer, Layer]],
    inputs: Tensor,
    labels: Tensor,
    *,
    rate: float,
    weight_decay: float,
    momentum: float,
) -> tuple[Tensor, Tensor]:
    """theta <- theta - rate v, where v <- momentum v + gradient + weight_decay theta."""
    n = len(inputs)
    H = inputs
    read, normed = [], []
    for (layer, _), statistics in zip(layers, state.statistics, strict=False):
        read.append(H)
        A = _linear(H, layer).relu_()
        H, batch = (A, None) if state.norm == "none" else _normalise(A, layer, statistics)
        normed.append((A, batch))
    classifier, v = layers[-1]
    logits = _linear(H, classifier)
    top = logits.argmax(1)
    log_p = logits.log_softmax(1)
    loss = -log_p.gather(1, labels[:, None]).mean()
    G = log_p.exp_()  # gradient in the logits: (p - onehot) / n
    G.scatter_add_(1, labels[:, None], G.new_full((n, 1), -1.0)).div_(n)
    G = _descend(v, classifier, G, H, momentum)
    for (layer, v), H, (A, batch) in zip(layers[-2::-1], read[::-1], normed[::-1], strict=True):
        if batch is not None:
            G = _normalise_backward(v, layer, G, *batch, momentum)
        G = _descend(v, layer, G.mul_(A > 0), H, momentum)
    state.momenta.add_(state.parameters, alpha=weight_decay)
    state.parameters.sub_(state.momenta, alpha=rate)
    return loss, (top == labels).sum()


def _linear(H: Tensor, layer: Layer) -> Tensor:
    if layer.bias is None:
        return H @ layer.weight.T
    return torch.addmm(layer.bias, H, layer.weight.T)


def _normalise(A: Tensor, layer: Layer, statistics: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Batch norm; the features, and the normalised activations and 1 / sigma for the way back."""
    n = len(A)
    mean = A.mean(0)
    X = A - mean
    variance = X.square().mean(0)
    statistics[0].lerp_(mean, RUNNING)
    statistics[1].lerp_(variance * (n / (n - 1)), RUNNING)
    inverse = (variance + EPSILON).rsqrt_()
    X.mul_(inverse)
    if layer.scale is None or layer.shift is None:
        return X, (X, inverse)
    return torch.addcmul(layer.shift, X, layer.scale), (X, inverse)


def _normalise_backward(
    v: Layer, layer: Layer, G: Tensor, X: Tensor, inverse: Tensor, momentum: float
) -> Tensor:
    """From the gradient in the features to that in the activations; momenta of scale and shift."""
    n = len(G)
    shift = G.sum(0)
    scale = (G * X).sum(0)
    if v.scale is not None and v.shift is not None and layer.scale is not None:
        v.shift.mul_(momentum).add_(shift)
        v.scale.mul_(momentum).add_(scale)
        inverse = inverse * layer.scale
    return G.sub_(shift.div_(n)).addcmul_(X, scale.div_(n), value=-1).mul_(inverse)


def _descend(v: Layer, layer: Layer, G: Tensor, H: Tensor, momentum: float) -> Tensor:
    """Momenta of a linear layer from the gradient in its outputs; that in its inputs."""
    v.weight.addmm_(G.T, H, beta=momentum)
    if v.bias is not None:
        v.bias.mul_(momentum).add_(G.sum(0))
    return G @ layer.weight

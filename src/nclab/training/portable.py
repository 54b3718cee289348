"""One step of stochastic gradient descent in plain torch, its gradients written by hand.

Works on every device and in every dtype. Features are stored transposed, (width, n): torch's batch
norm and matrix products take less time so. The matrix product that makes the gradient of a weight
adds it to the momentum.
"""

import torch
from torch import Tensor

from nclab.training.recipe import Recipe
from nclab.training.state import LayerTensors, State

EPSILON = 1e-5
"""Added to the variance, as `nn.BatchNorm1d` does by default."""
RUNNING = 0.1
"""Share of the batch in the running statistics, as `nn.BatchNorm1d` does by default."""
Moments = tuple[Tensor, ...]
"""Mean and 1 / sigma of each neuron over the batch; nothing without batch norm."""


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
    layers: list[tuple[LayerTensors, LayerTensors]],
    inputs: Tensor,
    labels: Tensor,
    *,
    rate: float,
    weight_decay: float,
    momentum: float,
) -> tuple[Tensor, Tensor]:
    """theta <- theta - rate v, where v <- momentum v + gradient + weight_decay theta."""
    state.momenta.mul_(momentum).add_(state.parameters, alpha=weight_decay)
    H = inputs.T.contiguous()
    passed: list[tuple[Tensor, Tensor, Moments]] = []
    for (layer, _), statistics in zip(layers, state.statistics, strict=False):
        A = _linear(layer, H).relu_()
        following, moments = (A, ()) if state.norm == "none" else _normalise(A, layer, statistics)
        passed.append((H, A, moments))
        H = following
    classifier, v = layers[-1]
    logits = _linear(classifier, H)  # (C, n)
    hits = (logits.argmax(0) == labels).sum()
    log_p = logits.log_softmax(0)
    loss = -log_p.gather(0, labels[None]).mean()
    G = log_p.exp_()  # the gradient in the logits, (p - onehot) / n
    G.scatter_add_(0, labels[None], G.new_full((1, len(labels)), -1.0)).div_(len(labels))
    G = _linear_backward(v, classifier, G, H)
    for (layer, v), (H, A, moments) in zip(layers[-2::-1], passed[::-1], strict=True):
        if moments:
            G = _normalise_backward(v, layer, G, A, moments)
        G = torch.ops.aten.threshold_backward(G, A, 0)  # G where A > 0
        G = _linear_backward(v, layer, G, H)
    state.parameters.sub_(state.momenta, alpha=rate)
    return loss, hits


def _linear(layer: LayerTensors, H: Tensor) -> Tensor:
    if layer.bias is None:
        return layer.weight @ H
    return torch.addmm(layer.bias[:, None], layer.weight, H)


def _linear_backward(v: LayerTensors, layer: LayerTensors, G: Tensor, H: Tensor) -> Tensor:
    """Add the gradients of weight and bias; the gradient in H."""
    v.weight.addmm_(G, H.T)
    if v.bias is not None:
        v.bias.add_(G.sum(1))
    return layer.weight.T @ G


def _normalise(A: Tensor, layer: LayerTensors, statistics: Tensor) -> tuple[Tensor, Moments]:
    """Batch norm, and the batch's mean and 1 / sigma; running statistics are updated."""
    mean, variance = statistics
    H, *moments = torch.native_batch_norm(
        A[None], layer.scale, layer.shift, mean, variance, True, RUNNING, EPSILON
    )
    return H[0], tuple(moments)


def _normalise_backward(
    v: LayerTensors, layer: LayerTensors, G: Tensor, A: Tensor, moments: Moments
) -> Tensor:
    """Add the gradients of scale and shift; the gradient in A."""
    affine = v.scale is not None
    wanted = [True, affine, affine]
    G, scale, shift = torch.ops.aten.native_batch_norm_backward(
        G[None], A[None], layer.scale, None, None, *moments, True, EPSILON, wanted
    )
    if v.scale is not None and v.shift is not None:
        v.scale.add_(scale)
        v.shift.add_(shift)
    return G[0]

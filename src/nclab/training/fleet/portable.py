"""One step of training in plain torch, its gradients written by hand.

Works on every device and in every dtype. Features are stored transposed, (width, n): torch's batch
norm and matrix products take less time so. The matrix product that makes the gradient of a weight
adds it to what the optimiser keeps: for SGD, the momentum.
"""

import torch
from torch import Tensor

from nclab.training.fleet.losses import mean_loss
from nclab.training.fleet.optimizers import decays, descend, prepare, sums_into
from nclab.training.fleet.recipe import Recipe
from nclab.training.fleet.state import LayerTensors, State
from nclab.training.models.mlp import Activation

EPSILON = 1e-5
"""Added to the variance, as `nn.BatchNorm1d` does by default."""
RUNNING = 0.1
"""Share of the batch in the running statistics, as `nn.BatchNorm1d` does by default."""
Moments = tuple[Tensor, ...]
"""Mean and 1 / sigma of each neuron over the batch; nothing without batch norm."""


def train_epoch(
    state: State,
    inputs: Tensor,
    labels: Tensor,
    order: Tensor,
    recipe: Recipe,
    *,
    rate: float,
    weight_decay: float,
    taken: int,
) -> tuple[Tensor, Tensor]:
    """The steps of one epoch after those `taken`, in place; mean loss and hits of every batch."""
    sums = sums_into(state, recipe)
    layers = state.layers(sums)
    parts = decays(state, recipe, rate=rate, weight_decay=weight_decay)
    losses, hits = [], []
    for step, rows in enumerate(order.split(recipe.batch), start=taken + 1):
        for part in parts:
            prepare(state, recipe, sums, part)
        loss, hit = add_gradients(state, layers, inputs[rows], labels[rows], recipe)
        for part in parts:
            descend(state, recipe, sums, part, rate=rate, step=step)
        losses.append(loss)
        hits.append(hit)
    return torch.stack(losses).double().cpu(), torch.stack(hits).cpu()


def add_gradients(
    state: State,
    layers: list[tuple[LayerTensors, LayerTensors]],
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
) -> tuple[Tensor, Tensor]:
    """Forward and back; the mean loss of the batch and its hits."""
    H = inputs.T.contiguous()
    passed: list[tuple[Tensor, Tensor, Tensor, Moments]] = []
    for (layer, _), statistics in zip(layers, state.statistics, strict=False):
        A, kept = _activate(_linear(layer, H), state.shape.activation)
        following, moments = (A, ()) if state.norm == "none" else _normalise(A, layer, statistics)
        passed.append((H, A, kept, moments))
        H = following
    classifier, v = layers[-1]
    logits = _linear(classifier, H)  # (C, n)
    hits = (logits.argmax(0) == labels).sum()
    loss, G = mean_loss(logits, labels, recipe)
    G = _linear_backward(v, classifier, G, H)
    for (layer, v), (H, A, kept, moments) in zip(layers[-2::-1], passed[::-1], strict=True):
        if moments:
            G = _normalise_backward(v, layer, G, A, moments)
        G = _activate_backward(G, kept, state.shape.activation)
        G = _linear_backward(v, layer, G, H)
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


def _activate(Z: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """The features, and what the way back needs of them: GELU's own inputs, else themselves."""
    if activation == "gelu":
        return torch.nn.functional.gelu(Z), Z
    A = Z.relu_() if activation == "relu" else Z.tanh_()
    return A, A


def _activate_backward(G: Tensor, kept: Tensor, activation: Activation) -> Tensor:
    """The gradient before the activation."""
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(G, kept)
    if activation == "tanh":
        return torch.ops.aten.tanh_backward(G, kept)
    return torch.ops.aten.threshold_backward(G, kept, 0)  # G where A > 0


def _normalise(A: Tensor, layer: LayerTensors, statistics: Tensor) -> tuple[Tensor, Moments]:
    """Batch norm, and the batch's mean and 1 / sigma; running statistics are updated."""
    mean, variance = statistics[:, : len(A)]
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

"""Training steps in plain torch, with gradients written by hand, for any device and dtype.

Features are stored transposed, (width, n), which makes torch's batch norm and matrix products
faster. The matrix product that computes the gradient of a weight adds it directly to a vector of
the optimiser; for plain SGD this is the momentum.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.training.fleet.recipe import Recipe
from nclab.training.fleet.state import LayerTensors, State, layout_table
from nclab.training.models.mlp import Activation

EPSILON = 1e-5
"""Number added to the variance, the default of `nn.BatchNorm1d`."""
RUNNING = 0.1
"""Weight of the newest batch in the running statistics, the default of `nn.BatchNorm1d`."""
Moments = tuple[Tensor, ...]
"""Mean and 1 / sigma of each neuron over the batch; empty without batch norm."""


def train_epoch(
    state: State,
    inputs: Tensor,
    labels: Tensor,
    order: Tensor,
    recipe: Recipe,
    *,
    rate: float,
    weight_decay: float,
    first_step: int,
) -> tuple[Tensor, Tensor]:
    """Train one epoch in place; return mean loss and number of correct samples of each batch.

    `first_step` is the number of the first step, counted from 1 over all epochs.
    """
    gradients = gradient_vector(state, recipe)
    layers = state.layers(gradients)
    decays = decays_of(state, recipe, rate=rate, weight_decay=weight_decay)
    losses, hits = [], []
    for step, rows in enumerate(order.split(recipe.batch), start=first_step):
        for decay in decays:
            _prepare(state, recipe, gradients, decay)
        loss, batch_hits = _add_gradients(state, layers, inputs[rows], labels[rows], recipe)
        for decay in decays:
            _descend(state, recipe, gradients, decay, rate=rate, step=step)
        losses.append(loss)
        hits.append(batch_hits)
    return torch.stack(losses).double().cpu(), torch.stack(hits).cpu()


def _add_gradients(
    state: State,
    layers: list[tuple[LayerTensors, LayerTensors]],
    inputs: Tensor,
    labels: Tensor,
    recipe: Recipe,
) -> tuple[Tensor, Tensor]:
    """Run a batch forward and backward; return mean loss and number of correct samples."""
    H = inputs.T.contiguous()
    saved: list[tuple[Tensor, Tensor, Tensor, Moments]] = []
    first_norm = state.shape.first_norm(state.norm)
    for index, statistics in enumerate(state.statistics):
        layer, _ = layers[index]
        A, context = _activate(_linear(layer, H), state.shape.activation)
        following, moments = (A, ()) if index < first_norm else _normalise(A, layer, statistics)
        saved.append((H, A, context, moments))
        H = following
    classifier, v = layers[-1]
    logits = _linear(classifier, H)  # (C, n)
    hits = (logits.argmax(0) == labels).sum()
    loss, G = mean_loss(logits, labels, recipe)
    G = _linear_backward(v, classifier, G, H)
    for (layer, v), (H, A, context, moments) in zip(layers[-2::-1], saved[::-1], strict=True):
        if moments:
            G = _normalise_backward(v, layer, G, A, moments)
        G = _activate_backward(G, context, state.shape.activation)
        G = _linear_backward(v, layer, G, H)
    return loss, hits


def _linear(layer: LayerTensors, H: Tensor) -> Tensor:
    if layer.bias is None:
        return layer.weight @ H
    return torch.addmm(layer.bias[:, None], layer.weight, H)


def _linear_backward(v: LayerTensors, layer: LayerTensors, G: Tensor, H: Tensor) -> Tensor:
    """Add the gradients of weight and bias to `v`; return the gradient with respect to H.

    G is the gradient with respect to the outputs of the layer, H are its inputs.
    """
    v.weight.addmm_(G, H.T)
    if v.bias is not None:
        v.bias.add_(G.sum(1))
    return layer.weight.T @ G


def _activate(Z: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """Return the features, and what the backward pass needs: the features or, for GELU, Z."""
    if activation == "gelu":
        return torch.nn.functional.gelu(Z), Z
    A = Z.relu_() if activation == "relu" else Z.tanh_()
    return A, A


def _activate_backward(G: Tensor, context: Tensor, activation: Activation) -> Tensor:
    """Return the gradient with respect to the inputs of the activation."""
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(G, context)
    if activation == "tanh":
        return torch.ops.aten.tanh_backward(G, context)
    return torch.ops.aten.threshold_backward(G, context, 0)  # G where A > 0


def _normalise(A: Tensor, layer: LayerTensors, statistics: Tensor) -> tuple[Tensor, Moments]:
    """Apply batch norm and update the running statistics; return features and batch moments."""
    mean, variance = statistics[:, : len(A)]
    H, *moments = torch.native_batch_norm(
        A[None], layer.scale, layer.shift, mean, variance, True, RUNNING, EPSILON
    )
    return H[0], tuple(moments)


def _normalise_backward(
    v: LayerTensors, layer: LayerTensors, G: Tensor, A: Tensor, moments: Moments
) -> Tensor:
    """Add the gradients of scale and shift to `v`; return the gradient with respect to A.

    G is the gradient with respect to the outputs of batch norm, A are its inputs.
    """
    affine = v.scale is not None
    wanted = [True, affine, affine]
    G, scale, shift = torch.ops.aten.native_batch_norm_backward(
        G[None], A[None], layer.scale, None, None, *moments, True, EPSILON, wanted
    )
    if v.scale is not None and v.shift is not None:
        v.scale.add_(scale)
        v.shift.add_(shift)
    return G[0]


def mean_loss(logits: Tensor, labels: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return the mean loss of a batch of logits (C, n) and its gradient; overwrite the logits."""
    n = len(labels)
    if recipe.loss == "mse":  # half of |z - onehot|^2; (z - onehot) / n
        residuals = _add_at(logits, labels, -1.0)
        return residuals.square().sum(0).mean() / 2, residuals.div_(n)
    log_p = logits.log_softmax(0)
    if recipe.loss == "focal":
        return _focal(log_p, labels, recipe.focal_gamma)
    if recipe.loss == "label_smoothing":
        return _label_smoothing(log_p, labels, recipe.smoothing)
    loss = -log_p.gather(0, labels[None]).mean()  # cross-entropy; (p - onehot) / n
    return loss, _add_at(log_p.exp_(), labels, -1.0).div_(n)


def _label_smoothing(log_p: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy and its gradient (p - t) / n for targets t.

    t = (1 - s) * onehot + s / C for smoothing s and C classes; p is the softmax.
    """
    label = log_p.gather(0, labels[None]).mean()
    loss = -(1 - smoothing) * label - smoothing * log_p.mean()
    G = _add_at(log_p.exp().sub_(smoothing / len(log_p)), labels, smoothing - 1)
    return loss, G.div_(len(labels))


def _focal(log_p: Tensor, labels: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Return the mean of f(p) = -(1 - p)^gamma log p and its gradient.

    p is the probability of the label. The gradient is that of cross-entropy times -p f'(p).
    """
    surprise = -log_p.gather(0, labels[None])
    missing = -torch.expm1(-surprise)  # 1 - p
    power = missing**gamma
    ratio = torch.where(missing > 0, surprise / missing, 1.0)
    weight = power * (1 + gamma * ratio * (1 - missing))
    G = _add_at(log_p.exp_(), labels, -1.0).mul_(weight).div_(len(labels))
    return (power * surprise).mean(), G


def _add_at(G: Tensor, labels: Tensor, value: float) -> Tensor:
    """Add a value to each sample's entry at its label, in place; return G."""
    return G.scatter_add_(0, labels[None], G.new_full((1, len(labels)), value))


class Decay(NamedTuple):
    """Weight decay of one part of the flat vectors."""

    part: slice
    coupled: float
    """This factor times the parameters is added to the gradient; 0 for decoupled weight decay."""
    remaining: float
    """Factor that multiplies the parameters in every step; 1 unless weight decay is decoupled."""


def decays_of(state: State, recipe: Recipe, *, rate: float, weight_decay: float) -> list[Decay]:
    """Return two decays: of all parameters but the classifier's bias, and of this bias.

    The bias is the last part of the flat vectors.
    """
    bias_decay = weight_decay if recipe.head_bias_decay is None else recipe.head_bias_decay
    cut = int(layout_table(state.shape, state.norm)[-1, 6])
    parts = ((slice(0, cut), weight_decay), (slice(cut, None), bias_decay))
    if recipe.decoupled:
        return [Decay(part, 0.0, 1 - rate * value) for part, value in parts]
    return [Decay(part, value, 1.0) for part, value in parts]


def adam_corrections(recipe: Recipe, step: int, *, rate: float) -> tuple[float, float]:
    """Return Adam's rate / (1 - beta1^t) and sqrt(1 - beta2^t) at step t, counted from 1."""
    return rate / (1 - recipe.beta1**step), math.sqrt(1 - recipe.beta2**step)


def gradient_vector(state: State, recipe: Recipe) -> Tensor:
    """Return the vector to which gradients are added: for plain SGD the momenta, else a new one."""
    plain = recipe.optimizer == "sgd" and not recipe.nesterov
    return state.momenta if plain else state.parameters.new_zeros(state.parameters.shape)


def _prepare(state: State, recipe: Recipe, gradients: Tensor, decay: Decay) -> None:
    """Set the gradient vector to coupled weight decay, plus the momentum for plain SGD."""
    g, theta = gradients[decay.part], state.parameters[decay.part]
    g.mul_(recipe.momentum if gradients is state.momenta else 0.0).add_(theta, alpha=decay.coupled)


def _descend(
    state: State, recipe: Recipe, gradients: Tensor, decay: Decay, *, rate: float, step: int
) -> None:
    """Take one step of the optimiser in one part of the parameters."""
    theta, v, g = (vector[decay.part] for vector in (state.parameters, state.momenta, gradients))
    if decay.remaining != 1.0:
        theta.mul_(decay.remaining)
    if recipe.rule == "adam":
        rate, root = adam_corrections(recipe, step, rate=rate)
        s = state.squares[decay.part]
        v.lerp_(g, 1 - recipe.beta1)
        s.mul_(recipe.beta2).addcmul_(g, g, value=1 - recipe.beta2)
        theta.addcdiv_(v, s.sqrt().div_(root).add_(recipe.epsilon), value=-rate)
        return
    if gradients is not state.momenta:
        v.mul_(recipe.momentum).add_(g)
    if recipe.rule == "signum":
        theta.sub_(v.sign(), alpha=rate)
    elif recipe.nesterov:
        theta.sub_(g.add_(v, alpha=recipe.momentum), alpha=rate)
    else:
        theta.sub_(v, alpha=rate)

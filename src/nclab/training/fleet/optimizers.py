"""The steps of every optimiser in plain torch, on flat vectors; and numbers both backends need."""

import math
from typing import NamedTuple

from torch import Tensor

from nclab.training.fleet.recipe import Recipe
from nclab.training.fleet.state import State, places


class Decay(NamedTuple):
    """What weight decay does, to which part of the flat vectors."""

    part: slice
    added: float
    """Times the parameter, to the gradient."""
    left: float
    """Share of a parameter that is there after it, apart from the gradient."""


def decays(state: State, recipe: Recipe, *, rate: float, weight_decay: float) -> list[Decay]:
    """Of all parameters, then of the classifier's bias, which lies last and may have its own."""
    own = weight_decay if recipe.head_bias_decay is None else recipe.head_bias_decay
    cut = int(places(state.shape, state.norm)[-1, 6])
    parts = ((slice(0, cut), weight_decay), (slice(cut, None), own))
    if recipe.decoupled:
        return [Decay(part, 0.0, 1 - rate * value) for part, value in parts]
    return [Decay(part, value, 1.0) for part, value in parts]


def corrections(recipe: Recipe, step: int, *, rate: float) -> tuple[float, float]:
    """Adam's rate / (1 - beta1^t) and sqrt(1 - beta2^t); t is the step, counted from 1."""
    return rate / (1 - recipe.beta1**step), math.sqrt(1 - recipe.beta2**step)


def sums_into(state: State, recipe: Recipe) -> Tensor:
    """What a step's gradients are added to: the momenta of plain SGD, else a vector of its own."""
    plain = recipe.optimizer == "sgd" and not recipe.nesterov
    return state.momenta if plain else state.parameters.new_zeros(state.parameters.shape)


def prepare(state: State, recipe: Recipe, sums: Tensor, decay: Decay) -> None:
    """Before the gradients are added: the sums hold weight decay's, and plain SGD's momentum."""
    own, theta = sums[decay.part], state.parameters[decay.part]
    own.mul_(recipe.momentum if sums is state.momenta else 0.0).add_(theta, alpha=decay.added)


def descend(
    state: State, recipe: Recipe, sums: Tensor, decay: Decay, *, rate: float, step: int
) -> None:
    """One step of a part of the parameters; g are the gradients with what `prepare` put there."""
    theta, v, g = (vector[decay.part] for vector in (state.parameters, state.momenta, sums))
    if decay.left != 1.0:
        theta.mul_(decay.left)
    if recipe.rule == "adam":
        rate, root = corrections(recipe, step, rate=rate)
        s = state.squares[decay.part]
        v.lerp_(g, 1 - recipe.beta1)
        s.mul_(recipe.beta2).addcmul_(g, g, value=1 - recipe.beta2)
        theta.addcdiv_(v, s.sqrt().div_(root).add_(recipe.epsilon), value=-rate)
        return
    if sums is not state.momenta:
        v.mul_(recipe.momentum).add_(g)
    if recipe.rule == "signum":
        theta.sub_(v.sign(), alpha=rate)
    elif recipe.nesterov:
        theta.sub_(g.add_(v, alpha=recipe.momentum), alpha=rate)
    else:
        theta.sub_(v, alpha=rate)

"""How a classifier makes logits of what it reads, and its weights as they are at any moment.

Every head here is a linear map, scale · rows · weightᵀ + bias, of the rows or of their directions,
by the weights or by theirs: plain, cosine, `x @ W`, a convolution over single points, one logit for
two classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

Pair = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class HeadForm:
    """A classifier's weights, found once and read whenever they are needed."""

    weight: Callable[[], Tensor]
    bias: Callable[[], Tensor | None] = lambda: None
    turned: bool = False
    """Whether the weight is (d, C), as in `x @ W`."""
    unit_rows: bool = False
    """Whether the rows are divided by their norms first."""
    unit_weight: bool = False
    scale: Callable[[], Tensor | float] = lambda: 1.0
    scaled_bias: bool = False

    def read(self) -> Pair:
        """(C, d) weight and (C,) bias as they are now, in float64; one logit as two classes."""
        return as_two_classes(*self.raw())

    def raw(self) -> Pair:
        """`read` with one row where there is one logit."""
        weight = self.weight().detach().double()
        weight = weight.T if self.turned else weight.flatten(1)
        weight = normalize(weight, dim=1) if self.unit_weight else weight
        scale, bias = self._scale(), self.bias()
        if bias is not None:
            bias = bias.detach().double() * (scale if self.scaled_bias else 1.0)
        return weight * scale, bias

    def _scale(self) -> Tensor | float:
        scale = self.scale()
        return scale.detach().double().reshape(()) if isinstance(scale, Tensor) else scale


def as_two_classes(weight: Tensor, bias: Tensor | None) -> Pair:
    """A head of one logit z, for which class 1 is sigmoid(z), as the logits -z/2 and z/2.

    >>> as_two_classes(torch.tensor([[2.0, 4.0]]), None)[0].tolist()
    [[-1.0, -2.0], [1.0, 2.0]]
    """
    if len(weight) != 1:
        return weight, bias
    half = torch.tensor([[-0.5], [0.5]], dtype=weight.dtype, device=weight.device)
    return half * weight, None if bias is None else half[:, 0] * bias


def scale_of(owners: Iterator[nn.Module], scale: float, eps: float) -> Callable[[], Tensor | float]:
    """The parameter that holds a scale, so that it is followed in training; else the number."""
    for module in owners:
        own = [*module._parameters.items(), *module._buffers.items()]
        for name, value in own:
            if value is None or value.numel() != 1 or not value.is_floating_point():
                continue
            for change in (_same, torch.exp, torch.reciprocal):
                own_scale = float(change(value.detach().double()))
                if abs(own_scale - scale) <= 64 * eps * abs(scale):
                    return _reading(module, name, change)
    return lambda: scale


def _reading(
    module: nn.Module, name: str, change: Callable[[Tensor], Tensor]
) -> Callable[[], Tensor]:
    return lambda: change(getattr(module, name).detach().double())


def _same(value: Tensor) -> Tensor:
    return value

"""How a classifier makes logits of what it reads, and its weights as they are at any moment.

Every head here is a linear map, scale · rows · weightᵀ + bias, of the rows or of their directions,
by the weights or by theirs: plain, cosine, `x @ W`, a convolution over single points, one logit for
two classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

TESTED_ROWS = 64
"""Rows on which a form is compared with what came out."""

Pair = tuple[Tensor, Tensor | None]


class Fit(NamedTuple):
    """A form that reproduces the logits: which sides are unit vectors, and the scale."""

    unit_rows: bool = False
    unit_weight: bool = False
    scale: float = 1.0
    with_bias: bool = True


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

    def read(self) -> Pair:
        """(C, d) weight and (C,) bias as they are now, in float64; one logit as two classes."""
        weight = self.weight().detach().double()
        weight = weight.T if self.turned else weight.flatten(1)
        weight = normalize(weight, dim=1) if self.unit_weight else weight
        weight = weight * self._scale()
        bias = self.bias()
        return as_two_classes(weight, None if bias is None else bias.detach().double())

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


def fit(rows: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Fit | None:
    """The form in which (n, d) rows and a (C, d) weight give the (n, C) logits, if one does.

    The plain product comes first; a scale is looked for where a side is made of unit vectors.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> fit(rows, 5 * normalize(rows) @ normalize(weight).T, weight, None)
    Fit(unit_rows=True, unit_weight=True, scale=5.0, with_bias=False)
    """
    if not (rows.is_floating_point() and logits.is_floating_point()):
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    weight = weight.double()
    offsets = [None] if bias is None else [bias.double(), None]
    possible: list[tuple[Fit, float]] = []
    for unit_rows, unit_weight in ((False, False), (False, True), (True, False), (True, True)):
        left = normalize(rows, dim=1) if unit_rows else rows
        right = normalize(weight, dim=1) if unit_weight else weight
        product, size = left @ right.T, left.abs() @ right.abs().T
        free = unit_rows or unit_weight or is_unit(rows, eps) or is_unit(weight, eps)
        for offset in offsets:
            shift = torch.zeros_like(logits[0]) if offset is None else offset
            for scale in (1.0, _scale(product, logits - shift)) if free else (1.0,):
                error = (scale * product + shift - logits).abs()
                # What rounding can do to each sum.
                if scale > 0 and bool((error <= 8 * eps * (scale * size + shift.abs())).all()):
                    written = _plain_number(scale, eps)
                    found = Fit(unit_rows, unit_weight, written, offset is not None)
                    possible.append((found, float(error.square().mean().sqrt())))
    # In bfloat16 a cosine may pass for a product: the first that is about as near as the nearest.
    nearest = min((error for _, error in possible), default=0.0)
    near = 2 * nearest + 1e-14 * float(logits.abs().amax())
    return next((found for found, error in possible if error <= near), None)


def is_unit(rows: Tensor, eps: float) -> bool:
    """Whether all rows have one norm, 1, as far as their precision tells."""
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    return bool(((norms - 1).abs() <= 8 * eps).all())


def scale_of(owners: Iterator[nn.Module], found: Fit, eps: float) -> Callable[[], Tensor | float]:
    """The parameter that holds a scale, so that it is followed in training; else the number."""
    for module in owners:
        own = [*module._parameters.items(), *module._buffers.items()]
        for name, value in own:
            if value is None or value.numel() != 1 or not value.is_floating_point():
                continue
            for change in (_same, torch.exp, torch.reciprocal):
                if abs(float(change(value.detach().double())) - found.scale) <= (
                    64 * eps * found.scale
                ):
                    return _reading(module, name, change)
    return lambda: found.scale


def _reading(
    module: nn.Module, name: str, change: Callable[[Tensor], Tensor]
) -> Callable[[], Tensor]:
    return lambda: change(getattr(module, name).detach().double())


def _same(value: Tensor) -> Tensor:
    return value


def _scale(product: Tensor, logits: Tensor) -> float:
    """The best factor from one to the other."""
    square = float(product.square().sum())
    return float((product * logits).sum()) / square if square else 0.0


def _plain_number(scale: float, eps: float) -> float:
    """A fitted factor as somebody has written it: 30 and not 30.0000004, or 1 / 0.07."""
    for written in (float(f"{scale:.4g}"), 1 / float(f"{1 / scale:.4g}")):
        if abs(written - scale) <= 64 * eps * scale:
            return written
    return scale

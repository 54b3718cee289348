"""Finds by numbers how logits come from rows and a matrix, or from other logits.

Exactly, up to what rounding can do: a form that fits some rows of one batch is that of all.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

TESTED_ROWS = 64
"""Rows on which a form is compared with what came out."""

FEWEST_ROWS = 3
"""From so many on an offset that is looked for shows whether it is one."""
SIDES = ((False, False), (False, True), (True, False), (True, True))
"""Whether rows, and weights, are unit vectors; as they are first."""


class Fit(NamedTuple):
    """A form that reproduces the logits: which sides are unit vectors, and the scale."""

    unit_rows: bool = False
    unit_weight: bool = False
    scale: float = 1.0
    with_bias: bool = True
    scaled_bias: bool = False
    """Whether the scale is that of the bias, too."""


def fit(rows: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Fit | None:
    """The form in which (n, d) rows and a (C, d) weight give the (n, C) logits, if one does.

    The plain product comes first, then a scale where a side is made of unit vectors, then any.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> fit(rows, 5 * normalize(rows) @ normalize(weight).T, weight, None)
    Fit(unit_rows=True, unit_weight=True, scale=5.0, with_bias=False, scaled_bias=False)
    """
    if not (rows.is_floating_point() and logits.is_floating_point()):
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    weight = weight.double()
    offsets = [None] if bias is None else [bias.double(), None]
    possible: list[tuple[Fit, float]] = []
    unusual: list[tuple[Fit, float]] = []
    for unit_rows, unit_weight in SIDES:
        product, size = _products(rows, weight, unit_rows, unit_weight)
        free = unit_rows or unit_weight or has_unit_rows(rows, eps) or has_unit_rows(weight, eps)
        for offset in offsets:
            shift = torch.zeros_like(logits[0]) if offset is None else offset
            for scale in (1.0, _scale(product, logits - shift)):
                error = (scale * product + shift - logits).abs()
                # What rounding can do to each sum.
                if not bool((error <= 8 * eps * (abs(scale) * size + shift.abs())).all()):
                    continue
                found = Fit(unit_rows, unit_weight, _plain_number(scale, eps), offset is not None)
                far = _root_mean_square(error)
                if scale == 1.0 or (free and scale > 0):
                    possible.append((found, far))
                elif scale != 0 and far <= rounding(eps) * _root_mean_square(logits):
                    unusual.append((found, far))
            if offset is None:
                continue
            scale = _scale(product + shift, logits)
            error = (scale * (product + shift) - logits).abs()
            far = _root_mean_square(error)
            bound = 8 * eps * abs(scale) * (size + shift.abs())
            near = far <= rounding(eps) * _root_mean_square(logits)
            if scale != 0 and near and bool((error <= bound).all()):
                scale = _plain_number(scale, eps)
                unusual.append((Fit(unit_rows, unit_weight, scale, scaled_bias=True), far))
    # In bfloat16 a cosine may pass for a product: the first that is about as near as the nearest.
    possible += unusual
    nearest = min((error for _, error in possible), default=0.0)
    near_enough = 2 * nearest + 1e-14 * float(logits.abs().amax())
    return next((found for found, error in possible if error <= near_enough), None)


def fit_with_offset(rows: Tensor, logits: Tensor, weight: Tensor) -> tuple[Fit, Tensor] | None:
    """`fit` with a bias that is not known: the form and the (C,) bias that it needs.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0], [0, 1]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> found = fit_with_offset(rows, 3 * rows @ weight.T + torch.tensor([1.0, 2.0]), weight)
    >>> found[0].scale, found[1].tolist()
    (3.0, [1.0, 2.0])
    """
    if not (rows.is_floating_point() and logits.is_floating_point()) or len(rows) < FEWEST_ROWS:
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    for unit_rows, unit_weight in SIDES:
        product, size = _products(rows, weight.double(), unit_rows, unit_weight)
        change = fit_combination([product], logits, eps=eps, sizes=[size])
        if change is not None and change.offset is not None:
            return Fit(unit_rows, unit_weight, change.factors[0]), change.offset
    return None


class Combination(NamedTuple):
    """How one result comes from others: the sum of factor · result, and an offset."""

    factors: tuple[float, ...]
    offset: Tensor | None


def fit_combination(
    results: Sequence[Tensor],
    output: Tensor,
    *,
    eps: float | None = None,
    sizes: Sequence[Tensor] | None = None,
) -> Combination | None:
    """The factors and the (C,) offset with which (n, C) results add up to the output, if they do.

    `sizes` bound the results before what cancels in them: what their rounding goes by.

    >>> one, other = torch.eye(3), torch.tensor([[1.0, 2, 4], [0, 1, 5], [2, 2, 2]])
    >>> fit_combination([one, other], 2 * one + other / 4).factors
    (2.0, 0.25)
    """
    if len(output) < FEWEST_ROWS or any(part.shape != output.shape for part in results):
        return None
    eps = max(torch.finfo(p.dtype).eps for p in (output, *results)) if eps is None else eps
    last = output[:TESTED_ROWS].double()
    parts = torch.stack([part[:TESTED_ROWS].double() for part in results])  # (k, n, C)
    moving, centred = (part - part.mean(-2, keepdim=True) for part in (parts, last))
    if not bool(centred.any()) or not bool(torch.isfinite(centred).all()):
        return None
    columns, wanted = moving.flatten(1).T.cpu(), centred.flatten()[:, None].cpu()
    solved = torch.linalg.lstsq(columns, wanted, driver="gelsd")
    found = [_plain_number(float(own), eps) for own in solved.solution[:, 0]]
    factors = torch.tensor(found, dtype=torch.float64, device=parts.device)
    made = torch.einsum("k,knc->nc", factors, parts)
    large = parts.abs() if sizes is None else torch.stack([own[:TESTED_ROWS] for own in sizes])
    size = torch.einsum("k,knc->nc", factors.abs(), large)
    offset = (last - made).mean(0)
    if bool((offset.abs() <= 8 * eps * (size + last.abs()).mean(0)).all()):
        offset = torch.zeros_like(offset)
    error = (made + offset - last).abs()
    far = _root_mean_square(error)
    if not bool((error <= 8 * eps * (size + offset.abs() + last.abs())).all()):
        return None
    if far > rounding(eps) * _root_mean_square(centred) or not bool((factors != 0).all()):
        return None
    return Combination(tuple(factors.tolist()), offset if bool(offset.any()) else None)


def rounding(eps: float) -> float:
    """The share of logits that rounding is, at most: half precision is rounded once, at the end."""
    return (64 if eps < 1e-5 else 4) * eps


def has_unit_rows(rows: Tensor, eps: float) -> bool:
    """Whether all rows have one norm, 1, as far as their precision tells."""
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    return bool(((norms - 1).abs() <= 8 * eps).all())


def _products(
    rows: Tensor, weight: Tensor, unit_rows: bool, unit_weight: bool
) -> tuple[Tensor, Tensor]:
    """(n, C) products, and the sums of the sizes of what was added."""
    left = normalize(rows, dim=1) if unit_rows else rows
    right = normalize(weight, dim=1) if unit_weight else weight
    return left @ right.T, left.abs() @ right.abs().T


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _scale(product: Tensor, logits: Tensor) -> float:
    """The best factor from one to the other."""
    square = float(product.square().sum())
    return float((product * logits).sum()) / square if square else 0.0


def _plain_number(scale: float, eps: float) -> float:
    """A fitted factor as somebody has written it: 30 and not 30.0000004, or 1 / 0.07."""
    if scale == 0 or not math.isfinite(scale):
        return 0.0
    for written in (float(f"{scale:.4g}"), 1 / float(f"{1 / scale:.4g}")):
        if abs(written - scale) <= 64 * eps * abs(scale):
            return written
    return scale

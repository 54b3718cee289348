"""Numerical tests for how logits arise from rows and a matrix, or from other logits.

The tests are exact up to rounding: a form that fits the tested rows of one batch holds for all.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

TESTED_ROWS = 64
"""Rows on which a form is compared with the observed logits."""
FEWEST_ROWS = 3
"""Fewest rows from which an unknown offset can be verified."""
NORMALIZATIONS = ((False, False), (False, True), (True, False), (True, True))
"""Whether rows, and weights, are divided by their norms; unnormalized first."""


class Fit(NamedTuple):
    """A form that reproduces the logits: which sides are unit vectors, and the scale."""

    unit_rows: bool = False
    unit_weight: bool = False
    scale: float = 1.0
    with_bias: bool = True
    scaled_bias: bool = False
    """Whether the scale multiplies the bias as well."""


def fit(rows: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Fit | None:
    """Return the form in which (n, d) rows and a (C, d) weight give the (n, C) logits, or None.

    Forms are preferred in this order: the plain product, a scaled product with unit vectors on one
    side, any other scaled product.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> fit(rows, 5 * normalize(rows) @ normalize(weight).T, weight, None)
    Fit(unit_rows=True, unit_weight=True, scale=5.0, with_bias=False, scaled_bias=False)
    """
    if not (rows.is_floating_point() and logits.is_floating_point()):
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    weight = weight.double()
    usual: list[tuple[Fit, float]] = []
    unusual: list[tuple[Fit, float]] = []
    for unit_rows, unit_weight in NORMALIZATIONS:
        product, size = _products(rows, weight, unit_rows, unit_weight)
        unit = unit_rows or unit_weight or has_unit_rows(rows, eps) or has_unit_rows(weight, eps)
        zero = torch.zeros_like(logits[0])
        terms = [(product, size, zero, False, False)]
        if bias is not None:
            shift = bias.double()
            scaled = (product + shift, size + shift.abs(), zero, True, True)
            terms = [(product, size, shift, True, False), scaled, *terms]
        for scaled_term, bound, added, with_bias, scaled_bias in terms:
            best = _best_scale(scaled_term, logits - added)
            for scale in (best,) if scaled_bias else (1.0, best):
                error = (scale * scaled_term + added - logits).abs()
                # The bound is what rounding can add to each sum.
                if not bool((error <= 8 * eps * (abs(scale) * bound + added.abs())).all()):
                    continue
                written = _written_number(scale, eps)
                form = Fit(unit_rows, unit_weight, written, with_bias, scaled_bias)
                distance = _root_mean_square(error)
                if not scaled_bias and (scale == 1.0 or (unit and scale > 0)):
                    usual.append((form, distance))
                elif scale != 0 and distance <= rounding(eps) * _root_mean_square(logits):
                    unusual.append((form, distance))
    # In bfloat16 a cosine may pass for a product: take the first form that is about as near as
    # the nearest.
    possible = usual + unusual
    nearest = min((distance for _, distance in possible), default=0.0)
    near_enough = 2 * nearest + 1e-14 * float(logits.abs().amax())
    return next((form for form, distance in possible if distance <= near_enough), None)


def fit_with_offset(rows: Tensor, logits: Tensor, weight: Tensor) -> tuple[Fit, Tensor] | None:
    """Return the form and the (C,) bias that fit the logits when the bias is unknown, or None.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0], [0, 1]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> form, bias = fit_with_offset(rows, 3 * rows @ weight.T + torch.tensor([1.0, 2.0]), weight)
    >>> form.scale, bias.tolist()
    (3.0, [1.0, 2.0])
    """
    if not (rows.is_floating_point() and logits.is_floating_point()) or len(rows) < FEWEST_ROWS:
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    for unit_rows, unit_weight in NORMALIZATIONS:
        product, size = _products(rows, weight.double(), unit_rows, unit_weight)
        change = fit_combination([product], logits, eps=eps, sizes=[size])
        if change is not None and change.offset is not None:
            return Fit(unit_rows, unit_weight, change.factors[0]), change.offset
    return None


class Combination(NamedTuple):
    """Factors and offset of the sum Σ factor · result + offset."""

    factors: tuple[float, ...]
    offset: Tensor | None


def fit_combination(
    results: Sequence[Tensor],
    output: Tensor,
    *,
    eps: float | None = None,
    sizes: Sequence[Tensor] | None = None,
) -> Combination | None:
    """Return the factors and the (C,) offset with which (n, C) results sum to the output, or None.

    `sizes` are upper bounds of the terms inside each result, before cancellation; the rounding
    error is proportional to them.

    >>> first, second = torch.eye(3), torch.tensor([[1.0, 2, 4], [0, 1, 5], [2, 2, 2]])
    >>> fit_combination([first, second], 2 * first + second / 4).factors
    (2.0, 0.25)
    """
    if len(output) < FEWEST_ROWS or any(part.shape != output.shape for part in results):
        return None
    eps = max(torch.finfo(p.dtype).eps for p in (output, *results)) if eps is None else eps
    target = output[:TESTED_ROWS].double()
    parts = torch.stack([part[:TESTED_ROWS].double() for part in results])  # (k, n, C)
    centred_parts, centred = (part - part.mean(-2, keepdim=True) for part in (parts, target))
    if not bool(centred.any()) or not bool(torch.isfinite(centred).all()):
        return None
    columns, wanted = centred_parts.flatten(1).T.cpu(), centred.flatten()[:, None].cpu()
    solved = torch.linalg.lstsq(columns, wanted, driver="gelsd")
    written = [_written_number(float(factor), eps) for factor in solved.solution[:, 0]]
    factors = torch.tensor(written, dtype=torch.float64, device=parts.device)
    combined = torch.einsum("k,knc->nc", factors, parts)
    bounds = parts.abs() if sizes is None else torch.stack([s[:TESTED_ROWS] for s in sizes])
    size = torch.einsum("k,knc->nc", factors.abs(), bounds)
    offset = (target - combined).mean(0)
    if bool((offset.abs() <= 8 * eps * (size + target.abs()).mean(0)).all()):
        offset = torch.zeros_like(offset)
    error = (combined + offset - target).abs()
    if not bool((error <= 8 * eps * (size + offset.abs() + target.abs())).all()):
        return None
    far = _root_mean_square(error) > rounding(eps) * _root_mean_square(centred)
    if far or not bool((factors != 0).all()):
        return None
    return Combination(tuple(factors.tolist()), offset if bool(offset.any()) else None)


def rounding(eps: float) -> float:
    """Return the largest relative rounding error of logits; half precision rounds once, at the end.

    >>> rounding(2**-8) == 4 * 2**-8
    True
    """
    return (64 if eps < 1e-5 else 4) * eps


def has_unit_rows(rows: Tensor, eps: float) -> bool:
    """Whether all rows have norm 1, up to rounding."""
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    return bool(((norms - 1).abs() <= 8 * eps).all())


def _products(
    rows: Tensor, weight: Tensor, unit_rows: bool, unit_weight: bool
) -> tuple[Tensor, Tensor]:
    """Return the (n, C) products, and the same sums over absolute values."""
    left = normalize(rows, dim=1) if unit_rows else rows
    right = normalize(weight, dim=1) if unit_weight else weight
    return left @ right.T, left.abs() @ right.abs().T


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _best_scale(product: Tensor, logits: Tensor) -> float:
    """Return the factor that brings the product nearest to the logits."""
    square = float(product.square().sum())
    return float((product * logits).sum()) / square if square else 0.0


def _written_number(scale: float, eps: float) -> float:
    """Return a fitted factor as source code would have it: 30, not 30.0000004; or 1 / 0.07."""
    if scale == 0 or not math.isfinite(scale):
        return 0.0
    for written in (float(f"{scale:.4g}"), 1 / float(f"{1 / scale:.4g}")):
        if abs(written - scale) <= 64 * eps * abs(scale):
            return written
    return scale

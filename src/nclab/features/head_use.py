"""What a model makes of a head's result until it is its output.

It may return the result as it is, take one position of it (a token), average over positions, and
change it by factors and offsets; it may add up what several linear maps make of one layer. All of
this is again a linear map, of the features that are taken in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.features.head_fit import Combination, combination
from nclab.features.head_forms import HeadForm, Pair, as_two_classes, scale_of
from nclab.features.linear_calls import LinearCall, is_dense, offset_of, owners
from nclab.features.recorder import Identity

Takes = Literal["rows", "token", "mean"]
"""Which features a head's logits come from: those of the usual pooling; of one position of each
sample; means over all positions, padded or not."""


class Use(NamedTuple):
    """The linear maps whose results are added up, how, and which output that is."""

    calls: tuple[LinearCall, ...]
    output: int
    takes: Takes = "rows"
    change: Combination | None = None
    """None where the result is as it was."""
    positions: int | None = None
    """How many were averaged, where a factor may come from their number, as in a sum."""


def find_use(
    linear: Sequence[LinearCall], outputs: Sequence[Tensor], mask: Tensor | None
) -> Use | None:
    """The last linear map that an output is made of exactly, or several of one layer."""
    for one in reversed(linear):
        for place, output in enumerate(outputs):
            found = _use_of_one(one, place, as_column(output), mask)
            if found is not None:
                return found
    for together in _of_one_layer(linear):
        for place, output in enumerate(outputs):
            found = _use_of_several(together, place, as_column(output), mask)
            if found is not None:
                return found
    return None


def _use_of_one(one: LinearCall, place: int, output: Tensor, mask: Tensor | None) -> Use | None:
    result = one.target()
    if not (_comparable(result) and _comparable(output)) or result is None:
        return None
    for takes, seen in views(result, output, mask):
        if _same(seen, output):
            return Use((one,), place, takes)
    if result.ndim > 2 == output.ndim and taken_rows(result, result, output) is not None:
        return Use((one,), place, "token")
    return _use_of_several((one,), place, output, mask)


def _use_of_several(
    together: tuple[LinearCall, ...], place: int, output: Tensor, mask: Tensor | None
) -> Use | None:
    results = [result for one in together if (result := one.target()) is not None]
    if len(results) < len(together) or not all(map(_comparable, (output, *results))):
        return None
    for seen in zip(*(views(result, output, mask) for result in results), strict=True):
        takes, rows = seen[0][0], [flat(one) for _, one in seen]
        change = combination(rows, flat(output))
        if change is None:
            continue
        if set(change.factors) == {1.0} or not is_averaged(results[0], output, takes):
            return Use(together, place, takes, change)
        if mask is None:  # else the number of real tokens may be in it
            return Use(together, place, "mean", change, count_positions(results[0], output))
    return None


def differing_sources(linear: Sequence[LinearCall], outputs: Sequence[Tensor]) -> list[str]:
    """Names of linear maps of different layers whose results an output is the sum of."""
    for output in outputs:
        alike = [one for one in linear if one.call.target is not None]
        alike = [one for one in alike if one.target().shape == output.shape]  # type: ignore[union-attr]
        if len({one.call.source_identity for one in alike}) > 1:
            found = _use_of_several(tuple(alike), 0, output, None)
            if found is not None:
                return [one.call.name for one in alike]
    return []


def changed(use: Use, model: nn.Module) -> Callable[[], Pair]:
    """Reads the (C, d) weight and (C,) bias of what a use makes, as they are now."""
    forms = [one.form for one in use.calls]
    if use.change is None:
        return forms[0].read
    output = use.calls[-1].call.target
    assert output is not None
    eps = torch.finfo(output.dtype).eps
    scales = [
        scale_of(owners(model, one.call.name), factor, eps) if factor != 1.0 else _one
        for one, factor in zip(use.calls, use.change.factors, strict=True)
    ]
    offset = offset_of(model, use.change.offset, eps)

    def read() -> Pair:
        weight, bias = _scaled(forms[0], scales[0]())
        for form, scale in zip(forms[1:], scales[1:], strict=True):
            more, shift = _scaled(form, scale())
            weight = weight + more
            bias = shift if bias is None else bias if shift is None else bias + shift
        own = offset()
        if own is not None:
            own = own.detach().to(weight)
            bias = own if bias is None else bias + own
        return as_two_classes(weight, bias)

    return read


def change_remark(use: Use) -> str | None:
    """What needs saying about factors, offsets and sums."""
    if use.change is None:
        return None
    parts = [
        one.call.name if factor == 1.0 else f"{factor:.4g} × {one.call.name}"
        for one, factor in zip(use.calls, use.change.factors, strict=True)
    ]
    shifted = "" if use.change.offset is None else " + an offset"
    return (
        f"the model's output is not what {use.calls[-1].call.name} returns but "
        f"{' + '.join(parts)}{shifted}: weight and bias are measured with that"
    )


def as_column(output: Tensor) -> Tensor:
    """Logits with a dimension of classes, also where there is one logit a sample."""
    return output[:, None] if output.ndim == 1 else output


def both_logits(logits: Tensor) -> Tensor:
    """One logit as those of two classes."""
    return torch.cat([-logits / 2, logits / 2], -1) if logits.shape[-1] == 1 else logits


def turned(output: Tensor) -> Iterator[Tensor]:
    """Logits with the classes last: as they are, and where they may come second."""
    yield output
    if output.ndim > 2:
        yield output.movedim(1, -1)


def views(
    tensor: Tensor, output: Tensor, mask: Tensor | None = None
) -> Iterator[tuple[Takes, Tensor]]:
    """What an output may have taken of a tensor with channels last, in the output's layout.

    All positions, or of each sample the mean, the first or the last.
    """
    if tensor.shape[:-1] == output.shape[:-1]:
        yield "rows", tensor
        return
    if output.ndim != 2:
        return
    for positions in _by_sample(tensor, len(output)):
        mean = positions.mean(1)
        if mask is not None and mask.shape == positions.shape[:2]:
            weights = mask.to(positions)
            total = weights.sum(1, keepdim=True).clamp_min(1.0)
            yield "rows", torch.einsum("bp,bpd->bd", weights, positions) / total
            yield "mean", mean
        else:
            yield "rows", mean
        yield "token", positions[:, 0]
        yield "token", positions[:, -1]


def is_averaged(tensor: Tensor, output: Tensor, takes: Takes) -> bool:
    """Whether a view of a tensor is its mean over positions."""
    return takes != "token" and tensor.shape[:-1] != output.shape[:-1]


def count_positions(tensor: Tensor, output: Tensor) -> int:
    """How many positions a sample has."""
    return tensor.shape[:-1].numel() // len(output)


def taken_rows(features: Tensor, logits: Tensor, output: Tensor) -> Tensor | None:
    """(B, d) features at that position of each sample whose logits are the (B, C) output.

    None where a sample has no such position. Features and logits have the channels last.

    >>> features = torch.tensor([[[1.0, 0], [2, 0], [3, 0]], [[4, 0], [5, 0], [6, 0]]])
    >>> taken_rows(features, features, torch.tensor([[3.0, 0], [4, 0]])).tolist()
    [[3.0, 0.0], [4.0, 0.0]]
    """
    eps = max(torch.finfo(part.dtype).eps for part in (logits, output))
    for rows, own in zip(
        _by_sample(features, len(output)), _by_sample(logits, len(output)), strict=True
    ):
        if own.shape[-1] != output.shape[-1]:
            continue
        far = (own.double() - output[:, None].double()).abs().amax(-1)  # (B, P)
        least, place = far.min(1)
        size = own.double().abs().amax((1, 2))
        if bool((least <= 8 * eps * size).all()):
            return rows[torch.arange(len(rows), device=rows.device), place]
    return None


def mean_rows(features: Tensor, count: int) -> Tensor:
    """(B, d) means over all positions."""
    return next(_by_sample(features, count)).mean(1, dtype=torch.float64)


def _by_sample(tensor: Tensor, count: int) -> Iterator[Tensor]:
    """(B, positions, d) from a tensor with the samples first or, of a sequence, second."""
    if tensor.ndim > 2 and len(tensor) == count:
        yield tensor.flatten(1, -2)
    if tensor.ndim == 3 and tensor.shape[1] == count:
        yield tensor.transpose(0, 1)


def _of_one_layer(linear: Sequence[LinearCall]) -> Iterator[tuple[LinearCall, ...]]:
    """Several linear maps of one tensor into logits of one shape, the last such tensor first."""
    groups: dict[tuple[Identity | None, torch.Size, bool], list[LinearCall]] = {}
    for one in linear:
        target = one.call.target
        if target is not None:
            key = one.call.source_identity, target.shape, one.form.unit_rows
            groups.setdefault(key, []).append(one)
    yield from (tuple(group) for group in reversed(groups.values()) if len(group) > 1)


def _scaled(form: HeadForm, scale: Tensor | float) -> Pair:
    weight, bias = form.raw()
    own = scale.to(weight) if isinstance(scale, Tensor) else scale
    return weight * own, None if bias is None else bias * own


def _comparable(tensor: Tensor | None) -> bool:
    return tensor is not None and not tensor.is_meta and is_dense(tensor)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    eps = torch.finfo(one.dtype).eps
    return bool(((one - other).abs() <= 8 * eps * one.abs().amax(-1, keepdim=True)).all())


def flat(tensor: Tensor) -> Tensor:
    """All positions as rows."""
    return tensor.reshape(-1, tensor.shape[-1])


def _one() -> float:
    return 1.0

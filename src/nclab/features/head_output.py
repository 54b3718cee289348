"""What a model makes of a head's result until it is its output.

It may return the result as it is, take one position of it (a token), average over positions, and
change it by factors and offsets; it may add up what several linear maps make of one layer. All of
this is again a linear map, of the features that are taken in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.layers import FoundLayer, input_layer, output_layer
from nclab.features.linear_fit import Combination, Fit, fit, fit_combination
from nclab.features.linear_maps import (
    HeadForm,
    LinearCall,
    Pair,
    binary_head,
    directions_remark,
    enclosing_modules,
    find_offset,
    find_scale,
    fit_parameters,
    is_dense,
)
from nclab.features.pooling import (
    Selection,
    as_column,
    as_rows,
    binary_logits,
    class_last_layouts,
    count_positions,
    is_averaged,
    select_positions,
    views,
)
from nclab.features.recorder import Call, Identity


class LogitSource(NamedTuple):
    """The linear maps whose results are added up, how, and which output that is."""

    calls: tuple[LinearCall, ...]
    output: int
    selection: Selection = "rows"
    change: Combination | None = None
    """None where the result is as it was."""
    positions: int | None = None
    """How many were averaged, where a factor may come from their number, as in a sum."""


def find_logit_source(
    linear: Sequence[LinearCall], outputs: Sequence[Tensor], mask: Tensor | None
) -> LogitSource | None:
    """The last linear map that an output is made of exactly, or several of one layer."""
    for one in reversed(linear):
        for place, output in enumerate(outputs):
            found = _source_of_one(one, place, as_column(output), mask)
            if found is not None:
                return found
    for together in _of_one_layer(linear):
        for place, output in enumerate(outputs):
            found = _source_of_several(together, place, as_column(output), mask)
            if found is not None:
                return found
    return None


def _source_of_one(
    one: LinearCall, place: int, output: Tensor, mask: Tensor | None
) -> LogitSource | None:
    result = one.target()
    if not (_comparable(result) and _comparable(output)) or result is None:
        return None
    for selection, seen in views(result, output, mask):
        if _same(seen, output):
            return LogitSource((one,), place, selection)
    if result.ndim > 2 == output.ndim and select_positions(result, result, output) is not None:
        return LogitSource((one,), place, "token")
    return _source_of_several((one,), place, output, mask)


def _source_of_several(
    together: tuple[LinearCall, ...], place: int, output: Tensor, mask: Tensor | None
) -> LogitSource | None:
    results = [result for one in together if (result := one.target()) is not None]
    if len(results) < len(together) or not all(map(_comparable, (output, *results))):
        return None
    for seen in zip(*(views(result, output, mask) for result in results), strict=True):
        selection, rows = seen[0][0], [as_rows(one) for _, one in seen]
        change = fit_combination(rows, as_rows(output))
        if change is None:
            continue
        if set(change.factors) == {1.0} or not is_averaged(results[0], output, selection):
            return LogitSource(together, place, selection, change)
        if mask is None:  # else the number of real tokens may be in it
            return LogitSource(together, place, "mean", change, count_positions(results[0], output))
    return None


def summed_layers(linear: Sequence[LinearCall], outputs: Sequence[Tensor]) -> list[str]:
    """Names of linear maps of different layers whose results an output is the sum of."""
    for output in outputs:
        alike = [one for one in linear if one.call.target is not None]
        alike = [one for one in alike if one.target().shape == output.shape]  # type: ignore[union-attr]
        if len({one.call.source_identity for one in alike}) > 1:
            found = _source_of_several(tuple(alike), 0, output, None)
            if found is not None:
                return [one.call.name for one in alike]
    return []


def changed(use: LogitSource, model: nn.Module) -> Callable[[], Pair]:
    """Reads the (C, d) weight and (C,) bias of what a use makes, as they are now."""
    forms = [one.form for one in use.calls]
    if use.change is None:
        return forms[0].read
    output = use.calls[-1].call.target
    assert output is not None
    eps = torch.finfo(output.dtype).eps
    scales = [
        find_scale(enclosing_modules(model, one.call.name), factor, eps) if factor != 1.0 else _one
        for one, factor in zip(use.calls, use.change.factors, strict=True)
    ]
    offset = find_offset(model, use.change.offset, eps)

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
        return binary_head(weight, bias)

    return read


def change_remark(use: LogitSource) -> str | None:
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


def _one() -> float:
    return 1.0


class ParameterHead(NamedTuple):
    """Where a head without a module reads, and how its weights are read."""

    name: str
    reads: FoundLayer
    read: Callable[[], Pair]
    tensor: Tensor
    """What it has read."""
    output: int
    """Which output it has made."""
    selection: Selection
    unit_rows: bool = False
    remark: str | None = None
    positions: int | None = None
    """As for `nclab.features.head_use.Use`."""


def find_parameter_head(
    model: nn.Module,
    calls: list[Call],
    outputs: Sequence[Tensor],
    known: set[int],
    mask: Tensor | None,
) -> ParameterHead | None:
    """Logits made of a module's input or output by a parameter; `known` modules are not it."""
    modules = {name: own for name, own in model.named_modules() if id(own) not in known}
    for seen in _pairs(calls, outputs, mask):
        for place, module in modules.items():
            found = fit_parameters(model, place, module, seen.rows, seen.logits)
            if found is None:
                continue
            selection, positions = seen.selection, None
            logits = as_column(outputs[seen.output])
            if found.fit.scale != 1.0 and is_averaged(seen.tensor, logits, selection):
                if mask is not None:
                    continue
                selection, positions = "mean", count_positions(seen.tensor, logits)
            name = f"{place}.{found.parameter}".removeprefix(".")
            remark = directions_remark(name, found) or _scale_remark(name, found.fit)
            where = seen.tensor, seen.output, selection, found.fit.unit_rows, remark, positions
            return ParameterHead(name, seen.layer, found.form.read, *where)
    return None


def _scale_remark(name: str, found: Fit) -> str | None:
    """A factor that is no part of the weight."""
    if found.scale == 1.0 or found.unit_weight:
        return None
    return f"the classifier is {found.scale:.4g} × {name}"


def given_weights(model: nn.Module, chosen: Any) -> Callable[[], Pair]:
    """Reads the (W, b) that a caller gives, or that the caller's function finds in the model."""

    def read() -> Pair:
        try:
            pair = chosen(model) if callable(chosen) else chosen
        except Exception as error:  # the caller's own function raises anything
            why = f"{type(error).__name__}: {error}"
            raise ModelError(f"Cannot call classifier= with the model: {why}.") from error
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ModelError(
                f"Expected classifier= to give a pair (W, b), got a {type(pair).__name__}. "
                "Without a bias give (W, None)."
            )
        weight, bias = (
            None if part is None else torch.as_tensor(part).detach().double() for part in pair
        )
        if weight is None or weight.ndim != 2:
            shape = None if weight is None else tuple(weight.shape)
            raise ModelError(
                f"Expected classifier= to give W of shape (classes, dimension), got {shape}."
            )
        return binary_head(weight, bias)

    return read


def locate_given_head(
    calls: list[Call],
    outputs: Sequence[Tensor],
    name: str,
    read: Callable[[], Pair],
    mask: Tensor | None,
) -> ParameterHead | None:
    """What a given classifier reads, by its result; one that only decides alike has a remark."""
    weight, bias = read()
    best: ParameterHead | None = None
    for seen in _pairs(calls, outputs, mask, tokens=(weight, bias)):
        logits = binary_logits(seen.logits)
        if seen.rows.shape[1] != weight.shape[1] or logits.shape[1] != len(weight):
            continue
        head = ParameterHead(name, seen.layer, read, seen.tensor, seen.output, seen.selection)
        found = fit(seen.rows, logits, weight, bias)
        if found is not None and found._replace(with_bias=True) == Fit():
            return head
        decided = seen.rows.double() @ weight.T + (0.0 if bias is None else bias)
        if best is None and torch.equal(decided.argmax(1), logits.argmax(1)):
            remark = (
                "the model's output is not that of the given classifier but something made "
                "of it; loss and margin are those of its logits"
            )
            best = head._replace(remark=remark)
    return best


class _Seen(NamedTuple):
    """Features beside the logits that they may have become, a row each."""

    rows: Tensor
    logits: Tensor
    tensor: Tensor
    layer: FoundLayer
    output: int
    selection: Selection


def _pairs(
    calls: list[Call],
    outputs: Sequence[Tensor],
    mask: Tensor | None,
    tokens: Pair | None = None,
) -> Iterator[_Seen]:
    """All that may have become an output; with weights also the tokens that these single out."""
    for place, output in enumerate(outputs):
        for logits in class_last_layouts(as_column(output)):
            if not is_dense(logits):
                continue
            for tensor, layer in _tensors(calls):
                for selection, rows in views(tensor, logits, mask):
                    yield _Seen(as_rows(rows), as_rows(logits), tensor, layer, place, selection)
                if tokens is not None and tensor.ndim > 2 == logits.ndim:
                    rows = _singled_out(tensor, logits, *tokens)
                    if rows is not None:
                        yield _Seen(rows, logits, tensor, layer, place, "token")


def _singled_out(tensor: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    if tensor.shape[-1] != weight.shape[1]:
        return None
    made = tensor.double() @ weight.T + (0.0 if bias is None else bias)
    return select_positions(tensor, made.to(tensor.dtype), binary_logits(logits))


def _tensors(calls: list[Call]) -> Iterator[tuple[Tensor, FoundLayer]]:
    """What modules returned and read, the last first, not changed in place since."""
    seen: set[Identity] = set()
    for call in reversed(calls):
        sides: tuple[tuple[Literal["output", "input"], Tensor | None, Identity | None], ...] = (
            ("output", call.target, call.target_identity),
            ("input", call.source, call.source_identity),
        )
        for side, tensor, identity in sides:
            if tensor is None or identity is None or identity in seen or not is_dense(tensor):
                continue
            seen.add(identity)
            if Identity.of(tensor) != identity or not call.name:
                continue
            place = input_layer if side == "input" else output_layer
            yield tensor, place(call, calls)

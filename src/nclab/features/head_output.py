"""Heads: linear maps of features that explain how a model made its output.

A model may return a linear map's result unchanged, select one position of it (a token), average it
over positions, scale and shift it, or add up several linear maps of one layer. All of these are
linear maps of features that are selected in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.layers import FoundLayer, input_layer, output_layer
from nclab.features.linear_fit import Combination, Fit, fit, fit_combination
from nclab.features.linear_maps import (
    LinearCall,
    WeightAndBias,
    binary_head,
    directions_remark,
    enclosing_modules,
    find_offset,
    find_scale,
    fit_parameters,
    is_dense,
)
from nclab.features.pooling import (
    PositionSelection,
    as_column,
    as_rows,
    binary_logits,
    count_positions,
    is_averaged,
    select_positions,
    views,
)
from nclab.features.recorder import Call, Identity, Point


class Classifier(NamedTuple):
    """A linear map that makes the logits, and the layer that it reads."""

    name: str
    reads: FoundLayer
    read: Callable[[], WeightAndBias]
    """Function that returns the current (C, d) weight and (C,) bias."""
    remark: str | None = None
    """Remark for the user on how the classifier was found."""
    unit_rows: bool = False
    """Whether it reads directions: the features are then divided by their norms."""
    selection: PositionSelection = "rows"
    output: int | None = None
    """Index of the model output that it makes; None if unknown."""
    logits: Point | None = None
    """Point at which a module returns the unchanged logits of every position."""
    tensor: Tensor | None = None
    """Tensor that it read in the traced pass, until the layers are found."""
    result: Tensor | None = None
    """Tensor at `logits` in the traced pass, until the layers are found."""
    positions: int | None = None
    """Number of positions of each sample, if the weights hold for this number only."""


class LogitSource(NamedTuple):
    """Linear maps whose results, combined, are one of the model's outputs."""

    calls: tuple[LinearCall, ...]
    output: int
    selection: PositionSelection = "rows"
    change: Combination | None = None
    """Factors and offset of the results; None if the model returns a result unchanged."""
    positions: int | None = None
    """Number of positions averaged, if a factor may depend on it, as in a sum."""


def find_logit_source(
    linear: Sequence[LinearCall], outputs: Sequence[Tensor], mask: Tensor | None
) -> LogitSource | None:
    """Return the last linear map, or several maps of one layer, that make an output exactly."""
    singles = [(call,) for call in reversed(linear)]
    for calls in (*singles, *_groups_by_input(linear)):
        for index, output in enumerate(outputs):
            source = _source_of(calls, index, as_column(output), mask)
            if source is not None:
                return source
    return None


def _source_of(
    calls: tuple[LinearCall, ...], index: int, output: Tensor, mask: Tensor | None
) -> LogitSource | None:
    """Return how the results of these calls, unchanged or combined, make an output."""
    results = [result for call in calls if (result := call.target()) is not None]
    if len(results) < len(calls) or not all(map(_comparable, (output, *results))):
        return None
    if len(calls) == 1:
        [result] = results
        for selection, view in views(result, output, mask):
            if _equal(view, output):
                return LogitSource(calls, index, selection)
        if result.ndim > 2 == output.ndim and select_positions(result, result, output) is not None:
            return LogitSource(calls, index, "token")
    for parts in zip(*(views(result, output, mask) for result in results), strict=True):
        selection = parts[0][0]
        change = fit_combination([as_rows(view) for _, view in parts], as_rows(output))
        if change is None:
            continue
        if set(change.factors) == {1.0} or not is_averaged(results[0], output, selection):
            return LogitSource(calls, index, selection, change)
        if mask is None:  # with a mask, the factor may contain the number of real tokens
            return LogitSource(calls, index, "mean", change, count_positions(results[0], output))
    return None


def summed_layers(linear: Sequence[LinearCall], outputs: Sequence[Tensor]) -> list[str]:
    """Return the names of linear maps of different layers whose results add up to an output."""
    for output in outputs:
        calls = []
        for call in linear:
            target = call.target()
            if target is not None and target.shape == output.shape:
                calls.append(call)
        inputs = {call.call.source_identity for call in calls}
        if len(inputs) > 1 and _source_of(tuple(calls), 0, output, None) is not None:
            return [call.call.name for call in calls]
    return []


def source_reader(source: LogitSource, model: nn.Module) -> Callable[[], WeightAndBias]:
    """Return a function that reads the current (C, d) weight and (C,) bias of changed results."""
    forms = [call.form for call in source.calls]
    output = source.calls[-1].call.target
    assert source.change is not None
    assert output is not None
    eps = torch.finfo(output.dtype).eps
    scales: list[Callable[[], Tensor | float]] = []
    for call, factor in zip(source.calls, source.change.factors, strict=True):
        owners = enclosing_modules(model, call.call.name)
        scales.append(find_scale(owners, factor, eps) if factor != 1.0 else lambda: 1.0)
    read_offset = find_offset(model, source.change.offset, eps)

    def read() -> WeightAndBias:
        weights: list[Tensor] = []
        biases: list[Tensor] = []
        for form, read_scale in zip(forms, scales, strict=True):
            (weight, bias), scale = form.raw(), read_scale()
            factor = scale.to(weight) if isinstance(scale, Tensor) else scale
            weights.append(weight * factor)
            biases += [] if bias is None else [bias * factor]
        offset = read_offset()
        if offset is not None:
            biases.append(offset.detach().to(weights[0]))
        return binary_head(reduce(add, weights), reduce(add, biases) if biases else None)

    return read


def change_remark(source: LogitSource) -> str:
    """Return a remark on the factors, the offset and the sum of a logit source."""
    assert source.change is not None
    terms = [
        call.call.name if factor == 1.0 else f"{factor:.4g} × {call.call.name}"
        for call, factor in zip(source.calls, source.change.factors, strict=True)
    ]
    offset = "" if source.change.offset is None else " + an offset"
    return (
        f"the model's output is not the result of {source.calls[-1].call.name} but "
        f"{' + '.join(terms)}{offset}: weight and bias are measured with these changes"
    )


def _groups_by_input(linear: Sequence[LinearCall]) -> list[tuple[LinearCall, ...]]:
    """Return groups of linear maps of one input and one shape of logits, the last group first."""
    groups: dict[tuple[Identity | None, torch.Size, bool], list[LinearCall]] = {}
    for call in linear:
        target = call.call.target
        if target is not None:
            key = call.call.source_identity, target.shape, call.form.unit_rows
            groups.setdefault(key, []).append(call)
    return [tuple(group) for group in reversed(groups.values()) if len(group) > 1]


def _comparable(tensor: Tensor) -> bool:
    return not tensor.is_meta and is_dense(tensor)


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether two results are equal up to rounding."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    eps = torch.finfo(first.dtype).eps
    bound = 8 * eps * first.abs().amax(-1, keepdim=True)
    return bool(((first - second).abs() <= bound).all())


def find_parameter_head(
    model: nn.Module,
    calls: list[Call],
    outputs: Sequence[Tensor],
    known: set[int],
    mask: Tensor | None,
) -> Classifier | None:
    """Find a parameter that, used without a module, turns some module's tensor into an output.

    Modules whose ids are `known` are skipped.
    """
    modules = {name: module for name, module in model.named_modules() if id(module) not in known}
    for pair in _feature_logit_pairs(calls, outputs, mask):
        for module_name, module in modules.items():
            match = fit_parameters(model, module_name, module, pair.rows, pair.logits)
            if match is None:
                continue
            selection, positions = pair.selection, None
            logits = as_column(outputs[pair.output])
            if match.fit.scale != 1.0 and is_averaged(pair.tensor, logits, selection):
                if mask is not None:
                    continue
                selection, positions = "mean", count_positions(pair.tensor, logits)
            name = f"{module_name}.{match.parameter}".removeprefix(".")
            remark = directions_remark(name, match)
            if remark is None and match.fit.scale != 1.0 and not match.fit.unit_weight:
                remark = f"the classifier is {match.fit.scale:.4g} × {name}"
            return Classifier(
                name,
                pair.layer,
                match.form.read,
                remark,
                match.fit.unit_rows,
                selection,
                pair.output,
                tensor=pair.tensor,
                positions=positions,
            )
    return None


def given_weights(model: nn.Module, chosen: Any) -> Callable[[], WeightAndBias]:
    """Return a function that reads the (W, b) passed by the caller or returned by a function."""

    def read() -> WeightAndBias:
        try:
            pair = chosen(model) if callable(chosen) else chosen
        except Exception as error:  # the caller's function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"Cannot call classifier= with the model: {reason}.") from error
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
    read: Callable[[], WeightAndBias],
    mask: Tensor | None,
) -> Classifier | None:
    """Find the layer that a given classifier reads, by comparing its results with the outputs.

    A layer on which only the largest logits agree is returned with a remark.
    """
    weight, bias = read()
    same_decisions: Classifier | None = None
    for pair in _feature_logit_pairs(calls, outputs, mask, weights=(weight, bias)):
        logits = binary_logits(pair.logits)
        if pair.rows.shape[1] != weight.shape[1] or logits.shape[1] != len(weight):
            continue
        head = Classifier(
            *(name, pair.layer, read),
            selection=pair.selection,
            output=pair.output,
            tensor=pair.tensor,
        )
        form = fit(pair.rows, logits, weight, bias)
        if form is not None and form._replace(with_bias=True) == Fit():
            return head
        computed = pair.rows.double() @ weight.T + (0.0 if bias is None else bias)
        if same_decisions is None and torch.equal(computed.argmax(1), logits.argmax(1)):
            remark = (
                "the model's output is not the result of the given classifier but a function of "
                "it; loss and margin are computed from the classifier's logits"
            )
            same_decisions = head._replace(remark=remark)
    return same_decisions


class _FeatureLogitPair(NamedTuple):
    """Features and the logits that they may have become, one row each."""

    rows: Tensor
    logits: Tensor
    tensor: Tensor
    layer: FoundLayer
    output: int
    selection: PositionSelection


def _feature_logit_pairs(
    calls: list[Call],
    outputs: Sequence[Tensor],
    mask: Tensor | None,
    weights: WeightAndBias | None = None,
) -> Iterator[_FeatureLogitPair]:
    """Yield all tensors that may have become an output; with weights also selected tokens."""
    for index, output in enumerate(outputs):
        column = as_column(output)
        for logits in (column, column.movedim(1, -1)) if column.ndim > 2 else (column,):
            if not is_dense(logits):
                continue
            for tensor, layer in _unchanged_tensors(calls):
                for selection, view in views(tensor, logits, mask):
                    rows = as_rows(view)
                    yield _FeatureLogitPair(rows, as_rows(logits), tensor, layer, index, selection)
                if weights is None or not tensor.ndim > 2 == logits.ndim:
                    continue
                weight, bias = weights
                if tensor.shape[-1] == weight.shape[1]:
                    made = tensor.double() @ weight.T + (0.0 if bias is None else bias)
                    tokens = select_positions(tensor, made.to(tensor.dtype), binary_logits(logits))
                    if tokens is not None:
                        yield _FeatureLogitPair(tokens, logits, tensor, layer, index, "token")


def _unchanged_tensors(calls: list[Call]) -> Iterator[tuple[Tensor, FoundLayer]]:
    """Yield the tensors that modules returned and read, the last first, unless changed in place."""
    known: set[Identity] = set()
    for call in reversed(calls):
        for tensor, identity, locate in (
            (call.target, call.target_identity, output_layer),
            (call.source, call.source_identity, input_layer),
        ):
            if tensor is None or identity is None or identity in known or not is_dense(tensor):
                continue
            known.add(identity)
            if Identity.of(tensor) == identity and call.name:
                yield tensor, locate(call, calls)

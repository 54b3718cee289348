"""Heads: how the result of a linear map of features becomes the output of a model.

A model may return a linear map's result unchanged, select one position of it (a token), average it
over positions, or multiply it by a factor such as an inverse temperature.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.linear_maps import (
    Fit,
    LinearCall,
    WeightAndBias,
    binary_head,
    directions_remark,
    enclosing_modules,
    find_scale,
    fit,
    fit_factor,
    fit_parameters,
    is_dense,
)
from nclab.features.pooling import (
    PositionSelection,
    as_column,
    as_rows,
    binary_logits,
    is_averaged,
    select_positions,
    views,
)
from nclab.features.recorder import Call, FoundLayer, Identity, Point, input_layer, output_layer


class Classifier(NamedTuple):
    """A linear map that computes the logits, and the layer whose features it reads."""

    name: str
    reads: FoundLayer
    read: Callable[[], WeightAndBias]
    """Function that returns the current (C, d) weight and (C,) bias."""
    remark: str | None = None
    """Remark for the user on how the classifier was found."""
    unit_rows: bool = False
    """Whether the classifier reads features divided by their norms."""
    selection: PositionSelection = "rows"
    output: int | None = None
    """Index of the model output that contains the classifier's logits; None if unknown."""
    logits: Point | None = None
    """Output of the module that returns the logits of all positions, before the model selects one;
    None if no module returns them."""
    tensor: Tensor | None = None
    """Input of the classifier in the traced pass; set to None once the layers are found."""
    result: Tensor | None = None
    """Result of `logits` in the traced pass; set to None once the layers are found."""


class LogitSource(NamedTuple):
    """A linear map whose result is one of the model's outputs, perhaps times a factor."""

    call: LinearCall
    output: int
    selection: PositionSelection = "rows"
    factor: float = 1.0


def find_logit_source(
    linear: Sequence[LinearCall], outputs: Sequence[Tensor], mask: Tensor | None
) -> LogitSource | None:
    """Return the last linear map whose result is an output of the model, perhaps times a factor."""
    for call in reversed(linear):
        for index, output in enumerate(outputs):
            source = _source_of(call, index, as_column(output), mask)
            if source is not None:
                return source
    return None


def _source_of(
    call: LinearCall, index: int, output: Tensor, mask: Tensor | None
) -> LogitSource | None:
    """Return how the model's output is computed from this call's result; None if it is not."""
    result = call.target()
    if result is None or result.is_meta or not (is_dense(output) and is_dense(result)):
        return None
    for selection, view in views(result, output, mask):
        if _equal(view, output):
            return LogitSource(call, index, selection)
    if result.ndim > 2 == output.ndim and select_positions(result, result, output) is not None:
        return LogitSource(call, index, "token")
    for selection, view in views(result, output, mask):
        factor = fit_factor(as_rows(view), as_rows(output))
        # The factor of a mean may contain the number of positions, as in a sum.
        if factor == 1.0 or (factor and not is_averaged(result, output, selection)):
            return LogitSource(call, index, selection, factor)
    return None


def source_reader(source: LogitSource, model: nn.Module) -> Callable[[], WeightAndBias]:
    """Return a function that reads the current (C, d) weight and (C,) bias, times the factor."""
    form, output = source.call.form, source.call.call.target
    assert output is not None
    eps = torch.finfo(output.dtype).eps
    owners = enclosing_modules(model, source.call.call.name)
    read_scale = find_scale(owners, source.factor, eps)

    def read() -> WeightAndBias:
        (weight, bias), scale = form.raw(), read_scale()
        factor = scale.to(weight) if isinstance(scale, Tensor) else scale
        return binary_head(weight * factor, None if bias is None else bias * factor)

    return read


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
    """Find a parameter W that the model multiplies directly, without a linear module.

    W matches if some tensor that a module reads or returns, times W, is an output. The search skips
    parameters of modules whose ids are `known`.
    """
    modules = {name: module for name, module in model.named_modules() if id(module) not in known}
    for pair in _feature_logit_pairs(calls, outputs, mask):
        for module_name, module in modules.items():
            match = fit_parameters(model, module_name, module, pair.rows, pair.logits)
            if match is None:
                continue
            logits = as_column(outputs[pair.output])
            # The factor of a mean may contain the number of positions, as in a sum.
            if match.fit.scale != 1.0 and is_averaged(pair.tensor, logits, pair.selection):
                continue
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
                pair.selection,
                pair.output,
                tensor=pair.tensor,
            )
    return None


def given_weights(model: nn.Module, chosen: Any) -> Callable[[], WeightAndBias]:
    """Return a function that reads (W, b) as the caller, or the caller's function, gives them."""

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
    """Find the layer that a given classifier reads: there W h + b equals a model output.

    If there is none, return with a remark the layer on which the classifier predicts the same
    classes as the output, as before a softmax. None if there is no such layer.
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
            same_decisions = head._replace(remark=function_remark("the given classifier"))
    return same_decisions


def function_remark(name: str) -> str:
    """Return the remark that the model's output is a function of the classifier's logits."""
    return (
        f"the model's output is not the result of {name} but a function of it, for example a "
        f"softmax; loss and margin are computed from the result of {name}"
    )


class _FeatureLogitPair(NamedTuple):
    """Rows of features, and rows of an output that may be their logits."""

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
    """Yield pairs of an output and a tensor of a module that may hold the features of this output.

    Given the `weights` of the classifier, also yield the features at single positions of sequences,
    if their logits are the output.
    """
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
    """Yield tensors that modules returned or read, last first, unless changed in place later."""
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

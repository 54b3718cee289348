"""Finds the classifier: the last linear map that produces the logits."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.batches import Outputs
from nclab.features.head_output import (
    Classifier,
    LogitSource,
    find_logit_source,
    find_parameter_head,
    function_remark,
    given_weights,
    locate_given_head,
    source_reader,
)
from nclab.features.linear_maps import LinearCall, certain_linear_call, infer_linear_call
from nclab.features.pooling import as_column, views
from nclab.features.recorder import Call, FoundLayer, Identity, Point, input_layer

AUTO = "auto"
"""Value of the option `classifier` that makes nclab find the classifier."""
ClassifierChoice = str | Callable[[nn.Module], Any] | tuple[Any, Any] | None
"""`"auto"`, the name of a module, a pair (W, b) or a function of the model that returns such a
pair; None measures features only."""
GIVEN = "classifier"
"""Name that reports use for a classifier that the caller passes as a pair or a function."""
INSTEAD = (
    "Pass classifier= the name of a module, a function model -> (W, b) or the pair itself, or "
    "None to measure features alone"
)
FROM_CLASSIFIER = "loss, accuracy and margin are computed from the classifier's logits"


def needs_tensors(calls: list[Call], outputs: Outputs, chosen: ClassifierChoice = AUTO) -> bool:
    """Whether finding the classifier needs the values of the inputs and outputs of the modules.

    The values are not needed if a call of `nn.Linear` or of a 1×1 convolution is certainly the
    classifier.
    """
    if chosen is None or not isinstance(chosen, str):
        return chosen is not None
    certain = [linear for call in calls if (linear := certain_linear_call(call)) is not None]
    plain = [linear for linear in certain if linear.plain]
    if chosen != AUTO:
        named = [linear for linear in plain if linear.call.name == chosen][-1:]
        possible = [linear for linear in named if _has_classes_of(linear, outputs.tensors)]
        return not named or (bool(possible) and not _heads(named, outputs.tensors))
    if not outputs.likely or _heads(plain, outputs.likely):
        return False
    return len(outputs.likely) > 1 or not _heads(certain, outputs.likely)


def find_classifier(
    model: nn.Module,
    calls: list[Call],
    outputs: Outputs,
    chosen: ClassifierChoice = AUTO,
    mask: Tensor | None = None,
) -> Classifier | None:
    """Return the last linear map whose result is the model's output; None for features only.

    If the model returns several outputs, nclab takes the first output that a linear map returned,
    unless another linear map reads that output; a remark names the other outputs. The classifier is
    the first of these that exists:

    - `nn.Linear` or a module that computes the same,
    - a module of another linear form (`nclab.features.linear_maps`),
    - a linear map whose result the model selects from, averages or scales
      (`nclab.features.head_output`),
    - a parameter that the model uses without a module,
    - the last linear map that predicts the same class as the output in every row, for example
      before a softmax; a remark says this.

    If `needs_tensors` is true, `calls` must hold the tensors. `mask` (B, T) is 1 for real tokens.
    """
    if chosen is None:
        return None
    if not isinstance(chosen, str):
        return _given(model, calls, outputs.tensors, chosen, mask)
    linear = [match for call in calls if (match := infer_linear_call(model, call)) is not None]
    if chosen != AUTO:
        return _named(model, calls, outputs.tensors, chosen, mask, linear)
    likely = outputs.likely
    if not likely:
        raise ModelError(
            "Expected a model that returns a tensor of logits, got an output without tensors. Pass "
            "classifier= the name of the module that returns the logits, or None to measure "
            "features alone."
        )
    for candidates in ([call for call in linear if call.plain], linear):
        heads = _heads(candidates, likely)
        if heads:
            index, head = next(iter(heads.items()))
            others = _heads(candidates, outputs.tensors).values()
            names = ", ".join(other.call.name for other in others if other is not head)
            remark = f"of several outputs, measured that of {head.call.name}, not that of {names}"
            return _classifier(model, calls, LogitSource(head, index), remark if names else None)
    source = find_logit_source(linear, likely, mask)
    if source is not None:
        return _classifier(model, calls, source)
    known = {id(call.call.module) for call in linear}
    parameter = find_parameter_head(model, calls, likely, known, mask)
    if parameter is not None:
        return parameter
    for call in reversed(linear):
        for index, output in enumerate(likely):
            if _same_decisions(call, output, mask):
                remark = function_remark(call.call.name)
                return _classifier(model, calls, LogitSource(call, index), remark)
    raise ModelError(_not_found(calls, likely))


def _not_found(calls: list[Call], outputs: Sequence[Tensor]) -> str:
    types = ", ".join(sorted({type(call.module).__name__ for call in calls})) or "none"
    last = next((call for call in reversed(calls) if call.name), None)
    shapes = ", ".join(str(tuple(output.shape)) for output in outputs)
    called = "" if last is None else f"; the last one called is {last.name!r}"
    return (
        f"Expected a model that ends in a linear classifier, found none among its modules "
        f"({types}){called}; its output of shape {shapes} is not W h + b for "
        f"any matrix W of the model and any h that a module reads or returns. "
        f"{INSTEAD}; then pass layers= the name of the layer before it."
    )


def _named(
    model: nn.Module,
    calls: list[Call],
    outputs: Sequence[Tensor],
    chosen: str,
    mask: Tensor | None,
    linear: list[LinearCall],
) -> Classifier:
    """Return the last call of the module `chosen` as the classifier.

    If the result of this call is not the model's output, a remark says how the output is computed.
    """
    matches = [call for call in linear if call.call.name == chosen][-1:]
    if not matches:
        raise ModelError(
            f"Expected classifier={chosen!r} to name a linear map called in the forward pass, got "
            f"another module or one that is not called. {INSTEAD}."
        )
    [call] = matches
    index = next((i for i, output in enumerate(outputs) if _returned(call.call, output)), None)
    if index is not None:
        return _classifier(model, calls, LogitSource(call, index))
    possible = outputs if _has_classes_of(call, outputs) else []
    source = find_logit_source(matches, possible, mask)
    if source is not None:
        return _classifier(model, calls, source)
    alike = [i for i, output in enumerate(possible) if _same_decisions(call, output, mask)]
    classifier = _classifier(model, calls, LogitSource(call, alike[0] if alike else 0))
    if alike:
        return classifier._replace(remark=function_remark(chosen))
    remark = (
        f"no output of the model is the result of {chosen} on the measured features; "
        + FROM_CLASSIFIER
    )
    return classifier._replace(remark=remark if outputs else classifier.remark, output=None)


def _given(
    model: nn.Module, calls: list[Call], outputs: Sequence[Tensor], chosen: Any, mask: Tensor | None
) -> Classifier:
    """Return a classifier with the caller's weights.

    It reads the layer whose features h give W h + b equal to the model's output.
    """
    read = given_weights(model, chosen)
    head = locate_given_head(calls, outputs, GIVEN, read, mask)
    if head is not None:
        return head
    unknown = FoundLayer("", Point("", "output", 0), None)
    remark = (
        "no output of the model is the result of the given classifier on the features; "
        + FROM_CLASSIFIER
    )
    return Classifier(GIVEN, unknown, read, remark if outputs else None)


def _classifier(
    model: nn.Module, calls: list[Call], source: LogitSource, remark: str | None = None
) -> Classifier:
    last, scaled = source.call, source.factor != 1.0
    call, form = last.call, last.form
    weight, _ = form.raw()
    direct = last.plain and len(weight) > 1 and not scaled
    token = source.selection == "token" and not scaled
    point = Point(call.name, "output", call.index) if direct or token else None
    token_remark = (
        f"the model selects one position of the result of {call.name}: the features are those of "
        "that position"
        if source.selection == "token"
        else None
    )
    factor_remark = (
        f"the model's output is {source.factor:.4g} × the result of {call.name}: weight and bias "
        "are measured with this factor"
        if scaled
        else None
    )
    remarks = (remark, factor_remark, last.remark, token_remark)
    return Classifier(
        call.name,
        input_layer(call, calls),
        source_reader(source, model) if scaled else form.read,
        "; ".join(filter(None, remarks)) or None,
        form.unit_rows,
        source.selection,
        source.output,
        point if source.selection != "mean" else None,
        last.source(),
        last.target(),
    )


def _heads(linear: Sequence[LinearCall], outputs: Sequence[Tensor]) -> dict[int, LinearCall]:
    """Return a dictionary: output number -> the last linear call that returned this output.

    Outputs that a linear call reads are omitted: they are not logits.
    """
    inputs = {call.call.source_identity for call in linear}
    heads = {}
    for index, output in enumerate(outputs):
        matches = [call for call in linear if _returned(call.call, output)]
        if matches and matches[-1].call.target_identity not in inputs:
            heads[index] = matches[-1]
    return heads


def _has_classes_of(call: LinearCall, outputs: Sequence[Tensor]) -> bool:
    """Whether an output of the model has as many columns as this linear map has rows (classes)."""
    target = call.target()
    return target is not None and any(
        target.shape[-1] in (output.shape[-1], *output.shape[1:2])
        or (target.shape[-1] == 1 and output.ndim == 1)
        for output in outputs
        if output.ndim
    )


def _same_decisions(call: LinearCall, output: Tensor, mask: Tensor | None) -> bool:
    """Whether the model's output and the call's result predict the same class in every row."""
    result, output = call.target(), as_column(output)
    if result is None or result.is_meta or output.ndim < 2 or not result.is_floating_point():
        return False
    for selection, view in views(result, output, mask):
        if selection != "rows" or view.shape != output.shape:
            continue
        if output.shape[-1] > 1:
            return torch.equal(view.argmax(-1), output.argmax(-1))
        return any(torch.equal(view > 0, output > half) for half in (0.0, 0.5))
    return False


def _returned(call: Call, output: Tensor) -> bool:
    """Whether the model's output is the result of this call, without a later change in place."""
    target = call.target
    if target is None or target.numel() != output.numel():
        return False
    if Identity.of(target) != call.target_identity:
        return False
    permuted = target.ndim == output.ndim > 2 and target.shape != output.shape
    if permuted and target.shape == output.movedim(1, -1).shape:
        output = output.movedim(1, -1)  # cross-entropy expects the classes second
    same = torch.isclose(target.flatten(), output.flatten(), rtol=0.0, atol=0.0, equal_nan=True)
    return bool(same.all())

"""Finds the classifier: the last linear map that produces the logits."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.head_output import (
    LogitSource,
    ParameterHead,
    change_remark,
    changed,
    find_logit_source,
    find_parameter_head,
    given_weights,
    locate_given_head,
    summed_layers,
)
from nclab.features.layers import FoundLayer, input_layer
from nclab.features.linear_maps import LinearCall, Pair, certain_linear_call, infer_linear_call
from nclab.features.pooling import Selection, as_column, views
from nclab.features.recorder import Call, Identity, Outputs, Point

AUTO = "auto"
"""Find the classifier."""
ClassifierChoice = str | Callable[[nn.Module], Any] | tuple[Any, Any] | None
"""`"auto"`, the name of a module, a function of the model or a pair that gives (W, b); None for
features only."""
GIVEN = "classifier"
"""What a classifier is called that the caller gives."""
INSTEAD = (
    "Pass classifier= the name of a module, a function model -> (W, b) or the pair itself, or "
    "None to measure features alone"
)


class Classifier(NamedTuple):
    """A linear map, what it reads, and what needs saying about it."""

    name: str
    reads: FoundLayer
    read: Callable[[], Pair]
    """(C, d) weight and (C,) bias as they are now."""
    remark: str | None = None
    unit_rows: bool = False
    """Whether it reads directions: the features are then divided by their norms."""
    selection: Selection = "rows"
    output: int | None = None
    """Which of the model's outputs it makes; None where that is not known."""
    logits: Point | None = None
    """Where a module returns the logits just as they are, of every position."""
    tensor: Tensor | None = None
    """What it has read, while the traced pass is looked at."""
    result: Tensor | None = None
    """What `logits` was, meanwhile."""
    positions: int | None = None
    """How many there were of each sample, where the weights hold for that number only."""


def needs_tensors(calls: list[Call], outputs: Outputs, chosen: ClassifierChoice = AUTO) -> bool:
    """Whether only what modules have read and returned can tell where the classifier is.

    Not where a call of `nn.Linear` or a convolution over single points is sure to be it.
    """
    if chosen is None or not isinstance(chosen, str):
        return chosen is not None
    sure = [one for call in calls if (one := certain_linear_call(call)) is not None]
    plain = [one for one in sure if one.plain]
    if chosen != AUTO:
        own = [one for one in plain if one.call.name == chosen][-1:]
        possible = [one for one in own if _may_be_made_of(one, outputs.tensors)]
        return not own or (bool(possible) and not _heads(own, outputs.tensors))
    if not outputs.likely or _heads(plain, outputs.likely):
        return False
    return len(outputs.likely) > 1 or not _heads(sure, outputs.likely)


def find_classifier(
    model: nn.Module,
    calls: list[Call],
    outputs: Outputs,
    chosen: ClassifierChoice = AUTO,
    mask: Tensor | None = None,
) -> Classifier | None:
    """The last linear map whose result is the model's output; None if only features are asked for.

    Of several outputs the first counts that is a call's result and is not itself read by another;
    a remark names the others. Calls of `nn.Linear` and of what computes the same come first, then
    modules of the other forms of `nclab.features.head_forms`, then results that the model has
    selected from, averaged, scaled or added up (`nclab.features.head_use`), then parameters of the
    model that were used without a module. If the output is another function of a result, such as
    a softmax, the last linear call with the same decisions, with a remark. Where `needs_tensors`
    says so, the tensors of the calls must have been kept. `mask` (B, T) tells the real tokens.
    """
    if chosen is None:
        return None
    if not isinstance(chosen, str):
        return _given(model, calls, outputs.tensors, chosen, mask)
    linear = [one for call in calls if (one := infer_linear_call(model, call)) is not None]
    if chosen != AUTO:
        return _named(model, calls, outputs.tensors, chosen, mask, linear)
    likely = outputs.likely
    if not likely:
        raise ModelError(
            "Expected a model that returns a tensor of logits, it returns none. Pass classifier= "
            "the name of the module that makes them, or None to measure features alone."
        )
    for kind in ([one for one in linear if one.plain], linear):
        heads = _heads(kind, likely)
        if heads:
            place, head = next(iter(heads.items()))
            others = _heads(kind, outputs.tensors).values()
            rest = ", ".join(one.call.name for one in others if one is not head)
            remark = f"of several outputs took that of {head.call.name}, not of {rest}"
            return _classifier(model, calls, LogitSource((head,), place), remark if rest else None)
    use = find_logit_source(linear, likely, mask)
    if use is not None:
        return _classifier(model, calls, use)
    loose = find_parameter_head(model, calls, likely, {id(one.call.module) for one in linear}, mask)
    if loose is not None:
        return _of_loose(loose)
    for one in reversed(linear):
        for place, output in enumerate(likely):
            if _decides_alike(one, output, mask):
                return _classifier(
                    model, calls, LogitSource((one,), place), _something_made_of(one)
                )
    raise ModelError(_not_found(linear, calls, likely))


def _not_found(linear: list[LinearCall], calls: list[Call], outputs: Sequence[Tensor]) -> str:
    seen = ", ".join(sorted({type(call.module).__name__ for call in calls})) or "none"
    last = next((call for call in reversed(calls) if call.name), None)
    made = ", ".join(str(tuple(output.shape)) for output in outputs)
    reach = "" if last is None else f"; the last one called is {last.name!r}"
    summed = summed_layers(linear, outputs)
    why = (
        f"is the sum of what {' and '.join(summed)} make of different layers"
        if summed
        else "is none that nclab can write as W h + b, with W one of the model's matrices and h "
        "what a module reads or returns"
    )
    return (
        f"Expected a model that ends in a linear classifier, found none among its modules "
        f"({seen}){reach}, and its output of shape {made} {why}. "
        f"{INSTEAD}; with layers= the name of what it reads."
    )


def _named(
    model: nn.Module,
    calls: list[Call],
    outputs: Sequence[Tensor],
    chosen: str,
    mask: Tensor | None,
    linear: list[LinearCall],
) -> Classifier:
    """The last call of a module, and how the model uses what that returned."""
    own = [one for one in linear if one.call.name == chosen][-1:]
    if not own:
        raise ModelError(
            f"Expected classifier={chosen!r} to be a linear map called in the forward pass, "
            f"it is not. {INSTEAD}."
        )
    [one] = own
    place = next((n for n, output in enumerate(outputs) if _returned(one.call, output)), None)
    if place is not None:
        return _classifier(model, calls, LogitSource((one,), place))
    possible = outputs if _may_be_made_of(one, outputs) else []
    use = find_logit_source(own, possible, mask)
    if use is not None:
        return _classifier(model, calls, use)
    alike = [n for n, output in enumerate(possible) if _decides_alike(one, output, mask)]
    unknown = _classifier(model, calls, LogitSource((one,), alike[0] if alike else 0))
    if alike:
        return unknown._replace(remark=_something_made_of(one))
    said = f"no output of the model is what {chosen} makes of the features measured; " + ITS_OWN
    return unknown._replace(remark=said if outputs else unknown.remark, output=None)


def _given(
    model: nn.Module, calls: list[Call], outputs: Sequence[Tensor], chosen: Any, mask: Tensor | None
) -> Classifier:
    """A classifier whose weights the caller gives; what it reads is found by its result."""
    read = given_weights(model, chosen)
    loose = locate_given_head(calls, outputs, GIVEN, read, mask)
    if loose is not None:
        return _of_loose(loose)
    nothing = FoundLayer("", Point("", "output", 0), None)
    said = "no output of the model is what the given classifier makes of the features; " + ITS_OWN
    return Classifier(GIVEN, nothing, read, said if outputs else None)


ITS_OWN = "loss, accuracy and margin are those of its logits"


def _something_made_of(one: LinearCall) -> str:
    return (
        f"the model's output is not what {one.call.name} returns but something made of it; "
        "loss and margin are those of its logits"
    )


def _classifier(
    model: nn.Module, calls: list[Call], use: LogitSource, remark: str | None = None
) -> Classifier:
    one = use.calls[-1]
    call, form = one.call, one.form
    weight, _ = form.raw()
    direct = one.plain and len(weight) > 1 and use.change is None
    token = use.selection == "token" and use.change is None
    at = Point(call.name, "output", call.index) if direct or token else None
    said = [own for own in (remark, change_remark(use), one.remark, _token(use)) if own]
    return Classifier(
        call.name,
        input_layer(call, calls),
        changed(use, model),
        "; ".join(said) or None,
        form.unit_rows,
        use.selection,
        use.output,
        at if use.selection != "mean" else None,
        one.source(),
        one.target(),
        use.positions,
    )


def _token(use: LogitSource) -> str | None:
    name = use.calls[-1].call.name
    return (
        f"the model selection one position of what {name} returns: the features are those of that "
        "position"
        if use.selection == "token"
        else None
    )


def _of_loose(head: ParameterHead) -> Classifier:
    return Classifier(
        head.name,
        head.reads,
        head.read,
        head.remark,
        head.unit_rows,
        head.selection,
        head.output,
        tensor=head.tensor,
        positions=head.positions,
    )


def _heads(linear: Sequence[LinearCall], outputs: Sequence[Tensor]) -> dict[int, LinearCall]:
    """For each output the last call that returned it, unless another such call reads it."""
    read = {one.call.source_identity for one in linear}
    found = {}
    for place, output in enumerate(outputs):
        own = [one for one in linear if _returned(one.call, output)]
        if own and own[-1].call.target_identity not in read:
            found[place] = own[-1]
    return found


def _may_be_made_of(one: LinearCall, outputs: Sequence[Tensor]) -> bool:
    """Whether an output has as many classes as a linear map."""
    target = one.target()
    return target is not None and any(
        target.shape[-1] in (output.shape[-1], *output.shape[1:2])
        or (target.shape[-1] == 1 and output.ndim == 1)
        for output in outputs
        if output.ndim
    )


def _decides_alike(one: LinearCall, output: Tensor, mask: Tensor | None) -> bool:
    """Whether the output has the largest entry where a result has it, in every row."""
    result, output = one.target(), as_column(output)
    if result is None or result.is_meta or output.ndim < 2 or not result.is_floating_point():
        return False
    for selection, seen in views(result, output, mask):
        if selection != "rows" or seen.shape != output.shape:
            continue
        if output.shape[-1] > 1:
            return torch.equal(seen.argmax(-1), output.argmax(-1))
        return any(torch.equal(seen > 0, output > half) for half in (0.0, 0.5))
    return False


def _returned(call: Call, output: Tensor) -> bool:
    """Whether the output holds what the call returned, not changed in place since."""
    target = call.target
    if target is None or target.numel() != output.numel():
        return False
    if Identity.of(target) != call.target_identity:
        return False
    turned = target.ndim == output.ndim > 2 and target.shape != output.shape
    if turned and target.shape == output.movedim(1, -1).shape:
        output = output.movedim(1, -1)  # classes second, as cross-entropy wants them
    same = torch.isclose(target.flatten(), output.flatten(), rtol=0.0, atol=0.0, equal_nan=True)
    return bool(same.all())

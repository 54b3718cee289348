"""Finds the classifier: the last linear map that produces the logits."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.recorder import Call, Identity, is_plain


class Classifier(NamedTuple):
    """A linear map, the call in which it made the logits, and what needs saying about it."""

    call: Call
    weight: Tensor
    bias: Tensor | None
    remark: str | None


def find_classifier(
    calls: list[Call], outputs: list[Tensor], chosen: str | None = None
) -> Classifier:
    """The last linear call whose result is the model's output.

    Of several outputs the first counts that is a linear call's result and is not itself read by
    another; a remark names the others. If the output is a function of a result (a softmax, a
    scale, a mean over tokens), the last linear call with the same decisions, with a remark.
    `chosen` names the module instead.
    """
    linear = [call for call in calls if _computes_linear_map(call)]
    if chosen is not None:
        linear = [call for call in linear if call.name == chosen]
        if not linear:
            raise ModelError(
                f"Expected classifier={chosen!r} to be a linear map called in the forward pass, "
                "it is not. Pass the name of an nn.Linear."
            )
        return _classifier(linear[-1], None)
    if not outputs:
        raise ModelError("Expected a model that returns a tensor of logits, it returns none.")
    heads = _heads(linear, outputs)
    if heads:
        others = ", ".join(call.name for call in heads[1:])
        remark = f"of several outputs took that of {heads[0].name}, not of {others}"
        return _classifier(heads[0], remark if others else None)
    for call in reversed(linear):
        if any(_decides_alike(call, output) for output in outputs):
            remark = (
                f"the model's output is not what {call.name} returns but something made of it; "
                "loss and margin are those of its logits"
            )
            return _classifier(call, remark)
    seen = ", ".join(sorted({type(call.module).__name__ for call in calls})) or "none"
    raise ModelError(
        f"Expected a model that ends in a linear classifier, found none among its modules "
        f"({seen}). Pass classifier= the name of an nn.Linear whose last dimension holds the "
        "classes, or use measure_features."
    )


def _heads(linear: list[Call], outputs: list[Tensor]) -> list[Call]:
    """For each output the last linear call that returned it, unless another such call reads it."""
    read = {call.source_identity for call in linear}
    found = []
    for output in outputs:
        made = [call for call in linear if _returned(call, output)]
        if made and made[-1].target_identity not in read:
            found.append(made[-1])
    return found


def _decides_alike(call: Call, output: Tensor) -> bool:
    """Whether the output has the largest entry where the call's result has it, in every row."""
    target = call.target
    if target is None or target.is_meta or output.ndim < 2:
        return False
    if target.shape[-1] != output.shape[-1]:
        return False
    if target.shape != output.shape:  # a mean over tokens, perhaps
        if target.ndim != output.ndim + 1:
            return False
        target = target.mean(-2)
    if target.shape != output.shape:
        return False
    return torch.equal(target.argmax(-1), output.argmax(-1))


def _classifier(call: Call, remark: str | None) -> Classifier:
    weight, bias = _parameters(call.module)
    return Classifier(call, weight.detach(), None if bias is None else bias.detach(), remark)


def _parameters(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    assert isinstance(weight, Tensor)
    return weight, bias if isinstance(bias, Tensor) else None


def _computes_linear_map(call: Call) -> bool:
    """Whether W x + b, with the module's own W and b, is what it returned."""
    weight = getattr(call.module, "weight", None)
    source, target = call.source, call.target
    if not isinstance(weight, Tensor) or weight.ndim != 2 or source is None or target is None:
        return False
    if source.is_nested or not source.is_floating_point() or source.ndim < 2:
        return False
    if source.shape[-1] != weight.shape[1] or target.shape != (*source.shape[:-1], len(weight)):
        return False
    if is_plain(call.module):
        return True  # not checked by numbers: TF32 rounds more than any tolerance would allow
    weight, bias = _parameters(call.module)
    rows = source.reshape(-1, source.shape[-1])[:8].double()
    weight, bias = weight.double(), torch.zeros(()) if bias is None else bias.double()
    expected = rows @ weight.T + bias
    found = target.reshape(-1, target.shape[-1])[:8].double()
    # What rounding can do to each sum, so that a cosine in bfloat16 does not pass for a product.
    size = rows.abs() @ weight.abs().T + bias.abs()
    return bool(((expected - found).abs() <= 8 * torch.finfo(target.dtype).eps * size).all())


def _returned(call: Call, output: Tensor) -> bool:
    """Whether the output holds what the call returned, not changed in place since."""
    target = call.target
    if target is None or target.numel() != output.numel():
        return False
    if Identity.of(target) != call.target_identity:
        return False
    same = torch.isclose(target.flatten(), output.flatten(), rtol=0.0, atol=0.0, equal_nan=True)
    return bool(same.all())

"""Finds the classifier: the last linear map that produces the logits."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.recorder import Call, Identity


class Classifier(NamedTuple):
    """A linear map, the call in which it made the logits, and what needs saying about it."""

    call: Call
    weight: Tensor
    bias: Tensor | None
    remark: str | None


def find_classifier(
    calls: list[Call], outputs: list[Tensor], chosen: str | None = None
) -> Classifier:
    """The last linear call whose result is the model's output, or one of its outputs.

    If the output is a function of that result (a softmax, a scale), the last linear call with as
    many outputs as there are logits, with a remark. `chosen` names the module instead.
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
    for call in reversed(linear):
        if any(_returned(call, output) for output in outputs):
            return _classifier(call, None)
    for call in reversed(linear):
        assert call.target is not None
        width = call.target.shape[-1]
        if any(output.ndim >= 2 and output.shape[-1] == width for output in outputs):
            remark = (
                f"the model's output is not what {call.name} returns but something made of it; "
                "loss and margin are those of its logits"
            )
            return _classifier(call, remark)
    seen = ", ".join(sorted({type(call.module).__name__ for call in calls})) or "none"
    raise ModelError(
        f"Expected a model that ends in a linear classifier, found none among its modules "
        f"({seen}). Pass classifier= the name of an nn.Linear, or use measure_features."
    )


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
    if isinstance(call.module, nn.Linear) and type(call.module).forward is nn.Linear.forward:
        return True
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
    return torch.equal(target.flatten(), output.flatten())

"""Heads that are no module of their own: parameters used in a forward pass, or given from outside.

What they read is found by numbers, among all that modules have read and returned.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.head_fit import Fit, fit
from nclab.features.head_forms import Pair, as_two_classes
from nclab.features.head_use import (
    Takes,
    as_column,
    both_logits,
    count_positions,
    flat,
    is_averaged,
    taken_rows,
    turned,
    views,
)
from nclab.features.layers import FoundLayer, input_layer, output_layer
from nclab.features.linear_calls import directions_remark, fitted, is_dense
from nclab.features.recorder import Call, Identity


class LooseHead(NamedTuple):
    """Where a head without a module reads, and how its weights are read."""

    name: str
    reads: FoundLayer
    read: Callable[[], Pair]
    tensor: Tensor
    """What it has read."""
    output: int
    """Which output it has made."""
    takes: Takes
    unit_rows: bool = False
    remark: str | None = None
    positions: int | None = None
    """As for `nclab.features.head_use.Use`."""


def find_loose(
    model: nn.Module,
    calls: list[Call],
    outputs: Sequence[Tensor],
    known: set[int],
    mask: Tensor | None,
) -> LooseHead | None:
    """Logits made of a module's input or output by a parameter; `known` modules are not it."""
    modules = {name: own for name, own in model.named_modules() if id(own) not in known}
    for seen in _pairs(calls, outputs, mask):
        for place, module in modules.items():
            found = fitted(model, place, module, seen.rows, seen.logits)
            if found is None:
                continue
            takes, positions = seen.takes, None
            logits = as_column(outputs[seen.output])
            if found.fit.scale != 1.0 and is_averaged(seen.tensor, logits, takes):
                if mask is not None:
                    continue
                takes, positions = "mean", count_positions(seen.tensor, logits)
            name = f"{place}.{found.parameter}".removeprefix(".")
            remark = directions_remark(name, found) or _scale_remark(name, found.fit)
            where = seen.tensor, seen.output, takes, found.fit.unit_rows, remark, positions
            return LooseHead(name, seen.layer, found.form.read, *where)
    return None


def _scale_remark(name: str, found: Fit) -> str | None:
    """A factor that is no part of the weight."""
    if found.scale == 1.0 or found.unit_weight:
        return None
    return f"the classifier is {found.scale:.4g} × {name}"


def given_reader(model: nn.Module, chosen: Any) -> Callable[[], Pair]:
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
        return as_two_classes(weight, bias)

    return read


def place_given(
    calls: list[Call],
    outputs: Sequence[Tensor],
    name: str,
    read: Callable[[], Pair],
    mask: Tensor | None,
) -> LooseHead | None:
    """What a given classifier reads, by its result; one that only decides alike has a remark."""
    weight, bias = read()
    best: LooseHead | None = None
    for seen in _pairs(calls, outputs, mask, tokens=(weight, bias)):
        logits = both_logits(seen.logits)
        if seen.rows.shape[1] != weight.shape[1] or logits.shape[1] != len(weight):
            continue
        head = LooseHead(name, seen.layer, read, seen.tensor, seen.output, seen.takes)
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
    takes: Takes


def _pairs(
    calls: list[Call],
    outputs: Sequence[Tensor],
    mask: Tensor | None,
    tokens: Pair | None = None,
) -> Iterator[_Seen]:
    """All that may have become an output; with weights also the tokens that these single out."""
    for place, output in enumerate(outputs):
        for logits in turned(as_column(output)):
            if not is_dense(logits):
                continue
            for tensor, layer in _tensors(calls):
                for takes, rows in views(tensor, logits, mask):
                    yield _Seen(flat(rows), flat(logits), tensor, layer, place, takes)
                if tokens is not None and tensor.ndim > 2 == logits.ndim:
                    rows = _singled_out(tensor, logits, *tokens)
                    if rows is not None:
                        yield _Seen(rows, logits, tensor, layer, place, "token")


def _singled_out(tensor: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    if tensor.shape[-1] != weight.shape[1]:
        return None
    made = tensor.double() @ weight.T + (0.0 if bias is None else bias)
    return taken_rows(tensor, made.to(tensor.dtype), both_logits(logits))


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

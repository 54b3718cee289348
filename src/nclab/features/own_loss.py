"""What a model's own loss tells: which label belongs to which logits, and whether ours agrees.

Causal language models are called with labels that repeat their inputs, and compare the logits of a
token with the label of the next one inside themselves. Few of them look at the attention mask: a
padded token counts unless its label is the ignored one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nclab.features.batches import LABEL_KEYS
from nclab.features.recorder import Outputs
from nclab.features.token_labels import row_labels

NEAR = 1e-3
"""A cross-entropy as near as this, relative to 1 + loss, is the model's loss."""
ROWS = 1024
"""Rows of logits whose loss is taken at a time."""


class OwnLoss(NamedTuple):
    """How a model takes its labels, and the mean loss it has found with them."""

    shifted: bool = False
    """Whether the logits of a token belong to the label of the next."""
    loss: float | None = None
    """None where the model told none, or one that is no plain cross-entropy of its logits."""
    masked: bool = True
    """Whether padded tokens are left out; not where the model's loss counts them."""
    repeats: bool = False
    """Whether the labels are the tokens that the model reads, and nothing tells to shift them."""


def own_loss(
    model: nn.Module,
    output: Any,
    labels: Tensor,
    *,
    called_with: Mapping[str, Any],
    ignore_index: int | None,
    mask: Tensor | None = None,
) -> OwnLoss:
    """How a model that returned `output` takes `labels`.

    By its loss, where it tells one; else the labels are those of the next tokens if the model is a
    causal language model and either was called with them or they repeat what it has read, and
    tokens that `mask` marks as padding are left out.
    """
    ignored = -100 if ignore_index is None else ignore_index
    fitting = [z for z in Outputs.of(output).likely if z.shape[:-1] == labels.shape and z.ndim > 1]
    if not fitting or labels.is_floating_point():
        return OwnLoss()
    logits, tokens = fitting[0].detach(), labels.ndim == 2
    causal = tokens and _is_causal(model)
    value = _loss_in(output)
    if value is None:
        repeats = tokens and _repeats(labels, called_with.get("input_ids"), ignored)
        given = any(called_with.get(key) is not None for key in LABEL_KEYS)
        shifted = causal and (given or repeats)
        return OwnLoss(shifted, repeats=repeats and not shifted)
    shifts = (False, True) if tokens else (False,)
    ways: list[tuple[bool, Tensor | None]] = [(shifted, None) for shifted in shifts]
    if mask is not None and mask.shape == labels.shape and not bool(mask.all()):
        ways += [(shifted, mask) for shifted in shifts]
    found: dict[tuple[bool, bool], tuple[float, int]] = {}
    items = called_with.get("num_items_in_batch")
    for shifted, padding in ways:
        own = row_labels(labels, padding, shifted=shifted, ignore_index=ignored)
        total, count = _summed(logits, own, ignored)
        if count:
            loss = total / float(count if items is None else items)
            found[shifted, padding is not None] = loss, count
    if not found:
        return OwnLoss(causal)
    best = min(found, key=lambda way: abs(found[way][0] - value))
    if not abs(found[best][0] - value) <= NEAR * (1 + abs(value)):
        return OwnLoss(causal)
    count = found[best][1]
    return OwnLoss(best[0], value * (1.0 if items is None else float(items) / count), best[1])


def padding_counted(labels: Tensor, mask: Tensor | None, ignore_index: int | None) -> str | None:
    """What to say where labels of padded tokens enter the model's loss; None where none do.

    >>> padding_counted(torch.tensor([[3, 0]]), torch.tensor([[1, 0]]), -100)
    "the model's loss counts padded tokens, 1 in the first batch: label them -100"
    """
    if mask is None or mask.shape != labels.shape:
        return None
    number = int(((labels != ignore_index) & ~mask.bool()).sum())
    if not number:
        return None
    ignored = -100 if ignore_index is None else ignore_index
    return (
        f"the model's loss counts padded tokens, {number} in the first batch: label them {ignored}"
    )


def disagreement(own: float, ours: float, name: str, dtype: torch.dtype) -> str | None:
    """What to say where our loss is not the model's own, on the same batch; None where it is.

    >>> disagreement(0.5, 0.5001, "head", torch.float32) is None
    True
    """
    slack = 0.01 if torch.finfo(dtype).eps < 1e-5 else 0.1  # rounded logits move a small loss
    if abs(own - ours) <= slack * abs(own) + 1e-4:
        return None
    return (
        f"on the first batch the model's own loss is {own:.4g}, that of {name} with these labels "
        f"{ours:.4g}: another classifier, other labels, or logits that are changed afterwards"
    )


def mean_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> float | None:
    """Mean cross-entropy of (n, C) logits; None where every label is ignored."""
    total, count = _summed(logits, labels, ignore_index)
    return total / count if count else None


def _summed(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[float, int]:
    total = 0.0
    flat, own = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).to(logits.device).long()
    size = flat.shape[-1]
    if bool(((own >= size) | ((own < 0) & (own != ignore_index))).any()):
        return 0.0, 0
    for rows, classes in zip(flat.split(ROWS), own.split(ROWS), strict=True):
        part = cross_entropy(rows.double(), classes, ignore_index=ignore_index, reduction="sum")
        total += float(part)
    return total, int((own != ignore_index).sum())


def _loss_in(output: Any) -> float | None:
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    if loss is None and isinstance(output, (tuple, list)):  # (logits, loss)
        single = [one for one in output if isinstance(one, Tensor) and one.ndim == 0]
        loss = single[0] if len(single) == 1 and single[0].is_floating_point() else None
    return float(loss.detach()) if isinstance(loss, Tensor) and loss.numel() == 1 else None


def _is_causal(model: nn.Module) -> bool:
    """Whether a model of Hugging Face says that it shifts its labels."""
    name = type(model).__name__
    return getattr(model, "loss_type", "") == "ForCausalLM" or name.endswith("LMHeadModel")


def _repeats(labels: Tensor, tokens: Any, ignore_index: int) -> bool:
    if not isinstance(tokens, Tensor) or tokens.shape != labels.shape:
        return False
    used = labels != ignore_index
    return bool(used.any()) and bool((labels == tokens.to(labels.device))[used].all())

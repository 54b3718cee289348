"""Labels of samples and tokens as class numbers, one for each row of features."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from nclab.errors import DataError
from nclab.features.recorder import Outputs

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
"""Keys under which a batch that is a mapping may hold its labels."""
TOKENS = "input_ids"
"""Key under which a batch that is a mapping holds its tokens."""
WHOLE = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
"""Integer types that torch cannot index, compare or sort by everywhere."""
LabelChoice = Literal["auto", "given", "next"]
"""Which label belongs to a token: "given" its own, "next" that of the next token, "auto" the one
that the model's own loss uses."""
LOSS_TOLERANCE = 1e-3
"""Largest difference, relative to 1 + loss, between the model's loss and our cross-entropy."""
LOSS_ROWS = 1024
"""Rows of logits whose loss is computed at a time."""


def as_label_tensor(values: Any, names: tuple[str, ...] | None = None) -> Tensor:
    """Return the labels of a batch as a tensor; class names become class numbers.

    >>> as_label_tensor(["dog", "cat"], ("cat", "dog")).tolist()
    [1, 0]
    """
    if has_class_names(values):
        return class_numbers(list(values.flat if isinstance(values, np.ndarray) else values), names)
    try:
        labels = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"Expected integer labels, got a {type(values).__name__}.") from error
    if labels.ndim == 0:
        raise DataError(
            f"Expected batches, got a single sample of label {labels.item()}. "
            "Pass a DataLoader of the data set."
        )
    return labels.long() if labels.dtype in WHOLE else labels


def class_numbers(labels: Sequence[Any], names: Sequence[str] | None) -> Tensor:
    """Return the number of each class name, its position in `names`."""
    if names is None:
        raise DataError(
            f"Expected integer labels, got names such as {str(labels[0])!r}. Pass class_names= "
            "all names, in the order of the classifier's outputs."
        )
    numbers = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if str(label) not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"Expected labels among class_names {', '.join(names[:5])}{', …' * (len(names) > 5)}; "
            f"got {str(unknown)!r}."
        )
    return torch.tensor([numbers[str(label)] for label in labels])


def binary_labels(labels: Tensor) -> Tensor:
    """Return labels 0.0 and 1.0, as binary losses expect them, as integers; others unchanged.

    >>> binary_labels(torch.tensor([[0.0], [1.0]])).tolist()
    [0, 1]
    """
    single = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if single.ndim == 1 and bool(((single == 0) | (single == 1)).all()):
        return single.long()
    return labels


def has_class_names(values: Any) -> bool:
    """Whether labels are given as names of classes."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "UO" and values.size > 0 and isinstance(values.flat[0], str)
    return isinstance(values, (list, tuple)) and bool(values) and isinstance(values[0], str)


def check_label_choice(labels: Any) -> None:
    """Raise if the option `labels` is not one of `LabelChoice`."""
    if labels not in get_args(LabelChoice):
        choices = " or ".join(map(repr, get_args(LabelChoice)))
        raise DataError(f"Expected labels={choices}, got {labels!r}.")


def next_labels(labels: Tensor, ignore_index: int) -> Tensor:
    """Return for every token the label of the next one, and `ignore_index` for the last.

    >>> next_labels(torch.tensor([[3, 5, 7]]), -100).tolist()
    [[5, 7, -100]]
    """
    return pad(labels[..., 1:], (0, 1), value=ignore_index)


def row_labels(
    labels: Tensor,
    mask: Tensor | None,
    *,
    shifted: bool,
    ignore_index: int | None,
    time_first: bool = False,
) -> Tensor:
    """Return a class number for every token: its label or, if `shifted`, that of the next token.

    Padded tokens, which a (B, T) `mask` marks with 0, get `ignore_index`. If `shifted`, the last
    token and tokens followed by padding get it as well. With `time_first` the labels are (T, B).

    >>> tokens, mask = torch.tensor([[3, 5, 7, 0]]), torch.tensor([[1, 1, 1, 0]])
    >>> row_labels(tokens, mask, shifted=True, ignore_index=-100).tolist()
    [[5, 7, -100, -100]]
    """
    padded = mask is not None and mask.shape == labels.shape and labels.ndim > 1
    if not shifted and not padded:
        return labels
    if ignore_index is None:
        unlabelled = "padded tokens have no label" if padded else "the last token has no label"
        raise DataError(f"Expected an integer ignore_index, got None: {unlabelled}.")
    if time_first:
        mask = None if mask is None else mask.T
        return row_labels(labels.T, mask, shifted=shifted, ignore_index=ignore_index).T
    token_labels = next_labels(labels, ignore_index) if shifted else labels
    if not padded or mask is None:
        return token_labels
    real = mask.to(token_labels.device).bool()
    real = real & pad(real[..., 1:], (0, 1), value=True) if shifted else real
    return token_labels.masked_fill(~real, ignore_index)


def require_unshifted(labels: Tensor, tokens: Any, ignore_index: int | None) -> None:
    """Raise if labels='next' cannot apply: one label per sequence, or labels shifted already.

    >>> require_unshifted(torch.tensor([[5, 7, 9]]), torch.tensor([[3, 5, 7]]), -100)
    Traceback (most recent call last):
    nclab.errors.DataError: Expected for labels='next' the label of each token at that token, got \
labels that are already shifted to the next token. Omit labels='next'.
    """
    if labels.ndim < 2:
        raise DataError(
            f"Expected for labels='next' a label for each token, (B, T), got shape "
            f"{tuple(labels.shape)}. Omit labels='next' if a whole sequence has one label."
        )
    if not isinstance(tokens, Tensor) or tokens.shape != labels.shape or labels.shape[-1] < 3:
        return
    tokens = tokens.to(labels.device)
    used = labels != ignore_index if ignore_index is not None else torch.ones_like(labels).bool()
    if bool((labels == tokens)[used].all()):
        return
    layouts = [(labels, tokens, used)]
    if labels.ndim == 2:  # (T, B)
        layouts.append((labels.T, tokens.T, used.T))
    for by_token, inputs, kept in layouts:
        shifted = (by_token[..., :-1] == inputs[..., 1:])[kept[..., :-1]]
        if len(shifted) and bool(shifted.all()):
            raise DataError(
                "Expected for labels='next' the label of each token at that token, got labels that "
                "are already shifted to the next token. Omit labels='next'."
            )


class ModelLoss(NamedTuple):
    """Convention by which a model's own loss uses the labels, and the value of that loss.

    Causal language models are called with labels that repeat their inputs, and compare the logits
    of a token with the label of the next token. Few of them apply the attention mask: a padded
    token counts unless its label is the ignored one.
    """

    shifted: bool = False
    """Whether the logits of a token belong to the label of the next token."""
    loss: float | None = None
    """Mean loss; None if the model returned none, or none that is a cross-entropy of its logits."""
    masked: bool = True
    """Whether padded tokens are left out; False if the model's loss counts them."""
    repeats: bool = False
    """Whether the labels repeat the input tokens although nothing shows that they are shifted."""


def model_loss(
    model: nn.Module,
    output: Any,
    labels: Tensor,
    *,
    called_with: Mapping[str, Any],
    ignore_index: int | None,
    mask: Tensor | None = None,
) -> ModelLoss:
    """Infer from a model's output how its loss uses `labels`.

    If the output has a loss, the convention whose cross-entropy is nearest to that loss applies.
    Otherwise a causal language model shifts labels that it was called with, or that repeat its
    input tokens, and tokens that `mask` marks as padding are left out.
    """
    ignored = -100 if ignore_index is None else ignore_index
    fitting = [z for z in Outputs.of(output).likely if z.shape[:-1] == labels.shape and z.ndim > 1]
    if not fitting or labels.is_floating_point():
        return ModelLoss()
    logits, tokens = fitting[0].detach(), labels.ndim == 2
    name = type(model).__name__  # of Hugging Face models that shift the labels by one token
    causal = getattr(model, "loss_type", "") == "ForCausalLM" or name.endswith("LMHeadModel")
    causal = tokens and causal
    value = _loss_in(output)
    if value is None:
        read = called_with.get(TOKENS)
        repeats = False
        if tokens and isinstance(read, Tensor) and read.shape == labels.shape:
            used = labels != ignored
            repeats = bool(used.any()) and bool((labels == read.to(labels.device))[used].all())
        given = any(called_with.get(key) is not None for key in LABEL_KEYS)
        shifted = causal and (given or repeats)
        return ModelLoss(shifted, repeats=repeats and not shifted)
    shifts = (False, True) if tokens else (False,)
    conventions: list[tuple[bool, Tensor | None]] = [(shifted, None) for shifted in shifts]
    if mask is not None and mask.shape == labels.shape and not bool(mask.all()):
        conventions += [(shifted, mask) for shifted in shifts]
    losses: dict[tuple[bool, bool], tuple[float, int]] = {}
    items = called_with.get("num_items_in_batch")
    for shifted, padding in conventions:
        classes = row_labels(labels, padding, shifted=shifted, ignore_index=ignored)
        total, count = _summed_loss(logits, classes, ignored)
        if count:
            loss = total / float(count if items is None else items)
            losses[shifted, padding is not None] = loss, count
    if not losses:
        return ModelLoss(causal)
    best = min(losses, key=lambda convention: abs(losses[convention][0] - value))
    if not abs(losses[best][0] - value) <= LOSS_TOLERANCE * (1 + abs(value)):
        return ModelLoss(causal)
    count = losses[best][1]
    return ModelLoss(best[0], value * (1.0 if items is None else float(items) / count), best[1])


def padding_warning(labels: Tensor, mask: Tensor | None, ignore_index: int | None) -> str | None:
    """Return a warning if labels of padded tokens enter the model's loss.

    >>> padding_warning(torch.tensor([[3, 0]]), torch.tensor([[1, 0]]), -100)
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


def loss_mismatch(expected: float, measured: float, name: str, dtype: torch.dtype) -> str | None:
    """Return a warning if the measured loss differs from the model's own on the same batch.

    >>> loss_mismatch(0.5, 0.5001, "head", torch.float32) is None
    True
    """
    tolerance = 0.01 if torch.finfo(dtype).eps < 1e-5 else 0.1  # rounded logits move a small loss
    if abs(expected - measured) <= tolerance * abs(expected) + 1e-4:
        return None
    return (
        f"on the first batch the model's own loss is {expected:.4g}, but the loss of {name} with "
        f"these labels is {measured:.4g}: check the classifier, the labels, and whether the model "
        "changes the logits afterwards"
    )


def mean_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> float | None:
    """Return the mean cross-entropy of (n, C) logits; None if every label is ignored."""
    total, count = _summed_loss(logits, labels, ignore_index)
    return total / count if count else None


def _summed_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[float, int]:
    total = 0.0
    rows, classes = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    classes = classes.to(logits.device).long()
    size = rows.shape[-1]
    if bool(((classes >= size) | ((classes < 0) & (classes != ignore_index))).any()):
        return 0.0, 0
    for block, part in zip(rows.split(LOSS_ROWS), classes.split(LOSS_ROWS), strict=True):
        loss = cross_entropy(block.double(), part, ignore_index=ignore_index, reduction="sum")
        total += float(loss)
    return total, int((classes != ignore_index).sum())


def _loss_in(output: Any) -> float | None:
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        loss = output.get("loss")
    if loss is None and isinstance(output, (tuple, list)):  # (logits, loss)
        scalars = [part for part in output if isinstance(part, Tensor) and part.ndim == 0]
        loss = scalars[0] if len(scalars) == 1 and scalars[0].is_floating_point() else None
    return float(loss.detach()) if isinstance(loss, Tensor) and loss.numel() == 1 else None

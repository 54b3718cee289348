"""Reads inputs and labels from the batches of a loader, and tensors from the output of a model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from nclab.errors import DataError

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
"""Keys under which a batch that is a mapping may hold its labels."""
TOKENS = "input_ids"
"""Key under which a batch that is a mapping holds its tokens."""
CONVERTED_INTEGERS = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
"""Integer types that some functions of torch do not support; such labels become int64."""
LabelChoice = Literal["auto", "given", "next"]
"""Which label belongs to the features of a token: "given" the label of this token, "next" that of
the next token, "auto" the label with which the model's own loss compares the token's logits."""
LOSS_TOLERANCE = 1e-3
"""The model's loss and our cross-entropy count as equal if they differ by at most this, relative to
1 + loss."""
LOSS_ROWS = 1024
"""Number of rows of logits whose loss is computed in one step."""


def check_loader(loader: Any) -> None:
    """Raise if a loader cannot be iterated over."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise DataError(f"Expected a loader of batches, got a {type(loader).__name__}.")


class Batch(NamedTuple):
    """One batch, ready for `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Tensor
    mask: Tensor | None
    """(B, T) tensor with 1 for real tokens and 0 for padding: the `attention_mask` of the batch."""

    def tensors(self) -> list[Tensor]:
        """Return all input tensors of the model, including those inside lists and mappings."""
        return list(_tensors([self.args, self.kwargs]))


def split_batch(
    batch: Any, device: torch.device, names: tuple[str, ...] | None = None, *, tokens: bool = False
) -> Batch:
    """Split (x, y), (x1, x2, y) or a mapping with labels into inputs and labels on `device`.

    Labels may be class names if `names` lists all of them. If `tokens` is true, the tokens of a
    batch without labels serve as its labels.

    >>> batch = split_batch((torch.zeros(2, 3), torch.tensor([0, 1])), torch.device("cpu"))
    >>> len(batch.args), batch.labels.tolist()
    (1, [0, 1])
    """
    parts = split_in_place(batch, names, tokens=tokens)
    return Batch(
        tuple(_moved(value, device) for value in parts.args),
        {name: _moved(value, device) for name, value in parts.kwargs.items()},
        parts.labels.to(device),
        None if parts.mask is None else parts.mask.to(device),
    )


def split_in_place(
    batch: Any, names: tuple[str, ...] | None = None, *, tokens: bool = False
) -> Batch:
    """Split a batch as `split_batch` does, but leave every tensor on its device.

    >>> split_in_place(torch.tensor([[3, 5]]), tokens=True).labels.tolist()
    [[3, 5]]
    """
    batch = _with_labels(batch) if tokens else batch
    if isinstance(batch, Mapping):
        key = next((key for key in LABEL_KEYS if key in batch), None)
        if key is None:
            raise DataError(
                f"Expected a batch with one of {', '.join(LABEL_KEYS)}, "
                f"got the keys {', '.join(map(str, batch))}."
            )
        args: tuple[Any, ...] = ()
        kwargs = {str(name): value for name, value in batch.items() if name != key}
        labels = batch[key]
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        *inputs, labels = batch
        as_keywords = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        args = () if as_keywords else tuple(inputs)
        kwargs = dict(inputs[0]) if as_keywords else {}
    else:
        raise DataError(
            f"Expected batches of (inputs, labels) or a mapping with 'labels', "
            f"got a {type(batch).__name__}."
        )
    mask = kwargs.get("attention_mask")
    has_mask = isinstance(mask, Tensor) and mask.ndim == 2
    return Batch(args, kwargs, as_label_tensor(labels, names), mask if has_mask else None)


def labels_of(
    batch: Any,
    function: Callable[[Any], Any] | None = None,
    names: tuple[str, ...] | None = None,
    *,
    tokens: bool = False,
) -> tuple[Any, Tensor | None]:
    """Return the labels in a batch, and the mask of real tokens if there is one.

    For batches of another format, pass a `function` that returns the labels of a batch. Without it,
    `split_in_place` splits the batch; raise if several parts may be the labels.

    >>> labels_of((torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([7, 8])))
    Traceback (most recent call last):
    nclab.errors.DataError: Expected batches of (inputs, labels), got 3 parts of which 2 may be
    the labels. Pass a function that returns the labels: labels=lambda batch: batch[1].
    """
    if function is not None:
        return function(batch), None
    parts = split_in_place(batch, names, tokens=tokens)
    others = [part for part in parts.args[1:] if isinstance(part, Tensor)]
    alike = [p for p in others if p.shape == parts.labels.shape and not p.is_floating_point()]
    if alike and parts.labels.ndim == 1:
        raise DataError(
            f"Expected batches of (inputs, labels), got {len(batch)} parts of which "
            f"{len(alike) + 1} may be the labels. Pass a function that returns the labels: "
            "labels=lambda batch: batch[1]."
        )
    return parts.labels, parts.mask


def known_labels(loader: Any, names: tuple[str, ...] | None = None) -> Tensor | None:
    """Return all labels of a loader if they are available without iterating, else None.

    Labels are available in a list of batches and in data sets that store them (`TensorDataset`,
    `.targets`), provided that the loader yields every sample once.

    >>> known_labels([(torch.zeros(2, 3), torch.tensor([0, 1]))]).tolist()
    [0, 1]
    """
    if isinstance(loader, (list, tuple)):
        try:
            parts = [split_in_place(batch, names).labels.flatten() for batch in loader]
        except DataError:
            return None  # the pass over the loader will raise the same error with its context
        return torch.cat(parts) if parts else None
    if not isinstance(loader, DataLoader) or loader.drop_last or loader.batch_sampler is None:
        return None
    sampler: Any = loader.sampler
    data: Any = loader.dataset
    yields_all = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(data)
    )
    stored = data.tensors[-1] if isinstance(data, TensorDataset) else getattr(data, "targets", None)
    if not yields_all or not isinstance(stored, (Tensor, np.ndarray, list)):
        return None
    try:
        labels = as_label_tensor(stored, names)
    except DataError:
        return None
    return labels if len(labels) == len(data) and labels.ndim == 1 else None


def _with_labels(batch: Any) -> Any:
    """Add the tokens as labels to a batch that has tokens only; return others unchanged."""
    if isinstance(batch, Tensor):
        return batch, batch
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        inner = batch[0]
        return _with_labels(inner) if isinstance(inner, (Tensor, Mapping)) else batch
    if isinstance(batch, Mapping) and TOKENS in batch and not set(LABEL_KEYS) & set(batch):
        return {**batch, LABEL_KEYS[0]: batch[TOKENS]}
    return batch


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return value


class Outputs(NamedTuple):
    """All tensors in the output of a model."""

    likely: list[Tensor]
    """Tensors that may be the logits: `logits` alone if the output has it, else all."""
    others: list[Tensor]

    @classmethod
    def of(cls, output: Any) -> "Outputs":
        """Collect the tensors of a tensor, tuple, list, mapping, or object with `logits`.

        >>> outputs = Outputs.of({"aux": torch.ones(2, 3), "logits": torch.ones(2, 4)})
        >>> [tuple(tensor.shape) for tensor in outputs.tensors]
        [(2, 4), (2, 3)]
        """
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, Mapping):
            logits = output.get("logits")
        if isinstance(output, Mapping):
            output = tuple(output.values())
        parts = output if isinstance(output, (tuple, list)) else [output]
        tensors = [tensor for part in parts if (tensor := first_tensor(part)) is not None]
        if not isinstance(logits, Tensor):
            return cls(tensors, [])
        return cls([logits], [tensor for tensor in tensors if tensor is not logits])

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, the likely logits first."""
        return [*self.likely, *self.others]


def first_tensor(value: Any) -> Tensor | None:
    """Return the tensor itself, or the first tensor inside a tuple, list or mapping.

    >>> first_tensor((None, {"logits": torch.ones(1)})).item()
    1.0
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            tensor = first_tensor(item)
            if tensor is not None:
                return tensor
    return None


# Labels


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
    return labels.long() if labels.dtype in CONVERTED_INTEGERS else labels


def class_numbers(labels: Sequence[Any], names: Sequence[str] | None) -> Tensor:
    """Return the class number of each class name: its position in `names`."""
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
    """Convert labels 0.0 and 1.0, which binary losses need, to integers; leave others unchanged.

    >>> binary_labels(torch.tensor([[0.0], [1.0]])).tolist()
    [0, 1]
    """
    single = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    is_binary = single.ndim == 1 and bool(((single == 0) | (single == 1)).all())
    return single.long() if is_binary else labels


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
    """Raise if labels='next' is wrong: each sequence has one label, or labels are already shifted.

    >>> require_unshifted(torch.tensor([[5, 7, 9]]), torch.tensor([[3, 5, 7]]), -100)
    Traceback (most recent call last):
    nclab.errors.DataError: Expected labels at their own tokens, because of labels='next'; got \
labels that are already shifted to the next token. Omit labels='next'.
    """
    if labels.ndim < 2:
        raise DataError(
            f"Expected labels of shape (B, T), one for each token, because of labels='next'; got "
            f"shape {tuple(labels.shape)}. Omit labels='next' if a whole sequence has one label."
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
    for by_token, inputs, counted in layouts:
        shifted = (by_token[..., :-1] == inputs[..., 1:])[counted[..., :-1]]
        if len(shifted) and bool(shifted.all()):
            raise DataError(
                "Expected labels at their own tokens, because of labels='next'; got labels that "
                "are already shifted to the next token. Omit labels='next'."
            )


class ModelLoss(NamedTuple):
    """Rules by which a model's own loss uses the labels, and the value of this loss.

    Causal language models are called with labels that repeat their inputs, and compare the logits
    of a token with the label of the next token. Few of these models apply the attention mask to the
    loss: a padded token counts unless its label is `ignore_index`.
    """

    shifted: bool = False
    """Whether the logits of a token belong to the label of the next token."""
    loss: float | None = None
    """Mean loss; None if the model returned no loss that is a cross-entropy of its logits."""
    masked: bool = True
    """Whether the loss skips padded tokens."""
    repeats: bool = False
    """Whether the labels equal the input tokens, and nothing shows that the model shifts labels."""


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

    If the output has a loss, the cross-entropy is computed with and without a shift of the labels
    and with and without padded tokens; the combination nearest to the model's loss is returned.
    Without a loss, padded tokens (0 in `mask`) are skipped. The labels then count as shifted if the
    model is a causal language model and was called with labels, or if `labels` equal its tokens.
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
    """Return a warning if the model's loss counts padded tokens, else None.

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
    """Return a warning if the measured loss differs from the model's own loss, else None.

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

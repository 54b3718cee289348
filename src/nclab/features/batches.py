"""What a loader yields: inputs for the model, labels, and perhaps a mask of real tokens."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from nclab.errors import DataError

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
TOKENS = "input_ids"
"""Under which a mapping has its tokens."""
WHOLE = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
"""Types of whole numbers that torch does not index, compare or sort by everywhere."""


class Batch(NamedTuple):
    """One batch, ready for `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Tensor
    mask: Tensor | None
    """(B, T) 1 for real tokens, from `attention_mask`."""

    def tensors(self) -> list[Tensor]:
        """The tensors that enter the model, also those inside lists and mappings."""
        return list(_tensors([self.args, self.kwargs]))


def split_batch(
    batch: Any,
    device: torch.device,
    names: tuple[str, ...] | None = None,
    *,
    tokens: bool = False,
) -> Batch:
    """Inputs and labels of (x, y), (x1, x2, y) or a mapping with labels, moved to `device`.

    With `names` of the classes the labels may be names. With `tokens` the labels may be left out:
    they are the tokens.

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
    """As `split_batch`, with every tensor where it is.

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
    known = isinstance(mask, Tensor) and mask.ndim == 2
    return Batch(args, kwargs, as_label_tensor(labels, names), mask if known else None)


def known_labels(loader: Any, names: tuple[str, ...] | None = None) -> Tensor | None:
    """All labels that a loader will give, where they are at hand before it has run.

    In a list of batches, or in a data set that keeps them (`TensorDataset`, `.targets`) and is
    read whole.

    >>> known_labels([(torch.zeros(2, 3), torch.tensor([0, 1]))]).tolist()
    [0, 1]
    """
    if isinstance(loader, (list, tuple)):
        try:
            parts = [split_in_place(batch, names).labels.flatten() for batch in loader]
        except DataError:
            return None  # the pass says what is wrong, and where
        return torch.cat(parts) if parts else None
    if not isinstance(loader, DataLoader) or loader.drop_last or loader.batch_sampler is None:
        return None
    sampler: Any = loader.sampler
    data: Any = loader.dataset
    whole = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(data)
    )
    held = data.tensors[-1] if isinstance(data, TensorDataset) else getattr(data, "targets", None)
    if not whole or not isinstance(held, (Tensor, np.ndarray, list)):
        return None
    try:
        labels = as_label_tensor(held, names)
    except DataError:
        return None
    return labels if len(labels) == len(data) and labels.ndim == 1 else None


def split_strictly(
    batch: Any, names: tuple[str, ...] | None = None, *, tokens: bool = False
) -> Batch:
    """As `split_in_place`, but refuses to guess which of several parts are the labels.

    >>> split_strictly((torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([7, 8])))
    Traceback (most recent call last):
    nclab.errors.DataError: Expected batches of (inputs, labels), got 3 parts of which 2 may be
    the labels. Say which: labels=lambda batch: batch[1].
    """
    parts = split_in_place(batch, names, tokens=tokens)
    others = [part for part in parts.args[1:] if isinstance(part, Tensor)]
    alike = [p for p in others if p.shape == parts.labels.shape and not p.is_floating_point()]
    if alike and parts.labels.ndim == 1:
        raise DataError(
            f"Expected batches of (inputs, labels), got {len(batch)} parts of which "
            f"{len(alike) + 1} may be the labels. Say which: labels=lambda batch: batch[1]."
        )
    return parts


def as_label_tensor(values: Any, names: tuple[str, ...] | None = None) -> Tensor:
    """Labels of a batch as a tensor; names of classes as their numbers.

    >>> as_label_tensor(["dog", "cat"], ("cat", "dog")).tolist()
    [1, 0]
    """
    if is_text(values):
        return numbered(list(values.flat if isinstance(values, np.ndarray) else values), names)
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


def numbered(labels: Sequence[Any], names: Sequence[str] | None) -> Tensor:
    """The numbers of classes that are given by their names."""
    if names is None:
        raise DataError(
            f"Expected integer labels, got a list of names such as {str(labels[0])!r}. Pass "
            "class_names= all of them, in the order of the classifier's outputs."
        )
    numbers = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if str(label) not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"Expected labels among class_names {', '.join(names[:5])}{', …' * (len(names) > 5)}; "
            f"got {str(unknown)!r}."
        )
    return torch.tensor([numbers[str(label)] for label in labels])


def two_classes(labels: Tensor) -> Tensor:
    """Labels 0.0 and 1.0, as binary losses take them, as class numbers; others as they are.

    >>> two_classes(torch.tensor([[0.0], [1.0]])).tolist()
    [0, 1]
    """
    single = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if single.ndim == 1 and bool(((single == 0) | (single == 1)).all()):
        return single.long()
    return labels


def is_text(values: Any) -> bool:
    """Whether labels are names of classes."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "UO" and values.size > 0 and isinstance(values.flat[0], str)
    return isinstance(values, (list, tuple)) and bool(values) and isinstance(values[0], str)


def _with_labels(batch: Any) -> Any:
    """A batch of tokens alone with the tokens as labels, others as they are."""
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

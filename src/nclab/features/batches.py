"""Batches of a loader: inputs for the model, labels, and perhaps a mask of real tokens."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset

from nclab.errors import DataError
from nclab.features.labels import LABEL_KEYS, TOKENS, as_label_tensor


class Batch(NamedTuple):
    """One batch, ready for `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Tensor
    mask: Tensor | None
    """(B, T) 1 for real tokens, from `attention_mask`."""

    def tensors(self) -> list[Tensor]:
        """Return the tensors that enter the model, those inside lists and mappings included."""
        return list(_tensors([self.args, self.kwargs]))


def split_batch(
    batch: Any,
    device: torch.device,
    names: tuple[str, ...] | None = None,
    *,
    tokens: bool = False,
) -> Batch:
    """Split (x, y), (x1, x2, y) or a mapping with labels into inputs and labels on `device`.

    Given the `names` of the classes, labels may be names. If `tokens` is true, a batch may omit
    its labels, which are then its tokens.

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
    """Return the labels in a batch, and the mask of real tokens.

    A `function` takes the labels from batches of other kinds. Without one, the batch is split as by
    `split_in_place`; raise if several parts may be the labels.

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

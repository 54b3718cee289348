"""The public door of every stream: features and labels are checked here, once."""

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.errors import DataError

IGNORE_INDEX = -100
"""The label PyTorch's losses skip by default; so do we."""
OR_SOFT = ", or pass soft=True to measure their loss, too"
"""What else can be done with one-hot rows, where they are not in shards."""
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
HUGE = 1e150
"""Features beyond this, or all below its inverse, have squares that float64 cannot hold."""


def as_features(values: Any, *, dim: int | None = None, first_row: int = 0) -> Tensor:
    """A finite floating-point tensor of shape (B, d), not copied where that can be avoided.

    `first_row` is the position of the first row in the whole stream, for the error message.
    Costs one read of the data.
    """
    features = as_tensor(values, "features")
    if not features.dtype.is_floating_point:
        raise DataError(
            f"Expected floating-point features, got {_name(features)}. "
            "Convert them, for example with features.float()."
        )
    if features.ndim != 2:
        raise DataError(
            f"Expected features of shape (samples, dimension), got {tuple(features.shape)}. "
            "Flatten or pool every sample to one vector."
        )
    if dim is not None and features.shape[1] != dim:
        raise DataError(f"Expected features of dimension {dim}, got {features.shape[1]}.")
    # One cheap reduction answers for almost all data; only a suspicious sum is looked into.
    total = float(features.sum(dtype=torch.float32))
    if not math.isfinite(total):
        _refuse_non_finite(features, first_row)
    if features.dtype == torch.float64 and (total == 0 or not math.isfinite(total)):
        _refuse_extremes(features)
    return features


def finite_rows(rows: Tensor) -> Tensor | None:
    """(B,) which rows `as_features` would pass; None, after one cheap sum, if all of them.

    >>> finite_rows(torch.tensor([[1.0, 2.0], [1.0, torch.nan]])).tolist()
    [True, False]
    """
    total = rows.sum(dtype=torch.float32)
    if bool(torch.isfinite(total)) and rows.dtype != torch.float64:
        return None
    usable = torch.isfinite(rows).all(1)
    if rows.dtype == torch.float64:
        usable &= (rows.abs() <= HUGE).all(1)
    return None if bool(usable.all()) else usable


def as_labels(
    values: Any, *, rows: int, ignore_index: int | None, num_classes: int | None = None
) -> Tensor:
    """Integer labels of shape (B,) in [0, C) or equal to `ignore_index`, as int64."""
    labels = as_tensor(values, "labels")
    if labels.numel() == 0:
        labels = labels.long()  # an empty list has no type of its own
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise DataError(
            f"Expected integer labels, got {_name(labels)}. Convert class numbers with "
            f"labels.long(); one-hot rows with labels.argmax(1){OR_SOFT}."
        )
    if labels.ndim != 1:
        raise DataError(
            f"Expected labels of shape (samples,), got {tuple(labels.shape)}. "
            f"Pass one class number per feature vector; of one-hot rows labels.argmax(1){OR_SOFT}."
        )
    if len(labels) != rows:
        raise DataError(f"Expected one label per feature vector, got {len(labels)} for {rows}.")
    labels = labels.long()
    if rows == 0:
        return labels
    used = labels if ignore_index is None else labels[labels != ignore_index]
    if used.numel() == 0:
        return labels
    low, high = (int(bound) for bound in torch.aminmax(used))
    if low < 0:
        raise DataError(
            f"Expected labels from 0 upwards, got {low}. "
            f"Pass ignore_index={low} if it marks samples to leave out."
        )
    if num_classes is not None and high >= num_classes:
        raise DataError(
            f"Expected labels in [0, {num_classes}), got {high}. Pass num_classes={high + 1}."
        )
    return labels


def check_sizes(num_classes: int, dim: int) -> None:
    """Refuse what has no geometry: fewer than two classes, or a line with more than two."""
    check_whole("classes", num_classes)
    check_whole("dimensions", dim)
    if num_classes < 2:
        raise DataError(
            f"Expected at least 2 classes, got {num_classes}. "
            "Neural collapse compares classes; check the labels."
        )
    if dim < 1:
        raise DataError(f"Expected features of dimension 1 or more, got {dim}.")
    if dim == 1 and num_classes > 2:
        raise DataError(
            f"Expected features of dimension 2 or more for {num_classes} classes, got 1. "
            "On a line every angle is 0 or 180 degrees."
        )


def check_whole(name: str, size: Any) -> None:
    """Refuse a size that is no integer, such as 4.0 or "4"."""
    if not isinstance(size, Integral):
        raise DataError(f"Expected a whole number of {name}, got {size!r}.")


def check_ignored(ignore_index: Any) -> None:
    """Refuse a label to skip that is no class number, such as nan or a name."""
    if ignore_index is not None and not isinstance(ignore_index, Integral):
        raise DataError(
            f"Expected ignore_index as a whole number, or None for no such label, got "
            f"{ignore_index!r}."
        )


def as_tensor(values: Any, what: str) -> Tensor:
    """A tensor that shares memory with `values` where it can; `what` is for the message.

    Labels of unsigned types that torch does not compute with are taken as int64.
    """
    tensor = _as_tensor(values, what)
    return _signed(tensor) if what == "labels" and tensor.dtype in UNSIGNED else tensor


def _signed(labels: Tensor) -> Tensor:
    signed = labels.long()
    if labels.dtype == torch.uint64 and bool((signed < 0).any()):
        largest = int(labels.cpu().numpy().max())
        raise DataError(f"Expected class numbers as labels, got {largest}.")
    return signed


def _as_tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        if values.is_nested or values.layout is not torch.strided or values.is_meta:
            raise DataError(f"Expected dense {what}, got a sparse, nested or meta tensor.")
        return values.detach()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"Expected {what} without masked entries. Leave out the samples they hide.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"Expected {what} as one array, got rows of different lengths.") from error
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise DataError(f"Expected numeric {what}, got an array of {array.dtype}.")
    foreign = array.dtype.byteorder == ">" or min(array.strides, default=0) < 0
    if foreign or not array.flags.writeable:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _refuse_non_finite(features: Tensor, first_row: int) -> None:
    for start in range(0, len(features), 4096):
        block = features[start : start + 4096]
        bad = ~torch.isfinite(block)
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise DataError(
                f"Expected finite features, got {float(block[row, column])} in row "
                f"{first_row + start + row}, column {column}. Remove or mend that sample."
            )


def _refuse_extremes(features: Tensor) -> None:
    """Squares must neither overflow nor vanish; only float64 can hold numbers that would."""
    largest = float(features.abs().max()) if features.numel() else 0.0
    if largest > HUGE or 0 < largest < 1 / HUGE:
        raise DataError(
            f"Expected features between {1 / HUGE:g} and {HUGE:g} in size, got {largest:.3g}. "
            "Rescale them: every metric but the norms and the loss stays the same."
        )

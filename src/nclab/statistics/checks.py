"""Checks of features and labels; every stream calls them once for each batch."""

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.errors import DataError

IGNORE_INDEX = -100
"""Default label of samples to skip, as in PyTorch's losses."""
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
HUGE = 1e150
"""Largest absolute value of a feature. Squares of larger numbers overflow in float64, and squares
of numbers below 1 / HUGE vanish."""


def as_features(values: Any, *, dim: int | None = None, first_row: int = 0) -> Tensor:
    """Return the values as a finite floating-point tensor (B, d), without a copy if possible.

    Costs one read of the data.

    Args:
        dim: the expected dimension; None accepts any.
        first_row: position of the first row in the whole stream, for the error message.
    """
    features = as_tensor(values, "features")
    if not features.dtype.is_floating_point:
        raise DataError(
            f"Expected floating-point features, got {_type_name(features)}. "
            "Convert them, for example with features.float()."
        )
    if features.ndim != 2:
        raise DataError(
            f"Expected features of shape (samples, dimension), got {tuple(features.shape)}. "
            "Flatten or pool every sample to one vector."
        )
    if dim is not None and features.shape[1] != dim:
        raise DataError(
            f"Expected features of dimension {dim}, got {features.shape[1]}. "
            "All batches must have the same dimension."
        )
    # The sum is cheap and finite for almost all data; only other data are searched.
    total = float(features.sum(dtype=torch.float32))
    if not math.isfinite(total):
        _reject_non_finite(features, first_row)
    if features.dtype == torch.float64 and (total == 0 or not math.isfinite(total)):
        _reject_extremes(features)
    return features


def finite_rows(rows: Tensor) -> Tensor | None:
    """Return a (B,) mask of the rows that `as_features` accepts, or None if it accepts all.

    Costs one sum if all rows are finite.

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
    """Return (B,) int64 labels, each in [0, C) or equal to `ignore_index`."""
    labels = as_tensor(values, "labels")
    if labels.numel() == 0:
        labels = labels.long()  # An empty list becomes a float tensor.
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        raise DataError(
            f"Expected integer labels, got {_type_name(labels)}. Convert class numbers with "
            f"labels.long(); convert one-hot rows with labels.argmax(1)."
        )
    if labels.ndim != 1:
        raise DataError(
            f"Expected labels of shape (samples,), got {tuple(labels.shape)}. Pass one class "
            f"number per feature vector; for one-hot rows pass labels.argmax(1)."
        )
    if len(labels) != rows:
        raise DataError(
            f"Expected one label per feature vector, got {len(labels)} labels for {rows} "
            "feature vectors. Check that features and labels belong to the same samples."
        )
    labels = labels.long()
    if rows == 0:
        return labels
    used = labels if ignore_index is None else labels[labels != ignore_index]
    if used.numel() == 0:
        return labels
    smallest, largest = (int(bound) for bound in torch.aminmax(used))
    if smallest < 0:
        raise DataError(
            f"Expected labels from 0 upwards, got {smallest}. "
            f"Pass ignore_index={smallest} if this label marks samples to skip."
        )
    if num_classes is not None and largest >= num_classes:
        raise DataError(
            f"Expected labels in [0, {num_classes}), got {largest}. Pass num_classes={largest + 1}."
        )
    return labels


def check_sizes(num_classes: int, dim: int) -> None:
    """Raise if there are fewer than two classes, or more than two classes in one dimension."""
    check_integer("classes", num_classes)
    check_integer("dimensions", dim)
    if num_classes < 2:
        raise DataError(
            f"Expected at least 2 classes, got {num_classes}. "
            "Neural collapse compares classes; check the labels."
        )
    if dim < 1:
        raise DataError(f"Expected features of dimension 1 or more, got {dim}. Check the features.")
    if dim == 1 and num_classes > 2:
        raise DataError(
            f"Expected features of dimension 2 or more for {num_classes} classes, got 1. "
            "On a line every angle is 0 or 180 degrees."
        )


def check_integer(name: str, size: Any) -> None:
    """Raise if `size` is not an integer, such as 4.0 or "4"; `name` is for the message."""
    if not isinstance(size, Integral):
        raise DataError(f"Expected a whole number of {name}, got {size!r}. Pass an integer.")


def check_ignore_index(ignore_index: Any) -> None:
    """Raise if `ignore_index` is neither an integer nor None."""
    if ignore_index is not None and not isinstance(ignore_index, Integral):
        raise DataError(
            f"Expected ignore_index as a whole number, or None to skip no sample, got "
            f"{ignore_index!r}."
        )


def as_tensor(values: Any, name: str) -> Tensor:
    """Return the values as a tensor that shares their memory where possible.

    `name` is for the error message. If it is "labels", unsigned integers become int64, because
    torch does not compute with all unsigned types.
    """
    tensor = _as_tensor(values, name)
    if name != "labels" or tensor.dtype not in UNSIGNED:
        return tensor
    signed = tensor.long()
    if tensor.dtype == torch.uint64 and bool((signed < 0).any()):
        largest = int(tensor.cpu().numpy().max())
        raise DataError(
            f"Expected class numbers as labels, got {largest}. Map the classes to 0, 1, 2, ..."
        )
    return signed


def _as_tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        if values.is_nested or values.layout is not torch.strided or values.is_meta:
            raise DataError(
                f"Expected dense {name}, got a sparse, nested or meta tensor. "
                "Convert it to a dense tensor."
            )
        return values.detach()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"Expected {name} without masked entries. Remove the masked samples.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(
            f"Expected {name} as one array, got rows of different lengths. "
            "Pad or pool them to the same length."
        ) from error
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise DataError(
            f"Expected numeric {name}, got an array of {array.dtype}. Convert it to numbers."
        )
    foreign = array.dtype.byteorder == ">" or min(array.strides, default=0) < 0
    if foreign or not array.flags.writeable:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _reject_non_finite(features: Tensor, first_row: int) -> None:
    """Raise an error that names the first entry that is nan or infinite, if there is one."""
    for start in range(0, len(features), 4096):
        block = features[start : start + 4096]
        bad = ~torch.isfinite(block)
        if bad.any():
            row, column = (int(i) for i in bad.nonzero()[0])
            raise DataError(
                f"Expected finite features, got {float(block[row, column])} in row "
                f"{first_row + start + row}, column {column}. Remove or correct that sample."
            )


def _reject_extremes(features: Tensor) -> None:
    """Raise if squares of the features overflow or vanish, which only float64 input can cause."""
    largest = float(features.abs().max()) if features.numel() else 0.0
    if largest > HUGE or 0 < largest < 1 / HUGE:
        raise DataError(
            f"Expected features between {1 / HUGE:g} and {HUGE:g} in absolute value, got "
            f"{largest:.3g}. Rescale them: this changes no metric except the norms and the loss."
        )

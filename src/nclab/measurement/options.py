"""Options of a measurement, checked once where a user passes them."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse, Report
from nclab.metrics.catalogue import Metric, selected_extras
from nclab.statistics import ClassMoments
from nclab.statistics.checks import HUGE, IGNORE_INDEX, as_tensor, check_ignore_index, check_integer
from nclab.statistics.moments import require_samples
from nclab.statistics.second_pass import ReferencePass

CACHE_BYTES = 2**30
"""Default memory for features that are kept for the second pass."""
SCATTER_LIMIT = 4096
"""Largest dimension for which the d x d scatter is kept by default (128 MiB)."""
GROUPS = 10
"""Default number of groups of the jackknife."""
FEWEST_GROUPS, MOST_GROUPS = 5, 1000
MOST_CLASSES = 2**24
"""Largest number of classes for which all labels are counted before the first pass."""

Reference = Collapse | ClassMoments
"""Training data whose class means other data are compared with."""
ClassNames = Sequence[str] | Mapping[int, str] | Mapping[str, str] | None
"""Names in the order of the class numbers, or a mapping from number to name such as
`config.id2label`. The numbers may be text, as in JSON."""


@dataclass(frozen=True)
class MeasureOptions:
    """Options that all ways of measuring share; `checked` makes them from a user's arguments."""

    num_classes: int | None = None
    """Number of classes, if neither the classifier nor the labels determine it."""
    ignore_index: int | None = IGNORE_INDEX
    """Label of rows to skip."""
    min_count: int | None = None
    """Classes with fewer samples are left out."""
    second_pass: bool = True
    """Whether to read the features twice, for the metrics that need the class means first."""
    scatter: bool | None = None
    """Whether to keep the d x d scatter; None keeps it up to `SCATTER_LIMIT` dimensions."""
    cache_bytes: int = CACHE_BYTES
    """Memory for batches that are kept for the second pass."""
    class_names: tuple[str, ...] | None = None
    reference: Reference | Report | None = None
    """Training data whose class means these data are compared with."""
    extra_metrics: tuple[Metric, ...] = ()
    """Metrics beyond those of every measurement."""
    groups: int = 0
    """Groups of the jackknife for intervals; 0 for no intervals."""
    all_residuals: bool = False
    """Whether to keep the residual sums of `LogitStatistics` for more classes than by default."""

    @classmethod
    def checked(
        cls,
        *,
        metrics: str | Sequence[str] = "default",
        intervals: bool | int = False,
        class_names: ClassNames = None,
        **options: Any,
    ) -> "MeasureOptions":
        """Return the options for arguments of a public function; raise if one is wrong."""
        groups = GROUPS if intervals is True else intervals
        valid = isinstance(groups, int) and FEWEST_GROUPS <= groups <= MOST_GROUPS
        if groups is not False and not valid:
            raise DataError(
                f"Expected intervals=True or from {FEWEST_GROUPS} to {MOST_GROUPS} groups, "
                f"got {intervals!r}."
            )
        checked = cls(
            class_names=as_class_names(class_names),
            extra_metrics=selected_extras(metrics),
            groups=int(groups),
            all_residuals=metrics == "all",
            **options,
        )
        checked._check()
        return checked

    def _check(self) -> None:
        if self.num_classes is not None:
            check_integer("classes", self.num_classes)
        check_ignore_index(self.ignore_index)
        if not isinstance(self.cache_bytes, int) or self.cache_bytes < 0:
            raise DataError(f"Expected cache_bytes of at least 0, got {self.cache_bytes!r}.")
        check_min_count(self.min_count)
        if self.groups and (self.min_count or 0) > 1:
            raise DataError(
                f"Expected min_count without intervals, got intervals={self.groups}. Omit one of "
                "them."
            )
        check_count(self.class_names, self.num_classes, "classes of num_classes")

    @property
    def missing_allowed(self) -> bool:
        """Whether classes may lack samples, because of `min_count` or a reference."""
        return self.reference is not None or self.min_count is not None

    def class_count(self, head: "Head | None") -> int | None:
        """Return the number of classes from classifier, names or option; None if unknown."""
        if head is not None:
            return len(head.weight)
        return self.num_classes if self.class_names is None else len(self.class_names)

    def keeps_scatter(self, dim: int) -> bool:
        """Whether the d x d scatter of features in dimension `dim` is kept."""
        return dim <= SCATTER_LIMIT if self.scatter is None else self.scatter

    def check_memory(self, classes: int, dim: int) -> None:
        """Raise if a layer of this size needs more memory than the machine has."""
        arrays = 8 + 3 * self.second_pass  # of C x d: sums, means and work; the second pass
        scatter = 2 * dim * dim if self.keeps_scatter(dim) else 0
        group = 10 * classes * dim + scatter  # two sets of moments and a second pass
        needed = 8 * (arrays * classes * dim + scatter + self.groups * group)
        if needed > machine_memory():
            raise DataError(
                f"Expected a measurement that fits into the {machine_memory() / 1e9:.3g} GB of "
                f"this machine, but {classes} classes in dimension {dim} take {needed / 1e9:.3g} "
                "GB. Map labels that are ids to 0, 1, 2, …; or pass second_pass=False, and measure "
                "without intervals."
            )

    def reference_pass(self, layer: str | None = None) -> ReferencePass | None:
        """Return an empty `ReferencePass`; it compares features with the reference's class means.

        From a report, nclab takes the class means of the layer with the same name. If both data
        sets have class names, classes with the same name are compared, whatever their numbers are.
        """
        reference = self.reference
        if isinstance(reference, Report):
            reference = reference[str(layer)]
        if isinstance(reference, Collapse):
            numbers = torch.tensor(self._numbers_of(reference))
            order = numbers.argsort()
            moments = reference.moments
            if not torch.equal(order, torch.arange(len(order))):
                moments = moments.select(order.to(moments.device))
            return ReferencePass(moments, numbers[order])
        if reference is None or isinstance(reference, ClassMoments):
            return None if reference is None else ReferencePass(reference)
        raise DataError(
            f"Expected reference= a measurement of nclab or ClassMoments, got a "
            f"{type(reference).__name__}."
        )

    def _numbers_of(self, reference: Collapse) -> list[int]:
        """Return the numbers that the classes of the reference have in these data."""
        names = self.class_names
        if reference.class_names is None or names is None:
            return list(reference.classes)
        unknown = [name for name in reference.class_names if name not in names]
        if unknown:
            raise DataError(
                f"Expected a reference with the same classes, got one with {unknown[0]!r}, which "
                "is not in class_names."
            )
        return [names.index(name) for name in reference.class_names]


@cache
def machine_memory() -> float:
    """Return the memory of this machine in bytes; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf


def check_min_count(min_count: Any) -> None:
    """Raise if `min_count` is neither None nor a positive integer."""
    if min_count is None:
        return
    if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 1:
        raise DataError(f"Expected min_count=1 or more samples per class, got {min_count!r}.")


# Names of classes


def as_class_names(names: ClassNames) -> tuple[str, ...] | None:
    """Return class names in the order of the class numbers.

    >>> as_class_names({1: "dog", 0: "cat"})
    ('cat', 'dog')
    """
    if names is None:
        return None
    if isinstance(names, Mapping):
        by_number = dict[object, str]()
        for key, name in names.items():
            by_number[int(key) if isinstance(key, str) and key.isdecimal() else key] = name
        if set(by_number) != set(range(len(names))):
            raise DataError(
                f"Expected class_names of the numbers 0 to {len(names) - 1}, got "
                f"{', '.join(map(repr, list(names)[:10]))}. Pass {{number: name}}, or a list of "
                "the names in order."
            )
        names = [by_number[number] for number in range(len(names))]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise DataError(
            f"Expected class_names= a list with one name per class, got a {type(names).__name__}."
        )
    in_order = tuple(str(name) for name in names)
    if len(set(in_order)) < len(in_order) or len(in_order) < 2:
        repeated = next((name for name in in_order if in_order.count(name) > 1), "")
        raise DataError(
            f"Expected class_names= at least 2 different names, got "
            f"{f'{repeated!r} twice' if repeated else len(in_order)}."
        )
    return in_order


def check_count(names: tuple[str, ...] | None, count: int | None, kind: str) -> None:
    """Raise if the number of names is not the number of classes.

    >>> check_count(("cat", "dog"), 3, "rows of weight")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a name for each of the 3 rows of weight, got 2 class_names.
    """
    if names is not None and count is not None and len(names) != count:
        raise DataError(
            f"Expected a name for each of the {count} {kind}, got {len(names)} class_names."
        )


def check_labels(names: tuple[str, ...] | None, labels: Tensor, ignore_index: int | None) -> None:
    """Raise if a label has no name. The measurement itself raises for other errors in labels."""
    numeric = not (labels.dtype.is_floating_point or labels.dtype.is_complex)
    if names is None or not numeric or not labels.numel():
        return
    highest = int(labels.max())
    if highest >= len(names) and highest != ignore_index:
        raise DataError(
            f"Expected a name for every class, got {len(names)} class_names and the label "
            f"{highest}. Pass at least {highest + 1} class_names."
        )


def require_known_classes(labels: Tensor, classes: int | None, ignore_index: int | None) -> None:
    """Raise if a class below `classes` (by default the largest label + 1) has no samples.

    Called before the first pass, to raise early. The pass itself raises for other errors in labels.
    """
    if labels.dtype.is_floating_point or labels.dtype.is_complex:
        return
    used = labels if ignore_index is None else labels[labels != ignore_index]
    if not used.numel() or int(used.min()) < 0:
        return
    largest = int(used.max())
    classes = classes or largest + 1
    if max(1, largest) < classes <= MOST_CLASSES:
        require_samples(used.long().flatten().bincount(minlength=classes))


# Classifier


class Head(NamedTuple):
    """The linear classifier that reads a layer: logits = W h + b, in float64."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def checked(cls, weight: Any, bias: Any, num_classes: int | None) -> "Head":
        """Return a classifier of (C, d) weights and (C,) biases; raise if they are wrong."""
        rows = _finite_array(weight, "weight", "(classes, dimension)", ndim=2)
        if len(rows) < 2:
            raise DataError(
                f"Expected weight with one row per class, got {len(rows)}. For a sigmoid "
                "classifier with weight w pass the rows 0 and w."
            )
        if num_classes is not None and len(rows) != num_classes:
            raise DataError(
                f"Expected weight with one row per class, {num_classes}, got {len(rows)}. "
                "A (dimension, classes) matrix must be transposed."
            )
        if bias is None:
            return cls(rows, None)
        offset = _finite_array(bias, "bias", "(classes,)", ndim=1)
        if len(offset) != len(rows):
            raise DataError(f"Expected bias of shape ({len(rows)},), got ({len(offset)},).")
        return cls(rows, offset)

    @classmethod
    def optional(cls, weight: Any, bias: Any, num_classes: int | None) -> "Head | None":
        """Return the classifier, or None without a weight; raise for a bias alone."""
        if weight is None and bias is not None:
            raise DataError("Expected weight together with bias, got bias alone. Pass both.")
        return None if weight is None else cls.checked(weight, bias, num_classes)

    def check_dim(self, dim: int) -> None:
        """Raise unless this classifier reads features of dimension `dim`."""
        if self.weight.shape[1] != dim:
            raise DataError(
                f"Expected weight of shape (classes, {dim}) for features of dimension {dim}, "
                f"got {tuple(self.weight.shape)}. Transpose weight, or pass "
                "features of the layer that it reads."
            )

    def to(self, device: torch.device) -> "Head":
        """Return this classifier on a device."""
        bias = None if self.bias is None else self.bias.to(device)
        return Head(self.weight.to(device), bias)

    def logits(self, block: Tensor) -> Tensor:
        """Return the (B, C) logits of float64 rows."""
        if self.bias is None:
            return block @ self.weight.T
        return torch.addmm(self.bias, block, self.weight.T)


def _finite_array(values: Any, name: str, shape: str, *, ndim: int) -> Tensor:
    """Return a finite float64 tensor with `ndim` dimensions."""
    tensor = as_tensor(values, name)
    if tensor.dtype.is_complex:
        raise DataError(f"Expected real {name}, got complex numbers.")
    tensor = tensor.double()
    if tensor.ndim != ndim:
        raise DataError(f"Expected {name} of shape {shape}, got {tuple(tensor.shape)}.")
    if not torch.isfinite(tensor).all():
        index = [int(i) for i in (~torch.isfinite(tensor)).nonzero()[0]]
        raise DataError(f"Expected finite {name}, got {float(tensor[tuple(index)])} at {index}.")
    if tensor.numel() and float(tensor.abs().max()) > HUGE:
        raise DataError(
            f"Expected {name} below {HUGE:g} in absolute value. Rescale features and weights."
        )
    return tensor


def reject_one_hot(labels: Tensor, error: Exception | None = None) -> None:
    """Raise if labels look like one-hot rows; the message begins with that of `error`, if given."""
    if labels.ndim < 2 or labels.shape[-1] < 2:
        return
    if not labels.is_floating_point():
        one_hot = bool((labels.sum(-1) == 1).all()) and int(labels.min()) == 0
        if not one_hot:
            return
    first = error or (
        f"Expected class numbers as labels, got {labels.dtype} of shape {tuple(labels.shape)}."
    )
    raise DataError(f"{first} One-hot labels? Pass labels.argmax(-1).") from error

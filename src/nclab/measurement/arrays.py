"""measure_features: the door for arrays and for batches of features."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from nclab.errors import DataError
from nclab.features.labels import as_label_tensor, has_class_names, row_labels
from nclab.measurement.asked import Asked, check_min_count
from nclab.measurement.class_names import (
    ClassNames,
    as_class_names,
    check_count,
    check_labels,
    named,
)
from nclab.measurement.collapse import Collapse
from nclab.measurement.held_out import NO_WEIGHT, Reference, look_against
from nclab.measurement.layer_stream import CACHE_BYTES, Cache, Head, LayerStream, check_cache
from nclab.measurement.memory import Budget, Memory, as_bytes
from nclab.measurement.soft_labels import split_soft
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX, as_tensor, check_ignore_index, check_integer
from nclab.statistics.sums import require_samples

SLICE = 2**16
MOST_CLASSES = 2**24
"""Up to this many classes labels are counted before the pass."""


def measure_features(
    features: Any,
    labels: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: int | None = None,
    ignore_index: int | None = IGNORE_INDEX,
    next_tokens: bool = False,
    allow_missing: bool = False,
    min_count: int | None = None,
    second_pass: bool = True,
    scatter: bool | None = None,
    cache_bytes: int = CACHE_BYTES,
    reference: Reference | None = None,
    class_names: ClassNames = None,
    soft: bool = False,
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    null: bool = False,
    memory: Memory = None,
) -> Collapse:
    """Measure the neural collapse of features with labels, and of the classifier that reads them.

    `features` and `labels` are arrays or tensors of shape (N, d) and (N,), or hidden states
    (B, T, d) with a label for each token, (B, T); or `features` alone is an iterable of such
    pairs. One pass gives the moments, the loss side and the metrics of
    means and weights. The second pass (centred cosines, nearest class centres,
    `nc1_within_variation`) reads arrays again, batches from a cache of `cache_bytes` or, when
    they do not fit, by iterating a second time.

    Costs, beyond reading: half a float64 GEMM N x d x d for `nc1_trace_pinv`, a float64 one
    N x d x C for the loss side and one or two in float32 for the second pass. Memory
    O(C d + d^2), N decisions and the cache.

    Args:
        weight: (C, d) classifier rows; `bias` (C,) only together with it.
        num_classes: C where neither the weight nor the largest label tells it.
        ignore_index: label of rows to skip.
        next_tokens: the labels (B, T) are the tokens themselves: that of a row is the next one.
        allow_missing: leave out classes without samples instead of refusing.
        min_count: leave out classes with fewer samples than this, and say so; 1 for those with
            none.
        second_pass: False for the one-pass metrics alone.
        scatter: keep the d x d scatter; by default up to d = 4096.
        reference: a measurement, or ClassMoments, of the training data: adds how these features
            lie around its class means. Classes may then be missing here.
        class_names: in the order of the class numbers, for tables and pictures; with them labels
            may be names, too.
        soft: the labels are (N, C) distributions over the classes; the loss is that of these.
        metrics: "all" adds those of `nclab.metrics.catalogue.EXTRAS`, a list only those it names.
        intervals: a 95 % interval for every scalar by a jackknife over 10 random groups of samples,
            or as many as it says; costs about that many measurements, and the moments of two
            sets of groups in memory. See `nclab.measurement.intervals`.
        null: also the same scalars with the labels shuffled; costs a second measurement.
        memory: what this may use beside the features, such as "8GB". A plan beyond it is refused
            before anything is read, in a line that says what would fit; batches are cached in what
            is left. A plan of 1 GiB or more is said in any case, by a warning.

    >>> import torch
    >>> corners = torch.tensor([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    >>> collapse = measure_features(corners.double().repeat(4, 1), [0, 1, 2] * 4, weight=corners)
    >>> f"{collapse.min_intra:.6f} {collapse.max_inter:.6f} {collapse.nc4_agreement}"
    '1.000000 -0.500000 1.0'
    """
    if num_classes is not None:
        check_integer("classes", num_classes)
    check_ignore_index(ignore_index)
    check_cache(cache_bytes)
    names = as_class_names(class_names)
    if (
        names is None
        and isinstance(reference, Collapse)
        and labels is not None
        and has_class_names(labels)
    ):
        names = reference.class_names  # these data may lack some
    if names is None and weight is None and labels is not None and has_class_names(labels):
        found = sorted({str(label) for label in labels})
        if len(found) < 2:
            raise DataError(f"Expected labels of at least 2 classes, got {found[0]!r} alone.")
        names = as_class_names(found)
    check_count(names, num_classes, "classes of num_classes")
    check_min_count(min_count, intervals=intervals, null=null)
    head = _head(weight, bias, num_classes)
    check_count(names, None if head is None else len(head.weight), "rows of weight")
    num_classes = len(names) if names is not None else num_classes
    classes = num_classes if head is None else len(head.weight)
    read = _Reader(names, soft, classes, ignore_index, next_tokens)
    arrays = labels is not None
    if arrays and not soft:
        features, labels = read.flat(features, read.array(labels))
        read = read._replace(next_tokens=False)
    source = _source(features, labels)
    whole = source.labels if isinstance(source, _Slices) else None
    if whole is not None:
        check_labels(names, whole, ignore_index)
    asked = Asked.checked(metrics, intervals=intervals, null=null, soft=soft, labels=whole)
    repeatable = not isinstance(source, Iterator)
    # Arrays are read again where they are; batches are kept, as making them may be dear.
    cache = Cache(cache_bytes) if second_pass and not arrays else None
    stream = LayerStream(
        num_classes=num_classes,
        head=head,
        ignore_index=ignore_index,
        scatter=scatter,
        cache=cache,
        asked=asked,
        same_order=arrays and second_pass,
    )
    stream.against = None if reference is None else look_against(reference, names)
    stream.only_known = min_count is not None
    allow_missing |= reference is not None or min_count is not None
    stream.budget = Budget(as_bytes(memory), second_pass, allow_missing)
    if whole is not None and stream.num_classes is None:
        stream.expected = _classes_in(whole, ignore_index)
    if arrays and not allow_missing:
        _require_classes(source, num_classes, head, ignore_index)
    for batch in track(source, "measuring"):
        stream.update(*read(batch))
    stream.require_classes(allow_missing=allow_missing)
    if min_count is not None and reference is None:
        stream.leave_out(min_count)
    reasons = {} if head else {"weight": NO_WEIGHT}
    if second_pass:
        if stream.cached:
            stream.look_at_cache()
        elif repeatable:
            for batch in track(source, "second pass"):
                stream.look_again(*read(batch)[:2])
            stream.finish_second_pass()
        else:
            reasons["second pass"] = (
                f"the batches exceed cache_bytes={cache_bytes} and can be read only once; "
                "pass a list or a loader, or a larger cache"
            )
    return named(stream.collapse(reasons), names)


class _Reader(NamedTuple):
    """Takes batches apart: features, class numbers and, where labels are soft, the labels."""

    names: tuple[str, ...] | None
    soft: bool
    num_classes: int | None
    ignore_index: int | None
    next_tokens: bool

    def __call__(self, batch: Any) -> tuple[Any, Any, Tensor | None]:
        features, labels = _pair(batch)
        if self.soft:
            return features, *split_soft(labels, self.num_classes)
        return *self.flat(features, self.array(labels)), None

    def flat(self, features: Any, labels: Any) -> tuple[Any, Any]:
        """Hidden states and labels of tokens as rows; others as they are."""
        rows, own = as_tensor(features, "features"), as_tensor(labels, "labels")
        if not self.next_tokens and (rows.ndim < 3 or own.ndim < 2):
            return features, labels
        if rows.ndim < 3 or own.shape != rows.shape[:-1] or own.is_floating_point():
            raise DataError(
                f"Expected hidden states (B, T, d) with labels (B, T), got shapes "
                f"{tuple(rows.shape)} and {tuple(own.shape)}. Pass a label for each token."
            )
        own = row_labels(own.long(), None, shifted=self.next_tokens, ignore_index=self.ignore_index)
        return rows.flatten(0, -2), own.flatten()

    def array(self, labels: Any) -> Any:
        """Labels with the numbers of classes in the place of their names."""
        return as_label_tensor(labels, self.names) if has_class_names(labels) else labels


@dataclass(frozen=True)
class _Slices:
    """Arrays in slices of rows: enough for the streams to be fast, few enough to show progress."""

    features: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return max(1, -(-self.features.shape[:1].numel() // SLICE))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.features.ndim == 0 or self.features.shape[0] != self.labels.shape[:1].numel():
            yield self.features, self.labels  # the stream says what is wrong
            return
        for number in range(len(self)):
            rows = slice(number * SLICE, (number + 1) * SLICE)
            yield self.features[rows], self.labels[rows]


def _require_classes(
    source: Any, num_classes: int | None, head: Head | None, ignore_index: int | None
) -> None:
    """Refuse absent classes before the pass; whatever else is wrong, the pass says."""
    labels = source.labels
    if labels.ndim != 1 or not labels.numel() or labels.dtype.is_floating_point:
        return
    used = labels if ignore_index is None else labels[labels != ignore_index]
    if not used.numel() or int(used.min()) < 0 or source.features.shape[:1] != labels.shape:
        return
    classes = num_classes or int(used.max()) + 1
    if head is not None:
        if source.features.shape[1:] != head.weight.shape[1:]:
            return
        classes = len(head.weight)
    if classes > MOST_CLASSES and classes > used.numel():
        raise DataError(
            f"Expected samples of all {classes} classes, got {used.numel()} labels, the largest "
            f"{int(used.max())}. Labels are numbers from 0; ids must be mapped to them."
        )
    if max(1, int(used.max())) < classes <= MOST_CLASSES:
        require_samples(used.long().bincount(minlength=classes))


def _classes_in(labels: Tensor, ignore_index: int | None) -> int:
    """How many classes labels tell of; whatever is wrong with them, the pass says."""
    if labels.ndim != 1 or labels.dtype.is_floating_point or labels.dtype.is_complex:
        return 2
    used = labels if ignore_index is None else labels[labels != ignore_index]
    return max(2, int(used.max()) + 1) if used.numel() else 2


def _source(features: Any, labels: Any) -> Iterable[Any]:
    if labels is not None:
        return _Slices(as_tensor(features, "features"), as_tensor(labels, "labels"))
    if isinstance(features, (Tensor, np.ndarray)) or not isinstance(features, Iterable):
        raise DataError(
            f"Expected labels beside the features, or an iterable of (features, labels) batches; "
            f"got a {type(features).__name__} alone."
        )
    return features


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise DataError(f"Expected batches of (features, labels), got a {type(batch).__name__}.")


def _head(weight: Any, bias: Any, num_classes: int | None) -> Head | None:
    if weight is None:
        if bias is not None:
            raise DataError("Expected weight beside bias, got bias alone. Pass both.")
        return None
    return Head.checked(weight, bias, num_classes)

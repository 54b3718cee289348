"""measure_features: measure features given as arrays or in batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.features.batches import as_label_tensor, has_class_names
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import NO_WEIGHT
from nclab.measurement.layer_stream import Cache, LayerStream
from nclab.measurement.options import (
    CACHE_BYTES,
    ClassNames,
    Head,
    MeasureOptions,
    Reference,
    check_count,
    check_labels,
    require_known_classes,
)
from nclab.metrics.catalogue import every_metric
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX, as_tensor

SLICE = 2**16
"""Number of rows of an array that are added in one step."""
SHUFFLE_SEED = 20_231_117


def measure_features(
    features: Any,
    labels: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: int | None = None,
    ignore_index: int | None = IGNORE_INDEX,
    min_count: int | None = None,
    second_pass: bool = True,
    scatter: bool | None = None,
    cache_bytes: int = CACHE_BYTES,
    reference: Reference | None = None,
    class_names: ClassNames = None,
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    shuffled_labels: bool = False,
) -> Collapse:
    """Measure the neural collapse of features with labels, and of the classifier that reads them.

    `features` and `labels` are arrays or tensors of shape (N, d) and (N,), or hidden states
    (B, T, d) with a label for each token, (B, T). Or `features` alone is an iterable of such
    pairs. One pass gives the moments, the loss and the metrics of means and weights. The second
    pass (centred cosines, nearest class means, `nc1_within_variation`) reads arrays again. Batches
    are read from a cache of `cache_bytes` or, if they do not fit, by iterating a second time.

    Costs in addition to reading: half a float64 matrix product N x d x d for `nc1_trace_pinv`, a
    float64 product N x d x C for the loss, and one or two in float32 for the second pass. Memory
    O(C d + d^2), N predictions and the cache.

    Args:
        weight: (C, d) classifier rows; `bias` (C,) only together with `weight`.
        num_classes: C, if neither the weight nor the largest label determines it.
        ignore_index: label of rows to skip.
        min_count: leave out classes with fewer samples than this, with a warning; 1 leaves out
            classes without samples.
        second_pass: False for the metrics of one pass only.
        scatter: keep the d x d scatter; by default up to d = 4096.
        reference: a measurement, or ClassMoments, of the training data. Adds metrics that compare
            these features with its class means. Classes may then be missing here.
        class_names: names in the order of the class numbers, for tables and pictures. Labels may
            then be names as well.
        metrics: "all" adds the metrics of `nclab.metrics.catalogue.EXTRAS`; a list adds some.
        intervals: add approximate 95 % intervals; `no_interval` has a reason for each scalar
            without one, and a warning names those that heavy tails make too short. The jackknife
            uses 10 random groups of samples, or the number you pass. Costs about that many
            measurements, and memory for two `ClassMoments` per group.
        shuffled_labels: measure arrays a second time with shuffled labels, as a baseline.

    >>> import torch
    >>> corners = torch.tensor([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]])
    >>> collapse = measure_features(corners.double().repeat(4, 1), [0, 1, 2] * 4, weight=corners)
    >>> f"{collapse.min_intra:.6f} {collapse.max_inter:.6f} {collapse.nc4_agreement}"
    '1.000000 -0.500000 1.0'
    """
    if class_names is None and labels is not None and has_class_names(labels):
        class_names = _names_in(labels, reference, weight)
    options = MeasureOptions.checked(
        num_classes=num_classes,
        ignore_index=ignore_index,
        min_count=min_count,
        second_pass=second_pass,
        scatter=scatter,
        cache_bytes=cache_bytes,
        reference=reference,
        class_names=class_names,
        metrics=metrics,
        intervals=intervals,
    )
    head = Head.optional(weight, bias, num_classes)
    check_count(options.class_names, None if head is None else len(head.weight), "rows of weight")
    if labels is None:
        if shuffled_labels:
            raise DataError(
                "Expected arrays of features and labels for shuffled_labels=True, got batches "
                "alone. Concatenate them, or omit this option."
            )
        return _measure(_batches(features), options, head)
    features, labels = _rows(features, labels, options.class_names)
    source = _Slices(as_tensor(features, "features"), as_tensor(labels, "labels"))
    source.check(options, head)
    collapse = _measure(source, options, head)
    if shuffled_labels:
        plain = replace(options, groups=0, reference=None)
        baseline = _measure(source.shuffled(options.ignore_index), plain, head).values
        known = every_metric()
        values = {
            name: None if known[name].of_weights else value for name, value in baseline.items()
        }
        collapse = replace(collapse, shuffled_labels=values)
    return collapse


def _measure(source: Iterable[Any], options: MeasureOptions, head: Head | None) -> Collapse:
    """Make one or two passes over batches, or over arrays in slices."""
    is_array = isinstance(source, _Slices)
    # Arrays are read again where they are. Batches are cached, as computing them may take long.
    cache = Cache(options.cache_bytes) if options.second_pass and not is_array else None
    stream = LayerStream(
        options, head=head, cache=cache, same_order=is_array and options.second_pass
    )
    for batch in track(source, "measuring"):
        stream.update(*_rows(*_pair(batch), options.class_names))
    stream.require_classes(allow_missing=options.missing_allowed)
    stream.leave_out_rare()
    reasons = {} if head else {"weight": NO_WEIGHT}
    if options.second_pass:
        if stream.cached:
            stream.second_pass_from_cache()
        elif not isinstance(source, Iterator):
            for batch in track(source, "second pass"):
                stream.update_second(*_rows(*_pair(batch), options.class_names))
            stream.finish_second_pass()
        else:
            reasons["second pass"] = (
                f"the batches exceed cache_bytes={options.cache_bytes} and can be read only once; "
                "pass a list or a loader, or a larger cache"
            )
    return stream.collapse(reasons)


def _names_in(labels: Any, reference: Any, weight: Any) -> ClassNames:
    """Return the class names in the order of the class numbers, for labels that are names.

    The order is that of the reference, else alphabetical. None with a classifier `weight`, because
    the order of its rows is unknown.
    """
    if isinstance(reference, Collapse) and reference.class_names is not None:
        return reference.class_names  # these data may lack some of the names
    if weight is not None:
        return None
    names = sorted({str(label) for label in labels})
    if len(names) < 2:
        raise DataError(f"Expected labels of at least 2 classes, got {names[0]!r} alone.")
    return names


def _pair(batch: Any) -> tuple[Any, Any]:
    """Return features and labels of a batch; raise if the batch is not a pair."""
    if not (isinstance(batch, (tuple, list)) and len(batch) == 2):
        raise DataError(f"Expected batches of (features, labels), got a {type(batch).__name__}.")
    return batch[0], batch[1]


def _rows(features: Any, labels: Any, names: tuple[str, ...] | None) -> tuple[Any, Any]:
    """Return features and class numbers; tokens of hidden states become separate rows."""
    if has_class_names(labels):
        labels = as_label_tensor(labels, names)
    rows, numbers = as_tensor(features, "features"), as_tensor(labels, "labels")
    if rows.ndim < 3 or numbers.ndim < 2:
        return features, labels
    integers = not (numbers.is_floating_point() or numbers.is_complex())
    if numbers.shape != rows.shape[:-1] or not integers:
        raise DataError(
            f"Expected hidden states (B, T, d) with labels (B, T), got shapes "
            f"{tuple(rows.shape)} and {tuple(numbers.shape)}. Pass a label for each token."
        )
    return rows.flatten(0, -2), numbers.long().flatten()


@dataclass(frozen=True)
class _Slices:
    """Arrays that are read in slices of rows: large enough to be fast, small enough to show
    progress."""

    features: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return max(1, -(-self.features.shape[:1].numel() // SLICE))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.features.ndim == 0 or self.features.shape[0] != self.labels.shape[:1].numel():
            yield self.features, self.labels  # the stream raises a clear error
            return
        for number in range(len(self)):
            rows = slice(number * SLICE, (number + 1) * SLICE)
            yield self.features[rows], self.labels[rows]

    def check(self, options: MeasureOptions, head: Head | None) -> None:
        """Raise if a label has no name, a class has no samples, or there are too few samples."""
        numbers, shape = self.labels, self.features.shape
        check_labels(options.class_names, numbers, options.ignore_index)
        if options.groups > len(numbers):
            raise DataError(
                "Expected at least as many samples as groups for the intervals, got "
                f"{len(numbers)} samples and {options.groups} groups. Pass fewer groups."
            )
        one_per_row = numbers.ndim == 1 and shape[:1] == numbers.shape
        fits = one_per_row and (head is None or shape[1:] == head.weight.shape[1:])
        if fits and not options.missing_allowed:
            require_known_classes(numbers, options.class_count(head), options.ignore_index)

    def shuffled(self, ignore_index: int | None) -> "_Slices":
        """Return the same features with shuffled labels; ignored rows keep their labels."""
        counted = torch.ones(len(self.labels), dtype=torch.bool)
        if ignore_index is not None and self.labels.ndim == 1:
            counted = self.labels != ignore_index
        labels, used = self.labels.clone(), self.labels[counted]
        order = torch.randperm(len(used), generator=torch.Generator().manual_seed(SHUFFLE_SEED))
        labels[counted] = used[order]
        return _Slices(self.features, labels)


def _batches(features: Any) -> Iterable[Any]:
    """Return an iterable of batches; raise for features without labels."""
    if isinstance(features, (Tensor, np.ndarray)) or not isinstance(features, Iterable):
        raise DataError(
            f"Expected labels in addition to the features, or an iterable of (features, labels) "
            f"batches; got a {type(features).__name__} alone."
        )
    return features

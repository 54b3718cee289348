"""measure_features on arrays and batches, and its errors for bad input."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nclab
from nclab.measurement import arrays
from nclab.measurement.layer_stream import LayerStream
from tests.clouds import cloud
from tests.contract import assert_same, measure

DATA = cloud()
NAN = DATA.features.clone()
NAN[17, 2] = float("nan")
INF = DATA.features.clone()
INF[3, 0] = float("-inf")
EXPECTED = measure(DATA, extras="default")


def run(**changes: Any) -> Callable[[], object]:
    """Return a call of measure_features on good data with some changes."""
    good = {"features": DATA.features, "labels": DATA.labels}
    return lambda: nclab.measure_features(**{**good, **changes})


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no rows": (run(features=torch.zeros(0, 7), labels=[]), "at least one sample, got none"),
    "no batches": (run(features=[], labels=None), "at least one sample, got none"),
    "a class without samples": (
        run(labels=torch.where(DATA.labels == 3, 0, DATA.labels), num_classes=5),
        "samples of all 5 classes, got none of 3",
    ),
    "label out of range": (run(num_classes=4), r"labels in \[0, 4\), got 4"),
    "negative label": (run(labels=DATA.labels - 1), "labels from 0 upwards, got -1"),
    "float labels": (run(labels=DATA.labels.float()), "integer labels, got float32"),
    "bytes as labels": (run(labels=np.array([b"a"] * 45)), r"numeric labels, got an array of \|S1"),
    "one name as label": (run(labels=["a"] * 45), "at least 2 classes, got 'a' alone"),
    "one-hot labels": (run(labels=torch.eye(5)[DATA.labels].long()), r"shape \(samples,\)"),
    "too few labels": (run(labels=DATA.labels[:-1]), "got 44 labels for 45"),
    "NaN": (run(features=NAN), "got nan in row 17, column 2"),
    "infinity": (run(features=INF), "got -inf in row 3, column 0"),
    "NaN in a later batch": (
        run(features=[(DATA.features, DATA.labels), (NAN, DATA.labels)], labels=None),
        "got nan in row 62, column 2",
    ),
    "huge": (run(features=DATA.features * 1e200), "between 1e-150 and 1e.150 in absolute value"),
    "tiny": (run(features=DATA.features * 1e-200), "between 1e-150 and 1e.150 in absolute value"),
    "one-dimensional features": (run(features=DATA.features[:, 0]), r"got \(45,\)"),
    "three-dimensional features": (run(features=DATA.features[None]), r"got \(1, 45, 7\)"),
    "integer features": (run(features=DATA.labels[:, None]), "floating-point features, got int64"),
    "complex labels": (
        run(labels=torch.ones(45, dtype=torch.cfloat)),
        "integer labels, got complex64",
    ),
    "complex labels with a weight": (
        run(labels=torch.ones(45, dtype=torch.cfloat), weight=DATA.weight),
        "integer labels, got complex64",
    ),
    "complex features": (run(features=np.ones((45, 2), complex)), "numeric features"),
    "ragged features": (run(features=[[1.0], [1.0, 2.0]], labels=[0, 1]), "different lengths"),
    "dimension one": (run(features=DATA.features[:, :1]), "dimension 2 or more for 5 classes"),
    "dimension zero": (run(features=DATA.features[:, :0]), "dimension 1 or more, got 0"),
    "one class": (run(labels=torch.zeros(45).long()), "at least 2 classes, got 1"),
    "one class of many": (
        run(labels=torch.zeros(45).long(), num_classes=3, min_count=1),
        "at least 2 classes, got 1",
    ),
    "weight transposed": (run(weight=DATA.weight.T), r"weight of shape \(classes, 7\)"),
    "weight of too many classes": (
        run(weight=torch.ones(6, 7), num_classes=5),
        "one row per class, 5, got 6",
    ),
    "weight with NaN": (run(weight=DATA.weight / 0 * 0), r"finite weight, got nan at \[0, 0\]"),
    "flat weight": (run(weight=DATA.weight[0]), r"weight of shape \(classes, dimension\)"),
    "complex weight": (run(weight=DATA.weight.to(torch.complex128)), "real weight"),
    "huge weight": (run(weight=DATA.weight * 1e200), "weight below 1e.150"),
    "weight of one row": (run(weight=DATA.weight[:1]), "rows 0 and w"),
    "sparse features": (run(features=DATA.features.to_sparse()), "dense features"),
    "labels that are ids": (run(labels=DATA.labels * 10**12), "Map labels that are ids"),
    "an id among labels": (
        run(labels=torch.cat([DATA.labels[:-1], torch.tensor([10**9])])),
        "but 1000000001 classes in dimension 7",
    ),
    "an id in a batch": (
        run(features=[(DATA.features, DATA.labels + 10**9)], labels=None),
        "the .* GB of this machine",
    ),
    "a label beyond int64": (
        run(labels=np.full(45, 2**63, dtype=np.uint64)),
        "class numbers as labels, got 9223372036854775808",
    ),
    "a skipped label that is no number": (
        run(ignore_index=float("nan")),
        "ignore_index as a whole",
    ),
    "metrics that are no names": (run(metrics=3), "a list of names, got 3"),
    "no cache": (run(cache_bytes=-1), "cache_bytes of at least 0, got -1"),
    "endless groups": (run(intervals=10**9), "from 5 to 1000 groups"),
    "more groups than samples": (run(intervals=46), "got 45 samples and 46 groups"),
    "bias alone": (run(bias=DATA.bias), "weight together with bias"),
    "bias too short": (run(weight=DATA.weight, bias=DATA.bias[:3]), r"shape \(5,\), got \(3,\)"),
    "bias as a matrix": (
        run(weight=DATA.weight, bias=DATA.bias[None]),
        r"bias of shape \(classes,\)",
    ),
    "classes as a text": (run(num_classes="5"), "whole number of classes, got '5'"),
    "classes as a float": (run(num_classes=5.0), "whole number of classes, got 5.0"),
    "masked features": (
        run(features=np.ma.masked_less(DATA.features.numpy(), 0)),
        "features without masked entries",
    ),
    "features alone": (run(labels=None), "labels in addition to the features"),
    "a number": (run(features=3.0, labels=None), "got a float alone"),
    "batches of one": (run(features=[(DATA.features,)], labels=None), "got a tuple"),
    "batches of another width": (
        run(features=[(DATA.features, DATA.labels), (DATA.weight[:, :3], range(5))], labels=None),
        "dimension 7, got 3",
    ),
}


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64", "int16"])
def test_labels_of_every_type_of_integers(kind: str) -> None:
    """torch computes with some integer types only."""
    labels = DATA.labels.numpy().astype(kind)
    plain = nclab.measure_features(DATA.features, DATA.labels, metrics="all")
    for given in (labels, torch.from_numpy(labels)):
        assert nclab.measure_features(DATA.features, given, metrics="all").values == plain.values
    batches = [(DATA.features, labels)]
    assert nclab.measure_features(batches, metrics="all").values == plain.values


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gives_one_clear_line(name: str) -> None:
    call, pattern = BAD[name]
    with pytest.raises(nclab.NclabError, match=pattern) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250


def test_lists_arrays_and_tensors_give_equal_values() -> None:
    expected = measure(DATA, extras="default")
    for convert in (np.asarray, lambda x: x.tolist()):
        measured = nclab.measure_features(
            convert(DATA.features), convert(DATA.labels), convert(DATA.weight), convert(DATA.bias)
        )
        assert_same(measured.scalars(), expected, relative=1e-14)


def test_unusual_memory_layouts_are_accepted() -> None:
    """Reversed, read-only, big-endian and column-major memory, and tensors with gradients."""
    array = DATA.features.numpy()
    frozen = array.copy()
    frozen.flags.writeable = False
    expected = nclab.measure_features(array, DATA.labels).scalars()
    for strange in (
        array[::-1][::-1],
        frozen,
        array.astype(">f8"),
        np.asfortranarray(array),
        DATA.features.clone().requires_grad_(),
    ):
        measured = nclab.measure_features(strange, DATA.labels).scalars()
        assert_same(measured, expected, relative=1e-13)
    assert frozen.flags.writeable is False


def test_the_input_is_never_changed() -> None:
    features, weight = DATA.features.clone(), DATA.weight.clone()
    nclab.measure_features(features, DATA.labels, weight)
    assert torch.equal(features, DATA.features)
    assert torch.equal(weight, DATA.weight)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches, as a source that can be read only once."""
    for rows in torch.arange(45).split(10):
        yield DATA.features[rows], DATA.labels[rows]


def test_a_source_that_can_be_read_only_once_is_cached() -> None:
    measured = nclab.measure_features(batches(), weight=DATA.weight, bias=DATA.bias)
    assert_same(measured.scalars(), measure(DATA, extras="default"), relative=1e-10)


def test_without_cache_memory_a_source_is_read_twice_or_a_note_says_why_not() -> None:
    twice = nclab.measure_features(
        list(batches()), weight=DATA.weight, bias=DATA.bias, cache_bytes=500
    )
    assert_same(twice.scalars(), measure(DATA, extras="default"), relative=1e-10)
    once = nclab.measure_features(batches(), weight=DATA.weight, cache_bytes=500)
    assert once.nc4_ncc_accuracy is None
    assert "read only once" in once.notes["nc4_ncc_accuracy"]
    assert "read only once" in once.notes["nc4_agreement"]
    assert once.nc1_trace_pinv is not None


def test_a_source_that_changes_between_passes_raises() -> None:
    class Shrinking:
        def __init__(self) -> None:
            self.rows = 45

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield DATA.features[: self.rows], DATA.labels[: self.rows]
            self.rows -= 1

    with pytest.raises(nclab.NclabError, match="Expected 45 samples in the second pass, got 44"):
        nclab.measure_features(Shrinking(), cache_bytes=0)


def test_the_second_pass_must_see_the_same_classes_and_features() -> None:
    class Changing:
        def __init__(self, second: tuple[Tensor, Tensor]) -> None:
            self.passes = iter([(DATA.features, DATA.labels), second])

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield next(self.passes)

    swapped = DATA.labels.clone()
    swapped[(DATA.labels == 1).nonzero()[0]] = 2
    with pytest.raises(nclab.NclabError, match="class 1: 8 instead of 9"):
        nclab.measure_features(Changing((DATA.features, swapped)), cache_bytes=0)
    with pytest.raises(nclab.NclabError, match="same features in both passes"):
        nclab.measure_features(Changing((DATA.features * 1.5, DATA.labels)), cache_bytes=0)

    class Spent:
        """An iterable that yields nothing the second time."""

        def __init__(self) -> None:
            self.batches = iter([(DATA.features, DATA.labels)])

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return self.batches

    with pytest.raises(nclab.NclabError, match="Expected 45 samples in the second pass, got 0"):
        nclab.measure_features(Spent(), cache_bytes=0)


def test_new_classes_in_later_batches_extend_the_sums() -> None:
    order = torch.argsort(DATA.labels)
    ordered = [(DATA.features[rows], DATA.labels[rows]) for rows in order.split(4)]
    measured = nclab.measure_features(ordered)
    assert_same(measured.scalars(), nclab.measure_features(*DATA[:2]).scalars(), relative=1e-10)


def test_ignored_labels_and_empty_batches() -> None:
    labels = torch.cat([DATA.labels, torch.full((5,), -1)])
    features = torch.cat([DATA.features, torch.full((5, 7), 1e9)])
    measured = nclab.measure_features(features, labels, DATA.weight, DATA.bias, ignore_index=-1)
    assert measured.ignored == 5
    assert_same(measured.scalars(), measure(DATA, extras="default"), relative=1e-12)
    empty = (torch.zeros(0, 7), torch.zeros(0).long())
    streamed = nclab.measure_features([empty, *batches(), empty])
    assert streamed.samples == 45


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "SLICE", 7)
    assert_same(measure(DATA, extras="default"), EXPECTED, relative=1e-10)
    with pytest.raises(nclab.NclabError, match="got nan in row 17, column 2"):
        nclab.measure_features(NAN, DATA.labels)


def test_large_dimensions_have_no_scatter_with_a_note() -> None:
    features = torch.randn(6, 5000, generator=torch.Generator().manual_seed(0))
    collapse = nclab.measure_features(features, [0, 1] * 3)
    assert collapse.nc1_trace_pinv is None
    assert "scatter=True" in collapse.notes["nc1_trace_pinv"]


def test_absent_classes_raise_before_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerStream, "update", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(nclab.NclabError, match="all 6 classes, got none of 5"):
        nclab.measure_features(DATA.features, DATA.labels, num_classes=6)
    with pytest.raises(nclab.NclabError, match="all 6 classes, got none of 5"):
        nclab.measure_features(DATA.features, DATA.labels, torch.ones(6, 7))

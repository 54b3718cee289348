"""Tests of the batches that a loader may yield, and of the errors for other batches."""

from collections import UserDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import nclab
from nclab.errors import DataError
from nclab.features.batches import LABEL_KEYS, Batch, labels_of, split_batch

CPU = torch.device("cpu")
X = torch.arange(6.0).reshape(2, 3)
Z = -X
Y = torch.tensor([1, 0])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


class Pair(NamedTuple):
    """A batch with named parts."""

    image: Tensor
    target: Tensor


def split(batch: Any) -> Batch:
    """Return the batch split on the CPU."""
    return split_batch(batch, CPU)


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], Pair(X, Y), (X, [1, 0]), (X, Y.numpy())])
def test_inputs_and_labels(batch: Any) -> None:
    parts = split(batch)
    assert len(parts.args) == 1
    assert parts.args[0] is X
    assert parts.kwargs == {}
    assert parts.labels.tolist() == [1, 0]
    assert parts.mask is None


def test_the_last_part_is_the_labels() -> None:
    parts = split((X, Z, Y))
    assert parts.args == (X, Z)
    assert parts.labels.tolist() == [1, 0]


@pytest.mark.parametrize("key", LABEL_KEYS)
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_mapping_becomes_keywords(key: str, kind: Any) -> None:
    parts = split(kind({"pixels": X, key: Y}))
    assert parts.args == ()
    assert list(parts.kwargs) == ["pixels"]
    assert parts.labels.tolist() == [1, 0]


def test_a_mapping_with_separate_labels_becomes_keywords() -> None:
    parts = split(({"input_ids": X, "attention_mask": MASK}, Y))
    assert parts.args == ()
    assert set(parts.kwargs) == {"input_ids", "attention_mask"}
    assert parts.mask is not None
    assert torch.equal(parts.mask, MASK)


def test_only_a_two_dimensional_mask_is_a_mask() -> None:
    batch = {"x": X, "labels": Y}
    assert split({**batch, "attention_mask": MASK}).mask is not None
    assert split({**batch, "attention_mask": MASK[:, None]}).mask is None
    assert split({**batch, "attention_mask": None}).mask is None


def test_tensors_move_to_the_device_of_the_model() -> None:
    batch = {
        "x": X,
        "more": [X, (Z,), {"deep": X}],
        "attention_mask": MASK,
        "name": "kept",
        "labels": [1, 0],
    }
    parts = split_batch(batch, torch.device("meta"))
    assert parts.labels.is_meta
    assert parts.mask is not None
    assert parts.mask.is_meta
    assert len(parts.tensors()) == 5
    assert all(tensor.is_meta for tensor in parts.tensors())
    assert parts.kwargs["name"] == "kept"
    assert isinstance(parts.kwargs["more"], list)
    assert isinstance(parts.kwargs["more"][1], tuple)


def test_tensors_inside_lists_and_mappings_are_inputs() -> None:
    parts = split(([X, {"z": Z}], MASK, Y))
    assert [id(tensor) for tensor in parts.tensors()] == [id(X), id(Z), id(MASK)]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, "got a Tensor"),
        ((X,), "got a tuple"),
        ([], "got a list"),
        (None, "got a NoneType"),
        ("xy", "got a str"),
        ({"x": X, "idx": Y}, "one of labels, label, targets, target, y, got the keys x, idx"),
        ((X, None), "integer labels, got a NoneType"),
        ((X, ["cat", "dog"]), "integer labels, got names such as 'cat'"),
        ((X, 7), "a single sample of label 7. Pass a DataLoader"),
        ((X, torch.tensor(7)), "a single sample of label 7"),
    ],
)
def test_other_batches_raise_in_one_line(batch: Any, message: str) -> None:
    with pytest.raises(nclab.DataError, match=message) as caught:
        split(batch)
    assert "\n" not in str(caught.value)


def test_labels_of_does_not_guess_the_labels() -> None:
    index = torch.tensor([0, 1])
    assert labels_of((X, MASK, Y))[0] is Y
    assert labels_of((X, Z, Y))[0] is Y
    with pytest.raises(DataError, match="3 parts of which 2 may be the labels"):
        labels_of((X, Y, index))
    monitor = nclab.Monitor(torch.nn.Linear(3, 2))
    with pytest.raises(DataError, match=r"labels=lambda batch: batch\[1\]"):
        next(iter(monitor.watch([(X, Y, index)])))
    watched = monitor.watch([(X, Y, index)], labels=lambda batch: batch[1])
    assert next(iter(watched))[1] is Y

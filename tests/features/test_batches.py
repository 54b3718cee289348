"""What a loader may yield, and what is said about anything else."""

from collections import UserDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import nclab
from nclab.errors import DataError
from nclab.features.batches import Batch, split_batch, split_strictly
from nclab.features.labels import LABEL_KEYS

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
    """The batch, split where it lives."""
    return split_batch(batch, CPU)


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], Pair(X, Y), (X, [1, 0]), (X, Y.numpy())])
def test_inputs_and_labels(batch: Any) -> None:
    found = split(batch)
    assert len(found.args) == 1
    assert found.args[0] is X
    assert found.kwargs == {}
    assert found.labels.tolist() == [1, 0]
    assert found.mask is None


def test_the_last_of_several_is_the_label() -> None:
    found = split((X, Z, Y))
    assert found.args == (X, Z)
    assert found.labels.tolist() == [1, 0]


@pytest.mark.parametrize("key", LABEL_KEYS)
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_mapping_becomes_keywords(key: str, kind: Any) -> None:
    found = split(kind({"pixels": X, key: Y}))
    assert found.args == ()
    assert list(found.kwargs) == ["pixels"]
    assert found.labels.tolist() == [1, 0]


def test_a_mapping_beside_labels_becomes_keywords() -> None:
    found = split(({"input_ids": X, "attention_mask": MASK}, Y))
    assert found.args == ()
    assert set(found.kwargs) == {"input_ids", "attention_mask"}
    assert found.mask is not None
    assert torch.equal(found.mask, MASK)


def test_only_a_mask_of_tokens_is_a_mask() -> None:
    batch = {"x": X, "labels": Y}
    assert split({**batch, "attention_mask": MASK}).mask is not None
    assert split({**batch, "attention_mask": MASK[:, None]}).mask is None
    assert split({**batch, "attention_mask": None}).mask is None


def test_everything_moves_to_the_device_of_the_model() -> None:
    batch = {
        "x": X,
        "more": [X, (Z,), {"deep": X}],
        "attention_mask": MASK,
        "name": "kept",
        "labels": [1, 0],
    }
    found = split_batch(batch, torch.device("meta"))
    assert found.labels.is_meta
    assert found.mask is not None
    assert found.mask.is_meta
    assert len(found.tensors()) == 5
    assert all(tensor.is_meta for tensor in found.tensors())
    assert found.kwargs["name"] == "kept"
    assert isinstance(found.kwargs["more"], list)
    assert isinstance(found.kwargs["more"][1], tuple)


def test_tensors_inside_lists_and_mappings_are_inputs_too() -> None:
    found = split(([X, {"z": Z}], MASK, Y))
    assert [id(tensor) for tensor in found.tensors()] == [id(X), id(Z), id(MASK)]


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
def test_anything_else_is_refused_in_one_line(batch: Any, message: str) -> None:
    with pytest.raises(nclab.DataError, match=message) as caught:
        split(batch)
    assert "\n" not in str(caught.value)


def test_a_watcher_does_not_guess_which_part_is_the_labels() -> None:
    index = torch.tensor([0, 1])
    assert split_strictly((X, MASK, Y)).labels is Y
    assert split_strictly((X, Z, Y)).labels is Y
    with pytest.raises(DataError, match="3 parts of which 2 may be the labels"):
        split_strictly((X, Y, index))
    monitor = nclab.Monitor(torch.nn.Linear(3, 2))
    with pytest.raises(DataError, match=r"labels=lambda batch: batch\[1\]"):
        next(iter(monitor.watch([(X, Y, index)])))
    watched = monitor.watch([(X, Y, index)], labels=lambda batch: batch[1])
    assert next(iter(watched))[1] is Y

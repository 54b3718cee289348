"""Teacher data: the same everywhere, balanced, of any depth."""

from typing import Any

import numpy as np
import pytest
import torch

import nclab
from nclab.training.data import teacher
from nclab.training.data.teacher import Teacher

SMALL: dict[str, Any] = {"samples": 400, "width": 30}


@pytest.mark.parametrize(
    ("source", "checksum"),
    [
        (Teacher(depth=1, **SMALL), "a3b3e0566345381c"),
        (Teacher(depth=3, **SMALL), "ff9fbfbaa6d9c533"),
        (Teacher(depth=6, **SMALL, seed=7), "f4603b52813c475d"),
        (Teacher(depth=9, **SMALL), "8f2e771ead8da7f9"),
        (Teacher(depth=3, **SMALL, balance="batch_norm"), "faa9fd431fc1c63a"),
        (Teacher(depth=3, **SMALL, balance="reject", max_ratio=2.5), "c11bfc7ae3d4bd82"),
        (Teacher(depth=3, **SMALL, balance="none"), "e3b213e06350b6f1"),
    ],
    ids=lambda value: value.balance + str(value.depth) if isinstance(value, Teacher) else "",
)
def test_the_samples_never_change(source: Teacher, checksum: str) -> None:
    assert source.draw().digest()[:16] == checksum


@pytest.mark.parametrize("depth", [1, 3, 6, 9])
@pytest.mark.parametrize("balance", ["standardise", "batch_norm"])
def test_classes_are_balanced_at_every_depth(depth: int, balance: teacher.Balance) -> None:
    samples = Teacher(depth=depth, samples=2000, width=100, balance=balance, seed=3).draw()
    assert max(samples.counts) <= 1.5 * min(samples.counts)
    assert sum(samples.counts) == 2000
    assert samples.inputs.dtype == torch.float32
    assert samples.labels.dtype == torch.int64


def test_labels_come_from_the_teacher_of_the_seed() -> None:
    source = Teacher(inputs=3, samples=500, depth=1, balance="none")
    samples = source.draw()
    stream = np.random.Generator(np.random.PCG64(0))
    inputs = stream.standard_normal((500, 3)).astype("f4")
    weight = stream.standard_normal((3, 4)).astype("f4")
    assert np.array_equal(samples.inputs.numpy(), inputs)
    assert np.array_equal(samples.labels.numpy(), (inputs.astype("f8") @ weight).argmax(1))


def test_near_ties_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Teacher(inputs=3, samples=500, depth=1, balance="none")
    before = source.draw().inputs
    monkeypatch.setattr(teacher, "TIE", 0.05)
    samples = source.draw()
    moved = (samples.inputs != before).any(1)
    assert 0 < int(moved.sum()) < 100
    stream = np.random.Generator(np.random.PCG64(0))
    stream.standard_normal((500, 3))
    weight = stream.standard_normal((3, 4)).astype("f4") * np.sqrt(2 / 3)
    two = np.sort(samples.inputs.double().numpy() @ weight, axis=1)[:, -2:]
    assert (two[:, 1] - two[:, 0]).min() >= 0.05


def test_an_impossible_balance_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "TEACHERS", 3)
    with pytest.raises(nclab.NclabError, match="none in 3 with balance 'reject'"):
        Teacher(samples=200, width=20, balance="reject", max_ratio=1.001).draw()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"depth": 0}, "depth of 1 or more, got 0"),
        ({"classes": 1}, "2 to 10000 classes"),
        ({"classes": 20, "samples": 10}, "2 to 10 classes"),
        ({"balance": "luck"}, "one of standardise"),
        ({"max_ratio": 1.0}, "above 1, got 1"),
        ({"seed": -1}, "seed of 0 or more"),
    ],
)
def test_bad_options_give_one_clear_line(options: dict[str, object], pattern: str) -> None:
    with pytest.raises(nclab.NclabError, match=pattern):
        Teacher(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("balance", ["standardise", "none"])
def test_a_teacher_that_always_ties_is_given_up(balance: teacher.Balance) -> None:
    """In one dimension, standardised logits differ in sign alone; a dead network's do not."""
    width = 30 if balance == "standardise" else 1
    depth = 1 if balance == "standardise" else 40
    source = Teacher(inputs=1, samples=50, depth=depth, width=width, balance=balance)
    with pytest.raises(nclab.DataError, match=r"got none in 200 .*\(last: equal logits\)"):
        source.draw()

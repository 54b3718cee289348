"""Artificial data: equal on every machine, with the labels that their definitions give."""

from typing import Any

import numpy as np
import pytest
import torch

from nclab.errors import DataError
from nclab.training.data import ConicHull, Teacher, artificial

SMALL: dict[str, Any] = {"samples": 400, "width": 30}
QUADRANTS = (
    ((1.0, 0.0), (0.0, 1.0)),
    ((-1.0, 0.0), (0.0, 1.0)),
    ((-1.0, 0.0), (0.0, -1.0)),
    ((1.0, 0.0), (0.0, -1.0)),
)


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
        (ConicHull(samples=400), "9bee24eaaced3a5a"),
        (ConicHull(samples=400, classes=3, seed=5), "e9db748d4971c429"),
        (ConicHull(inputs=2, samples=400, cones=QUADRANTS), "d2cec00af480949d"),
    ],
    ids=str,
)
def test_the_samples_never_change(source: Teacher | ConicHull, checksum: str) -> None:
    assert source.draw().digest()[:16] == checksum


@pytest.mark.parametrize("depth", [1, 3, 6, 9])
@pytest.mark.parametrize("balance", ["standardise", "batch_norm"])
def test_teacher_classes_are_balanced_at_every_depth(
    depth: int, balance: artificial.Balance
) -> None:
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


def test_inputs_with_near_ties_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Teacher(inputs=3, samples=500, depth=1, balance="none")
    before = source.draw().inputs
    monkeypatch.setattr(artificial, "TIE", 0.05)
    samples = source.draw()
    changed = (samples.inputs != before).any(1)
    assert 0 < int(changed.sum()) < 100
    stream = np.random.Generator(np.random.PCG64(0))
    stream.standard_normal((500, 3))
    weight = stream.standard_normal((3, 4)).astype("f4") * np.sqrt(2 / 3)
    best_two = np.sort(samples.inputs.double().numpy() @ weight, axis=1)[:, -2:]
    assert (best_two[:, 1] - best_two[:, 0]).min() >= 0.05


def test_an_impossible_balance_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artificial, "TEACHERS", 3)
    with pytest.raises(DataError, match="none of 3 teachers with balance 'reject'"):
        Teacher(samples=200, width=20, balance="reject", max_ratio=1.001).draw()


@pytest.mark.parametrize("balance", ["standardise", "none"])
def test_teachers_that_always_tie_raise(balance: artificial.Balance) -> None:
    """Standardised logits of one-dimensional inputs tie; so do those of a dead deep network."""
    width = 30 if balance == "standardise" else 1
    depth = 1 if balance == "standardise" else 40
    source = Teacher(inputs=1, samples=50, depth=depth, width=width, balance=balance)
    with pytest.raises(DataError, match=r"none of 200 teachers .*\(last: equal logits\)"):
        source.draw()


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 8])
def test_conic_classes_are_the_sides_of_random_planes(classes: int) -> None:
    source = ConicHull(samples=1000, classes=classes, seed=1)
    inputs, labels = source.draw()
    stream = np.random.Generator(np.random.PCG64(1))
    planes = torch.from_numpy(stream.standard_normal((source.planes, 16)).astype("f4"))
    negative = (inputs.double() @ planes.double().T < 0).long()  # (n, k)
    powers = 2 ** torch.arange(source.planes - 1, -1, -1)
    assert torch.equal((negative * powers).sum(1), labels)
    assert sorted(set(labels.tolist())) == list(range(classes))


def test_labels_of_explicit_cones_follow_the_definition() -> None:
    inputs, labels = ConicHull(inputs=2, samples=300, cones=QUADRANTS).draw()
    for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
        cones = [
            number
            for number, cone in enumerate(QUADRANTS)
            if all(row[0] * b[0] + row[1] * b[1] > 0 for b in cone)
        ]
        assert cones == [label]


def test_points_outside_all_cones_are_discarded() -> None:
    source = ConicHull(inputs=2, classes=2, samples=300, cones=QUADRANTS[::2])
    inputs, labels = source.draw()
    assert bool((inputs.prod(1) > 0).all())
    assert torch.equal(labels, (inputs[:, 0] < 0).long())


def test_points_near_a_plane_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artificial, "TIE", 0.2)
    inputs, _ = ConicHull(inputs=2, samples=300, cones=QUADRANTS).draw()
    assert float(inputs.abs().min()) > 0.2


@pytest.mark.parametrize(
    ("cones", "message"),
    [
        ((QUADRANTS[0], ((1.0, 1.0),)), "classes 0 and 1 share"),
        ((QUADRANTS[0], ((1.0, 0.0), (-1.0, 0.0))), "only 0 points lie in the cone of class 1"),
    ],
)
def test_impossible_cones_raise(cones: artificial.Cones, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ConicHull(inputs=2, classes=2, samples=50, cones=cones).draw()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Teacher, {"depth": 0}, "depth of 1 or more, got 0"),
        (Teacher, {"classes": 1}, "2 to 10000 classes"),
        (Teacher, {"classes": 20, "samples": 10}, "2 to 10 classes"),
        (Teacher, {"balance": "luck"}, "one of standardise"),
        (Teacher, {"max_ratio": 1.0}, "above 1, got 1"),
        (Teacher, {"seed": -1}, "seed of 0 or more"),
        (ConicHull, {"inputs": 1}, "dimension 2 or more"),
        (ConicHull, {"inputs": 2, "classes": 3, "cones": QUADRANTS}, "3 cones, got 4"),
        (
            ConicHull,
            {"inputs": 3, "cones": QUADRANTS},
            r"dimension 3 for the cone of class 0, got \[2, 2\]",
        ),
        (ConicHull, {"classes": 1}, "2 to 10000 classes"),
        (ConicHull, {"seed": -3}, "seed of 0 or more"),
    ],
)
def test_bad_options_raise(kind: Any, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        kind(**options)

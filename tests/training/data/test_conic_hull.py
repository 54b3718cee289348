"""Conic hull data: random planes and explicit cones."""

import numpy as np
import pytest
import torch

import nclab
from nclab.training.data import conic_hull
from nclab.training.data.conic_hull import ConicHull

QUADRANTS = (
    ((1.0, 0.0), (0.0, 1.0)),
    ((-1.0, 0.0), (0.0, 1.0)),
    ((-1.0, 0.0), (0.0, -1.0)),
    ((1.0, 0.0), (0.0, -1.0)),
)


@pytest.mark.parametrize(
    ("source", "checksum"),
    [
        (ConicHull(samples=400), "9bee24eaaced3a5a"),
        (ConicHull(samples=400, classes=3, seed=5), "e9db748d4971c429"),
        (ConicHull(inputs=2, samples=400, cones=QUADRANTS), "d2cec00af480949d"),
    ],
)
def test_the_samples_never_change(source: ConicHull, checksum: str) -> None:
    assert source.draw().digest()[:16] == checksum


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 8])
def test_classes_are_the_sides_of_random_planes(classes: int) -> None:
    source = ConicHull(samples=1000, classes=classes, seed=1)
    inputs, labels = source.draw()
    stream = np.random.Generator(np.random.PCG64(1))
    planes = torch.from_numpy(stream.standard_normal((source.planes, 16)).astype("f4"))
    negative = (inputs.double() @ planes.double().T < 0).long()  # (n, k)
    places = 2 ** torch.arange(source.planes - 1, -1, -1)
    assert torch.equal((negative * places).sum(1), labels)
    assert sorted(set(labels.tolist())) == list(range(classes))


def test_explicit_cones_are_the_definition() -> None:
    inputs, labels = ConicHull(inputs=2, samples=300, cones=QUADRANTS).draw()
    for row, own in zip(inputs.tolist(), labels.tolist(), strict=True):
        members = [
            number
            for number, cone in enumerate(QUADRANTS)
            if all(row[0] * b[0] + row[1] * b[1] > 0 for b in cone)
        ]
        assert members == [own]


def test_points_outside_all_cones_are_left_out() -> None:
    source = ConicHull(inputs=2, classes=2, samples=300, cones=QUADRANTS[::2])
    inputs, labels = source.draw()
    assert bool((inputs.prod(1) > 0).all())
    assert torch.equal(labels, (inputs[:, 0] < 0).long())


def test_points_near_a_plane_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conic_hull, "TIE", 0.2)
    inputs, _ = ConicHull(inputs=2, samples=300, cones=QUADRANTS).draw()
    assert float(inputs.abs().min()) > 0.2


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        (
            ConicHull(inputs=2, classes=2, samples=50, cones=(QUADRANTS[0], ((1.0, 1.0),))),
            "classes 0 and 1 share",
        ),
        (
            ConicHull(
                inputs=2, classes=2, samples=50, cones=(QUADRANTS[0], ((1.0, 0.0), (-1.0, 0.0)))
            ),
            "class 1 got 0",
        ),
    ],
)
def test_impossible_cones_are_said(source: ConicHull, pattern: str) -> None:
    with pytest.raises(nclab.NclabError, match=pattern):
        source.draw()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"inputs": 1}, "dimension 2 or more"),
        ({"inputs": 2, "classes": 3, "cones": QUADRANTS}, "3 cones, got 4"),
        ({"inputs": 3, "cones": QUADRANTS}, r"dimension 3 for the cone of class 0, got \[2, 2\]"),
        ({"classes": 1}, "2 to 10000 classes"),
        ({"seed": -3}, "seed of 0 or more"),
    ],
)
def test_bad_options_give_one_clear_line(options: dict[str, object], pattern: str) -> None:
    with pytest.raises(nclab.NclabError, match=pattern):
        ConicHull(**options)  # type: ignore[arg-type]

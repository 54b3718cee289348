"""The 3-D picture is exact for four classes, stable, and states its visible share."""

import json

import pytest
import torch

from nclab.measurement.geometry import geometry, vertices
from nclab.metrics import simplex_etf


def cloud(
    classes: int, dim: int, *, noise: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    etf = simplex_etf(classes, dim, generator=generator).double()
    labels = torch.arange(classes).repeat(30)
    spread = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return 3 * etf[labels] + 7 + noise * spread, labels, 0.2 * etf


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_an_exact_simplex_is_drawn_exactly(classes: int) -> None:
    picture = geometry(*cloud(classes, 9, noise=0.0))
    assert picture["share"] == 1.0
    etf = torch.tensor(picture["etf"])
    for name in ("means", "weights"):
        torch.testing.assert_close(torch.tensor(picture[name]), etf, atol=2e-4, rtol=0)
    cosines = etf @ etf.T
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(cosines, expected, atol=5e-4, rtol=0)
    torch.testing.assert_close(
        torch.tensor(picture["points"]), etf[picture["labels"]], atol=2e-4, rtol=0
    )


def test_four_classes_keep_every_distance_between_means() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 12, generator=generator, dtype=torch.float64)
    labels = torch.arange(4).repeat(10)
    picture = geometry(features, labels)
    means = torch.stack([features[labels == label].mean(0) for label in range(4)])
    scale = (means - means.mean(0)).square().sum(1).mean().sqrt()
    shown = torch.tensor(picture["means"], dtype=torch.float64)
    torch.testing.assert_close(
        torch.cdist(shown, shown), torch.cdist(means, means) / scale, atol=5e-4, rtol=0
    )
    assert picture["share"] == 1.0
    assert picture["weights"] == []


def test_the_visible_share_of_many_classes() -> None:
    picture = geometry(*cloud(10, 20, noise=0.0))
    assert picture["share"] == pytest.approx(3 / 9, abs=1e-3)
    means, etf = torch.tensor(picture["means"]), torch.tensor(picture["etf"])
    torch.testing.assert_close(means, etf, atol=2e-4, rtol=0)


def test_a_rotation_of_feature_space_changes_nothing() -> None:
    features, labels, weight = cloud(5, 8, noise=0.3)
    rotation = torch.linalg.qr(
        torch.randn(8, 8, generator=torch.Generator().manual_seed(3)).double()
    ).Q
    rotated = geometry(features @ rotation, labels, weight @ rotation)
    still = geometry(features, labels, weight)
    for name in ("means", "weights", "points", "etf"):
        one, other = torch.tensor(still[name]), torch.tensor(rotated[name])
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0)


def test_a_small_step_is_a_small_change_even_at_collapse() -> None:
    features, labels, weight = cloud(10, 20, noise=1e-3)
    step = 1e-4 * torch.randn(features.shape, generator=torch.Generator().manual_seed(5))
    before, after = geometry(features, labels, weight), geometry(features + step, labels, weight)
    change = (torch.tensor(before["means"]) - torch.tensor(after["means"])).abs().max()
    assert float(change) < 2e-3


def test_points_are_balanced_and_the_same_every_time() -> None:
    features, labels, weight = cloud(4, 6, noise=0.5)
    picture = geometry(features, labels, weight, points=40)
    assert sorted(picture["labels"]) == sorted([0, 1, 2, 3] * 10)
    assert picture == geometry(features.clone(), labels.tolist(), weight, points=40)
    json.dumps(picture, allow_nan=False)


def test_degenerate_features_are_drawn() -> None:
    for features in (torch.zeros(8, 3), torch.ones(8, 1), torch.arange(8.0)[:, None].repeat(1, 2)):
        picture = geometry(features, torch.arange(8) % 4, torch.zeros(4, features.shape[1]))
        json.dumps(picture, allow_nan=False)
        assert len(picture["means"]) == 4


def test_skipped_and_absent_labels_are_left_out() -> None:
    features, labels, weight = cloud(4, 6, noise=0.1)
    labels = labels.clone()
    labels[labels == 2] = -100
    picture = geometry(features, labels, weight)
    assert picture["classes"] == 3
    assert set(picture["labels"]) == {0, 1, 3}
    assert len(picture["weights"]) == 3


@pytest.mark.parametrize("classes", [5, 10, 100])
def test_vertices_are_a_projection_of_a_simplex(classes: int) -> None:
    K = vertices(classes)
    torch.testing.assert_close(K.T @ K, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(K.sum(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    norms = K.norm(dim=1) * (classes / 3) ** 0.5
    assert float(norms.min()) > 0.8

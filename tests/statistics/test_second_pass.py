"""Tests of SecondPass: nearest means, their radii, merging, and rejection of other data."""

import pytest
import torch
from torch import Tensor

import nclab
from nclab.statistics import ClassMoments, SecondPass, blocks, second_pass
from nclab.statistics.second_pass import Centres
from tests.clouds import cloud
from tests.contract import assert_same


def test_merged_parts_equal_one_pass() -> None:
    data = cloud()
    moments = nclab.ClassMoments(5, 7)
    moments.update(data.features, data.labels)
    predicted = (data.features @ data.weight.T).argmax(1)
    complete, left, right = (nclab.SecondPass(moments) for _ in range(3))
    complete.update(data.features, data.labels, predicted)
    left.update(data.features[:10], data.labels[:10], predicted[:10])
    right.update(data.features[10:], data.labels[10:], predicted[10:])
    left.merge(right)
    assert torch.allclose(left.unit_means, complete.unit_means, rtol=1e-13)
    assert torch.equal(left.nearest_correct, complete.nearest_correct)
    assert left.nearest_agrees == complete.nearest_agrees
    assert left.predictions == 45


def test_other_data_in_the_second_pass_is_rejected() -> None:
    moments = nclab.ClassMoments(3, 2)
    moments.update([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    second = nclab.SecondPass(moments)
    with pytest.raises(nclab.NclabError, match="got a sample of class 2"):
        second.update([[1.0, 1.0]], [2])
    with pytest.raises(nclab.NclabError, match="Expected 1 predictions, got 2"):
        second.update([[1.0, 1.0]], [0], torch.tensor([0, 1]))
    other = nclab.ClassMoments(3, 2)
    other.update([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(nclab.NclabError, match="same class means"):
        second.merge(nclab.SecondPass(other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_compiled_kernel_agrees_with_torch(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat(15)
    rows = torch.randn(40, 24, generator=generator)[labels]
    rows += 0.7 * torch.randn(600, 24, generator=generator)
    weight = torch.randn(40, 24, generator=generator)
    rows = rows.to(dtype)[:, ::2]  # The rows are not contiguous.
    expected = nclab.measure_features(rows, labels, weight[:, ::2])
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    compiled = nclab.measure_features(rows, labels, weight[:, ::2])
    assert_same(compiled.scalars(), expected.scalars(), relative=1e-12)


def _moments(means: Tensor, noise: float, rows: int, seed: int = 0) -> ClassMoments:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % len(means)
    noise_rows = torch.randn(rows, means.shape[1], generator=generator, dtype=torch.float64)
    moments = ClassMoments(len(means), means.shape[1])
    moments.update(means[labels] + noise * noise_rows, labels)
    return moments


def _means(size: int, dim: int, offset: float, scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    means = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    means[1] = means[0] + 0.01 * means[1]  # Two classes that have nearly merged.
    return scale * (means + offset)


CASES = [(5, 64, 0.0, 1.0), (40, 64, 3.0, 1.0), (600, 32, 1.0, 1e-30), (40, 64, 10.0, 1e20)]


@pytest.mark.parametrize(("size", "dim", "offset", "scale"), CASES)
def test_rows_at_the_radius_are_nearest_to_their_class(
    size: int, dim: int, offset: float, scale: float
) -> None:
    """Rows at the radius, in the direction of every other mean and of every other direction."""
    moments = _moments(_means(size, dim, offset, scale), 0.05 * scale, 4000 * 5)
    centres = Centres(moments)
    radii = centres.certain_radii(10**9)
    assert (radii > 0).float().mean() > 0.9
    means, directions = moments.means, centres.directions
    for c in range(0, size, max(1, size // 20)):
        others = torch.arange(size) != c
        steps = torch.cat([means[others] - means[c], directions[others] - directions[c]])
        steps = torch.nn.functional.normalize(steps, dim=1)
        rows = means[c] + (1 - 1e-9) * radii[c] * steps
        distances = torch.stack([torch.linalg.vector_norm(rows - m, dim=1) for m in means], 1)
        assert (radii[c] == 0) or (distances.argmin(1) == c).all()
        assert (radii[c] == 0) or ((rows @ directions.T).argmax(1) == c).all()


def test_the_radius_of_a_simplex_is_half_the_distance() -> None:
    """For a simplex around the origin, the radius is known in closed form."""
    size, dim = 8, 64
    means = torch.eye(size, dim, dtype=torch.float64) - torch.eye(size, dim).mean(0)
    moments = _moments(means, 0.0, 4000)
    radii = Centres(moments).certain_radii(10**9)
    norm = (1 - 1 / size) ** 0.5
    half_angle = 0.5 * torch.acos(torch.tensor(-1 / (size - 1), dtype=torch.float64))
    exact = min(0.5 * 2**0.5, norm * float(half_angle.sin()))
    assert exact * (1 - 1e-3) < float(radii.min()) <= float(radii.max()) < exact


def test_radii_are_zero_for_few_rows_or_equal_means() -> None:
    """Few rows per class do not justify the cost; equal means have no radius."""
    means = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).double()
    centres = Centres(_moments(means, 0.1, 400))
    assert not centres.certain_radii(second_pass.ROWS_PER_CLASS * 40 - 1).any()
    assert centres.certain_radii(10**6).all()
    assert not Centres(_moments(torch.ones(4, 64), 0.0, 400)).certain_radii(10**9).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [0.05, 0.4, 2.0])
def test_a_second_pass_has_the_same_sums_without_radii(
    noise: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The radii decide all rows, some rows or none; every count and sum agrees."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 20, (6000,), generator=generator)
    means = torch.randn(20, 64, generator=generator, dtype=torch.float64) + 0.5
    noise_rows = torch.randn(6000, 64, generator=generator, dtype=torch.float64)
    rows = (means[labels] + noise * noise_rows).to(dtype)
    rows[7] = 0.0
    moments = ClassMoments(20, 64)
    moments.update(rows, labels)
    passes = []
    for few in (False, True):
        if few:
            monkeypatch.setattr(second_pass, "ROWS_PER_CLASS", 10**9)
        second = SecondPass(moments)
        second.update(rows, labels, labels.flip(0))
        passes.append(second.sums())
    assert passes[0].keys() == passes[1].keys()
    for name, value in passes[0].items():
        assert torch.equal(value, passes[1][name]), name

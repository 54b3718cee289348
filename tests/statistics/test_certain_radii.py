"""Radii within which a row needs no product: never too large, and not so small as to be idle."""

import pytest
import torch

from nclab.statistics import ClassMoments, SecondPass, nearest, second_pass
from nclab.statistics.nearest import Centres, certain_radii


def _moments(means: torch.Tensor, noise: float, rows: int, seed: int = 0) -> ClassMoments:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % len(means)
    shake = torch.randn(rows, means.shape[1], generator=generator, dtype=torch.float64)
    moments = ClassMoments(len(means), means.shape[1])
    moments.update(means[labels] + noise * shake, labels)
    return moments


def _means(size: int, dim: int, offset: float, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    means = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    means[1] = means[0] + 0.01 * means[1]  # two classes that have nearly merged
    return scale * (means + offset)


CASES = [(5, 64, 0.0, 1.0), (40, 64, 3.0, 1.0), (600, 32, 1.0, 1e-30), (40, 64, 10.0, 1e20)]


@pytest.mark.parametrize(("size", "dim", "offset", "scale"), CASES)
def test_the_worst_rows_within_the_radius_are_nearest_to_their_own(
    size: int, dim: int, offset: float, scale: float
) -> None:
    """Rows at the radius, straight towards every other mean and across every other plane."""
    moments = _moments(_means(size, dim, offset, scale), 0.05 * scale, 4000 * 5)
    centres = Centres(moments)
    radii = certain_radii(centres, 10**9)
    assert (radii > 0).float().mean() > 0.9
    means, directions = moments.means, centres.directions
    for c in range(0, size, max(1, size // 20)):
        others = torch.arange(size) != c
        ways = torch.cat([means[others] - means[c], directions[others] - directions[c]])
        ways = torch.nn.functional.normalize(ways, dim=1)
        rows = means[c] + (1 - 1e-9) * radii[c] * ways
        distances = torch.stack([torch.linalg.vector_norm(rows - m, dim=1) for m in means], 1)
        assert (radii[c] == 0) or (distances.argmin(1) == c).all()
        assert (radii[c] == 0) or ((rows @ directions.T).argmax(1) == c).all()


def test_the_radius_is_half_the_way_where_directions_leave_room() -> None:
    """A simplex about the origin: half the distance of two means, by hand."""
    size, dim = 8, 64
    means = torch.eye(size, dim, dtype=torch.float64) - torch.eye(size, dim).mean(0)
    moments = _moments(means, 0.0, 4000)
    radii = certain_radii(Centres(moments), 10**9)
    norm = (1 - 1 / size) ** 0.5
    half_angle = 0.5 * torch.acos(torch.tensor(-1 / (size - 1), dtype=torch.float64))
    exact = min(0.5 * 2**0.5, norm * float(half_angle.sin()))
    assert exact * (1 - 1e-3) < float(radii.min()) <= float(radii.max()) < exact


def test_nothing_is_said_for_few_rows_or_one_place() -> None:
    """Few rows a class do not pay for the pairs; means that coincide have no radius."""
    means = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).double()
    centres = Centres(_moments(means, 0.1, 400))
    assert not certain_radii(centres, nearest.ROWS_PER_CLASS * 40 - 1).any()
    assert certain_radii(centres, 10**6).all()
    assert not certain_radii(Centres(_moments(torch.ones(4, 64), 0.0, 400)), 10**9).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [0.05, 0.4, 2.0])
def test_a_second_pass_is_the_same_without_them(
    noise: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows sure, some, and none: every count and sum agrees."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 20, (6000,), generator=generator)
    means = torch.randn(20, 64, generator=generator, dtype=torch.float64) + 0.5
    shake = torch.randn(6000, 64, generator=generator, dtype=torch.float64)
    rows = (means[labels] + noise * shake).to(dtype)
    rows[7] = 0.0
    moments = ClassMoments(20, 64)
    moments.update(rows, labels)
    looks = []
    for radii in (certain_radii, lambda centres, rows: centres.means.new_zeros(len(centres.means))):
        monkeypatch.setattr(second_pass, "certain_radii", radii)
        look = SecondPass(moments)
        look.update(rows, labels, labels.flip(0))
        looks.append(look.sums())
    assert looks[0].keys() == looks[1].keys()
    for name, value in looks[0].items():
        assert torch.equal(value, looks[1][name]), name

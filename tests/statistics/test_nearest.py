"""Tests of nearest means: float32 screening decides like float64, and radii are never too large."""

import pytest
import torch
from torch import Tensor

import nclab
from nclab.statistics import ClassMoments, SecondPass, blocks, nearest, second_pass
from nclab.statistics.nearest import Centres, certain_radii
from tests.contract import assert_same

GENERATOR = torch.Generator().manual_seed(0)


def features(kind: str) -> tuple[Tensor, Tensor]:
    """Return 15 rows for each of 40 classes in 24 dimensions, and their labels."""
    labels = torch.arange(40).repeat(15)
    means = torch.randn(40, 24, generator=GENERATOR, dtype=torch.float64)
    noise = torch.randn(600, 24, generator=GENERATOR, dtype=torch.float64)
    rows = means[labels] + {"tight": 0.01, "wide": 3.0}.get(kind, 0.7) * noise
    if kind == "relu":
        rows = rows.relu()
    elif kind == "offset":
        rows = rows + 1e9
    elif kind == "one far class":
        rows[labels == 3] *= 1e6
    elif kind == "ties":
        rows = rows[labels % 20].round()
    elif kind == "zero rows":
        rows[::7] = 0.0
        rows[labels == 5] = 0.0
    elif kind == "huge":
        rows = rows * 1e60
    elif kind == "tiny":
        rows = rows * 1e-40
    return rows, labels


KINDS = ("tight", "middle", "wide", "relu", "offset", "one far class", "ties", "zero rows", "huge")


@pytest.mark.parametrize("kind", [*KINDS, "tiny"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_screened_decisions_equal_float64_decisions(
    kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
    rows, labels = features(kind)
    weight = torch.randn(40, 24, generator=GENERATOR, dtype=torch.float64)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 10**12)
    monkeypatch.setattr(nearest, "SCREENED_SIZE", 10**12)
    expected = nclab.measure_features(rows, labels, weight)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0 if compiled else 10**12)
    monkeypatch.setattr(nearest, "SCREENED_SIZE", 0)
    screened = nclab.measure_features(rows, labels, weight)
    assert expected.second_pass is not None
    assert screened.second_pass is not None
    # With an offset of 1e9, differences of angles are mere rounding, even in float64.
    lost = {"nc4_cosine_accuracy", "nc4_cosine_agreement"} if kind == "offset" else set()
    for name in ("nearest_correct", "zero_counts", *(() if lost else ("cosine_correct",))):
        sums = getattr(screened.second_pass, name)
        assert torch.equal(sums, getattr(expected.second_pass, name)), name
    assert_same(screened.scalars(), expected.scalars(), relative=1e-10, leaving_out=lost)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_compiled_kernel_agrees_with_torch(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    rows, labels = features("middle")
    weight = torch.randn(40, 24, generator=GENERATOR)
    rows = rows.to(dtype)[:, ::2]  # The rows are not contiguous.
    expected = nclab.measure_features(rows, labels, weight[:, ::2])
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    screened = nclab.measure_features(rows, labels, weight[:, ::2])
    assert_same(screened.scalars(), expected.scalars(), relative=1e-12)


def test_most_rows_need_no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """For overlapping classes, float64 decides at most one row in twenty."""
    rows, labels = features("middle")
    moments = nclab.ClassMoments(40, 24)
    moments.update(rows, labels)
    sizes = []
    exact = nearest.Centres.nearest_mean

    def counted(self: nearest.Centres, block: Tensor, *options: Tensor) -> Tensor:
        sizes.append(len(block))
        return exact(self, block, *options)

    monkeypatch.setattr(nearest, "SCREENED_SIZE", 0)
    monkeypatch.setattr(nearest.Centres, "nearest_mean", counted)
    nclab.SecondPass(moments).update(rows, labels)
    assert sum(sizes) <= 30


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
    radii = certain_radii(centres, 10**9)
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
    radii = certain_radii(Centres(moments), 10**9)
    norm = (1 - 1 / size) ** 0.5
    half_angle = 0.5 * torch.acos(torch.tensor(-1 / (size - 1), dtype=torch.float64))
    exact = min(0.5 * 2**0.5, norm * float(half_angle.sin()))
    assert exact * (1 - 1e-3) < float(radii.min()) <= float(radii.max()) < exact


def test_radii_are_zero_for_few_rows_or_equal_means() -> None:
    """Few rows per class do not justify the cost; equal means have no radius."""
    means = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).double()
    centres = Centres(_moments(means, 0.1, 400))
    assert not certain_radii(centres, nearest.ROWS_PER_CLASS * 40 - 1).any()
    assert certain_radii(centres, 10**6).all()
    assert not certain_radii(Centres(_moments(torch.ones(4, 64), 0.0, 400)), 10**9).any()


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
    for radii in (certain_radii, lambda centres, rows: centres.means.new_zeros(len(centres.means))):
        monkeypatch.setattr(second_pass, "certain_radii", radii)
        second = SecondPass(moments)
        second.update(rows, labels, labels.flip(0))
        passes.append(second.sums())
    assert passes[0].keys() == passes[1].keys()
    for name, value in passes[0].items():
        assert torch.equal(value, passes[1][name]), name

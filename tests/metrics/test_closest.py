"""Tests of closest pairs that are bounded by the products of other rows."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from nclab.metrics import closest, pairs
from nclab.metrics.closest import BoundedClosestPairs
from nclab.metrics.pairs import ScreenedTile
from nclab.statistics import blocks

SIZE, DIM = 97, 9
Rows = tuple[Tensor, Tensor, Tensor]


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def make_rows(
    *, offset: float = 0.0, spread: float = 0.0, scales: float = 0.0, seed: int = 0
) -> Rows:
    """Return mean unit features, directions of the centred means, and the centre."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(SIZE, DIM, generator=generator, dtype=torch.float64) + offset
    means *= 1 + scales * torch.arange(SIZE)[:, None] / SIZE
    noise = torch.randn(SIZE, DIM, generator=generator, dtype=torch.float64)
    rows = unit(means + spread * noise)
    rows *= torch.rand(SIZE, 1, generator=generator, dtype=torch.float64) * 0.1 + 0.9
    return rows, unit(means - means.mean(0)), means.mean(0)


def without_directions() -> Rows:
    """Return rows with some zero units and a zero centre."""
    rows, units, centre = make_rows()
    units[::5] = 0.0
    return rows, units, torch.zeros_like(centre)


def nearly_along_the_centre() -> Rows:
    """Return rows with some units that are nearly parallel to the centre."""
    rows, units, centre = make_rows(offset=1.0)
    units[::7] = unit(centre + 1e-9 * units[::7])
    return rows, units, centre


def equal_rows() -> Rows:
    rows, units, centre = make_rows()
    return rows[:1].expand(SIZE, -1).clone(), units, centre


CASES: dict[str, Callable[[], Rows]] = {
    "collapsed": make_rows,
    "around an offset": lambda: make_rows(offset=5.0),
    "far from zero": lambda: make_rows(offset=1e7),
    "beyond float64": lambda: make_rows(offset=1e9),
    "scales by class": lambda: make_rows(offset=2.0, scales=3.0),
    "spread": lambda: make_rows(offset=1.0, spread=0.02),
    "nothing in common": lambda: (make_rows()[0], make_rows(seed=1)[1], make_rows(seed=2)[2]),
    "no directions": without_directions,
    "in the plane": nearly_along_the_centre,
    "all the same": equal_rows,
}
SHARP = ("collapsed", "around an offset", "scales by class", "spread", "in the plane")


@pytest.fixture(autouse=True)
def few_classes_count_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits: ten rows count as many, and tiles have 7 rows."""
    monkeypatch.setattr(blocks, "MANY_CLASSES", 10)
    monkeypatch.setattr(pairs, "TILE", 7)


def sweep(rows: Tensor, units: Tensor, centre: Tensor) -> BoundedClosestPairs:
    reducer = BoundedClosestPairs(rows, units, centre)
    pairs.reduce_pairs(units, reducer)
    return reducer


@pytest.mark.parametrize("single_pairs", [0, 64])
@pytest.mark.parametrize("name", CASES)
def test_pairs_equal_those_of_all_products(
    name: str, single_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closest, "SINGLE_PAIRS", single_pairs)
    rows, units, centre = CASES[name]()
    gram = (rows @ rows.T).masked_fill(~torch.ones(SIZE, SIZE).triu(1).bool(), -9.0)
    values, places = gram.flatten().topk(closest.REPORTED)
    reducer = sweep(rows, units, centre).closest.pairs
    assert [pair.value for pair in reducer] == pytest.approx(values.tolist(), abs=1e-15)
    if float(values[:-1].sub(values[1:]).min()) > 1e-14:
        assert [pair.row * SIZE + pair.col for pair in reducer] == places.tolist()


def excesses(rows: Tensor, units: Tensor, centre: Tensor) -> Iterator[Tensor]:
    """Yield, for each tile, the bounds with their error minus the products."""
    reducer = BoundedClosestPairs(rows, units, centre)
    short = units.float()
    for at, to in pairs.tile_slices(SIZE):
        scratch = torch.empty(len(rows[at]), len(rows[to]))
        tile = ScreenedTile(at, to, short[at] @ short[to].T, units, scratch)
        reducer.closest.pairs = [closest.RowPair(0, 1, torch.inf)] * closest.REPORTED
        reducer.screen(tile)  # No bound exceeds the threshold, so the bounds stay in `scratch`.
        products = (rows[at] @ rows[to].T) / reducer.square - reducer.base
        yield (scratch.double() + reducer.error - products) * reducer.square


@pytest.mark.parametrize("name", CASES)
def test_no_bound_is_below_its_product(name: str) -> None:
    assert all(float(excess.min()) >= 0 for excess in excesses(*CASES[name]()))


@pytest.mark.parametrize("name", SHARP)
def test_bounds_are_sharp_if_rows_are_nearly_parallel_to_units(name: str) -> None:
    """Most bounds exceed the products only by float32 rounding and the spread of the rows."""
    reducer = torch.cat([excess.flatten() for excess in excesses(*CASES[name]())])
    assert float(reducer.quantile(0.7)) < (0.1 if name == "spread" else 1e-4)


@pytest.mark.parametrize("tilt", [0.0, 1e-6])
def test_pairs_that_differ_below_float32_are_ordered(tilt: float) -> None:
    """Twenty pairs whose products differ by 1e-9 have the order of float64."""
    generator = torch.Generator().manual_seed(5)
    basis = torch.linalg.qr(torch.randn(64, 64, generator=generator).double()).Q
    angles = torch.arange(20).double()[:, None] * 1e-9 + 0.3
    rows = torch.cat([basis[:20], angles.cos() * basis[:20] + angles.sin() * basis[20:40]])
    rows = rows[torch.randperm(40, generator=generator)]
    units = unit(rows + tilt * torch.randn(40, 64, generator=generator))
    values, places = (rows @ rows.T).triu(1).flatten().topk(closest.REPORTED)
    reducer = sweep(rows, units, rows.mean(0)).closest.pairs
    assert [pair.row * 40 + pair.col for pair in reducer] == places.tolist()
    assert [pair.value for pair in reducer] == pytest.approx(values.tolist(), abs=1e-15)

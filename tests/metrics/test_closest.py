"""Closest pairs bounded by the products of other rows: proved, and spared where they can be."""

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


def made(*, offset: float = 0.0, spread: float = 0.0, scales: float = 0.0, seed: int = 0) -> Rows:
    """Mean unit features of classes, the directions of their centred means, and the centre."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(SIZE, DIM, generator=generator, dtype=torch.float64) + offset
    means *= 1 + scales * torch.arange(SIZE)[:, None] / SIZE
    noise = torch.randn(SIZE, DIM, generator=generator, dtype=torch.float64)
    rows = unit(means + spread * noise)
    rows *= torch.rand(SIZE, 1, generator=generator, dtype=torch.float64) * 0.1 + 0.9
    return rows, unit(means - means.mean(0)), means.mean(0)


def without_directions() -> Rows:
    """Some units are zero, and so is the centre."""
    rows, units, centre = made()
    units[::5] = 0.0
    return rows, units, torch.zeros_like(centre)


def within_the_plane() -> Rows:
    """Some units hardly leave the span of the centre."""
    rows, units, centre = made(offset=1.0)
    units[::7] = unit(centre + 1e-9 * units[::7])
    return rows, units, centre


def all_the_same() -> Rows:
    rows, units, centre = made()
    return rows[:1].expand(SIZE, -1).clone(), units, centre


CASES: dict[str, Callable[[], Rows]] = {
    "collapsed": made,
    "around an offset": lambda: made(offset=5.0),
    "far from zero": lambda: made(offset=1e7),
    "beyond float64": lambda: made(offset=1e9),
    "scales by class": lambda: made(offset=2.0, scales=3.0),
    "spread": lambda: made(offset=1.0, spread=0.02),
    "nothing in common": lambda: (made()[0], made(seed=1)[1], made(seed=2)[2]),
    "no directions": without_directions,
    "in the plane": within_the_plane,
    "all the same": all_the_same,
}
SPARED = ("collapsed", "around an offset", "scales by class", "spread", "in the plane")


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows are many, and tiles have odd edges."""
    monkeypatch.setattr(blocks, "MANY_CLASSES", 10)
    monkeypatch.setattr(pairs, "TILE", 7)


def swept(rows: Tensor, units: Tensor, centre: Tensor) -> BoundedClosestPairs:
    found = BoundedClosestPairs(rows, units, centre)
    pairs.reduce_pairs(units, found)
    return found


@pytest.mark.parametrize("singly", [0, 64])
@pytest.mark.parametrize("name", CASES)
def test_the_pairs_are_those_of_all_products(
    name: str, singly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closest, "SINGLE_PAIRS", singly)
    rows, units, centre = CASES[name]()
    gram = (rows @ rows.T).masked_fill(~torch.ones(SIZE, SIZE).triu(1).bool(), -9.0)
    values, places = gram.flatten().topk(closest.REPORTED)
    found = swept(rows, units, centre).closest.pairs
    assert [pair.value for pair in found] == pytest.approx(values.tolist(), abs=1e-15)
    if float(values[:-1].sub(values[1:]).min()) > 1e-14:
        assert [pair.row * SIZE + pair.col for pair in found] == places.tolist()


def excesses(rows: Tensor, units: Tensor, centre: Tensor) -> Iterator[Tensor]:
    """Tile by tile by how much the bounds, with their error, are above the products."""
    found = BoundedClosestPairs(rows, units, centre)
    short = units.float()
    for at, to in pairs.tile_slices(SIZE):
        scratch = torch.empty(len(rows[at]), len(rows[to]))
        tile = ScreenedTile(at, to, short[at] @ short[to].T, units, scratch)
        found.closest.pairs = [closest.RowPair(0, 1, torch.inf)] * closest.REPORTED
        found.screen(tile)  # nothing is above: the bounds are left in the scratch room
        products = (rows[at] @ rows[to].T) / found.square - found.base
        yield (scratch.double() + found.error - products) * found.square


@pytest.mark.parametrize("name", CASES)
def test_no_bound_is_below_its_product(name: str) -> None:
    assert all(float(excess.min()) >= 0 for excess in excesses(*CASES[name]()))


@pytest.mark.parametrize("name", SPARED)
def test_bounds_are_sharp_where_rows_follow_the_units(name: str) -> None:
    """Off by what float32 is, and the spread, but for the few units that say nothing."""
    found = torch.cat([excess.flatten() for excess in excesses(*CASES[name]())])
    assert float(found.quantile(0.7)) < (0.1 if name == "spread" else 1e-4)


@pytest.mark.parametrize("tilt", [0.0, 1e-6])
def test_pairs_are_told_apart_below_float32(tilt: float) -> None:
    """Twenty pairs whose products differ by 1e-9 come in the order that float64 has."""
    generator = torch.Generator().manual_seed(5)
    basis = torch.linalg.qr(torch.randn(64, 64, generator=generator).double()).Q
    angles = torch.arange(20).double()[:, None] * 1e-9 + 0.3
    rows = torch.cat([basis[:20], angles.cos() * basis[:20] + angles.sin() * basis[20:40]])
    rows = rows[torch.randperm(40, generator=generator)]
    units = unit(rows + tilt * torch.randn(40, 64, generator=generator))
    values, places = (rows @ rows.T).triu(1).flatten().topk(closest.REPORTED)
    found = swept(rows, units, rows.mean(0)).closest.pairs
    assert [pair.row * 40 + pair.col for pair in found] == places.tolist()
    assert [pair.value for pair in found] == pytest.approx(values.tolist(), abs=1e-15)

"""Regime of the guarantees, compared with numbers known by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from nclab.figures.matplotlib_renderer import draw
from nclab.figures.picture import HeatMap
from nclab.theory.layer_peeled import g
from nclab_papers.pan2023 import regime

SMALL = regime.Config(classes=(3, 10), products=(5.0, 15.0, 30.0), excess=(1e-4, 1e-2))


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return regime.run(SMALL, seeds=(0,), out=Path("unused"))


def test_a_small_excess_alone_is_not_enough(numbers: dict[str, Any]) -> None:
    (maps,) = regime.pictures(numbers)
    assert maps.name == "certified"
    panel = maps.panels[1]
    assert isinstance(panel, HeatMap)
    at = dict(zip(panel.y_names, panel.values, strict=True))
    small = panel.x_names.index("0.01")
    assert at["5"][small] == pytest.approx(0.436, abs=1e-3)
    assert at["15"][small] == pytest.approx(0.0013, abs=1e-4)
    assert at["30"][small] == 0
    assert len(draw(maps).axes) == 4  # two maps with their scales


def test_at_the_largest_excess_the_guarantee_is_one_half(numbers: dict[str, Any]) -> None:
    for row in numbers["limits"]:
        at = (row["classes"], row["product"])
        assert regime.certified(*at, row["certify"]) >= 0.5
        assert regime.certified(*at, 1.01 * row["certify"]) < 0.5
        assert row["thesis"] is None or row["thesis"] < row["certify"]


@pytest.mark.parametrize(("classes", "product"), [(3, 5.0), (10, 7.0), (100, 10.0)])
def test_near_the_optimum_the_guarantee_follows_the_caption(classes: int, product: float) -> None:
    """1 − intra is 2(C−1)ε/(mαβ) where ε is small beside the smallest loss m."""
    best = g(product, classes)
    excess = 1e-4 * best / classes
    expected = 2 * (classes - 1) * excess / (best * product)
    assert 1 - regime.certified(classes, product, excess) == pytest.approx(expected, rel=0.02)


def test_tables_have_a_row_for_every_regime(numbers: dict[str, Any]) -> None:
    (table,) = regime.tables(numbers)
    assert len(table.rows) == 6
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_vacuous_bound_has_no_largest_excess() -> None:
    assert regime.largest_excess(lambda excess: 0.0) is None
    assert regime.largest_excess(lambda excess: 1.0) == pytest.approx(10.0)
    assert math.isclose(regime.largest_excess(lambda excess: 1 - excess) or 0, 0.5, rel_tol=1e-6)

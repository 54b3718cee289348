"""The arrays behind the pictures of chapter 3."""

import pytest
from tests.claims import thesis_rows

from nclab.figures.draw import draw
from nclab.figures.interactive import spec
from nclab.figures.picture import Panel
from nclab.figures.spread import Look, column, spread
from nclab.papers.pan2023 import pictures as pan2023
from nclab.papers.pan2023 import pictures_theory as pan2023_theory

ETF = "simplex ETF, −1/(C−1)"


def panel(picture: object, place: int = 0) -> Panel:
    found = picture.panels[place]  # type: ignore[attr-defined]
    assert isinstance(found, Panel)
    return found


def test_figure_31_has_the_thesis_arrangement() -> None:
    numbers = thesis_rows.fig31()
    picture = pan2023.fig31(numbers)[0]
    assert picture.columns == 3
    assert [one.title for one in picture.panels] == ["BN with affine", "BN without affine", "no BN"]
    affine = panel(picture)
    assert [line.label for line in affine.series] == ["min intra", "max inter", ETF]
    assert list(affine.series[0].x) == list(thesis_rows.DECAYS)
    assert affine.series[0].y[0] == pytest.approx(0.449)
    low, high = affine.series[0].low, affine.series[0].high
    assert low is not None
    assert high is not None
    assert [low[0], high[0]] == pytest.approx([0.448, 0.45])
    assert affine.series[2].x == [1e-4, 1e-2]
    assert list(affine.series[2].y) == pytest.approx([-1 / 3] * 2)


def test_failed_runs_are_marked_and_left_out_of_the_lines() -> None:
    picture = pan2023.fig31(thesis_rows.fig31())[0]
    none = panel(picture, 2)
    assert max(float(x) for x in none.series[0].x if x is not None) == 3e-3
    crosses = none.series[-1]
    assert (crosses.label, crosses.style, crosses.marker) == ("not converged", "none", "cross")
    assert sorted(set(crosses.x)) == [7e-3, 1e-2]  # type: ignore[type-var]
    assert len(crosses.x) == 2 * 2 * 3
    assert "no BN at 0.007 (3 seeds), no BN at 0.01 (3 seeds)" in picture.caption


def test_the_difference_is_min_intra_minus_max_inter() -> None:
    difference = panel(pan2023.fig31(thesis_rows.fig31())[1])
    assert difference.series[0].y[0] == pytest.approx(0.449 + 0.1)
    assert difference.references[0].y == pytest.approx(4 / 3)


def test_undefined_cosines_are_not_drawn() -> None:
    numbers = thesis_rows.fig31()
    for row in numbers["rows"]:
        if not row["converged"]:
            row.update(min_intra=None, max_inter=None)
    picture = pan2023.fig31(numbers)[0]
    assert [line.label for line in panel(picture, 2).series] == ["min intra", "max inter", ETF]
    assert "no BN at 0.01" in picture.caption


def test_figure_33_has_a_panel_for_every_weight_decay() -> None:
    layers, depths = pan2023.fig33(thesis_rows.fig33())
    assert len(layers.panels) == 7
    assert layers.columns == 4
    assert layers.panels[-1].title == "wd = 0.01, 3 of 3 not converged"
    first = panel(layers)
    labels = [line.label for line in first.series]
    assert labels == ["NCC accuracy", "min intra", "max inter", ETF]
    assert list(first.series[0].x) == list(range(1, 15))
    effective, middle = panel(depths), panel(depths, 1)
    assert [line.label for line in effective.series] == ["ε = 0.01", "ε = 0.05"]
    assert list(effective.series[0].y) == [7, 6, 5, 4, 3, 2]
    assert 1e-2 not in effective.series[0].x
    assert middle.series[0].y[0] == pytest.approx(-0.04)


def test_figure_33_leaves_out_the_seeds_that_failed() -> None:
    numbers = thesis_rows.fig33()
    for run in numbers["runs"]:
        if run["seed"] == 1 and run["weight_decay"] == 1e-4:
            run["converged"] = False
    for row in numbers["rows"]:
        if row["seed"] == 1:
            row["min_intra"] = -1.0
    layers = pan2023.fig33(numbers)[0]
    assert layers.panels[0].title == "wd = 0.0001, 1 of 3 not converged"
    assert panel(layers).series[1].y[0] == pytest.approx(0.25)
    assert panel(layers, 6).series[1].y[0] == pytest.approx((0.25 - 1 + 0.25) / 3)
    assert "Where no seed converged, the panel shows all of them." in layers.caption
    kept = [run for run in numbers["runs"] if run["weight_decay"] < 1e-2]
    rows = [row for row in numbers["rows"] if row["weight_decay"] < 1e-2]
    assert "Where no" not in pan2023.fig33(numbers | {"runs": kept, "rows": rows})[0].caption


def test_complexity_runs_along_the_teachers_depth() -> None:
    picture = pan2023_theory.complexity(thesis_rows.complexity())[0]
    assert len(picture.panels) == 3
    assert list(panel(picture).series[0].x) == [1, 3, 6, 9]
    assert panel(picture).x_ticks == (1, 3, 6, 9)
    assert panel(picture, 2).series[0].y[0] == pytest.approx(0.96 + 0.29)


def test_norms_stand_beside_the_optimum() -> None:
    picture = pan2023_theory.norms(thesis_rows.norms())[0]
    alpha = panel(picture)
    assert list(alpha.series[0].y)[:2] == [8.0, 7.0]
    assert set(alpha.series[1].y) == {3.0}
    assert panel(picture, 2).series[0].y[0] == 8.0 * 2.5
    assert panel(picture, 3).y_scale == "log"
    assert panel(picture, 3).series[2].y[0] == pytest.approx(0.1 * 0.5e-4)
    assert panel(picture, 4).series[0].y[0] == pytest.approx(1 / 9)


def test_conjectures_show_seeds_and_intervals() -> None:
    picture = pan2023_theory.conjectures(thesis_rows.conjectures())[0]
    first = panel(picture)
    interval, seeds = first.series[0], first.series[1]
    assert first.x_ticks[0] == 1
    assert first.x_names[0] == "conic,\n6 layers"
    axis = spec(picture)["layout"]["xaxis"]
    assert axis["ticktext"][0] == "conic,<br>6 layers"
    assert draw(picture).axes[0].get_xticklabels()[0].get_text() == first.x_names[0]
    assert (interval.y, interval.low, interval.high) == ([0.01], [0.0], [0.02])
    assert list(seeds.y) == [0.0, 0.01, 0.02]
    assert first.references[0].y == 0.05


def test_one_seed_has_no_band() -> None:
    line = spread([{"x": 1, "v": 0.5}], "x", column("v"), Look("v", 0))
    assert line.low is None
    assert line.y == [0.5]

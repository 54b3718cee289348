"""matplotlib draws the numbers of a picture, on light and dark backgrounds, and saves files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nclab.figures.matplotlib_renderer import draw, save
from nclab.figures.picture import DARK, LIGHT, Picture
from tests.figures.pictures import ALL, BAND, COSINES, DECAYS, POINTS, TIME


def test_lines_bands_and_references_have_the_numbers_of_the_picture() -> None:
    (axis,) = draw(Picture("p", "", (BAND,))).axes
    first, second = axis.lines[:2]
    np.testing.assert_array_equal(first.get_ydata(), [2.0, 1.0, 0.5])
    assert np.isnan(np.asarray(second.get_ydata())[1])
    assert to_hex(first.get_color()) == LIGHT.lines[1].lower()
    (band,) = axis.collections
    assert band.get_paths()[0].get_extents().y0 == pytest.approx(0.4)
    assert band.get_paths()[0].get_extents().y1 == pytest.approx(2.5)
    assert axis.lines[2].get_ydata() == [0.7, 0.7]
    assert axis.get_yscale() == "log"
    assert [text.get_text() for text in axis.texts] == ["theory", ""]


def test_points_have_error_bars_ticks_and_a_range() -> None:
    (axis,) = draw(Picture("p", "", (POINTS,))).axes
    assert axis.get_ylim() == (0.0, 0.5)
    np.testing.assert_allclose(axis.get_xticks(), DECAYS)
    bars: Any = axis.containers[0]
    hollow = bars.lines[0]
    assert to_hex(hollow.get_markerfacecolor()) == LIGHT.background.lower()
    assert bars.has_yerr
    assert [line.get_marker() for line in axis.lines if line.get_label() == "line"] == ["o"]


def test_large_times_have_decades_of_t_on_top() -> None:
    (axis,) = draw(Picture("p", "", (TIME,))).axes
    assert axis.get_xscale() == "log"
    assert len(axis.child_axes) == 1


def test_a_heat_map_holds_its_matrix_and_its_names() -> None:
    axis = draw(Picture("p", "", (COSINES,))).axes[0]
    shade: Any = axis.collections[0].get_array()
    values = np.ma.filled(shade, np.nan).ravel()
    np.testing.assert_array_equal(values, [1.0, -0.5, -0.5, np.nan])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axis.texts] == ["1.00", "−0.50", "−0.50"]


def test_panels_share_one_legend_if_their_labels_agree() -> None:
    figure = draw(Picture("p", "", (BAND, POINTS)))
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(labels) == ["<b>odd</b>", "line", "run", "trained"]
    other = BAND._replace(series=(BAND.series[0]._replace(label="other"),))
    figure = draw(Picture("p", "", (BAND, other)))
    assert not figure.legends
    assert all(axis.get_legend() is not None for axis in figure.axes)


def test_saving_twice_gives_equal_files(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    small = Picture("all", "", (BAND, COSINES))
    written = save(small, tmp_path / "first")
    again = save(small, tmp_path / "second")
    assert [path.name for path in written] == ["all.png", "all.pdf", "all.svg"]
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    starts = (b"\x89PNG", b"%PDF", b"<?xml")
    for path, start in zip(written, starts, strict=True):
        assert path.read_bytes().startswith(start)


def test_a_dark_figure_is_dark_everywhere() -> None:
    figure = draw(ALL, dark=True)
    assert to_hex(figure.get_facecolor()) == DARK.background.lower()
    assert {to_hex(axis.get_facecolor()) for axis in figure.axes[:5]} == {DARK.background.lower()}
    assert to_hex(figure.axes[0].lines[0].get_color()) == DARK.lines[1].lower()

"""Arrays of the pictures of the layer-peeled model, and both drawn and saved figures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.figures import ulpm as figures
from nclab.figures.matplotlib_renderer import draw, save
from nclab.figures.picture import Panel, Picture
from nclab.ulpm import Problem, flow


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [sample.to_dict() for sample in flow(Problem(3, 2, 5), log_time=300.0).samples]


def panel_of(picture: Picture, index: int) -> Panel:
    panel = picture.panels[index]
    assert isinstance(panel, Panel)
    return panel


def test_quantities_hold_the_samples_and_their_slopes(rows: list[dict[str, Any]]) -> None:
    picture = figures.quantities_picture(rows)
    curves = [panel_of(picture, index).series for index in range(4)]
    assert [len(series) for series in curves] == [3, 2, 3, 2]  # the claimed rate is the last
    kept = [row for row in rows if row["log_time"] is not None and row["log_time"] > 1]
    within = curves[1][0]
    assert within.x == [row["log_time"] for row in kept]
    assert within.y == [row["nc1_within_variation"] for row in kept]
    slope = figures.tail_slope(np.array(within.x), np.array(within.y))
    assert slope == pytest.approx(-0.5, abs=0.05)
    assert within.label == f"slope {slope:.2f}".replace("-", "−")
    rate = curves[1][1]
    np.testing.assert_allclose(np.array(rate.x) * np.array(rate.y), within.x[-1] * within.y[-1])


def test_margins_start_at_the_first_separating_sample(rows: list[dict[str, Any]]) -> None:
    picture = figures.margins_picture(rows)
    margin = panel_of(picture, 0).series[0]
    residuals = panel_of(picture, 2).series
    assert len(margin.x) < len(rows)
    assert None not in margin.y
    assert (np.diff(np.array(residuals[0].y)) < 0).all()
    assert all(y is None or y > 0 for line in residuals for y in line.y)


def test_every_figure_is_drawn_and_saved(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    angles = np.linspace(-1, 1, 5)
    level = np.subtract.outer(angles**2, angles**2)
    pictures = [
        figures.quantities_picture(rows, title="flow"),
        figures.margins_picture(rows, title="flow"),
        figures.escape_picture({"first": rows, "second": rows}),
        figures.slice_picture(angles, level),
    ]
    for picture in pictures[:3]:
        assert len(draw(picture).axes) == len(picture.panels)
    paths = save(pictures[3], tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg"]
    assert paths[1].stat().st_size > 5_000


def test_too_few_samples_raise(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(NclabError, match="Run for longer"):
        figures.quantities_picture(rows[:1])
    with pytest.raises(NclabError, match="Run for longer"):
        figures.margins_picture(rows[:1])


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NclabError, match=r"pip install nclab\[plot\]"):
        draw(Picture("p", "", ()))

"""The arrays behind the figures, and that they are drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.figures import canvas
from nclab.figures import ulpm as figures
from nclab.figures.draw import draw, save
from nclab.figures.picture import Panel
from nclab.ulpm import Problem, flow


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [sample.to_dict() for sample in flow(Problem(3, 2, 5), log_time=300.0).samples]


def test_quantity_panels_hold_the_samples_and_their_slopes(rows: list[dict[str, Any]]) -> None:
    data = figures.quantity_panels(rows)
    assert [len(curves) for curves in data.panels] == [2, 1, 2, 1]
    within = data.panels[1][0]
    kept = [row for row in rows if row["log_time"] is not None and row["log_time"] > 1]
    np.testing.assert_allclose(within.value, [row["nc1_within_variation"] for row in kept])
    assert within.slope == pytest.approx(-0.5, abs=0.05)
    ends = within.fitted[[0, -1]] / within.value[[-len(within.fitted), -1]]
    np.testing.assert_allclose(ends, 1.0, atol=0.05)


def test_margin_panels_start_where_classes_separate(rows: list[dict[str, Any]]) -> None:
    data = figures.margin_panels(rows)
    assert (data.margin > 0).all()
    assert (np.diff(data.kkt_epsilon) < 0).all()
    assert len(data.log_time) < len(rows)


def test_every_figure_is_drawn_and_saved(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    angles = np.linspace(-1, 1, 5)
    level = np.subtract.outer(angles**2, angles**2)
    pictures = [
        figures.quantities_picture(figures.quantity_panels(rows, title="flow")),
        figures.margins_picture(figures.margin_panels(rows, title="flow")),
        figures.escape_picture(figures.escape_panels({"one": rows, "two": rows})),
        figures.slice_picture(figures.slice_map(angles, level)),
    ]
    for picture in pictures[:3]:
        assert len(draw(picture).axes) == len(picture.panels)
    paths = save(pictures[3], tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg"]
    assert paths[1].stat().st_size > 5_000


def test_pictures_hold_the_arrays(rows: list[dict[str, Any]]) -> None:
    data = figures.quantity_panels(rows)
    panel = figures.quantities_picture(data).panels[1]
    assert isinstance(panel, Panel)
    assert panel.series[0].y == data.panels[1][0].value.tolist()
    assert panel.series[0].label == f"slope {data.panels[1][0].slope:.2f}".replace("-", "−")
    residuals = figures.margins_picture(figures.margin_panels(rows)).panels[2]
    assert isinstance(residuals, Panel)
    assert all(y is None or y > 0 for one in residuals.series for y in one.y)


def test_too_few_samples_say_so(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(NclabError, match="Run for longer"):
        figures.quantity_panels(rows[:1])
    with pytest.raises(NclabError, match="Run for longer"):
        figures.margin_panels(rows[:1])


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NclabError, match=r"pip install nclab\[plot\]"), canvas.drawing():
        pass

"""Figure 1 of ji2022 is drawn from a run, and every row of Table 1 has a verdict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.figures.matplotlib_renderer import draw
from nclab_papers.ji2022 import fig1


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return fig1.run(fig1.Config(), seeds=(0,), out=Path("unused"))


def test_the_drawn_run_collapses(numbers: dict[str, Any]) -> None:
    def spread(moment: dict[str, Any]) -> float:
        features = np.array(moment["features"]).reshape(3, -1, 2)
        return float((features - features.mean(1, keepdims=True)).std())

    first, *_, last = numbers["moments"]
    assert spread(last) < spread(first) / 3
    W = np.array(last["weight"])
    assert (W @ W.T)[~np.eye(3, dtype=bool)] == pytest.approx([-0.5] * 6, abs=0.1)


def test_every_row_of_the_table_has_a_verdict(numbers: dict[str, Any]) -> None:
    (table,) = fig1.tables(numbers)
    verdicts = {row[0]: row[-1] for row in table.rows}
    assert list(verdicts) == ["[28]", "[9]", "[39]", "[24]", "[26]", "[43]", "This paper"]
    assert verdicts["[9]"] == f"ji2022/eq-1: {numbers['judged']['ji2022/eq-1']}"
    assert verdicts["[26]"].startswith("open")
    assert "thm-3.1" in verdicts["This paper"]


def test_the_picture_has_every_step(numbers: dict[str, Any]) -> None:
    (picture,) = fig1.pictures(numbers)
    assert [panel.title for panel in picture.panels] == [
        f"step {step}" for step in fig1.Config().steps
    ]
    assert len(draw(picture).axes) == 4

"""Figure 2 of ji2022: the claims from the numbers, the figures from the samples."""

from pathlib import Path
from typing import Any

import pytest

from nclab.papers.drawing import keep
from nclab.papers.ji2022 import fig2 as ji2022_fig2
from nclab.papers.ji2022.fig2 import Config, fig2, summary

SHORT = Config(descent_steps=20_000, normalised_steps=60)
"""The paper's run cut to a fifth; the flow and normalised descent whole."""


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return fig2(SHORT)


def test_rates_and_steps(numbers: dict[str, Any]) -> None:
    assert all(numbers["checks"].values()), numbers["checks"]
    (one,) = numbers["per_seed"]
    assert one["slopes"]["nc1_within_variation"] == pytest.approx(-0.5, abs=0.02)
    assert one["slopes"]["nc3_self_duality"] == pytest.approx(-1.0, abs=0.02)
    assert one["steps_to_level"] <= 12


def test_verdicts_follow_the_numbers(numbers: dict[str, Any]) -> None:
    samples = numbers["samples"]
    swapped = summary({**samples, "normalised": samples["descent"]})
    assert sum(not ok for ok in swapped["checks"].values()) == 1
    assert swapped["steps_to_level"] == 20_000


def test_figures_are_kept(numbers: dict[str, Any], tmp_path: Path) -> None:
    keep(ji2022_fig2, numbers, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"numbers.json", "fig2_descent.png", "fig2_flow.pdf", "margins_flow.svg"}

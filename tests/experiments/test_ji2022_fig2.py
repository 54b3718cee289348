"""Figure 2 of ji2022: the claims from the numbers, the figures from the samples."""

from dataclasses import replace
from pathlib import Path

import pytest

from nclab.experiments.ji2022_fig2 import Config, Fig2Result, fig2
from nclab.experiments.keep import keep


@pytest.fixture(scope="module")
def result() -> Fig2Result:
    """The paper's run cut to a fifth; the flow and normalised descent whole."""
    return fig2(Config(descent_steps=20_000, normalised_steps=60))


def test_rates_and_steps(result: Fig2Result) -> None:
    assert all(result.checks().values()), result.checks()
    slopes = result.slopes()
    assert slopes["nc1_within_variation"] == pytest.approx(-0.5, abs=0.02)
    assert slopes["nc3_self_duality"] == pytest.approx(-1.0, abs=0.02)
    steps = result.steps_to_level()
    assert steps is not None
    assert steps <= 12


def test_verdicts_follow_the_numbers(result: Fig2Result) -> None:
    swapped = replace(result, runs={**result.runs, "normalised": result.runs["descent"]})
    assert sum(not ok for ok in swapped.checks().values()) == 1
    assert swapped.steps_to_level() == 20_000


def test_figures_are_kept(result: Fig2Result, tmp_path: Path) -> None:
    lines = keep(result, tmp_path)
    assert {Path(line.removeprefix("wrote ")).name for line in lines} >= {
        "numbers.json",
        "fig2_descent.png",
        "fig2_flow.pdf",
    }

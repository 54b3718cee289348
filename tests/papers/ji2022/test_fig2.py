"""Figure 2 of ji2022: the claims from the numbers, the figures from the samples."""

from pathlib import Path
from typing import Any

import pytest

from nclab.papers.drawing import keep
from nclab.papers.ji2022 import fig2
from nclab.papers.ji2022.fig2 import Config, summary
from nclab.papers.tables import shown
from nclab.papers.verdict import Verdict
from nclab.text import as_text
from tests.papers.spoils import put

SHORT = Config(descent_steps=20_000, normalised_steps=60)
"""The paper's run cut to a fifth; the flow and normalised descent whole."""
BEYOND = (fig2.within_rate, fig2.normalised_is_faster, fig2.flow_keeps_its_invariants)


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return fig2.run(SHORT, seeds=(0,), out=Path("unused"))


def test_rates_and_steps(numbers: dict[str, Any]) -> None:
    (one,) = numbers["per_seed"]
    rates = dict(one["slopes"])
    assert rates.pop("nc1_within_variation") == pytest.approx(-0.5, abs=0.02)
    assert list(rates.values()) == pytest.approx([-1.0, -1.0, -1.0], abs=0.02)
    assert one["steps_to_level"] <= 12
    assert one["last"]["flow"]["invariant_drift"] < 1e-8


def test_the_claims_are_judged_from_the_numbers(numbers: dict[str, Any]) -> None:
    for claim in (fig2.fig_2a, fig2.fig_2c, fig2.fig_2d, fig2.sec_5_3_slow, *BEYOND):
        assert claim.check(experiments={"ji2022_fig2": numbers}).verdict is Verdict.REPRODUCED
    assert fig2.fig_2b.judge(numbers).verdict is Verdict.NOT_REPRODUCED


def test_verdicts_follow_the_numbers(numbers: dict[str, Any]) -> None:
    samples = numbers["samples"]
    swapped = summary({**samples, "normalised": samples["descent"]})
    assert swapped["steps_to_level"] == 20_000
    wrong = {**numbers, "per_seed": [swapped]}
    assert [claim.judge(wrong).verdict for claim in BEYOND] == [
        Verdict.REPRODUCED,
        Verdict.NOT_REPRODUCED,
        Verdict.REPRODUCED,
    ]


@pytest.mark.parametrize(
    ("claim", "path", "value"),
    [
        (fig2.within_rate, "per_seed.0.slopes.nc1_within_variation", -0.53),
        (fig2.normalised_is_faster, "per_seed.0.steps_to_level", 16),
        (fig2.normalised_is_faster, "per_seed.0.steps_to_level", None),
        (fig2.flow_keeps_its_invariants, "per_seed.0.last.flow.invariant_drift", 1e-8),
    ],
)
def test_what_we_find_beyond_the_paper_can_fail(
    numbers: dict[str, Any], claim: Any, path: str, value: Any
) -> None:
    wrong = put(path, value)(numbers)
    assert claim.judge(wrong).verdict is Verdict.NOT_REPRODUCED
    both = {**numbers, "per_seed": [*numbers["per_seed"] * 2, *wrong["per_seed"]]}
    assert claim.judge(both).verdict is Verdict.PARTLY
    assert claim.check().evidence == "needs `nclab reproduce ji2022_fig2`"


def test_the_table_has_every_run(numbers: dict[str, Any]) -> None:
    (table,) = fig2.tables(numbers)
    assert [row[0] for row in table.rows] == ["descent", "normalised", "flow", "flow, slope"]
    assert "C = 5, N = 10, d = 20; normalised descent is there after" in table.title
    assert table.columns[-1] == "(4) duality"
    assert "normalised" in as_text(shown(table))


def test_figures_are_kept(numbers: dict[str, Any], tmp_path: Path) -> None:
    keep(fig2, numbers, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"numbers.json", "fig2_descent.png", "fig2_flow.pdf", "margins_flow.svg"}

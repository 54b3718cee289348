"""Figure 2 of ji2022: the claims from the numbers, the figures from the samples."""

from pathlib import Path
from typing import Any

import pytest

from nclab.figures.draw import draw
from nclab.papers.claim import Claim
from nclab.papers.drawing import keep
from nclab.papers.ji2022 import fig2
from nclab.papers.ji2022.fig2 import QUANTITIES, Config, figure_slope, flow_slope
from nclab.papers.tables import shown
from nclab.papers.verdict import Verdict
from nclab.text import as_text
from tests.papers.trained import NUMBERS, TRAINED_SPOILS

SHORT = Config(scales=(0.1, 1.0), descent_steps=20_000, normalised_steps=60)
"""The paper's run cut to a fifth; the flow and normalised descent whole."""
JUDGED = [one for one in vars(fig2).values() if isinstance(one, Claim) and one.needs]


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return fig2.run(SHORT, seeds=(0,), out=Path("unused"))


def test_rates_and_steps(numbers: dict[str, Any]) -> None:
    (one,) = numbers["per_seed"]
    small, large = one["starts"]
    assert (small["scale"], large["scale"]) == (0.1, 1.0)
    for start in (small, large):
        steps = start["descent"]["step"]
        assert 1000 <= min(steps) < max(steps) == 20_000
    rates = {name: flow_slope(one, name) for name in QUANTITIES}
    assert rates.pop("nc1_within_variation") == pytest.approx(-0.5, abs=0.02)
    assert list(rates.values()) == pytest.approx([-1.0] * 5, abs=0.02)
    assert figure_slope(small, "nc1_within_variation") == pytest.approx(-0.39, abs=0.03)
    larger = (curves["descent"]["nc1_within_variation"][-1] for curves in (large, small))
    assert next(larger) > 3 * next(larger)
    assert one["steps_to_level"] <= 12
    assert one["last"]["flow"]["invariant_drift"] < 1e-8


def test_one_seed_decides_nothing(numbers: dict[str, Any]) -> None:
    for claim in JUDGED:
        assert claim.check(numbers=numbers).verdict is Verdict.UNDECIDED, claim.id


@pytest.mark.parametrize("claim", JUDGED, ids=lambda one: one.id)
def test_verdicts_follow_the_numbers(claim: Claim) -> None:
    found = claim.check(numbers=NUMBERS["ji2022_fig2"])
    assert found.verdict is Verdict.REPRODUCED
    assert found.numbers["seeds"] == 8
    wrong = claim.check(numbers=TRAINED_SPOILS[claim.id](NUMBERS["ji2022_fig2"]))
    assert wrong.verdict is Verdict.CONTRADICTED


def test_both_curves_of_a_panel_count() -> None:
    found = fig2.fig_2a.judge(TRAINED_SPOILS["ji2022/fig-2a"](NUMBERS["ji2022_fig2"]))
    verdicts = ["reproduced", "contradicted"]
    assert [one["verdict"] for one in found.numbers["effects"]] == 2 * verdicts
    assert "the weakest, start 0.1, (1) norms, classifiers" in found.evidence


@pytest.mark.parametrize("panel", "abcd")
def test_a_size_that_the_paper_does_not_state_accuses_nobody(panel: str) -> None:
    claim, numbers = getattr(fig2, f"fig_2{panel}"), NUMBERS["ji2022_fig2"]
    wrong = TRAINED_SPOILS[claim.id](numbers)
    for first, second, verdict in (
        (numbers, wrong, Verdict.UNDECIDED),
        (wrong, numbers, Verdict.UNDECIDED),
        (wrong, wrong, Verdict.CONTRADICTED),
    ):
        mixed = [
            {**a, "starts": [a["starts"][0], b["starts"][1]]}
            for a, b in zip(first["per_seed"], second["per_seed"], strict=True)
        ]
        assert claim.judge({**numbers, "per_seed": mixed}).verdict is verdict


def test_starts_that_disagree_are_undecided() -> None:
    numbers = NUMBERS["ji2022_fig2"]
    wrong = TRAINED_SPOILS["ji2022/fig-2b"](numbers)
    mixed = {**numbers, "per_seed": [*numbers["per_seed"][:4], *wrong["per_seed"][4:]]}
    assert fig2.fig_2b.judge(mixed).verdict is Verdict.UNDECIDED


def test_rate_5_is_meant_for_the_mean() -> None:
    found = fig2.sec_4_setting.check()
    assert found.verdict is Verdict.CORRECTED
    outcomes = [row["outcome"] for row in found.numbers["sum"]]
    assert outcomes == ["finished", "diverged", "diverged"]
    mean = {**found.numbers, "sum": found.numbers["mean"]}
    assert fig2.sec_4_setting.judge(mean).verdict is Verdict.HOLDS


def test_the_table_has_every_run(numbers: dict[str, Any]) -> None:
    (table,) = fig2.tables(numbers)
    slopes = ["descent from 0.1, slope", "descent from 1, slope", "flow, slope"]
    names = ["descent", "normalised", "flow", *slopes]
    assert [row[0] for row in table.rows] == names
    assert "C = 5, N = 10, d = 20; normalised descent is there after" in table.title
    assert table.columns[-1] == "(4) duality"
    assert "normalised" in as_text(shown(table))


def test_figures_are_kept(numbers: dict[str, Any], tmp_path: Path) -> None:
    first, *others = fig2.pictures(numbers)
    keep([first], numbers, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"numbers.json", "fig2_descent.png", "fig2_descent.pdf", "fig2_descent.svg"}
    for other in others:
        draw(other).draw_without_rendering()
    assert [other.name for other in others] == ["fig2_flow", "margins_flow"]

"""Figure 2 of ji2022: claims judged from numbers, and figures drawn from samples."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nclab.claims.claim import Claim, Verdict
from nclab.claims.pictures import write_results
from nclab.claims.tables import for_terminal
from nclab.figures.matplotlib_renderer import draw
from nclab.text import as_text
from nclab_papers.ji2022 import fig2
from nclab_papers.ji2022.fig2 import QUANTITIES, WINDOWS, Config, figure_slope, flow_slopes
from tests.claims.paper_attacks import IDEAL, SPOILED

SHORT = Config(scales=(0.1, 1.0), descent_steps=20_000, normalised_steps=60)
"""A fifth of the paper's steps of plain descent; flow and normalised descent in full."""
JUDGED = [value for value in vars(fig2).values() if isinstance(value, Claim) and value.needs]


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return fig2.run(SHORT, seeds=(0,), out=Path("unused"))


def test_rates_and_steps(numbers: dict[str, Any]) -> None:
    (seed,) = numbers["per_seed"]
    small, large = seed["starts"]
    assert (small["scale"], large["scale"]) == (0.1, 1.0)
    for start in (small, large):
        steps = start["descent"]["step"]
        assert 10 <= min(steps) < 13
        assert max(steps) == 20_000
    rates = {name: values[0] for name, values in flow_slopes(numbers).items()}
    assert rates.pop("nc1_within_variation") == pytest.approx(-0.5, abs=0.02)
    assert list(rates.values()) == pytest.approx([-1.0] * 5, abs=0.02)
    assert figure_slope(small, "nc1_within_variation", 1000) == pytest.approx(-0.39, abs=0.03)
    larger = (curves["descent"]["nc1_within_variation"][-1] for curves in (large, small))
    assert next(larger) > 3 * next(larger)
    assert seed["steps_to_level"] <= 12
    assert seed["last"]["flow"]["invariant_drift"] < 1e-8


def test_one_seed_leaves_claims_undecided(numbers: dict[str, Any]) -> None:
    for claim in JUDGED:
        assert claim.check(numbers=numbers).verdict is Verdict.UNDECIDED, claim.id


@pytest.mark.parametrize("claim", JUDGED, ids=lambda claim: claim.id)
def test_verdicts_follow_the_numbers(claim: Claim) -> None:
    finding = claim.check(numbers=IDEAL["ji2022_fig2"])
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.numbers["seeds"] == 8
    wrong = claim.check(numbers=SPOILED[claim.id](IDEAL["ji2022_fig2"]))
    assert wrong.verdict is Verdict.CONTRADICTED


def test_both_curves_of_a_panel_count() -> None:
    finding = fig2.fig_2a.judge(SPOILED["ji2022/fig-2a"](IDEAL["ji2022_fig2"]))
    both = ["reproduced", "contradicted"]
    assert [effect["verdict"] for effect in finding.numbers["effects"]] == 2 * len(WINDOWS) * both
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.numbers["split"] == "contradicted in 6 of 6 settings"


def with_curves(
    numbers: dict[str, Any], run: str, curve: Callable[[int, float], float]
) -> dict[str, Any]:
    """Return numbers whose quantities all follow a curve, a function of the seed and log t."""
    numbers = copy.deepcopy(numbers)
    for seed in numbers["per_seed"]:
        for curves in [seed["flow"]] if run == "flow" else [s["descent"] for s in seed["starts"]]:
            times = curves["log_time"] if run == "flow" else map(math.log, curves["step"])
            values = [curve(seed["seed"], x) for x in times]
            curves |= dict.fromkeys(QUANTITIES, values)
    return numbers


@pytest.mark.parametrize("spread", [0.45, 0.1])
def test_slopes_around_the_claimed_one_contradict_nothing(spread: float) -> None:
    expected = Verdict.UNDECIDED if spread > 0.25 else Verdict.REPRODUCED
    numbers = IDEAL["ji2022_fig2"]
    around = with_curves(numbers, "descent", lambda seed, x: x ** (-1 + spread * (-1) ** seed))
    faster = with_curves(numbers, "descent", lambda seed, x: x ** (-2 + spread * (-1) ** seed))
    for panel in "abcd":
        claim = getattr(fig2, f"fig_2{panel}")
        assert claim.judge(around).verdict is expected
        assert claim.judge(faster).verdict is Verdict.REPRODUCED  # O(1/log t) is a bound
    scale = spread / 5
    around = with_curves(numbers, "flow", lambda seed, x: x ** (-1 + scale * (-1) ** seed))
    assert fig2.rates_in_the_end.judge(around).verdict is expected
    scale = spread / 12.5
    around = with_curves(numbers, "flow", lambda seed, x: x ** (-0.5 + scale * (-1) ** seed))
    assert fig2.within_rate.judge(around).verdict is expected


@pytest.mark.parametrize("panel", "abcd")
def test_windows_that_disagree_make_the_verdict_depend(panel: str) -> None:
    claim, numbers = getattr(fig2, f"fig_2{panel}"), IDEAL["ji2022_fig2"]
    # The curve is flat over the last two decades, but falls like 1/log t before.
    knee = math.log(1000)
    late = with_curves(numbers, "descent", lambda seed, x: min(x, knee) ** -1.7)
    finding = claim.judge(late)
    assert finding.verdict is Verdict.DEPENDS
    choices = finding.numbers["choices"]
    assert choices["start 0.1 from step 1000"] == "contradicted"
    assert choices["start 0.1 from step 10"] == "reproduced"
    assert len(choices) == 2 * len(WINDOWS)


def test_numbers_without_the_early_steps_are_not_judged() -> None:
    numbers = copy.deepcopy(IDEAL["ji2022_fig2"])
    for seed in numbers["per_seed"]:
        for start in seed["starts"]:
            start["descent"] = {name: values[4:] for name, values in start["descent"].items()}
    finding = fig2.fig_2b.check(numbers=numbers)
    assert finding.verdict is Verdict.OPEN
    assert "Expected curves from step 100 on, got step 1000 and later" in finding.evidence


def test_stalled_curves_are_slow_and_steep_ones_are_not() -> None:
    numbers = IDEAL["ji2022_fig2"]
    stalled = with_curves(numbers, "descent", lambda seed, x: 1 + 0.01 * (-1) ** seed * x)
    assert fig2.sec_5_3_slow.judge(stalled).verdict is Verdict.REPRODUCED
    fast = with_curves(numbers, "descent", lambda seed, x: math.exp(-0.6 * x))
    assert fig2.sec_5_3_slow.judge(fast).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("panel", "abcd")
def test_starts_that_disagree_make_the_verdict_depend(panel: str) -> None:
    claim, numbers = getattr(fig2, f"fig_2{panel}"), IDEAL["ji2022_fig2"]
    wrong = SPOILED[claim.id](numbers)
    for first, second, verdict in (
        (numbers, wrong, Verdict.DEPENDS),
        (wrong, numbers, Verdict.DEPENDS),
        (wrong, wrong, Verdict.CONTRADICTED),
    ):
        mixed = [
            {**a, "starts": [a["starts"][0], b["starts"][1]]}
            for a, b in zip(first["per_seed"], second["per_seed"], strict=True)
        ]
        assert claim.judge({**numbers, "per_seed": mixed}).verdict is verdict


def test_seeds_that_disagree_leave_the_claim_undecided() -> None:
    numbers = IDEAL["ji2022_fig2"]
    wrong = SPOILED["ji2022/fig-2b"](numbers)
    mixed = {**numbers, "per_seed": [*numbers["per_seed"][:4], *wrong["per_seed"][4:]]}
    assert fig2.fig_2b.judge(mixed).verdict is Verdict.UNDECIDED


def test_rate_5_works_on_the_mean_loss() -> None:
    finding = fig2.sec_4_setting.check()
    assert finding.verdict is Verdict.CORRECTED
    outcomes = [row["outcome"] for row in finding.numbers["sum"]]
    assert outcomes == ["finished", "finished", "diverged", "diverged"]
    # From tiny starts the sum does not diverge, and from the smallest one it collapses.
    assert finding.numbers["sum"][0]["normalised_margin"] > 0.8
    mean = {**finding.numbers, "sum": finding.numbers["mean"]}
    assert fig2.sec_4_setting.judge(mean).verdict is Verdict.HOLDS


def test_the_table_has_every_run(numbers: dict[str, Any]) -> None:
    (table,) = fig2.tables(numbers)
    slopes = [
        f"descent, slope, start {scale} from step {first}"
        for first in WINDOWS
        for scale in (0.1, 1)
    ]
    names = ["descent", "normalised", "flow", *slopes, "flow, slope"]
    assert [row[0] for row in table.rows] == names
    assert "C = 5, N = 10, d = 20. Normalised descent passes plain descent after" in table.title
    assert table.columns[-1] == "(4) self-duality"
    assert "normalised" in as_text(for_terminal(table))


def test_figures_are_written(numbers: dict[str, Any], tmp_path: Path) -> None:
    first, *others = fig2.pictures(numbers)
    write_results([first], numbers, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"numbers.json", "fig2_descent.png", "fig2_descent.pdf", "fig2_descent.svg"}
    for other in others:
        draw(other).draw_without_rendering()
    assert [other.name for other in others] == ["fig2_flow", "margins_flow"]

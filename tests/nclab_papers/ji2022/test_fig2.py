"""Figure 2 of ji2022: the claims from the numbers, the figures from the samples."""

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
from nclab_papers.ji2022.fig2 import QUANTITIES, WINDOWS, Config, figure_slope, flow_slope
from tests.claims.paper_attacks import IDEAL, SPOILED

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
        assert 10 <= min(steps) < 13
        assert max(steps) == 20_000
    rates = {name: flow_slope(one, name) for name in QUANTITIES}
    assert rates.pop("nc1_within_variation") == pytest.approx(-0.5, abs=0.02)
    assert list(rates.values()) == pytest.approx([-1.0] * 5, abs=0.02)
    assert figure_slope(small, "nc1_within_variation", 1000) == pytest.approx(-0.39, abs=0.03)
    larger = (curves["descent"]["nc1_within_variation"][-1] for curves in (large, small))
    assert next(larger) > 3 * next(larger)
    assert one["steps_to_level"] <= 12
    assert one["last"]["flow"]["invariant_drift"] < 1e-8


def test_one_seed_decides_nothing(numbers: dict[str, Any]) -> None:
    for claim in JUDGED:
        assert claim.check(numbers=numbers).verdict is Verdict.UNDECIDED, claim.id


@pytest.mark.parametrize("claim", JUDGED, ids=lambda one: one.id)
def test_verdicts_follow_the_numbers(claim: Claim) -> None:
    found = claim.check(numbers=IDEAL["ji2022_fig2"])
    assert found.verdict is Verdict.REPRODUCED
    assert found.numbers["seeds"] == 8
    wrong = claim.check(numbers=SPOILED[claim.id](IDEAL["ji2022_fig2"]))
    assert wrong.verdict is Verdict.CONTRADICTED


def test_both_curves_of_a_panel_count() -> None:
    found = fig2.fig_2a.judge(SPOILED["ji2022/fig-2a"](IDEAL["ji2022_fig2"]))
    both = ["reproduced", "contradicted"]
    assert [one["verdict"] for one in found.numbers["effects"]] == 2 * len(WINDOWS) * both
    assert "(1) norms, classifiers below -0.75: -0.15 (95 %" in found.evidence


def bent(numbers: dict[str, Any], run: str, curve: Callable[[int, float], float]) -> dict[str, Any]:
    """Numbers with other curves: of the seed and log t, the same for all quantities."""
    numbers = copy.deepcopy(numbers)
    for one in numbers["per_seed"]:
        for curves in [one["flow"]] if run == "flow" else [s["descent"] for s in one["starts"]]:
            times = curves["log_time"] if run == "flow" else map(math.log, curves["step"])
            values = [curve(one["seed"], x) for x in times]
            curves |= dict.fromkeys(QUANTITIES, values)
    return numbers


@pytest.mark.parametrize("spread", [0.45, 0.1])
def test_slopes_around_the_claimed_one_contradict_nothing(spread: float) -> None:
    expected = Verdict.UNDECIDED if spread > 0.25 else Verdict.REPRODUCED
    numbers = IDEAL["ji2022_fig2"]
    around = bent(numbers, "descent", lambda seed, x: x ** (-1 + spread * (-1) ** seed))
    faster = bent(numbers, "descent", lambda seed, x: x ** (-2 + spread * (-1) ** seed))
    for panel in "abcd":
        claim = getattr(fig2, f"fig_2{panel}")
        assert claim.judge(around).verdict is expected
        assert claim.judge(faster).verdict is Verdict.REPRODUCED  # O(1/log t) is a bound
    scale = spread / 5
    around = bent(numbers, "flow", lambda seed, x: x ** (-1 + scale * (-1) ** seed))
    assert fig2.rates_in_the_end.judge(around).verdict is expected
    scale = spread / 12.5
    around = bent(numbers, "flow", lambda seed, x: x ** (-0.5 + scale * (-1) ** seed))
    assert fig2.within_rate.judge(around).verdict is expected


@pytest.mark.parametrize("panel", "abcd")
def test_a_window_that_the_paper_does_not_state_accuses_nobody(panel: str) -> None:
    claim, numbers = getattr(fig2, f"fig_2{panel}"), IDEAL["ji2022_fig2"]
    # Flat over the last two decades, but 1/log t on the whole.
    knee = math.log(1000)
    late = bent(numbers, "descent", lambda seed, x: min(x, knee) ** -1.7)
    found = claim.judge(late)
    assert found.verdict is Verdict.UNDECIDED
    choices = found.numbers["choices"]
    assert choices["start 0.1 from step 1000"] == "contradicted"
    assert choices["start 0.1 from step 10"] == "reproduced"
    assert len(choices) == 2 * len(WINDOWS)


def test_numbers_without_the_early_steps_are_not_judged() -> None:
    numbers = copy.deepcopy(IDEAL["ji2022_fig2"])
    for one in numbers["per_seed"]:
        for start in one["starts"]:
            start["descent"] = {name: values[4:] for name, values in start["descent"].items()}
    found = fig2.fig_2b.check(numbers=numbers)
    assert found.verdict is Verdict.OPEN
    assert "curves from step 100 on are judged, these begin at [1000]" in found.evidence


def test_what_stalls_is_slow_and_what_falls_fast_is_not() -> None:
    numbers = IDEAL["ji2022_fig2"]
    stalled = bent(numbers, "descent", lambda seed, x: 1 + 0.01 * (-1) ** seed * x)
    assert fig2.sec_5_3_slow.judge(stalled).verdict is Verdict.REPRODUCED
    fast = bent(numbers, "descent", lambda seed, x: math.exp(-0.6 * x))
    assert fig2.sec_5_3_slow.judge(fast).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("panel", "abcd")
def test_a_size_that_the_paper_does_not_state_accuses_nobody(panel: str) -> None:
    claim, numbers = getattr(fig2, f"fig_2{panel}"), IDEAL["ji2022_fig2"]
    wrong = SPOILED[claim.id](numbers)
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
    numbers = IDEAL["ji2022_fig2"]
    wrong = SPOILED["ji2022/fig-2b"](numbers)
    mixed = {**numbers, "per_seed": [*numbers["per_seed"][:4], *wrong["per_seed"][4:]]}
    assert fig2.fig_2b.judge(mixed).verdict is Verdict.UNDECIDED


def test_rate_5_is_meant_for_the_mean() -> None:
    found = fig2.sec_4_setting.check()
    assert found.verdict is Verdict.CORRECTED
    outcomes = [row["outcome"] for row in found.numbers["sum"]]
    assert outcomes == ["finished", "finished", "diverged", "diverged"]
    # From starts that nobody would take the sum does not diverge, and from the least it collapses.
    assert found.numbers["sum"][0]["normalised_margin"] > 0.8
    mean = {**found.numbers, "sum": found.numbers["mean"]}
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
    assert "C = 5, N = 10, d = 20; normalised descent is there after" in table.title
    assert table.columns[-1] == "(4) duality"
    assert "normalised" in as_text(for_terminal(table))


def test_figures_are_kept(numbers: dict[str, Any], tmp_path: Path) -> None:
    first, *others = fig2.pictures(numbers)
    write_results([first], numbers, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"numbers.json", "fig2_descent.png", "fig2_descent.pdf", "fig2_descent.svg"}
    for other in others:
        draw(other).draw_without_rendering()
    assert [other.name for other in others] == ["fig2_slopes", "fig2_flow", "margins_flow"]


def test_slopes_are_drawn_with_the_intervals_that_are_judged() -> None:
    picture = fig2.slopes_picture(IDEAL["ji2022_fig2"])
    assert [panel.title for panel in picture.panels] == list(QUANTITIES.values())
    panel: Any = picture.panels[2]
    assert [one.label for one in panel.series] == [f"from step {first}" for first in WINDOWS]
    assert panel.x_names == ("0.1", "1")
    assert [one.y for one in panel.references] == [-0.75]
    for one in panel.series:
        assert [*one.y, *one.low, *one.high] == pytest.approx([-1.0] * 6)

"""Verdicts from intervals: position relative to the claimed range, and number of parts."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Finding, Verdict
from nclab.claims.effects import TAIL, Part, Share, median_interval, share_interval
from nclab.claims.judging import judge_effects, judge_settings, with_readings

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "judging.py"


def part(mean: float, spread: float, seeds: int = 8, name: str = "step", **more: Any) -> Part:
    values = mean + spread * np.linspace(-1, 1, seeds)
    return Part(name, dict(enumerate(values.tolist())), **more)


def always(seeds: int, name: str = "fails", happened: bool = True) -> Share:
    return Share(name, dict.fromkeys(range(seeds), happened))


NOWHERE = Part("elsewhere", {})


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [
        (0.5, 0.1, Verdict.REPRODUCED),
        (-0.5, 0.1, Verdict.CONTRADICTED),
        (0.0, 0.01, Verdict.NO_EFFECT),
        (0.06, 0.3, Verdict.UNDECIDED),
    ],
)
def test_the_interval_of_one_part_decides(mean: float, spread: float, verdict: Verdict) -> None:
    assert judge_effects([part(mean, spread)], margin=0.05).verdict is verdict
    mirrored = part(-mean, spread, below=0.0)
    assert judge_effects([mirrored], margin=0.05).verdict is verdict


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        (0.0, Verdict.REPRODUCED),
        (0.5, Verdict.CONTRADICTED),
        (-0.5, Verdict.CONTRADICTED),
        (0.29, Verdict.UNDECIDED),
    ],
)
def test_a_range_has_two_edges(mean: float, verdict: Verdict) -> None:
    inside = part(mean, 0.1, above=-0.3, below=0.3)
    finding = judge_effects([inside], margin=0.2)
    assert finding.verdict is verdict
    assert "needed: -0.3 to 0.3" in finding.evidence


@pytest.mark.parametrize("name", ["lognormal 0.5, tail left", "lognormal 0.5, tail right"])
def test_errors_stay_below_five_percent_for_moderate_skew(name: str) -> None:
    simulate = runpy.run_path(str(BENCHMARK))["errors"]
    for seeds in (6, 8, 12):
        assert max(simulate(name, "median", seeds, 8000)) < 0.05
    assert max(simulate(name, "t", 12, 8000)) > 0.06, "the old rule is noticed"


@pytest.mark.parametrize("name", ["lognormal 1, tail left", "lognormal 1, tail right"])
def test_errors_stay_below_eight_percent_for_strong_skew(name: str) -> None:
    simulate = runpy.run_path(str(BENCHMARK))["errors"]
    assert max(simulate(name, "median", 12, 8000)) < 0.05 < 0.08
    assert max(simulate(name, "t", 12, 8000)) > 0.12


def test_errors_of_normal_and_discrete_seeds_are_nominal() -> None:
    simulate = runpy.run_path(str(BENCHMARK))["errors"]
    for seeds in (6, 8, 12):
        assert max(simulate("normal", "median", seeds, 8000)) < 0.035
        assert max(simulate("whole numbers", "median", seeds, 8000)) < 0.025


def test_two_clusters_around_the_edge_are_the_worst_case() -> None:
    """Half of all seeds just below the edge, half far above: interpolation then errs most."""
    simulate = runpy.run_path(str(BENCHMARK))["errors"]
    worst = [max(simulate("two clusters", "median", seeds, 8000)) for seeds in (6, 8, 12)]
    assert max(worst) < 0.12


def test_requiring_every_part_controls_both_errors() -> None:
    several = runpy.run_path(str(BENCHMARK))["several_parts"]
    for seeds in (8, 12):
        contradicted, one_wrong, true = several("median", seeds, 8000)
        assert contradicted < 0.04
        assert one_wrong < 0.04
        assert true > several("t", seeds, 8000)[2]


def test_the_interval_interpolates_order_statistics() -> None:
    assert median_interval([1.0, 2, 3, 4, 5]) is None
    interval = median_interval(np.arange(1.0, 9))
    assert interval is not None
    low, high = interval
    assert 1 < low < 2
    assert 7 < high < 8
    assert low + high == pytest.approx(9)
    exact = median_interval(np.arange(1.0, 9), 0.5**8)  # the exact error of the extremes
    assert exact is not None
    assert (float(exact[0]), float(exact[1])) == pytest.approx((1, 8))
    assert median_interval(np.zeros((3, 5, 7))) is not None


def test_the_weakest_part_decides_and_is_named() -> None:
    finding = judge_effects([part(0.5, 0.1), part(-0.5, 0.1, name="back")], margin=0.05)
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.numbers["weakest"] == "back"
    assert "1 of 2 parts" in finding.evidence
    assert [one["verdict"] for one in finding.numbers["effects"]] == ["reproduced", "contradicted"]


def test_only_what_contradicts_is_corrected_for_the_other_parts() -> None:
    up, down = part(0.2, 0.1), part(-0.2, 0.1)

    def ends(values: Part, tail: float) -> tuple[float, float]:
        interval = median_interval(list(values.values.values()), tail)
        assert interval is not None
        return float(interval[0]), float(interval[1])

    mixed = judge_effects([up, up, up, down])
    [first, *_, last] = mixed.numbers["effects"]
    assert (first["low"], first["high"]) == pytest.approx(ends(up, TAIL))
    assert (last["low"], last["high"]) == pytest.approx(ends(down, TAIL / 4))
    assert mixed.verdict is Verdict.CONTRADICTED
    # Parts that agree need no correction for each other.
    [first, *_] = judge_effects([down] * 4).numbers["effects"]
    assert (first["low"], first["high"]) == pytest.approx(ends(down, TAIL))
    assert judge_effects([down] * 20).verdict is Verdict.CONTRADICTED
    one_of_seven = judge_effects([up] * 6 + [down])  # takes nine seeds
    assert one_of_seven.verdict is Verdict.UNDECIDED
    assert one_of_seven.numbers["more_seeds"] == 1


def test_one_part_may_be_enough() -> None:
    up, down = part(0.5, 0.1, name="up"), part(-0.5, 0.1, name="down")
    found = judge_effects([up, down], one_is_enough=True)
    assert (found.verdict, found.numbers["weakest"]) == (Verdict.REPRODUCED, "up")
    assert judge_effects([down] * 7, one_is_enough=True).verdict is Verdict.CONTRADICTED
    assert judge_effects([down] * 6 + [up], one_is_enough=True).verdict is Verdict.UNDECIDED
    # The largest of four effects of zero must not pass.
    rng = np.random.default_rng(0)
    reproduced = 0
    for _ in range(300):
        parts = [Part(f"{k}", dict(enumerate(rng.normal(size=12).tolist()))) for k in range(4)]
        reproduced += judge_effects(parts, one_is_enough=True).verdict is Verdict.REPRODUCED
    assert reproduced < 0.05 * 300


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_fewer_than_six_seeds_decide_nothing(seeds: int) -> None:
    finding = judge_effects([part(9.0, 0.1, seeds=seeds)], margin=0.1)
    assert finding.verdict is Verdict.UNDECIDED
    assert finding.numbers["interval"] == [None, None]
    assert finding.numbers["more_seeds"] == 6 - seeds
    assert "fewer than 6 seeds" in finding.evidence
    assert ("values 8.9 to 9.1" in finding.evidence) == (seeds > 1)
    assert judge_effects([always(seeds)]).verdict is Verdict.UNDECIDED
    assert judge_effects([part(9.0, 0.0, seeds=6)], margin=0.1).verdict is Verdict.REPRODUCED


def test_no_seed_is_open() -> None:
    assert judge_effects([], margin=0.1).verdict is Verdict.OPEN
    assert judge_effects([Part("none", {})], margin=0.1).verdict is Verdict.OPEN


def test_shares_need_six_seeds() -> None:
    assert judge_effects([always(5)]).verdict is Verdict.UNDECIDED
    finding = judge_effects([always(8)], answer="{estimate} fail ({interval}).")
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.sentence == "8 of 8 seeds fail (95 % interval 63 % to 100 %)."
    assert judge_effects([always(8, "training fails")]).sentence == (
        "Training fails in 8 of 8 seeds (95 % interval 63 % to 100 %); the claim needs more than "
        "50 % of all seeds."
    )
    assert judge_effects([always(8, happened=False)]).verdict is Verdict.CONTRADICTED
    assert share_interval(8, 8)[0] == pytest.approx(0.025 ** (1 / 8))


def test_an_unmeasured_part_makes_a_reproduced_claim_undecided() -> None:
    found = judge_effects([part(0.5, 0.1), NOWHERE], margin=0.05)
    assert found.verdict is Verdict.UNDECIDED
    assert found.numbers["missing"] == ["elsewhere"]
    assert found.evidence.startswith("1 of 2 parts reproduced; the weakest is step: 0.5 ")
    assert found.evidence.endswith("; not measured: elsewhere")
    assert "more_seeds" not in found.numbers
    contradicted = judge_effects([part(-0.5, 0.01), NOWHERE], margin=0.05)
    assert contradicted.verdict is Verdict.CONTRADICTED


def test_the_interval_of_whole_numbers_is_widened_by_half_a_step() -> None:
    depths = Part("depth", dict.fromkeys(range(8), 4.0), step=1.0)
    [effect] = judge_effects([depths], margin=0.0).numbers["effects"]
    assert (effect["low"], effect["high"]) == (3.5, 4.5)
    assert judge_effects([depths], margin=3.75).verdict is Verdict.UNDECIDED


def test_a_part_may_have_its_own_margin() -> None:
    own = part(0.3, 0.01, margin=0.5)
    assert judge_effects([own], margin=0.0).verdict is Verdict.NO_EFFECT


def test_no_effect_is_weaker_than_undecided() -> None:
    found = judge_effects([part(0.0, 0.01), part(0.1, 0.5, name="other")], margin=0.1)
    assert found.verdict is Verdict.NO_EFFECT


def test_no_effect_needs_both_ends_inside_the_margin() -> None:
    assert judge_effects([part(-0.1, 0.05)], margin=0.1).verdict is Verdict.UNDECIDED


def test_further_seeds_probably_settle_an_undecided_claim() -> None:
    """With the announced number, 80 % of the samples of the recorded values are decided."""
    values = [0.9, -0.6, 0.2, 1.4, 0.5, -0.2, 0.8, 1.0]
    finding = judge_effects([Part("step", dict(enumerate(values)))], margin=0.1)
    assert finding.verdict is Verdict.UNDECIDED
    more = finding.numbers["more_seeds"]
    assert f"probably {more} more seeds settle it" in finding.evidence
    rng = np.random.default_rng(1)
    share = {}
    for seeds in (8 + more // 2, 8 + more):
        interval = median_interval(rng.choice(values, (4000, seeds)))
        assert interval is not None
        share[seeds] = float((interval[0] > 0.1).mean())
    assert share[8 + more // 2] < 0.75 < share[8 + more] < 0.9


def test_two_clusters_around_the_edge_are_too_close_to_settle() -> None:
    steps = Part("steps", dict(enumerate([12.0, 15.0] * 6)), below=15.0, step=1.0)
    finding = judge_effects([steps])
    assert finding.verdict is Verdict.UNDECIDED
    assert finding.numbers["more_seeds"] is None


def test_the_part_that_is_quickest_to_contradict_sets_the_number_of_seeds() -> None:
    slow, quick = part(0.45, 1.0, name="slow"), part(-0.77, 1.0, name="quick")
    both, alone = (judge_effects(parts) for parts in ([slow, quick], [slow]))
    assert both.numbers["more_seeds"] < alone.numbers["more_seeds"]


def test_an_effect_at_its_margin_is_too_close_to_settle() -> None:
    for mean in (0.1, 0.1001):
        finding = judge_effects([part(mean, 0.5)], margin=0.1)
        assert finding.verdict is Verdict.UNDECIDED
        assert finding.numbers["more_seeds"] is None
        assert finding.evidence.endswith("too close to the margin to settle")


def test_whole_numbers_within_half_a_step_of_the_margin_are_too_close_to_settle() -> None:
    depths = Part("depth", dict.fromkeys(range(8), 4.0), step=1.0)
    assert judge_effects([depths], margin=3.75).numbers["more_seeds"] is None


def settings(**counts: int) -> dict[str, Finding]:
    centres = {"up": 1.0, "down": -1.0, "unclear": 0.0}
    return {
        f"{word} {n}": judge_effects([part(centres[word], 0.3)])
        for word, count in counts.items()
        for n in range(count)
    }


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"down": 10}, Verdict.CONTRADICTED),
        ({"down": 9, "unclear": 1}, Verdict.CONTRADICTED),
        ({"down": 8, "unclear": 2}, Verdict.DEPENDS),
        ({"down": 14, "up": 1}, Verdict.DEPENDS),
        ({"up": 10}, Verdict.REPRODUCED),
        ({"unclear": 3}, Verdict.UNDECIDED),
    ],
)
def test_ninety_percent_of_the_settings_must_be_decided_and_agree(
    counts: dict[str, int], verdict: Verdict
) -> None:
    assert judge_settings(settings(**counts)).verdict is verdict


def test_the_split_is_said_in_words() -> None:
    found = judge_settings(settings(down=14, up=1), "the curve falls")
    assert found.numbers["split"] == "contradicted in 14 of 15 settings, reproduced in 1 (up 0)"
    assert found.sentence == (
        "The curve falls: contradicted in 14 of 15 settings, reproduced in 1 (up 0)."
    )
    assert found.numbers["choices"]["up 0"] == "reproduced"
    assert found.numbers["effects"][0]["what"] == "down 0, step"
    assert found.numbers["seeds"] == 8
    nothing = judge_settings({"a": judge_effects([NOWHERE])})
    assert nothing.verdict is Verdict.OPEN


def test_other_readings_are_listed_and_have_no_veto() -> None:
    up, down, unclear = (judge_effects([part(at, 0.3)]) for at in (1.0, -1.0, 0.0))
    found = with_readings(up, {"features are centred": down, "the bar is 0.5": unclear})
    assert found.verdict is Verdict.REPRODUCED
    assert found.sentence.startswith(
        "Reproduced. Contradicted if features are centred. Undecided if the bar is 0.5. "
    )
    assert [row["verdict"] for row in found.numbers["readings"]] == ["contradicted", "undecided"]
    assert found.numbers["readings"][0]["estimate"] == -1.0
    agreed = with_readings(up, {"features are centred": up})
    assert agreed.sentence.startswith("The step is 1 ")


def test_numbers_that_are_not_finite_raise() -> None:
    with pytest.raises(ValueError, match="finite values of every seed for step"):
        judge_effects([Part("step", {0: 1.0, 1: math.nan})], margin=0.0)


def test_effects_are_written_with_their_distance_from_the_claimed_range() -> None:
    [effect] = judge_effects([part(0.25, 0.0, below=1.0, unit="%")]).numbers["effects"]
    assert effect["beyond"] == [0.75, 0.75, 0.75]
    assert (effect["below"], effect["unit"]) == (1.0, "%")
    assert "above" not in effect
    assert "values" not in effect
    [effect] = judge_effects([part(0.3, 0.1, above=-1.0, below=0.5)]).numbers["effects"]
    assert effect["beyond"][0] == pytest.approx(0.2)
    assert effect["beyond"][1] < effect["beyond"][2]


def test_the_reported_seeds_are_those_of_the_weakest_part() -> None:
    weak = Part("weak", {seed: 0.01 * seed for seed in range(8)})
    strong = Part("strong", {seed: 5 + 0.01 * seed for seed in range(6)})
    numbers = judge_effects([weak, strong], margin=0.1).numbers
    assert (numbers["weakest"], numbers["seeds"]) == ("weak", 8)


def test_percentages_and_needed_sizes_are_printed() -> None:
    steps = part(0.68, 0.03, name="steps that do not fall", above=0.9, unit="%")
    finding = judge_effects([steps], answer="{estimate} of the steps do not fall.")
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.sentence == "68 % of the steps do not fall."
    assert finding.evidence == (
        "steps that do not fall: 68 % (95 % interval 66 % to 70 %, needed: more than 90 %, 8 seeds)"
    )

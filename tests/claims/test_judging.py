"""Verdicts from intervals: position relative to the margin, and number of parts."""

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.claims.judging import Part, Share, judge_choices, judge_effects, judge_shares, t_interval


def part(mean: float, spread: float, seeds: int = 8, name: str = "step") -> Part:
    values = mean + spread * np.linspace(-1, 1, seeds)
    return Part(name, dict(enumerate(values.tolist())))


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


@pytest.mark.parametrize(
    ("mean", "spread", "verdict"),
    [
        (0.9, 0.05, Verdict.REPRODUCED),
        (0.4, 0.1, Verdict.CONTRADICTED),
        (-0.4, 0.1, Verdict.CONTRADICTED),
        (0.0, 0.3, Verdict.NO_EFFECT),
        (0.8, 0.1, Verdict.UNDECIDED),
        (-0.8, 0.1, Verdict.CONTRADICTED),
    ],
)
def test_an_effect_smaller_than_the_source_states_contradicts_it(
    mean: float, spread: float, verdict: Verdict
) -> None:
    assert judge_effects([part(mean, spread)], margin=0.8, stated=True).verdict is verdict


def test_the_weakest_part_decides_and_is_named() -> None:
    finding = judge_effects([part(0.5, 0.1), part(-0.5, 0.1, name="back")], margin=0.05)
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.numbers["weakest"] == "back"
    assert "1 of 2 parts" in finding.evidence
    assert [one["verdict"] for one in finding.numbers["effects"]] == ["reproduced", "contradicted"]


def test_many_parts_have_wider_intervals() -> None:
    alone = judge_effects([part(0.2, 0.1)], margin=0.0).numbers["effects"][0]
    among = judge_effects([part(0.2, 0.1)] * 20, margin=0.0).numbers["effects"][0]
    assert among["low"] < alone["low"] < alone["high"] < among["high"]


def test_one_seed_is_undecided_and_no_seed_is_open() -> None:
    assert judge_effects([part(9.0, 0.0, seeds=1)], margin=0.1).verdict is Verdict.UNDECIDED
    assert judge_effects([], margin=0.1).verdict is Verdict.OPEN
    assert judge_effects([Part("none", {})], margin=0.1).verdict is Verdict.OPEN


def test_intervals_have_their_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    found = [t_interval(rng.normal(size=6).tolist()) for _ in range(4000)]
    covered = np.mean([low <= 0 <= high for low, high in found if low is not None])  # type: ignore[misc]
    assert abs(covered - 0.95) < 0.015


def test_shares_need_enough_seeds() -> None:
    happened = {count: dict.fromkeys(range(count), True) for count in (4, 8)}
    assert judge_shares([Share("fails", happened[4])]).verdict is Verdict.UNDECIDED
    assert judge_shares([Share("fails", happened[8])]).verdict is Verdict.REPRODUCED
    never = dict.fromkeys(range(8), False)
    assert judge_shares([Share("fails", never)]).verdict is Verdict.CONTRADICTED


NOWHERE = Part("elsewhere", {})


def test_an_unmeasured_part_makes_a_reproduced_claim_undecided() -> None:
    found = judge_effects([part(0.5, 0.1), NOWHERE], margin=0.05)
    assert found.verdict is Verdict.UNDECIDED
    assert found.numbers["missing"] == ["elsewhere"]
    assert found.evidence.startswith("1 of 2 parts reproduced; the weakest is step: 0.5 ")
    assert found.evidence.endswith("; not measured: elsewhere")
    interval = judge_effects([part(0.5, 0.1)], margin=0.05).numbers["interval"]
    assert found.numbers["interval"] == interval


@pytest.mark.parametrize(
    ("mean", "verdict"), [(-0.5, Verdict.CONTRADICTED), (0.0, Verdict.NO_EFFECT)]
)
def test_an_unmeasured_part_keeps_a_claim_contradicted(mean: float, verdict: Verdict) -> None:
    assert judge_effects([part(mean, 0.01), NOWHERE], margin=0.05).verdict is verdict


def test_a_claim_restricted_to_convergence_needs_no_other_parts() -> None:
    found = judge_effects([part(0.5, 0.1), NOWHERE], margin=0.05, where_converged=True)
    assert found == judge_effects([part(0.5, 0.1)], margin=0.05)
    nothing = judge_effects([NOWHERE], margin=0.05, where_converged=True)
    assert nothing.verdict is Verdict.OPEN


def test_shares_and_choices_report_unmeasured_parts() -> None:
    always, never = (Share("fails", dict.fromkeys(range(8), one)) for one in (True, False))
    nowhere = Share("elsewhere", {})
    assert judge_shares([always, nowhere]).verdict is Verdict.UNDECIDED
    assert judge_shares([never, nowhere]).verdict is Verdict.CONTRADICTED
    assert judge_shares([nowhere]).verdict is Verdict.OPEN
    both = {"size 1": [part(0.5, 0.1), NOWHERE], "size 2": [part(0.5, 0.1, name="other")]}
    found = judge_choices(both, margin=0.05)
    assert found.verdict is Verdict.UNDECIDED
    assert found.numbers["choices"] == {"size 1": "undecided", "size 2": "reproduced"}
    refuted = judge_choices({"size 1": [part(-0.5, 0.1), NOWHERE]}, margin=0.05)
    assert refuted.verdict is Verdict.CONTRADICTED


def test_the_interval_of_rounded_values_is_widened_by_their_step() -> None:
    depths = Part("depth", dict.fromkeys(range(8), 4.0), step=1.0)
    [effect] = judge_effects([depths], margin=0.0).numbers["effects"]
    assert (effect["low"], effect["high"]) == (3.5, 4.5)
    assert judge_effects([depths], margin=3.75).verdict is Verdict.UNDECIDED
    few = depths._replace(values=dict.fromkeys(range(5), 4.0))
    assert judge_effects([few], margin=0.0).verdict is Verdict.UNDECIDED


def test_equal_shares_have_the_exact_interval_of_their_trials() -> None:
    """30 of 30: the share is above 1/40 to the power 1/30, the net share above .7686."""
    always = dict.fromkeys(range(6), 1.0)
    [effect] = judge_effects([Part("rises", always, trials=30)], margin=0.8).numbers["effects"]
    assert effect["low"] == pytest.approx(2 * 0.025 ** (1 / 30) - 1)
    assert effect["high"] == 1.0
    assert judge_effects([Part("rises", always, trials=30)], margin=0.8, stated=True).verdict is (
        Verdict.UNDECIDED
    )
    halves = dict.fromkeys(range(6), 0.5)
    [effect] = judge_effects(
        [Part("happens", halves, trials=30, share_range=(-0.5, 0.5))], margin=0.0
    ).numbers["effects"]
    assert effect["low"] == pytest.approx(0.025 ** (1 / 30) - 0.5)


def test_equal_shares_of_few_seeds_count_one_trial_per_seed() -> None:
    """However many layers a network has, two networks are two."""
    always = Part("rises", {0: 1.0, 1: 1.0}, trials=156)
    [effect] = judge_effects([always], margin=0.8).numbers["effects"]
    assert effect["low"] == pytest.approx(2 * 0.025 ** (1 / 2) - 1)
    assert judge_effects([always], margin=0.8).verdict is Verdict.UNDECIDED


def test_the_interval_of_a_chosen_part_is_corrected_for_the_choice() -> None:
    one = part(0.5, 0.1)
    alone, chosen = (
        judge_effects([one], margin=0.0, chosen_of=count).numbers["interval"] for count in (1, 4)
    )
    values = list(one.values.values())
    assert alone == pytest.approx(t_interval(values))
    assert chosen == pytest.approx(t_interval(values, 1 - 0.05 / 4))


def test_a_part_may_have_its_own_margin() -> None:
    own = part(0.3, 0.01)._replace(margin=0.5)
    assert judge_effects([own], margin=0.0).verdict is Verdict.NO_EFFECT


def test_no_effect_is_weaker_than_undecided() -> None:
    found = judge_effects([part(0.0, 0.01), part(0.1, 0.5, name="other")], margin=0.1)
    assert found.verdict is Verdict.NO_EFFECT


def test_no_effect_needs_both_ends_inside_the_margin() -> None:
    assert judge_effects([part(-0.1, 0.05)], margin=0.1).verdict is Verdict.UNDECIDED


def test_one_undecided_choice_makes_the_claim_undecided() -> None:
    down, open_ = part(-1.0, 0.1), part(-0.1, 1.0)
    found = judge_choices({"a": [down], "b": [open_]}, margin=0.0)
    assert found.numbers["choices"] == {"a": "contradicted", "b": "undecided"}
    assert found.verdict is Verdict.UNDECIDED


def test_intervals_are_simultaneous_over_all_choices() -> None:
    one = part(1.0, 0.1)
    found = judge_choices({"a": [one], "b": [one]}, margin=0.0)
    ends = t_interval(list(one.values.values()), 1 - 0.05 / 2)
    for effect in found.numbers["effects"]:
        assert (effect["low"], effect["high"]) == pytest.approx(ends)


def test_the_wider_of_both_intervals_of_a_share_is_used() -> None:
    wide = Part("rises", {0: 0.0, 1: 1.0}, trials=1000)
    [effect] = judge_effects([wide], margin=0.0).numbers["effects"]
    assert (effect["low"], effect["high"]) == pytest.approx(t_interval([0.0, 1.0]))


def test_readings_that_disagree_are_undecided_and_without_seeds_open() -> None:
    yes, no = (Share("every network", dict.fromkeys(range(8), one)) for one in (True, False))
    found = judge_choices({"nearly": [yes], "exactly": [no]}, margin=0.0)
    assert found.verdict is Verdict.UNDECIDED
    assert found.numbers["choices"] == {"nearly": "reproduced", "exactly": "contradicted"}
    assert judge_choices({"nearly": [yes], "exactly": [yes]}, margin=0.0).verdict is (
        Verdict.REPRODUCED
    )
    assert judge_choices({"nearly": [Share("every network", {})]}, margin=0.0).verdict is (
        Verdict.OPEN
    )


def test_equal_values_decide_from_six_seeds_on() -> None:
    def equal(seeds: int) -> Part:
        return Part("step", dict.fromkeys(range(seeds), 0.5))

    assert judge_effects([equal(2)], margin=0.0).verdict is Verdict.UNDECIDED
    assert judge_effects([equal(5)], margin=0.0).verdict is Verdict.UNDECIDED
    assert judge_effects([equal(6)], margin=0.0).verdict is Verdict.REPRODUCED
    rounded = Part("step", {0: 0.1 + 0.2, 1: 0.3})
    assert judge_effects([rounded], margin=0.0).verdict is Verdict.UNDECIDED


def test_choices_are_distinguished_by_their_full_names() -> None:
    up, down = part(1.0, 0.1), part(-1.0, 0.1)
    found = judge_choices({"start 0.1": [up], "start 0.1, big": [down]}, margin=0.0)
    assert found.numbers["choices"] == {"start 0.1": "reproduced", "start 0.1, big": "contradicted"}


def test_numbers_that_are_not_finite_raise() -> None:
    with pytest.raises(ValueError, match="finite values of every seed for step"):
        judge_effects([Part("step", {0: 1.0, 1: float("nan")})], margin=0.0)
    with pytest.raises(ValueError, match="shares within"):
        judge_effects([Part("rises", {0: 1.5, 1: 0.5}, trials=20)], margin=0.0)


def test_effects_record_that_the_source_states_the_margin() -> None:
    part = Part("a", {seed: 0.3 + 0.01 * seed for seed in range(8)})
    [effect] = judge_effects([part], margin=0.8, stated=True).numbers["effects"]
    assert effect["stated"] is True
    [effect] = judge_effects([part], margin=0.8).numbers["effects"]
    assert "stated" not in effect


def test_the_reported_seeds_are_those_of_the_weakest_part() -> None:
    weak = Part("weak", {seed: 0.01 * seed for seed in range(8)})
    strong = Part("strong", {seed: 5 + 0.01 * seed for seed in range(3)})
    numbers = judge_effects([weak, strong], margin=0.1).numbers
    assert (numbers["weakest"], numbers["seeds"]) == ("weak", 8)

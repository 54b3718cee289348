"""Collapse against weight decay: rows, judges and pictures."""

from typing import Any

import pytest

from nclab.claims.attacks import change_rows
from nclab.claims.claim import Verdict
from nclab.claims.paper import find_preset
from nclab.errors import NclabError
from nclab_papers.pan2023 import attacks, fig31, networks
from tests.nclab_papers.pan2023.tiny import DECAYS, panel

ETF = "simplex ETF, −1/(C−1)"


def test_every_seed_has_its_own_data(numbers: dict[str, dict[str, Any]]) -> None:
    rows = [row for row in numbers["pan2023_fig31"]["rows"] if row["norm"] == "affine"]
    assert len(rows) == 4
    assert len({row["loss"] for row in rows}) == 4
    assert {(row["seed"], row["weight_decay"]) for row in rows} == {
        (seed, decay) for seed in (0, 1) for decay in DECAYS
    }


def test_the_paper_preset_is_the_thesis() -> None:
    config = fig31.PRESETS["paper"]
    assert (config.layers, config.networks.width, config.networks.samples) == (6, 300, 10_000)
    assert (config.networks.epochs, config.networks.batch) == (300, 128)
    assert config.weight_decays == (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(NclabError, match="one of quick, paper; got 'huge'"):
        find_preset(fig31, "huge")


def test_a_failed_run_with_perfect_accuracy_has_not_converged() -> None:
    numbers = attacks.fig31()
    failed = change_rows("rows", lambda row: {"converged": False, "accuracy": 1.0})(numbers)
    assert fig31.converges.judge(failed).verdict is Verdict.CONTRADICTED


def test_affine_batch_norm_with_little_decay_must_not_collapse() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["norm"] == "affine":
            row.update(min_intra=1.0, max_inter=-1 / 3)
    finding = fig31.only_affine.judge(numbers)
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.numbers["weakest"] == (
        "collapse with affine batch norm at the smallest weight decay"
    )


def test_two_bad_seeds_of_eight_leave_a_claim_undecided() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["seed"] in (2, 5) and row["norm"] == "affine":
            row["min_intra"] = 0.0
    assert fig31.only_affine.judge(numbers).verdict is Verdict.UNDECIDED
    assert fig31.affine_above_plain.judge(numbers).verdict is Verdict.UNDECIDED


def test_runs_that_failed_do_not_count() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["weight_decay"] == 1e-2 and row["seed"] != 0:
            row.update(converged=False, min_intra=None, max_inter=None, accuracy=None)
    effects = fig31.affine_above_plain.judge(numbers).numbers["effects"]
    assert [effect["seeds"] for effect in effects] == [8, 8, 8, 8, 8, 8, 1]
    assert fig31.converges.judge(numbers).numbers["estimate"] == 1 / 8


def test_an_unmeasured_part_is_not_reproduced() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["norm"] == "affine":
            row["converged"] = False
    for claim in (fig31.only_affine, fig31.norm_helps_decay):
        finding = claim.judge(numbers)
        assert finding.verdict is Verdict.UNDECIDED
        assert "not measured: " in finding.evidence


def test_less_collapse_at_every_weight_decay_needs_every_decay() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["norm"] == "plain" and row["weight_decay"] == 1e-3:
            row["converged"] = False
    finding = fig31.affine_above_plain.judge(numbers)
    assert finding.verdict is Verdict.UNDECIDED
    assert finding.numbers["missing"] == [
        "difference of collapse, affine − plain batch norm, at weight decay 0.001"
    ]
    for row in numbers["rows"]:
        if row["norm"] == "affine" and row["weight_decay"] <= 3e-4:
            row["max_inter"] = 1.0
    assert fig31.affine_above_plain.judge(numbers).verdict is Verdict.CONTRADICTED


def test_steps_outside_the_range_of_convergence_are_not_required() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["norm"] == "affine" and row["weight_decay"] == 1e-2:
            row["converged"] = False
    finding = fig31.grows.judge(numbers)
    assert finding.verdict is Verdict.REPRODUCED
    assert [row["verdict"] for row in finding.numbers["readings"]] == ["reproduced"]


def test_one_falling_step_is_another_reading_of_growth() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if row["norm"] == "affine" and row["weight_decay"] == 7e-3:
            row["max_inter"] += 0.115  # the degree falls by five thousandths
    finding = fig31.grows.judge(numbers)
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.sentence.startswith(
        "Reproduced. No effect if collapse must grow at every step. "
    )
    [steps] = finding.numbers["readings"]
    assert "rise of collapse from weight decay 0.003 to 0.007: -0.005" in steps["evidence"]


def test_centred_features_are_another_reading_of_claims_with_cosines() -> None:
    numbers = change_rows(
        "rows",
        lambda row: {
            "centred_min_intra": row["min_intra"] if row["norm"] == "affine" else 1.0,
            "centred_max_inter": row["max_inter"] if row["norm"] == "affine" else -1 / 3,
        },
    )(attacks.fig31())
    finding = fig31.affine_above_plain.judge(numbers)
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.sentence.startswith("Reproduced. Contradicted if features are centred. ")
    bars = fig31.only_affine.judge(numbers).numbers["readings"]
    assert [row["reading"] for row in bars] == [
        "features are centred",
        *(f"the bar is {bar:g}" for bar in (0.5, 0.6, 0.7, 0.8, 0.9)),
    ]


def test_perfect_accuracy_has_two_readings() -> None:
    nearly = change_rows("rows", lambda row: {"accuracy": min(row["accuracy"], 0.9996)})
    finding = fig31.converges.judge(nearly(attacks.fig31()))
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.sentence.startswith(
        "Reproduced. Contradicted if perfect means that every sample is correct. "
    )


def test_figure_31_has_the_thesis_arrangement() -> None:
    numbers = attacks.fig31()
    picture = fig31.pictures(numbers)[0]
    assert picture.columns == 3
    assert [one.title for one in picture.panels] == ["BN with affine", "BN without affine", "no BN"]
    affine = panel(picture)
    assert [line.label for line in affine.series] == ["min intra", "max inter", ETF]
    assert list(affine.series[0].x) == list(networks.DECAYS)
    assert affine.series[0].y[0] == pytest.approx(0.4465)
    low, high = affine.series[0].low, affine.series[0].high
    assert low is not None
    assert high is not None
    assert [low[0], high[0]] == pytest.approx([0.443, 0.45])
    assert affine.series[2].x == [1e-4, 1e-2]
    assert list(affine.series[2].y) == pytest.approx([-1 / 3] * 2)


def test_failed_runs_are_marked_and_left_out_of_the_lines() -> None:
    picture = fig31.pictures(attacks.fig31())[0]
    none = panel(picture, 2)
    assert max(float(x) for x in none.series[0].x if x is not None) == 3e-3
    crosses = none.series[-1]
    assert (crosses.label, crosses.style, crosses.marker) == ("not converged", "none", "cross")
    assert sorted(set(crosses.x)) == [7e-3, 1e-2]  # type: ignore[type-var]
    assert len(crosses.x) == 2 * 2 * 8
    assert "no BN at 0.007 (8 seeds), no BN at 0.01 (8 seeds)" in picture.caption


def test_undefined_cosines_are_not_drawn() -> None:
    numbers = attacks.fig31()
    for row in numbers["rows"]:
        if not row["converged"]:
            row.update(min_intra=None, max_inter=None)
    picture = fig31.pictures(numbers)[0]
    assert [line.label for line in panel(picture, 2).series] == ["min intra", "max inter", ETF]
    assert "no BN at 0.01" in picture.caption

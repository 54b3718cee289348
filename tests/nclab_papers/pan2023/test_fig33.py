"""Collapse in every layer: rows, depths, judges and pictures."""

from typing import Any

import pytest

from nclab.claims.claim import Verdict
from nclab_papers.pan2023 import attacks, fig33
from tests.nclab_papers.pan2023.tiny import panel

ETF = "simplex ETF, −1/(C−1)"


def test_the_last_layer_is_the_input_of_the_classifier(numbers: dict[str, dict[str, Any]]) -> None:
    recorded = numbers["pan2023_fig33"]
    for run in recorded["runs"]:
        own = [
            row
            for row in recorded["rows"]
            if (row["weight_decay"], row["seed"]) == (run["weight_decay"], run["seed"])
        ]
        assert [row["layer"] for row in own] == [1, 2, 3, 4, 5]
        assert own[-1]["min_intra"] == run["min_intra"]
        assert own[-1]["max_inter"] == run["max_inter"]
    assert {row["epsilon"] for row in recorded["depths"]} == set(fig33.EPSILONS)
    assert all(1 <= row["depth"] <= 5 for row in recorded["depths"])


def test_the_table_of_figure_33_leaves_out_the_seeds_that_failed() -> None:
    numbers = attacks.fig33()
    for run in numbers["runs"]:
        run.update(min_intra=0.9, max_inter=-0.28)
        if run["seed"] == 1 and run["weight_decay"] == 1e-4:
            run["converged"] = False
    for row in numbers["depths"]:
        if row["seed"] == 1:
            row["depth"] = 14
    shown = fig33.tables(numbers)[0].rows
    assert shown[0][3:5] == ("6.0 ± 0.0", "6.0 ± 0.0")
    assert shown[-1][1] == "0 of 8"
    assert set(shown[-1][3:]) == {"–"}


@pytest.mark.parametrize(
    ("flat", "verdict"),
    [((1e-4,), Verdict.CONTRADICTED), ((1e-3, 3e-3), Verdict.CONTRADICTED)],
)
def test_constant_networks_are_detected(flat: tuple[float, ...], verdict: Verdict) -> None:
    numbers = attacks.fig33()
    for row in numbers["rows"]:
        if row["weight_decay"] in flat:
            row["min_intra"] = 0.5
    finding = fig33.intra_rises.judge(numbers)
    assert finding.verdict is verdict
    assert finding.numbers["weakest"] == ("networks rise from the first to the last layer")
    assert finding.numbers["estimate"] == pytest.approx(1 - len(flat) / 6)


def test_networks_without_cosines_are_left_out_and_counted() -> None:
    numbers = attacks.fig33()
    for row in numbers["rows"]:
        if row["seed"] == 0 and row["weight_decay"] == 3e-3 and row["layer"] == 5:
            row.update(min_intra=None, max_inter=None, ncc_accuracy=None)
    for claim in (
        fig33.accuracy_rises,
        fig33.intra_rises,
        fig33.gap_rises,
        fig33.inter_positive,
        fig33.inter_unstable,
    ):
        finding = claim.judge(numbers)
        assert finding.verdict is Verdict.REPRODUCED
        assert "a layer is undefined: 1 converged network" in finding.evidence


def test_very_few_exceptions_permit_one_step_in_ten() -> None:
    numbers = attacks.fig33()
    for row in numbers["rows"]:
        if row["layer"] == 10 and row["weight_decay"] < 1e-3:  # three networks of six
            row["min_intra"] = 0.0
    finding = fig33.intra_rises.judge(numbers)
    assert finding.verdict is Verdict.REPRODUCED
    steps = finding.numbers["effects"][0]
    assert steps["estimate"] == pytest.approx(1 - 0.5 / 13)
    assert steps["low"] > 0.9
    for row in numbers["rows"]:
        if row["layer"] in (7, 10):
            row["min_intra"] = 0.0
    assert fig33.intra_rises.judge(numbers).verdict is Verdict.CONTRADICTED


def test_layers_with_errors_do_not_count_as_positive() -> None:
    numbers = attacks.fig33()
    for row in numbers["rows"]:
        if row["layer"] < 9:
            row["ncc_accuracy"] = 0.9
    assert fig33.inter_positive.judge(numbers).verdict is Verdict.CONTRADICTED


def test_early_layers_without_converged_networks_are_unmeasured() -> None:
    numbers = attacks.fig33()
    for run in numbers["runs"]:
        if run["weight_decay"] == 1e-3:
            run["converged"] = False
    finding = fig33.early_layers_separate.judge(numbers)
    assert finding.verdict is Verdict.UNDECIDED
    assert "5 of 6 parts" in finding.evidence
    assert "not measured: effective depth at weight decay 0.001" in finding.evidence


def test_figure_33_has_a_panel_for_every_weight_decay() -> None:
    (layers,) = fig33.pictures(attacks.fig33())
    assert len(layers.panels) == 7
    assert layers.columns == 4
    assert layers.panels[-1].title == "wd = 0.01, 8 of 8 not converged"
    first = panel(layers)
    labels = [line.label for line in first.series]
    assert labels == ["NCC accuracy", "min intra", "max inter", ETF]
    assert list(first.series[0].x) == list(range(1, 15))


def test_figure_33_leaves_out_the_seeds_that_failed() -> None:
    numbers = attacks.fig33()
    for run in numbers["runs"]:
        if run["seed"] == 1 and run["weight_decay"] == 1e-4:
            run["converged"] = False
    for row in numbers["rows"]:
        if row["seed"] == 1:
            row["min_intra"] = -1.0
    layers = fig33.pictures(numbers)[0]
    assert layers.panels[0].title == "wd = 0.0001, 1 of 8 not converged"
    assert panel(layers).series[1].y[0] == pytest.approx(0.25)
    assert panel(layers, 6).series[1].y[0] == pytest.approx((7 * 0.25 - 1) / 8)
    assert "The panel of weight decay 0.01 shows all seeds; none converged." in layers.caption
    kept = [run for run in numbers["runs"] if run["weight_decay"] < 1e-2]
    rows = [row for row in numbers["rows"] if row["weight_decay"] < 1e-2]
    assert "none converged" not in fig33.pictures(numbers | {"runs": kept, "rows": rows})[0].caption


def test_the_paper_preset_has_the_thesis_depth() -> None:
    assert fig33.PRESETS["paper"].layers == 15

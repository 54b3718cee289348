"""Rows of studies: columns, cells that count, and claims about other networks."""

from typing import Any

import pytest

from nclab.claims.claim import Verdict
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.registry import claims
from nclab_papers.shared.study import (
    as_columns,
    as_rows,
    by_cell,
    column,
    differences,
    having,
    log10,
    of_the_source,
    slopes,
    within,
)
from tests.claims.paper_attacks import IDEAL, SHUFFLED, SPOILED

ROWS: list[dict[str, Any]] = [
    {"seed": 0, "arm": "a", "decay": 0.1, "nc1": 0.1, "accuracy": 1.0},
    {"seed": 0, "arm": "a", "decay": 1.0, "nc1": 0.01, "accuracy": 0.99},
    {"seed": 0, "arm": "b", "decay": 0.1, "nc1": 0.1, "accuracy": 1.0},
    {"seed": 0, "arm": "b", "decay": 1.0, "nc1": 1e-9, "accuracy": 0.98},
    {"seed": 1, "arm": "a", "decay": 0.1, "nc1": None, "accuracy": 1.0},
]
THEIRS = {"config": {"networks": {"source": False}}}


def test_columns_convert_back_to_rows() -> None:
    assert as_rows({"networks": as_columns(ROWS)}) == ROWS


def test_only_cells_that_count_at_every_value_have_a_slope() -> None:
    found = slopes(ROWS, log10("nc1"), along="decay", at=(0.1, 1.0), keys=("arm",))
    assert found == {0: pytest.approx(-1.0)}


def test_differences_are_of_cells_that_both_have() -> None:
    a, b = (by_cell(having(ROWS, arm=arm), column("nc1"), "decay") for arm in "ab")
    assert set(a) == {(0, 0.1), (0, 1.0)}, "a network without the number has no cell"
    assert differences(a, b) == {0: 0.0}


def test_an_equivalence_bounds_both_signs() -> None:
    for shift, verdict in ((0.0, "reproduced"), (0.5, "contradicted"), (-0.5, "contradicted")):
        values = {seed: shift + 0.001 * (-1) ** seed for seed in range(8)}
        assert judge_effects([within("x", values, 0.1)]).verdict.value == verdict


STUDIES = ("zhao2026_optimizers", "fang2021_imbalance", "zhou2022_losses", "sukenik2024_depth")
STUDIED = [claim.id for claim in claims() if claim.needs in STUDIES]


@pytest.mark.parametrize(("sign", "verdict"), [(1, Verdict.OPEN), (-1, Verdict.CONTRADICTED)])
def test_a_claim_about_other_networks_is_open_unless_universal(sign: int, verdict: Verdict) -> None:
    finding = judge_effects([Part("x", {s: sign + 0.01 * s for s in range(8)})], margin=0.1)
    assert of_the_source(finding, THEIRS).verdict is Verdict.OPEN
    told = of_the_source(finding, THEIRS, universal=True)
    assert told.verdict is verdict
    assert "8 seeds" in told.evidence
    assert of_the_source(finding, {"config": {"networks": {"source": True}}}) is finding


@pytest.mark.parametrize("name", STUDIED)
def test_no_converged_network_leaves_a_claim_open(name: str) -> None:
    [claim] = [one for one in claims() if one.id == name]
    numbers = IDEAL[claim.needs]
    rows = [{**row, "accuracy": 0.5} for row in as_rows(numbers)]
    assert claim.judge({**numbers, "networks": as_columns(rows)}).verdict is Verdict.OPEN


@pytest.mark.parametrize("name", sorted(set(STUDIED) - {"zhou2022/collapse-alike"}))
def test_one_seed_decides_nothing(name: str) -> None:
    [claim] = [one for one in claims() if one.id == name]
    numbers = IDEAL[claim.needs]
    one = {**numbers, "networks": as_columns(having(as_rows(numbers), seed=0))}
    assert claim.judge(one).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("column", ["nc0", "nc1", "nc2", "nc3"])
def test_adamw_without_collapse_in_one_metric_is_not_collapsed(column: str) -> None:
    [claim] = [one for one in claims() if one.id == "zhao2026/cannot-emerge"]
    collapsed = SPOILED[claim.id](IDEAL[claim.needs])
    rows = [
        {**row, column: 0.2} if row["optimizer"] == "adamw" else row for row in as_rows(collapsed)
    ]
    finding = claim.judge({**collapsed, "networks": as_columns(rows)})
    assert finding.verdict is Verdict.REPRODUCED


def test_exchanged_arms_have_no_effect_for_many_seeds() -> None:
    [claim] = [one for one in claims() if one.id == "zhao2026/cannot-emerge"]
    numbers = SHUFFLED[claim.id](IDEAL[claim.needs])
    rows = [
        {**row, "seed": row["seed"] + 8 * turn} for turn in range(4) for row in as_rows(numbers)
    ]
    finding = claim.judge({**numbers, "networks": as_columns(rows)})
    assert finding.numbers["seeds"] == 32
    assert finding.verdict in (Verdict.NO_EFFECT, Verdict.UNDECIDED), finding.evidence

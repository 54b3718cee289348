"""Claims about Figure 3 of ji2022: rows that support them and rows that do not."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from nclab.papers.ji2022 import training_claims as claims
from nclab.papers.verdict import Finding, Verdict

Row = dict[str, Any]
EPOCHS = (0, 1, 3, 10, 30, 100, 140, 200, 300, 500)


def collapsing(seed: int = 0) -> list[Row]:
    """Every quantity falls like 1/log t and ends below 0.1."""
    rows = []
    for epoch in EPOCHS:
        value = 0.5 / math.log(epoch + 3)
        rows.append({"seed": seed, "epoch": epoch, "accuracy": float(epoch >= 100)})
        rows[-1] |= dict.fromkeys(claims.QUANTITIES, value)
    return rows


def changed(rows: list[Row], name: str, value: Callable[[int], float]) -> list[Row]:
    return [row | {name: value(row["epoch"])} for row in rows]


def judge(rows: list[Row]) -> dict[str, Finding]:
    return claims.judge_all({"rows": rows})


def test_collapse_in_every_seed_reproduces_everything() -> None:
    found = judge(collapsing(0) + collapsing(1))
    assert {name: finding.verdict for name, finding in found.items()} == dict.fromkeys(
        ("fig3a", "fig3b", "fig3c", "fig3d", "sec4-realistic"), Verdict.REPRODUCED
    )
    assert found["fig3b"].numbers["seeds"]["0"]["slope"] == pytest.approx(-1, abs=0.03)
    assert found["fig3b"].numbers["seeds"]["1"]["r2"] > 0.999


CASES: list[tuple[str, str, Callable[[int], float]]] = [
    ("fig3a", "nc2_norm_variation_weights", lambda t: 0.11),
    ("fig3a", "nc2_norm_variation_means", lambda t: 1 / (t + 1) if t < 500 else 0.1),
    ("fig3b", "nc1_within_variation", lambda t: 0.5),
    ("fig3b", "nc1_within_variation", lambda t: 0.1 * math.log(t + 3)),
    ("fig3b", "nc1_within_variation", lambda t: 0.5 if t % 200 else 0.3),
    ("fig3c", "nc2_equiangularity_means", lambda t: 0.2 / math.log(t + 3) + 0.09),
    ("fig3c", "nc2_equiangularity_weights", lambda t: 0.01 * math.log(t + 3)),
    ("fig3d", "nc3_self_duality", lambda t: 0.5 + 0.001 * t),
    ("fig3d", "nc3_self_duality", lambda t: 0.5 if t == 0 else 0.4 + 0.0001 * t),
    ("sec4-realistic", "nc3_self_duality", lambda t: 0.5),
]


@pytest.mark.parametrize(("name", "quantity", "value"), CASES)
def test_verdicts_follow_the_rows(name: str, quantity: str, value: Callable[[int], float]) -> None:
    wrong = changed(collapsing(0), quantity, value)
    assert judge(wrong)[name].verdict is Verdict.NOT_REPRODUCED
    both = judge(wrong + collapsing(1))[name]
    assert both.verdict is Verdict.PARTLY
    assert both.numbers["holding"] == [1]
    assert "1 of 2 seeds" in both.evidence


def test_a_small_quantity_need_not_fall() -> None:
    rows = changed(collapsing(), "nc2_norm_variation_weights", lambda t: 0.05 + t * 1e-5)
    assert judge(rows)["sec4-realistic"].verdict is Verdict.REPRODUCED
    rows = changed(collapsing(), "nc2_norm_variation_weights", lambda t: 0.05 + t * 2e-4)
    found = judge(rows)["sec4-realistic"]
    assert found.verdict is Verdict.NOT_REPRODUCED
    assert "nc2_norm_variation_weights" in found.evidence


def test_open_before_the_terminal_phase() -> None:
    rows = [row | {"accuracy": 0.99} for row in collapsing()]
    assert {finding.verdict for finding in judge(rows).values()} == {Verdict.OPEN}
    assert {finding.verdict for finding in judge([]).values()} == {Verdict.OPEN}
    early = [row | {"accuracy": 1.0} for row in collapsing() if row["epoch"] <= 200]
    found = judge(early)
    assert found["fig3b"].verdict is Verdict.OPEN
    assert found["fig3d"].verdict is Verdict.REPRODUCED


def test_open_where_a_quantity_could_not_be_measured() -> None:
    rows = [row | {"nc3_self_duality": None if row["epoch"] == 0 else 0.1} for row in collapsing()]
    found = judge(rows)
    assert {finding.verdict for finding in found.values()} == {Verdict.OPEN}
    assert "seed 0 has measurements without nc3_self_duality" in found["fig3b"].evidence

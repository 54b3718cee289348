"""Comparisons become verdicts by share, tolerance and stated exceptions."""

import pytest

from nclab.papers.comparisons import Comparison, rises, weigh
from nclab.papers.verdict import Verdict


def steps(holding: int, failing: int) -> list[Comparison]:
    return [Comparison("up", 0.5)] * holding + [Comparison("down", -0.5)] * failing


@pytest.mark.parametrize(
    ("holding", "failing", "verdict"),
    [
        (3, 0, Verdict.REPRODUCED),
        (2, 1, Verdict.PARTLY),
        (5, 3, Verdict.NOT_REPRODUCED),
        (0, 3, Verdict.NOT_REPRODUCED),
        (0, 0, Verdict.OPEN),
    ],
)
def test_the_share_decides(holding: int, failing: int, verdict: Verdict) -> None:
    finding = weigh(steps(holding, failing))
    assert finding.verdict is verdict
    assert finding.numbers["comparisons"] == holding + failing


def test_exceptions_are_allowed_where_a_claim_states_them() -> None:
    assert weigh(steps(9, 1), enough=0.9).verdict is Verdict.REPRODUCED
    assert weigh(steps(8, 2), enough=0.9).verdict is Verdict.PARTLY


def test_the_worst_comparison_is_named() -> None:
    finding = weigh(rises("layer", [1, 2, 3], [0.5, 0.75, 0.25]))
    assert finding.numbers["worst_at"] == "layer 2 to 3"
    assert finding.numbers["worst_margin"] == -0.5
    assert finding.numbers["failing"] == ["layer 2 to 3"]
    assert "-0.5 (layer 2 to 3)" in finding.evidence

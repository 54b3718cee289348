"""Every judge says reproduced for the thesis's own behaviour and not for others."""

import json

import pytest

from nclab.papers.claim import Claim
from nclab.papers.verdict import Verdict
from tests.papers.pan2023.spoiled import FLAT, SPOILED
from tests.papers.pan2023.thesis_rows import EXPERIMENTS
from tests.papers.pan2023.tiny import CLAIMS

NOT = Verdict.NOT_REPRODUCED
EMPTY: dict[str, list[None]] = {
    key: [] for key in ("rows", "runs", "depths", "intervals", "curve", "networks")
}


@pytest.mark.parametrize("name", list(FLAT))
def test_a_flat_line_neither_rises_nor_falls(name: str) -> None:
    claim = next(one for one in CLAIMS if one.id == name)
    found = claim.judge(FLAT[name](EXPERIMENTS[claim.needs]()))
    assert found.verdict is NOT, found.evidence


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_verdict_follows_the_numbers(claim: Claim) -> None:
    numbers = EXPERIMENTS[claim.needs]()
    found = claim.judge(numbers)
    assert found.verdict is Verdict.REPRODUCED, found.evidence
    spoiled = claim.judge(SPOILED[claim.id](numbers))
    assert spoiled.verdict in (NOT, Verdict.PARTLY), spoiled.evidence
    json.dumps([found.to_dict(), spoiled.to_dict()], allow_nan=False)


def test_every_claim_has_one_name_and_a_counterexample() -> None:
    names = [claim.id for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert set(SPOILED) == set(names)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_nothing_to_compare_is_open(claim: Claim) -> None:
    assert claim.judge(EXPERIMENTS[claim.needs]() | EMPTY).verdict is Verdict.OPEN

"""Every claim is reproduced by the ideal numbers and not by others."""

import json

import pytest

from nclab.claims.attacks import Change, change_rows
from nclab.claims.claim import Claim, Verdict
from nclab_papers.pan2023.attacks import ATTACKS, SPOILED
from tests.nclab_papers.pan2023.tiny import CLAIMS

GOOD = (Verdict.REPRODUCED, Verdict.HOLDS)
BAD = (Verdict.CONTRADICTED, Verdict.REFUTED)
EMPTY: dict[str, list[None]] = {
    key: [] for key in ("rows", "runs", "depths", "worst", "curve", "networks")
}
FLAT: dict[str, Change] = {
    **dict.fromkeys(
        (
            "pan2023/sec-3.1-grows",
            "pan2023/sec-3.1-falls-without-norm",
            "pan2023/sec-3.1-norm-helps-decay",
            "pan2023/sec-1.4-simpler-data",
            "pan2023/sec-3.2-gap-rises",
        ),
        change_rows("rows", lambda row: {"min_intra": 0.5, "max_inter": 0.1}),
    ),
    "pan2023/sec-3.2-accuracy-rises": change_rows("rows", lambda row: {"ncc_accuracy": 0.9}),
    "pan2023/sec-3.2-intra-rises": change_rows("rows", lambda row: {"min_intra": 0.5}),
    "pan2023/sec-3.2-depth-falls": change_rows("depths", lambda row: {"depth": 3}),
}
"""Change after which the quantity of a claim about a rise or a fall is constant."""
BY_NAME = {claim.id: claim for claim in CLAIMS}


@pytest.mark.parametrize("name", list(FLAT))
def test_constant_numbers_have_no_effect(name: str) -> None:
    claim = BY_NAME[name]
    finding = claim.judge(FLAT[name](ATTACKS.ideal[claim.needs]()))
    along_layers = Verdict.CONTRADICTED  # no network ends above where it began
    expected = along_layers if name.endswith("-rises") else Verdict.NO_EFFECT
    assert finding.verdict is expected, finding.evidence


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_verdict_follows_the_numbers(claim: Claim) -> None:
    numbers = ATTACKS.ideal[claim.needs]()
    finding = claim.judge(numbers)
    assert finding.verdict in GOOD, finding.evidence
    spoiled = claim.judge(SPOILED[claim.id](numbers))
    assert spoiled.verdict in BAD, spoiled.evidence
    json.dumps([finding.to_dict(), spoiled.to_dict()], allow_nan=False)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_one_seed_decides_nothing_and_many_are_counted(claim: Claim) -> None:
    numbers = ATTACKS.ideal[claim.needs]()
    if claim.id == "findings/guarantees-worst-case":
        return  # about a search, not about seeds
    assert claim.judge(numbers).numbers["seeds"] == 8
    keys = [key for key in EMPTY if key in numbers and key != "curve"]
    one = {key: [row for row in numbers[key] if row["seed"] == 3] for key in keys}
    assert claim.judge(numbers | one).verdict is Verdict.UNDECIDED


def test_every_claim_is_unique_and_has_spoiled_numbers() -> None:
    assert len(BY_NAME) == len(CLAIMS)
    assert set(BY_NAME) <= set(SPOILED)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_nothing_to_compare_is_open(claim: Claim) -> None:
    assert claim.judge(ATTACKS.ideal[claim.needs]() | EMPTY).verdict is Verdict.OPEN

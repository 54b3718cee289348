"""Claims of order or comparison see nothing where their arms are shuffled."""

import pytest

from nclab.claims.claim import Verdict
from nclab.claims.registry import claims
from tests.claims.shuffled import NOT_OF_ORDER, SHUFFLED
from tests.claims.trained import NUMBERS

CLAIMS = {claim.id: claim for claim in claims() if claim.empirical}


@pytest.mark.parametrize("name", SHUFFLED)
def test_shuffled_arms_have_no_effect(name: str) -> None:
    claim = CLAIMS[name]
    numbers = NUMBERS[claim.needs]
    assert claim.judge(numbers).verdict is Verdict.REPRODUCED
    found = claim.judge(SHUFFLED[name](numbers))
    assert found.verdict in (Verdict.NO_EFFECT, Verdict.UNDECIDED), found.evidence


def test_every_result_is_shuffled_or_says_why_it_cannot_be() -> None:
    assert set(SHUFFLED) | set(NOT_OF_ORDER) == set(CLAIMS)
    assert not set(SHUFFLED) & set(NOT_OF_ORDER)
    assert all(NOT_OF_ORDER.values())

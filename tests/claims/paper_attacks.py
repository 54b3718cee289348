"""Attacks on the claims of all papers, collected from the module `attacks` of every paper."""

from typing import Any

from nclab.claims.attacks import unchanged
from nclab.claims.claim import Claim, Verdict
from nclab.claims.registry import attacks, claims


def collect(name: str) -> dict[Any, Any]:
    """Merge one field of the attacks of all papers."""
    return {
        key: value for paper in attacks().values() for key, value in getattr(paper, name).items()
    }


CLAIMS = {claim.id: claim for claim in claims()}
VERDICTS = collect("verdicts")
IDEAL = {name: make() for name, make in collect("ideal").items()}
SPOILED = collect("spoiled")
SHUFFLED = collect("shuffled")
NOT_SHUFFLED = collect("not_shuffled")
WRONG_CODE = collect("wrong_code")
NO_CODE = collect("no_code")
UNNOTICED = collect("unnoticed")


def case_verdicts(claim: Claim) -> tuple[Verdict, ...]:
    """Return the verdicts of an empirical claim on all its cases for wrong code."""
    ideal = IDEAL[claim.needs]
    cases = WRONG_CODE.get(claim.id, (unchanged,))
    return tuple(claim.judge(case(claim, ideal)).verdict for case in cases)

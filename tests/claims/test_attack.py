"""Every claim notices that the code it links to is wrong."""

import warnings
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch

from nclab.claims.claim import JUDGE_ERRORS, Verdict
from nclab.claims.registry import claims
from nclab.errors import NclabError
from nclab.theory.layer_peeled import g
from nclab_papers.pan2023 import theorem
from tests.claims.attack import ATTACKS, attacked, replace_everywhere
from tests.claims.attacked import CASES, WITHOUT_CODE, found

pytestmark = pytest.mark.xdist_group("attack")  # verdicts without an attack are found once

CLAIMS = {claim.id: claim for claim in claims() if claim.code}
EXEMPT = {
    ("pan2023/def-conic-hull", "factor"): "a cone is a cone at every scale",
    ("ji2022/def-2.1", "sign"): "the negative of a frame is a frame",
}
"""Attacks that leave a claim as true as it was, with the reason; three at most."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fewer data sets: an attack is either noticed at once or never."""
    monkeypatch.setitem(theorem.CASES["quick"], "starts", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with replace_everywhere("nclab.claims.statements.draws", lambda _: lambda preset: 13_000):
        yield
    torch.set_num_threads(threads)


def verdicts(name: str) -> tuple[Verdict, ...]:
    """Of the check that runs, or of a result on each of its numbers."""
    return found(name) if CLAIMS[name].empirical else (CLAIMS[name].check().verdict,)


@cache
def unharmed(name: str) -> tuple[Verdict, ...]:
    return verdicts(name)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", CLAIMS)
def test_wrong_code_changes_the_verdict(name: str, attack: str) -> None:
    before = unharmed(name)
    try:
        with (
            replace_everywhere(CLAIMS[name].code, attacked(attack)),
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            after = verdicts(name)
    except (*JUDGE_ERRORS, NclabError, RuntimeError, AssertionError):  # what raises is noticed
        return
    assert (after != before) == ((name, attack) not in EXEMPT)


def test_every_claim_is_attacked_or_says_why_it_cannot_be() -> None:
    assert set(CLAIMS) | set(WITHOUT_CODE) == {claim.id for claim in claims()}
    assert not set(CLAIMS) & set(WITHOUT_CODE)
    assert set(CASES) <= set(CLAIMS)
    assert all(WITHOUT_CODE.values())
    assert {name for name, _ in EXEMPT} <= set(CLAIMS)


def test_few_are_exempt_and_the_code_is_put_back() -> None:
    assert len(EXEMPT) <= 3
    right = g(2.0, 4)
    with replace_everywhere("nclab.theory.layer_peeled.g", attacked("factor")):
        assert g(2.0, 4) == 1.5 * right
    assert g(2.0, 4) == right

"""Every claim notices spoiled numbers, shuffled arms and wrong code."""

import json
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from nclab.claims.claim import JUDGE_ERRORS, Claim, Verdict
from nclab.claims.registry import attacks, find_experiments, packages
from nclab.errors import NclabError
from nclab.theory.layer_peeled import g
from nclab_papers.pan2023 import theorem
from tests.claims.paper_attacks import (
    CLAIMS,
    IDEAL,
    NO_CODE,
    NOT_SHUFFLED,
    SHUFFLED,
    SPOILED,
    UNNOTICED,
    VERDICTS,
    WRONG_CODE,
    case_verdicts,
)
from tests.claims.wrong_code import ERRORS, replace_everywhere, with_error

pytestmark = pytest.mark.xdist_group("attack")  # verdicts of the right code are computed once

EMPIRICAL = [name for name, claim in CLAIMS.items() if claim.empirical]
STATEMENTS = [name for name in CLAIMS if name not in EMPIRICAL]
WITH_CODE = [name for name, claim in CLAIMS.items() if claim.code]


@pytest.fixture
def few_data_sets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw fewer data sets: wrong code is noticed at once or never."""
    monkeypatch.setitem(theorem.CASES["quick"], "starts", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with replace_everywhere("nclab.claims.statements.draws", lambda _: lambda preset: 13_000):
        yield
    torch.set_num_threads(threads)


@cache
def gathered(name: str) -> dict[str, Any]:
    """Gather the quick numbers of a statement once for all tests."""
    gather = CLAIMS[name].gather
    assert gather is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return dict(gather("quick"))
    finally:
        torch.set_num_threads(threads)


def test_every_claim_has_its_attacks() -> None:
    """A claim that this test names needs an entry in the module `attacks` of its paper."""
    assert set(VERDICTS) == set(STATEMENTS)
    assert set(SPOILED) == set(CLAIMS)
    assert set(SHUFFLED) | set(NOT_SHUFFLED) == set(EMPIRICAL)
    assert not set(SHUFFLED) & set(NOT_SHUFFLED)
    assert set(WITH_CODE) | set(NO_CODE) == set(CLAIMS)
    assert not set(WITH_CODE) & set(NO_CODE)
    assert set(WRONG_CODE) <= set(WITH_CODE)
    assert {name for name, _ in UNNOTICED} <= set(WITH_CODE)
    reasons = (NOT_SHUFFLED, NO_CODE, UNNOTICED)
    assert all(reason for mapping in reasons for reason in mapping.values())


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_quick_check_returns_the_expected_verdict(name: str) -> None:
    finding = CLAIMS[name].judge(gathered(name))
    verdict, reason = VERDICTS[name]
    assert finding.verdict.value == verdict, f"{reason}: {finding.evidence}"
    assert re.search(r"\d", finding.evidence), "evidence contains numbers"
    json.dumps(finding.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", STATEMENTS)
def test_spoiled_numbers_change_the_verdict_on_a_statement(name: str) -> None:
    numbers, claim = gathered(name), CLAIMS[name]
    verdict = claim.judge(numbers).verdict
    assert claim.judge(SPOILED[name](numbers)).verdict is not verdict
    assert claim.judge(numbers).verdict is verdict, "judging does not change the numbers"


@pytest.mark.parametrize("name", EMPIRICAL)
def test_spoiled_numbers_change_the_verdict_on_a_result(name: str) -> None:
    claim = CLAIMS[name]
    numbers = IDEAL[claim.needs]
    verdict = claim.check(numbers=numbers).verdict
    assert verdict in (Verdict.REPRODUCED, Verdict.HOLDS, Verdict.SUPPORTED)
    assert claim.judge(SPOILED[name](numbers)).verdict is not verdict
    assert claim.check().verdict is Verdict.OPEN


@pytest.mark.parametrize("name", SHUFFLED)
def test_shuffled_arms_have_no_effect(name: str) -> None:
    claim = CLAIMS[name]
    numbers = IDEAL[claim.needs]
    assert claim.judge(numbers).verdict is Verdict.REPRODUCED
    finding = claim.judge(SHUFFLED[name](numbers))
    assert finding.verdict in (Verdict.NO_EFFECT, Verdict.UNDECIDED), finding.evidence


def verdicts(claim: Claim) -> tuple[Verdict, ...]:
    """Return the verdict of a statement, or those of a result on all its cases."""
    return case_verdicts(claim) if claim.empirical else (claim.check().verdict,)


@cache
def verdicts_of_right_code(name: str) -> tuple[Verdict, ...]:
    return verdicts(CLAIMS[name])


@pytest.mark.usefixtures("few_data_sets")
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", WITH_CODE)
def test_wrong_code_changes_the_verdict(name: str, error: str) -> None:
    expected = verdicts_of_right_code(name)
    try:
        with (
            replace_everywhere(CLAIMS[name].code, with_error(error)),
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            result = verdicts(CLAIMS[name])
    except (*JUDGE_ERRORS, NclabError, RuntimeError, AssertionError):  # an error is noticed
        return
    assert (result != expected) == ((name, error) not in UNNOTICED)


def test_few_errors_stay_unnoticed_and_the_code_is_restored() -> None:
    assert len(UNNOTICED) <= 3
    right = g(2.0, 4)
    with replace_everywhere("nclab.theory.layer_peeled.g", with_error("factor")):
        assert g(2.0, 4) == 1.5 * right
    assert g(2.0, 4) == right


TINY = {name: config for paper in attacks().values() for name, config in paper.tiny.items()}


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_configuration_runs(name: str, tmp_path: Any) -> None:
    experiment = find_experiments([name])[name]
    numbers = json.loads(json.dumps(experiment.run(TINY[name], seeds=(0, 1), out=tmp_path)))
    assert experiment.tables(numbers)
    experiment.pictures(numbers)


def test_every_paper_has_attacks() -> None:
    with_claims = {claim.paper for claim in CLAIMS.values()}
    assert with_claims <= set(attacks()), "add a module `attacks` to the paper's folder"
    assert set(attacks()) <= set(packages())

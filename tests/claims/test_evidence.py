"""Recorded evidence: what counts as evidence, and that all commands read the same."""

import json
import runpy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nclab.claims import evidence
from nclab.claims.registry import claims, experiments
from nclab.claims.reproduce import refresh_claims
from nclab.errors import RecordError
from tests.cli.runner import call

BUILDER = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "build_experiments.py"))
CLEAN = "0123456789abcdef0123456789abcdef01234567"
SOME = ["pan2023/sec-3.1-norms-fall", "ji2022/fig-2b", "zhao2026/coupled-collapses"]


def numbers_of(name: str, preset: str, commit: str | None) -> dict[str, Any]:
    settings = json.loads(json.dumps(asdict(experiments()[name].PRESETS[preset])))
    return {"preset": preset, "settings": settings, "manifest": {"commit": commit}}


def test_only_runs_at_the_size_of_the_paper_are_evidence() -> None:
    check = BUILDER["check_evidence"]
    check("pan2023_fig31", numbers_of("pan2023_fig31", "paper", CLEAN))
    with pytest.raises(RecordError, match=r"size of its paper, got preset 'quick'.*--preset paper"):
        check("pan2023_fig31", numbers_of("pan2023_fig31", "quick", CLEAN))
    smaller = numbers_of("pan2023_fig31", "paper", CLEAN)
    smaller["settings"]["networks"]["epochs"] = 150
    with pytest.raises(RecordError, match="size of its paper"):
        check("pan2023_fig31", smaller)


@pytest.mark.parametrize("commit", [f"{CLEAN}-dirty", "", None])
def test_evidence_comes_from_a_clean_commit(commit: str | None) -> None:
    with pytest.raises(RecordError, match="from a clean commit, got"):
        BUILDER["check_evidence"]("pan2023_fig31", numbers_of("pan2023_fig31", "paper", commit))


def test_claims_and_report_read_the_same_evidence(tmp_path: Path) -> None:
    """A report that was judged from other evidence is judged again."""
    old = [{"id": name, "verdict": "open", "needs": "x", "evidence": "old"} for name in SOME]
    unknown = {"id": "someone/else", "verdict": "open", "evidence": "kept"}
    ledger = {"claims": [*old, unknown], "evidence": {"pan2023_fig31": "of another version"}}
    (tmp_path / "claims.json").write_text(json.dumps(ledger))
    assert call("report", tmp_path).code == 0
    content = json.loads((tmp_path / "claims.json").read_text())
    shown = json.loads(call("claims", *SOME, "--runs", tmp_path, "--json").out)
    assert sorted(content["claims"][:3], key=lambda row: SOME.index(row["id"])) == sorted(
        shown, key=lambda row: SOME.index(row["id"])
    )
    assert content["claims"][3] == unknown
    assert content["evidence"] == evidence.evidence_digests()
    page = (tmp_path / "report" / "claims.html").read_text()
    assert shown[0]["verdict"] in page
    assert not refresh_claims(tmp_path), "the same evidence is not judged twice"


def test_every_card_has_all_of_its_fields() -> None:
    rows = json.loads(call("claims", *SOME, "pan2023/lemma-2.4.1", "--json").out)
    for row in rows:
        assert row["quote"], row["id"]
        assert row["answer"].endswith((".", ")")), row["id"]
        assert row["answer"][0].isupper(), row["id"]
        assert row["command"].startswith("nclab "), row["id"]
        assert isinstance(row["readings"], list)
        if row["needs"]:
            assert {"estimate", "interval", "margin", "seeds", "size", "verdict"} <= row.keys()


def test_every_claim_has_a_quote() -> None:
    assert all(claim.quote for claim in claims())

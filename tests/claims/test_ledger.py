"""The ledger is complete, and its verdicts follow from numbers alone."""

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from nclab.claims import evidence
from nclab.claims.claim import Claim, Finding, Kind, Verdict
from nclab.claims.evidence import best_evidence
from nclab.claims.ledger import (
    describe_relation,
    effective_verdict,
    find,
    judge,
    judge_all,
    relation,
)
from nclab.claims.registry import claims as all_claims
from nclab.claims.registry import errata, papers
from nclab.errors import NclabError
from nclab.records.results import read_numbers
from nclab.training.data.artificial import ConicHull
from nclab.training.data.samples import Samples
from nclab.training.models.mlp import MLP
from tests.claims.paper_attacks import IDEAL, SPOILED, VERDICTS
from tests.claims.test_attacks import gathered

ROOT = Path(__file__).parent.parent.parent
CLAIMS = {claim.id: claim for claim in all_claims()}
CHECKED = [claim.id for claim in all_claims() if claim.gather is not None]
WRONG = (Verdict.CORRECTED, Verdict.REFUTED)
PLACE = r"(Eq\.|Thm|Lemma|Cor|Prop|Def\.|Fig\.|Sec\.|Remark|Example|Conj\.) ?\S+"


def test_the_ledger_is_large_and_its_ids_are_unique() -> None:
    assert len(all_claims()) >= 35
    assert len(CLAIMS) == len(all_claims())
    studied = {"zhao2026", "fang2021", "thrampoulidis2022", "zhou2022", "sukenik2024"}
    assert {claim.paper for claim in all_claims()} == {"pan2023", "ji2022", "findings"} | studied
    assert {claim.kind for claim in all_claims()} == set(Kind)


@pytest.mark.parametrize("claim", all_claims(), ids=lambda claim: claim.id)
def test_every_claim_has_a_statement_a_source_and_a_check(claim: Claim) -> None:
    paper, _, location = claim.source.partition(", ")
    assert paper in papers()
    assert claim.paper in (paper, "findings")
    assert re.match(PLACE, location), claim.source
    assert claim.text.endswith(".")
    assert claim.gather is not None or claim.needs
    if claim.code:
        assert callable(pkgutil.resolve_name(claim.code))


def test_lemma_246_fails_for_cosines_and_holds_for_long_means() -> None:
    numbers = gathered("pan2023/lemma-2.4.6")
    assert numbers["printed"]["violated"] == 1
    assert numbers["printed"]["left"] > 0.99
    assert numbers["printed"]["right"] < 0.5
    assert numbers["inner"]["violated"] == 0
    assert numbers["repaired"]["violated"] == 0
    assert numbers["linear"]["violated"] == 0


def test_theorem_231_is_not_sharp() -> None:
    finding = CLAIMS["pan2023/thm-2.3.1"].judge(gathered("pan2023/thm-2.3.1"))
    slopes = finding.numbers["slopes"]
    assert slopes["attained"] == pytest.approx(1.0, abs=0.02)
    assert slopes["certified"] == pytest.approx(1.0, abs=0.02)
    assert "not sharp" in finding.evidence


def test_a_slower_rate_would_refute_theorem_231_and_a_missing_proof_leaves_it_open() -> None:
    numbers = gathered("pan2023/thm-2.3.1")
    judge = CLAIMS["pan2023/thm-2.3.1"].judge
    slow = [{**row, "attained": row["excess"] ** 0.05} for row in numbers["worst"]]
    assert judge({**numbers, "worst": slow}).verdict is Verdict.REFUTED
    broken = [{**row, "attained": 2 * row["certified"]} for row in numbers["rows"]]
    assert judge({**numbers, "rows": broken}).verdict is Verdict.REFUTED
    unproved = [{**row, "certified": 1.0} for row in numbers["grid"]]
    assert judge({**numbers, "grid": unproved}).verdict is Verdict.OPEN
    weak = [{**row, "certified": row["certified"] ** 0.1} for row in numbers["grid"]]
    assert judge({**numbers, "grid": weak}).verdict is Verdict.OPEN


def test_the_printed_formulas_of_the_example_are_refuted_with_numbers() -> None:
    nine = CLAIMS["ji2022/eq-9"].judge(gathered("ji2022/eq-9"))
    assert "0.2384058" in nine.evidence
    assert "0.1331867" in nine.evidence
    eleven = CLAIMS["ji2022/eq-11"].judge(gathered("ji2022/eq-11"))
    assert "+2.1e-05 at beta = -0.01" in eleven.evidence


def test_find_accepts_prefixes_and_raises_for_unknown_ids() -> None:
    assert len(find()) == len(all_claims())
    assert [claim.id for claim in find(["ji2022/eq-9"])] == ["ji2022/eq-9"]
    assert len(find(["pan2023/lemma", "pan2023/lemma-2.4.1"])) > 5
    with pytest.raises(NclabError, match=r"got 'pan2023/lemma-9'.*Did you mean pan2023/lemma-"):
        find(["pan2023/lemma-9"])


def test_local_results_are_added_to_the_recorded_verdicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {"ji2022_fig3": SPOILED["ji2022/fig-3a"](IDEAL["ji2022_fig3"])}
    monkeypatch.setattr(evidence, "read_evidence", IDEAL.get)
    [row] = judge_all(local=here, ids=["ji2022/fig-3a"])
    assert row["verdict"] == "reproduced"
    assert row["here"]["relation"] == "differs"
    [row] = judge_all(local=IDEAL, ids=["ji2022/fig-3a"])
    assert row["here"]["relation"] == "agrees"
    [row] = judge_all(local=here, ids=["ji2022/fig-3a"], fresh=True)
    assert row["verdict"] == "contradicted"
    monkeypatch.setattr(evidence, "read_evidence", lambda name: None)
    [row] = judge_all(local=IDEAL, ids=["ji2022/fig-3a"])
    assert row["verdict"] == "open"
    assert "nothing is recorded" in row["evidence"]


def test_every_result_has_estimate_interval_margin_seeds_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "read_evidence", IDEAL.get)
    for row in judge_all(ids=[name for name in CLAIMS if name not in CHECKED]):
        assert row["size"], row["id"]
        # What holds is a bound that nothing broke; what supports or opposes has one seed.
        if row["verdict"] not in ("open", "holds", "supported", "opposed"):
            for key in ("estimate", "interval", "margin", "seeds", "effects"):
                assert key in row["numbers"], (row["id"], key)


ODD_SLOPES: tuple[Any, ...] = (None, [], "steep", float("nan"), float("inf"), {"a": 1})


def test_numbers_in_an_unknown_format_leave_their_claims_open() -> None:
    [row] = judge_all(local={"ji2022_fig2": {}}, ids=["ji2022/fig-2a"], fresh=True)
    assert row["verdict"] == "open"
    assert row["evidence"] == (
        "cannot be judged from ji2022_fig2/numbers.json (KeyError: 'per_seed'); "
        "run `nclab reproduce ji2022_fig2` again"
    )


@pytest.mark.parametrize("odd", [None, [], 3, "text", {}, {"a": 1}, [None], [{}], [3]])
def test_no_content_of_a_file_raises(odd: Any) -> None:
    for claim in all_claims():
        for key in ("rows", "per_seed", "depths", "intervals", "networks") if claim.needs else ():
            for numbers in ({key: odd}, {**IDEAL.get(claim.needs, {}), key: odd}):
                finding = claim.check(numbers=numbers)
                json.dumps(finding.to_dict(), allow_nan=False)


@pytest.mark.parametrize("slope", ODD_SLOPES)
def test_no_value_of_a_slope_raises(slope: Any) -> None:
    numbers = {"per_seed": [{"slopes": {"nc2_norm_variation_means": slope}}]}
    [row] = judge_all(local={"ji2022_fig2": numbers}, ids=["ji2022/fig-2a"], fresh=True)
    assert row["verdict"] == "open"


def test_an_error_on_gathered_numbers_is_a_bug_and_raises() -> None:
    def judge(numbers: Any) -> Finding:
        raise KeyError(numbers["there"])

    claim = Claim("ji2022/x", Kind.RESULT, "X.", "ji2022, Fig. 3", judge, lambda _: {"there": 1})
    with pytest.raises(KeyError):
        claim.check()


def test_a_claim_without_numbers_is_open() -> None:
    def judge(_: Any) -> Finding:
        raise AssertionError

    claim = Claim("ji2022/x", Kind.RESULT, "X.", "ji2022, Fig. 3", judge, needs="ji2022_fig3")
    finding = claim.check()
    assert finding.verdict is Verdict.OPEN
    assert finding.evidence == "no numbers yet; run `nclab reproduce ji2022_fig3`"


def test_numbers_are_read_from_a_folder_of_runs(tmp_path: Path) -> None:
    needed = {claim.needs for claim in find(["ji2022/fig-2"]) if claim.needs}
    assert read_numbers(tmp_path, needed) == {}
    folder = tmp_path / "ji2022_fig2"
    folder.mkdir()
    (folder / "numbers.json").write_text('{"slopes": {}}')
    assert read_numbers(tmp_path, needed) == {"ji2022_fig2": {"slopes": {}}}
    other = '{"experiment": "ji2022_fig3", "per_seed": []}'
    for text, why in (("{", "JSONDecodeError"), ("[]", "list"), (other, "'ji2022_fig3'")):
        (folder / "numbers.json").write_text(text)
        numbers = read_numbers(tmp_path, needed)
        assert why in numbers["ji2022_fig2"]["unreadable"]
        rows = judge_all(local=numbers, ids=["ji2022/fig-2", "ji2022/eq-9"], fresh=True)
        assert {row["verdict"] for row in rows if row["needs"]} == {"open"}
        assert all(why in row["evidence"] for row in rows if row["needs"])
        assert [row["verdict"] for row in rows if not row["needs"]] == ["holds with a correction"]


def test_errata_and_verdicts_agree() -> None:
    shown = {name for erratum in errata() for name in erratum.claims if name in CHECKED}
    assert shown == {name for name, (verdict, _) in VERDICTS.items() if Verdict(verdict) in WRONG}
    assert len({erratum.anchor for erratum in errata()}) == len(errata())


def test_the_page_of_errata_is_up_to_date() -> None:
    import runpy

    expected = runpy.run_path(str(ROOT / "docs" / "build_errata.py"))["page"]()
    assert (ROOT / "docs" / "errata.md").read_text() == expected, "run `make docs`"
    for erratum in errata():
        anchor = erratum.anchor.partition("#")[2]
        heading = f'<a id="{anchor}">' if erratum.typo else f"### {erratum.where}\n"
        assert heading in expected


def test_the_conic_hull_claim_checks_the_drawn_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = CLAIMS["pan2023/def-conic-hull"]
    draw = ConicHull.draw

    def shuffled(self: ConicHull) -> Samples:
        samples = draw(self)
        return Samples(samples.inputs, samples.labels.roll(1))

    monkeypatch.setattr(ConicHull, "draw", shuffled)
    assert claim.check().verdict is Verdict.REFUTED


def test_the_network_claim_checks_the_trained_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = CLAIMS["pan2023/def-3.2.1"]
    forward = MLP.forward
    monkeypatch.setattr(MLP, "forward", lambda self, inputs: forward(self, inputs.relu()))
    assert claim.check().verdict is Verdict.REFUTED


def test_nan_does_not_support_equation_11() -> None:
    numbers = gathered("ji2022/eq-11")
    rows = [{**row, "change": float("nan")} for row in numbers["rows"]]
    verdict = CLAIMS["ji2022/eq-11"].judge({"rows": rows}).verdict
    assert verdict in (Verdict.REFUTED, Verdict.OPEN)


@pytest.mark.parametrize("name", ["ji2022/sec-1.1-landscape", "ji2022/thm-3.4"])
def test_too_few_critical_points_leave_the_landscape_open(name: str) -> None:
    numbers = gathered(name)
    for count in (0, 3):
        few = {**numbers, "critical": numbers["critical"][:count]}
        assert CLAIMS[name].judge(few).verdict is Verdict.OPEN


def test_a_bound_outside_its_regime_refutes_the_remark() -> None:
    numbers = gathered("pan2023/remark-regime")
    assert numbers["outside"] == 0
    judge = CLAIMS["pan2023/remark-regime"].judge
    assert judge({**numbers, "outside": 1}).verdict is Verdict.REFUTED


def test_findings_of_ours_are_marked() -> None:
    [row] = judge_all(ids=["findings/layer-peeled-rates"])
    assert (row["ours"], row["source"]) == (True, "ours, after ji2022, Fig. 2")
    [row] = judge_all(ids=["ji2022/fig-2a"])
    assert (row["ours"], row["source"]) == (False, "ji2022, Fig. 2 (a)")
    assert {claim.paper for claim in all_claims() if claim.ours} == {"findings"}


def test_open_verdicts_are_compared_by_what_could_be_measured() -> None:
    def found(there: str) -> Finding:
        return Finding(Verdict.OPEN, f"elsewhere {there}", {"there": there})

    pairs = {
        ("reproduced", "reproduced"): "agrees (reproduced where it could be measured)",
        ("reproduced", "contradicted"): (
            "differs (contradicted here, recorded reproduced where it could be measured)"
        ),
        ("undecided", "reproduced"): (
            "undecided (reproduced here, recorded undecided where it could be measured)"
        ),
    }
    for (recorded_there, here_there), words in pairs.items():
        assert describe_relation(found(recorded_there), found(here_there)) == words
        how = relation(
            effective_verdict(found(recorded_there)), effective_verdict(found(here_there))
        )
        assert words.startswith(how)
    nothing = Finding(Verdict.OPEN, "nothing is recorded", {})
    assert (
        relation(effective_verdict(nothing), effective_verdict(found("reproduced"))) == "undecided"
    )
    assert (
        effective_verdict(Finding(Verdict.REPRODUCED, "", {"there": "contradicted"}))
        is Verdict.REPRODUCED
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("[]", "list"),
        ('{"experiment": "ji2022_fig3"}', "holds the numbers of 'ji2022_fig3'"),
        ('{"schema": {"nclab": 1, "sha256": "0"}, "per_seed": [{}]}', "KeyError"),
        ('{"config": 5, "seeds": 5, "preset": 5}', "KeyError"),
        ('{"seeds": 5, "config": [1]}', "KeyError"),
    ],
)
def test_damaged_numbers_leave_the_recorded_verdict(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "ji2022_fig2").mkdir()
    (tmp_path / "ji2022_fig2" / "numbers.json").write_text(text)
    [alone] = judge_all(ids=["ji2022/fig-2a"])
    [row] = judge_all(local=read_numbers(tmp_path, ["ji2022_fig2"]), ids=["ji2022/fig-2a"])
    here = row.pop("here")
    assert row == alone, "nothing that is recorded is lost"
    assert here["relation"] == "undecided"
    assert "cannot be judged from ji2022_fig2/numbers.json" in here["says"]
    assert why in here["says"]


def test_only_a_similar_id_is_suggested() -> None:
    with pytest.raises(NclabError, match=r"got 'PAN2023'\. Did you mean pan2023\?"):
        find(["PAN2023"])
    with pytest.raises(NclabError, match=r"Did you mean pan2023/lemma-2\.4\.6\?"):
        find(["Pan2023/Lemma-2.4.6"])
    for nothing in ("nonsense", "", "  "):
        with pytest.raises(NclabError) as refused:
            find([nothing])
        assert "Did you mean" not in str(refused.value)
        assert "pan2023" in str(refused.value)


def test_published_results_stand_beside_a_verdict_and_do_not_change_it() -> None:
    claim = CLAIMS["pan2023/sec-3.1-grows"]
    row = judge(claim, None)
    recorded = claim.check(numbers=best_evidence(claim.needs))
    assert row["verdict"] == recorded.verdict.value
    assert {other["id"]: other["verdict"] for other in row["beside"]} == {
        "findings/author-results-grows": "opposed",
        "findings/author-results-grows-on-average": "supported",
    }
    assert all(other["answer"] in row["answer"] for other in row["beside"])
    assert "one seed, so they decide nothing" in row["answer"]


def test_only_findings_of_ours_support_or_oppose_and_stand_beside_claims_of_papers() -> None:
    words = (Verdict.SUPPORTED, Verdict.OPPOSED)
    rows = judge_all(ids=["findings/author", "pan2023/sec-3", "pan2023/conjecture"])
    assert all(row["ours"] for row in rows if row["verdict"] in words)
    beside = {name for claim in all_claims() if claim.ours for name in claim.beside}
    assert beside <= {claim.id for claim in all_claims() if not claim.ours}
    assert not any(claim.beside for claim in all_claims() if not claim.ours)


def test_findings_on_the_authors_files_have_every_field_of_a_card() -> None:
    rows = judge_all(ids=["findings/author"])
    assert len(rows) == 32
    for row in rows:
        assert row["quote"] == row["text"]
        assert row["answer"].endswith((".", ")"))
        assert row["command"].endswith(" --author-data FOLDER")

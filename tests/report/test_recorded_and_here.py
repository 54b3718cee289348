"""Pages separate recorded verdicts from runs here, and statements of papers from findings."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nclab.report.content import read_claims
from nclab.report.site import write_report
from tests.cli.runner import call

EXPERIMENT = "fang2021_x"
RECORDED, QUICK = "preset paper: width 300; 8 seeds", "preset quick: width 75; 2 seeds"
NUMBERS = {"experiment": EXPERIMENT, "preset": "quick", "seeds": [0, 1]}
PAPERS = {
    key: {"title": f"The paper {key}", "authors": "A. Author", "year": 2021}
    for key in ("fang2021", "thrampoulidis2022", "findings")
}


def claim(id_: str, verdict: str = "reproduced", **more: Any) -> dict[str, Any]:
    here = {
        "verdict": "undecided",
        "evidence": "0.1 [-5, 6], margin 0.01, 2 seeds",
        "effects": [],
        "size": QUICK,
        "relation": "undecided",
        "says": f"undecided here, recorded {verdict}",
    }
    ours = id_.startswith("findings/")
    return {
        "id": id_,
        "ours": ours,
        "kind": "empirical result",
        "text": f"Statement {id_}.",
        "source": "ours, after fang2021, Sec. 1" if ours else f"{id_.split('/')[0]}, Sec. 1",
        "verdict": verdict,
        "tone": {"reproduced": "good", "contradicted": "bad"}[verdict],
        "evidence": "0.3 [0.2, 0.4], margin 0.01, 8 seeds",
        "size": RECORDED,
        "here": here,
        "needs": EXPERIMENT,
        **more,
    }


CLAIMS = [claim("fang2021/a"), claim("thrampoulidis2022/b"), claim("findings/c", "contradicted")]


def folder(
    root: Path, claims: list[dict[str, Any]] | None = None, numbers: str | None = None
) -> Path:
    """Write a folder whose claims were judged from other numbers than it holds now."""
    good = json.dumps(NUMBERS)
    (root / EXPERIMENT).mkdir(parents=True)
    (root / EXPERIMENT / "numbers.json").write_text(good if numbers is None else numbers)
    (root / EXPERIMENT / "curve.png").write_bytes(b"\x89PNG")
    judged_from = {EXPERIMENT: hashlib.sha256(good.encode()).hexdigest()}
    ledger = {"papers": PAPERS, "judged_from": judged_from, "claims": claims or CLAIMS}
    (root / "claims.json").write_text(json.dumps(ledger))
    return root


def words(page: Path) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.read_text()).split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(folder(tmp_path_factory.mktemp("here") / "runs")).page.parent


@pytest.mark.parametrize("page", ["papers/fang2021.html", "claims.html"])
def test_every_result_has_both_sizes_and_both_estimates(site: Path, page: str) -> None:
    text = words(site / page)
    recorded = f"recorded , {RECORDED}: 0.3 [0.2, 0.4], margin 0.01, 8 seeds"
    here = (
        f"here , {QUICK}: undecided here, recorded reproduced ; 0.1 [-5, 6], margin 0.01, 2 seeds"
    )
    assert text.count(recorded) == len(CLAIMS)
    assert text.count(here) == 2
    assert "undecided here, recorded contradicted" in text


def test_figures_say_which_run_they_are_of(site: Path) -> None:
    text = words(site / "papers/fang2021.html")
    figures = "Figures of this run, preset quick, 2 seeds; verdicts are those of the recorded"
    assert text.index("Recorded verdicts") < text.index(figures)
    assert "This run, compared with them (preset quick, 2 seeds): 0 agree, 0 differ, 3" in text
    overview = words(site / "index.html")
    assert "do not change the verdicts: 0 agree, 0 differ, 3 undecided." in overview
    assert "this run, preset quick, 2 seeds" in overview


def test_findings_of_ours_are_not_counted_among_the_statements(site: Path) -> None:
    page = words(site / "papers/fang2021.html")
    assert "2 statements of papers: 2 reproduced. 1 finding of our own: 1 contradicted." in page
    assert "contradicted ours, after fang2021, Sec. 1" in page
    overview = words(site / "index.html")
    assert "2 statements judged" in overview
    assert "1 finding of our own" in overview
    assert "Statements of papers reproduced 2 Our findings contradicted 1" in overview


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ('{"exper', "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("[]", "a JSON list, not an object"),
        (json.dumps({**NUMBERS, "experiment": "other"}), "it holds the numbers of 'other'"),
        (json.dumps({**NUMBERS, "config": 5, "seeds": 5}), None),
    ],
)
def test_damaged_numbers_leave_recorded_verdicts_alone(
    tmp_path: Path, numbers: str, why: str | None
) -> None:
    out = write_report(folder(tmp_path / "runs", numbers=numbers)).page.parent
    for name in ("papers/fang2021.html", "claims.html"):
        page = (out / name).read_text()
        assert "newer than the verdict" not in page
        assert not re.search(
            r'class="verdict good">reproduced</span> <span class="verdict st', page
        )
        text = words(out / name).replace("&#39;", "'")
        assert RECORDED in text
        assert (f"numbers.json cannot be read {why}" if why else "recorded reproduced") in text
        assert ("stale" in re.sub(r"verdict stale", "", text)) is (why is None)


def test_numbers_that_are_newer_make_stale_what_is_said_of_them(tmp_path: Path) -> None:
    numbers = json.dumps({**NUMBERS, "rows": [1]})
    out = write_report(folder(tmp_path / "runs", numbers=numbers)).page.parent
    page = words(out / "papers/fang2021.html")
    assert "The verdicts are older than the numbers of this run." in page
    assert "2 seeds stale" in page
    assert "reproduced stale" not in page
    older = [{"id": "fang2021/a", "verdict": "reproduced", "needs": EXPERIMENT}]
    out = write_report(folder(tmp_path / "older", older, numbers)).page.parent
    assert "reproduced stale" in words(out / "papers/fang2021.html")


def test_a_result_that_did_not_run_here_says_so(tmp_path: Path) -> None:
    out = write_report(folder(tmp_path / "runs", [claim("fang2021/a", here=None)])).page.parent
    assert "here : not run" in words(out / "papers/fang2021.html")
    assert "never the verdict" not in words(out / "index.html")


def test_a_damaged_ledger_is_said_instead_of_no_claims(tmp_path: Path) -> None:
    root = folder(tmp_path / "runs")
    (root / "claims.json").write_text('{"claims": [')
    done = call("report", root)
    assert done.code == 0
    assert "0 claims" not in done.out
    assert "no claims (claims.json cannot be read: JSONDecodeError" in done.out
    for page in ("index.html", "claims.html"):
        assert "No verdicts are shown: claims.json cannot be read" in words(root / "report" / page)


def test_files_that_do_not_say_whose_a_claim_is_are_read() -> None:
    problems: list[str] = []
    rows = [
        {"id": "findings/a", "here": {"relation": "agrees", "verdict": "reproduced"}},
        {"id": "fang2021/a", "here": 5, "ours": "no"},
        {"id": 5},
    ]
    read = read_claims(rows, problems)
    assert [claim["ours"] for claim in read] == [True, False]
    assert read[0]["here"]["says"] == "agrees (reproduced)"
    assert read[1]["here"] is None
    assert len(problems) == 1

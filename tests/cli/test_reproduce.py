"""`nclab reproduce`: the tour, reuse of finished runs, bad arguments."""

import json
from pathlib import Path

import pytest

import nclab
from nclab.claims import reproduce as main_job
from nclab.claims.paper import AUTHOR_DATA
from nclab.claims.registry import find_experiments
from nclab.claims.reproduce import Reproduction
from nclab.claims.tables import recorded_verdict_table
from nclab.figures.picture import Panel, Picture, Series
from nclab.records.results import parse_json, write_json
from nclab.text import as_text
from nclab_papers.findings import tour
from nclab_papers.shared.small_classifier import NetworkConfig
from tests.cli.runner import call

TINY = tour.Config(NetworkConfig(samples=400, width=16, epochs=60))


def test_the_tour_distinguishes_the_four_cases(tmp_path: Path) -> None:
    numbers = tour.run(TINY, seeds=(1,), out=tmp_path)
    exact, near, random, trained = numbers["cases"].values()
    nc1 = [case["nc1_trace_ratio"] for case in (exact, near, trained, random)]
    assert nc1 == sorted(nc1)
    assert exact["nc1_trace_ratio"] == pytest.approx(0, abs=1e-12)
    assert trained["accuracy"] == 1.0
    assert len(numbers["layers"]) == 3
    text = "".join(as_text(part) for part in tour.tables(numbers))
    for printed in ("exact ETF", "random cloud", "trained", "effective depth"):
        assert printed in text
    assert (
        json.loads(json.dumps(numbers, allow_nan=False))["cases"].keys() == numbers["cases"].keys()
    )


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    first, second = (tour.run(TINY, seeds=(1,), out=tmp_path) for _ in range(2))
    assert first == second


def test_finished_experiments_are_reused_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tour.PRESETS, "quick", TINY)

    def reused(**changes: object) -> list[str]:
        job = Reproduction(**{"preset": "quick", "seeds": (0,), "out": tmp_path, **changes})  # type: ignore[arg-type]
        job.run(["tour"], lambda *_: None)
        assert job.numbers["tour"]["seeds"] == list(job.seeds)
        return job.reused

    assert reused() == []
    assert reused() == ["tour"]
    assert reused(seeds=(1,)) == []
    assert reused(seeds=(1,)) == ["tour"]
    assert reused(seeds=(1,), fresh=True) == []
    (tmp_path / "tour" / "numbers.json").write_text('{"experiment": "to')
    assert reused(seeds=(1,)) == []


def test_the_folder_of_the_authors_data_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTHOR_DATA, "")
    (tmp_path / "empty").mkdir()
    target = ("pan2023_author_results", "--out", tmp_path / "runs", "--author-data")
    done = call("reproduce", *target, tmp_path / "none")
    assert done.code == 2
    assert "Expected --author-data as an existing folder" in done.err
    done = call("reproduce", *target, tmp_path / "empty", "--json")
    assert done.code == 0
    [reason] = json.loads(done.out)["skipped"].values()
    assert f"pan_imagenet32.csv or results in {tmp_path / 'empty'}" in reason


def test_an_unknown_target_is_one_line() -> None:
    with pytest.raises(nclab.NclabError, match=r"one of .*tour, .*; got 'torus'"):
        find_experiments(["torus"])
    done = call("reproduce", "torus")
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_missing_figures_are_drawn_and_other_skips_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tour.PRESETS, "quick", TINY)
    picture = Picture("line", "A line", (Panel("", "x", "y", (Series("", [0, 1], [0, 1]),)),))
    monkeypatch.setattr(tour, "pictures", lambda numbers: [picture])
    (tmp_path / "skipped.json").write_text('{"ji2022_fig3": "no data", "tour": "long ago"}')
    for _ in range(2):
        Reproduction("quick", (0,), tmp_path).run(["tour"], lambda *_: None)
        figure = tmp_path / "tour" / "line.svg"
        assert figure.exists()
        figure.unlink()
    assert parse_json(tmp_path / "skipped.json") == {"ji2022_fig3": "no data"}


def test_claims_are_judged_again_only_when_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def judge_all(preset: str, numbers: object) -> list[object]:
        judged.append(preset)
        return []

    monkeypatch.setattr(main_job, "judge_all", judge_all)

    def judge(preset: str, numbers: str) -> None:
        (tmp_path / "tour").mkdir(exist_ok=True)
        (tmp_path / "tour" / "numbers.json").write_text(numbers)
        Reproduction(preset, (0,), tmp_path, numbers={"tour": {}}).judge(all_claims=True)

    judge("quick", "{}")
    judge("quick", "{}")
    assert judged == ["quick"]
    judge("quick", '{"other": 1}')
    judge("paper", '{"other": 1}')
    (tmp_path / "claims.json").write_text("[]")
    judge("paper", '{"other": 1}')
    assert judged == ["quick", "quick", "paper", "paper"]


def test_an_unknown_target_names_the_papers() -> None:
    with pytest.raises(nclab.NclabError, match=r"or a paper, one of findings, .*ji2022, pan2023"):
        find_experiments(["nonsense"])


ROWS = [
    {
        "id": id_,
        "ours": id_.startswith("findings"),
        "verdict": verdict,
        "size": "preset paper; 8 seeds",
        "needs": "pan2023_fig31",
        "here": {"relation": relation, "size": "preset quick; 2 seeds"},
    }
    for id_, verdict, relation in (
        ("pan2023/a", "reproduced", "agrees"),
        ("pan2023/b", "reproduced", "undecided"),
        ("findings/c", "contradicted", "differs"),
    )
]


def test_the_closing_table_keeps_ours_apart_and_speaks_of_the_runs_that_are_there(
    tmp_path: Path,
) -> None:
    write_json(tmp_path / "claims.json", {"claims": ROWS})
    job = Reproduction("paper", (0,), tmp_path, report={"figures": 1, "page": "p"})
    text = " ".join("".join(as_text(part) for part in job.summary()).replace("│", " ").split())
    assert "2 claims: 2 reproduced" in text
    assert "1 finding of ours: 1 contradicted" in text
    assert "compared with it: 1 agrees" in text


def test_the_log_says_which_evidence_verdicts_are_from() -> None:
    here = {"size": "preset quick; 2 seeds", "says": "undecided here, recorded reproduced"}
    row = {
        "mark": "✓",
        "text": "It grows.",
        "source": "pan2023, Fig. 3.1",
        "needs": "pan2023_fig31",
        "verdict": "reproduced",
        "evidence": "0.3 [0.2, 0.4]",
        "size": "preset paper; 8 seeds",
        "here": here,
    }
    ours = {**row, "source": "ours, after ji2022, Fig. 2", "here": None}
    table = recorded_verdict_table([row, ours])
    assert table.title == (
        "Verdicts from the recorded evidence (preset paper; 8 seeds); here (preset quick; 2 seeds)"
    )
    assert [line[2] for line in table.rows] == ["Fig. 3.1", "ours, after ji2022, Fig. 2"]
    assert [line[5] for line in table.rows] == [here["says"], ""]

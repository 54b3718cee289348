"""`nclab claims` as a table and as JSON."""

import json
from pathlib import Path

from nclab.claims.registry import claims as all_claims
from tests.claims.paper_attacks import IDEAL
from tests.cli.runner import call


def test_one_claim_as_a_table() -> None:
    done = call("claims", "ji2022/eq-9")
    assert done.code == 0
    assert "correction" in done.out
    assert "0.2384058" in done.out
    assert "1 claim: 1 holds with a correction" in done.out


def test_a_short_list_shows_the_statements() -> None:
    printed = " ".join(call("claims", "pan2023/lemma-2.4.6").out.split())
    assert "pan2023, Lemma 2.4.6: If w, of norm at most β," in printed
    assert "printed: w · h̄ ≤ c/α + 4β(ε/(αβ))^(1/3), and since ‖w‖ ≤ β and ‖h̄‖ ≤ 1" in printed
    assert "correct: The first inequality holds if 1/N ∑ᵢ ‖hᵢ‖ ≥ α − ε/β" in printed


def test_a_prefix_of_ids_as_json() -> None:
    done = call("claims", "pan2023/cor", "--json")
    rows = json.loads(done.out)
    assert [row["id"] for row in rows] == ["pan2023/cor-2.4.1", "pan2023/cor-2.4.2"]
    for row in rows:
        assert row["verdict"] == "holds"
        assert row["evidence"]
        assert row["numbers"]["violated"] == 0
        assert set(row["links"]) == {"code", "figure", "erratum"}


def test_results_of_runs_are_shown_next_to_recorded_ones(tmp_path: Path) -> None:
    folder = tmp_path / "zhou2022_losses"
    folder.mkdir()
    (folder / "numbers.json").write_text(json.dumps(IDEAL["zhou2022_losses"]))
    flags = ("claims", "findings/losses-gap", "--json", "--runs", tmp_path)
    [row] = json.loads(call(*flags).out)
    assert row["verdict"] == "contradicted"
    assert row["size"].startswith("preset paper")
    assert (row["here"]["verdict"], row["here"]["relation"]) == ("reproduced", "differs")
    for key in ("estimate", "interval", "margin", "seeds"):
        assert key in row["numbers"]
    [row] = json.loads(call(*flags, "--fresh").out)
    assert row["verdict"] == "reproduced"


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    for name, text in (
        ("ji2022_fig2", '{"preset": "quick", "per_seed": [{"slopes": NaN}]}'),
        ("ji2022_fig3", "\x00"),
        ("pan2023_fig31", '{"rows": {"a": 1}}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numbers.json").write_text(text)
    flags = ("ji2022/fig-2b", "ji2022/fig-3", "ji2022/eq-9", "--runs", tmp_path, "--fresh")
    done = call("claims", *flags, "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert {row["verdict"] for row in rows if row["needs"]} == {"open"}
    assert "(preset quick)" in " ".join(call("claims", *flags).out.split())


def test_bad_arguments_are_one_line(tmp_path: Path) -> None:
    for arguments in (["lemma-2.4.6"], ["--runs", tmp_path / "none"], ["--preset", "slow"]):
        done = call("claims", *arguments)
        assert done.code == 2
        assert done.err.count("\n") == 1
    assert "pan2023/lemma-2.4.6" in call("claims", "lemma-2.4.6").err


def test_help_names_an_example() -> None:
    done = call("claims", "--help")
    assert done.code == 0
    assert "Example:" in done.out


def test_there_are_enough_claims() -> None:
    assert len(all_claims()) >= 35


def test_an_empty_id_and_a_folder_without_numbers(tmp_path: Path) -> None:
    done = call("claims", "")
    assert done.code == 2
    assert "got ''" in done.err
    printed = call("claims", "ji2022/fig-2a", "--runs", tmp_path).out
    assert "has no numbers of these experiments: ji2022_fig2." in " ".join(printed.split())
    assert "./runs by default" in " ".join(call("claims", "--help").out.replace("│", " ").split())


def test_a_disagreement_with_the_evidence_shows_both_sides(tmp_path: Path) -> None:
    (tmp_path / "zhou2022_losses").mkdir()
    file = tmp_path / "zhou2022_losses" / "numbers.json"
    flags = ("claims", "pan2023/sec-3.1-norms-fall", "findings/losses-gap", "--runs", tmp_path)

    def printed() -> str:
        return " ".join(call(*flags).out.replace("│", " ").split())

    file.write_text(json.dumps(IDEAL["zhou2022_losses"]))
    assert "differs (reproduced here, recorded contradicted)" in printed()
    assert "1 claim: 1 reproduced 1 finding of ours: 1 contradicted" in printed()
    assert "ours, after zhou2022, Sec. Abstract" in printed()
    file.write_text('{"exper')
    assert "here: undecided; cannot be judged from zhou2022_losses/numbers.json" in printed()

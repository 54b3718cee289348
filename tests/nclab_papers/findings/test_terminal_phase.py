"""The terminal phase: training, tables, pictures and claims."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nclab.claims.claim import Verdict
from nclab.claims.evidence import describe_size
from nclab.claims.registry import claims
from nclab.claims.tables import for_terminal
from nclab.errors import NclabError
from nclab.figures.matplotlib_renderer import draw
from nclab.text import as_text
from nclab_papers.findings import terminal_phase
from nclab_papers.findings.attacks import exchanged_moments
from nclab_papers.findings.attacks import terminal_phase as ideal_numbers
from nclab_papers.findings.terminal_phase import PRESETS, pairs
from tests.nclab_papers.findings.test_terminal_training import TINY
from tests.nclab_papers.ji2022.test_fig3 import IN_PROCESS

CLAIMS = [claim for claim in claims() if claim.needs == "findings_terminal_phase"]


@pytest.mark.usefixtures("small")
def test_both_networks_are_trained_once_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = terminal_phase.run(TINY, seeds=(0, 1), out=tmp_path, engine=IN_PROCESS)
    assert {(row["network"], row["seed"]) for row in numbers["rows"]} == {
        (network, seed) for network in ("vgg", "mlp") for seed in (0, 1)
    }
    assert len(numbers["runs"]) == 4
    assert describe_size(numbers | {"preset": "tiny"}) == (
        "preset tiny: VGG-13 × 0.05, 20 images, 12 epochs; 3 layers of width 48, 60 samples, "
        "40 epochs; 2 seeds"
    )

    def refuse(*_: object) -> None:
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(terminal_phase, "train", refuse)
    assert terminal_phase.run(TINY, seeds=(0, 1), out=tmp_path, engine=IN_PROCESS) == numbers
    assert "test accuracy" in as_text(for_terminal(terminal_phase.tables(numbers)[1]))
    with pytest.raises(NclabError, match="no seed twice"):
        terminal_phase.run(TINY, seeds=(0, 0), out=tmp_path)


def test_tables_and_pictures_show_both_moments_and_their_difference() -> None:
    numbers = ideal_numbers()
    table = terminal_phase.tables(numbers)[0]
    [row] = [row for row in table.rows if row[0] == "test accuracy"]
    assert row[1].startswith("0.7 ±")
    assert row[2].startswith("0.8 ±")
    assert row[3].startswith("0.1 ±")
    [picture] = terminal_phase.pictures(numbers)
    assert len(draw(picture).axes) == 4
    assert terminal_phase.pictures({**numbers, "rows": []}) == []
    assert all("–" in row[1:] for row in terminal_phase.tables({**numbers, "rows": []})[0].rows)


def test_seeds_without_a_terminal_phase_are_counted_in_the_evidence() -> None:
    numbers = ideal_numbers()
    rows = [
        row
        for row in numbers["rows"]
        if not (row["seed"] == 3 and row["moment"] == "before")  # never interpolates
    ]
    rows = [{**row, "epoch": 50} if row["seed"] == 5 else row for row in rows]  # at its end only
    fewer = {**numbers, "rows": rows}
    assert list(pairs(fewer, "vgg")) == [0, 1, 2, 4, 6, 7]
    finding = terminal_phase.vgg_generalises.judge(fewer)
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.numbers["seeds"] == 6
    assert "2 of 8 seeds have no terminal phase" in finding.evidence
    nothing = terminal_phase.vgg_generalises.judge({**numbers, "rows": []})
    assert nothing.verdict is Verdict.OPEN


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_exchanged_moments_contradict_the_claims(claim: Any) -> None:
    numbers = ideal_numbers()
    rows = [{**row, **exchanged_moments(row)} for row in numbers["rows"]]
    assert claim.judge(numbers).verdict is Verdict.REPRODUCED
    assert claim.judge({**numbers, "rows": rows}).verdict is Verdict.CONTRADICTED


def test_claims_are_findings_of_ours_with_a_quote_and_a_margin() -> None:
    assert len(CLAIMS) == 10
    for claim in CLAIMS:
        assert claim.paper == "findings"
        assert claim.quote
        shares = any(word in claim.id for word in ("generalisation", "robustness", "centres"))
        assert claim.judge(ideal_numbers()).numbers["margin"] == (0.005 if shares else 0.01)


def test_presets_have_the_documented_sizes() -> None:
    paper, quick = PRESETS["paper"], PRESETS["quick"]
    assert (paper.vgg.images, paper.vgg.epochs, paper.mlp.width) == (1000, 200, 300)
    assert paper.weight_decay == 1e-3
    assert asdict(quick)["vgg"]["images"] == 200

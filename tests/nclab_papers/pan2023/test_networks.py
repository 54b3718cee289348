"""Networks are trained once and shared; tables and pictures are made from the numbers."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nclab.claims.tables import for_terminal, recorded_verdict_table
from nclab.records import find_runs
from nclab.text import as_text
from nclab_papers.pan2023 import complexity, conjectures, fig31, fig33, norms
from nclab_papers.pan2023.conjectures import ConjectureSetting
from nclab_papers.pan2023.networks import PAPER, QUICK
from tests.nclab_papers.pan2023.tiny import DECAYS, TINY, TRAINED, claims_of

ROOT = Path(__file__).parents[3]


def test_runs_are_shared(out: Path, numbers: dict[str, dict[str, Any]]) -> None:
    norms, affine, seeds = 3, 1, 2
    fig31 = norms * len(DECAYS) * seeds
    fig33 = linear_teacher = conic = affine * len(DECAYS) * seeds
    assert len(find_runs(out)) == fig31 + fig33 + linear_teacher + conic
    names = {row["run"] for row in numbers["pan2023_fig31"]["rows"]}
    assert {row["run"] for row in numbers["pan2023_norms"]["rows"]} <= names


@pytest.mark.parametrize("name", list(TRAINED))
def test_everything_is_rebuilt_from_the_numbers(
    name: str, numbers: dict[str, dict[str, Any]]
) -> None:
    module, found = TRAINED[name], numbers[name]
    judged = [{**claim.to_dict(claim.judge(found)), "size": ""} for claim in claims_of(module)]
    tables = [*module.tables(found), recorded_verdict_table(judged)]
    text = "\n".join(as_text(for_terminal(table), width=200) for table in tables)
    assert all(table.title in text for table in tables)
    assert "Verdicts" in text
    pictures = module.pictures(found)
    assert pictures
    assert all(picture.caption and picture.panels for picture in pictures)
    assert set(module.PRESETS) == {"quick", "paper"}


def test_a_second_call_trains_nothing(out: Path, numbers: dict[str, dict[str, Any]]) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("journal.jsonl")}
    config = norms.Config(networks=TINY, layers=4, weight_decays=DECAYS)
    again = norms.run(config, seeds=(0, 1), out=out)
    assert json.loads(json.dumps(again)) == numbers["pan2023_norms"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("journal.jsonl")} == before


def test_an_epoch_of_the_quick_preset_resembles_one_of_the_thesis() -> None:
    assert QUICK.batch == PAPER.batch
    assert QUICK.samples % QUICK.batch == PAPER.samples % PAPER.batch == 16
    assert round(PAPER.samples / QUICK.samples) == PAPER.width / QUICK.width == 4
    assert {config.networks for module in (fig31, fig33) for config in module.PRESETS.values()} == {
        QUICK,
        PAPER,
    }


def test_presets_share_their_runs() -> None:
    for preset in ("quick", "paper"):
        one, deep = fig31.PRESETS[preset], fig33.PRESETS[preset]
        same, simple = norms.PRESETS[preset], complexity.PRESETS[preset]
        assert same.networks == one.networks == simple.networks
        assert same.weight_decays == one.weight_decays
        assert set(simple.weight_decays) <= set(one.weight_decays)
        assert 3 in simple.teacher_depths
        places = conjectures.PRESETS[preset].places
        every = [replace(place, most=None) for place in places]
        assert ConjectureSetting(one.networks, "teacher", one.layers, one.weight_decays) in every
        assert ConjectureSetting(deep.networks, "teacher", deep.layers, deep.weight_decays) in every


@pytest.mark.parametrize("name", list(TRAINED))
def test_tables_are_made_from_the_numbers(name: str, numbers: dict[str, dict[str, Any]]) -> None:
    builder = runpy.run_path(str(ROOT / "docs" / "build_experiments.py"))
    heading = {"preset": "tiny", "seeds": [0], "manifest": {"command": f"nclab reproduce {name}"}}
    section = builder["results"](name, {**numbers[name], **heading})
    assert section.startswith(builder["BEGIN_MARK"])
    assert section.endswith(builder["END_MARK"])
    assert f"](images/{TRAINED[name].pictures(numbers[name])[0].name}.png)" in section
    for claim in claims_of(TRAINED[name]):
        place = f"ours, after {claim.location}" if claim.ours else claim.location.partition(", ")[2]
        verdict = claim.judge(numbers[name]).verdict
        assert f"| {claim.text} | {place} | {verdict.value} |" in section

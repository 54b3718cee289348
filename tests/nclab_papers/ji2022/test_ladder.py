"""The ladder to Figure 3: trained by cost, resumed, drawn, and extrapolated with an error."""

import runpy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nclab.claims import evidence, ledger
from nclab.claims.evidence import restore_networks
from nclab.claims.tables import for_terminal
from nclab.errors import NclabError
from nclab.figures.matplotlib_renderer import draw
from nclab.text import as_text
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022 import fig3, ladder, vgg_training
from nclab_papers.ji2022.ladder import PRESETS, RUNGS, Config, Rung
from tests.nclab_papers.ji2022.test_fig3 import IN_PROCESS
from tests.nclab_papers.ji2022.test_vgg_training import TINY

FEW = Config(rungs=3, shrink=50, training=replace(TINY, epochs=2))


def test_presets_select_rungs_in_the_order_of_their_cost() -> None:
    hours = [rung.hours for rung in RUNGS]
    assert hours == sorted(hours)
    assert len({rung.name for rung in RUNGS}) == len(RUNGS) == 15
    assert {rung.images for rung in RUNGS} == {1000, 10_000, 60_000}
    assert {rung.width for rung in RUNGS} == {0.125, 0.25, 0.5}
    paper = PRESETS["paper"].selected()
    assert len(paper) >= 5
    assert sum(rung.hours for rung in paper) <= PRESETS["paper"].hours
    assert PRESETS["quick"].selected() == list(RUNGS[:2])
    assert PRESETS["whole"].selected() == list(RUNGS)
    assert PRESETS["finished"].selected() == []


def test_every_rung_has_its_own_preset() -> None:
    assert len({rung.preset for rung in RUNGS}) == len(RUNGS)
    for rung in RUNGS:
        assert " " not in rung.preset
        assert PRESETS[rung.preset].selected() == [rung]


def test_rungs_differ_from_the_paper_only_in_size_and_layers() -> None:
    paper, config = fig3.PRESETS["paper"], PRESETS["whole"]
    last = config.of(Rung(60_000, 0.5))
    assert replace(last, width=1.0, device="auto") == paper
    assert config.of(Rung(1000, 0.125, dense=True)).dense == 4096


@pytest.mark.usefixtures("small")
def test_finished_rungs_are_reused_and_expensive_ones_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nclab.records.manifest.commit", lambda: "0" * 40)
    monkeypatch.setattr("sys.argv", ["nclab", "reproduce", "--preset", RUNGS[0].preset])
    first = ladder.run(replace(FEW, rungs=2), seeds=(0, 1), out=tmp_path, engine=IN_PROCESS)
    assert [rung["runs"] for rung in first["rungs"]] == [2, 2]
    assert {row["epoch"] for row in first["rows"]} == {0, 1, 2}

    def fail(*arguments: object) -> None:
        raise AssertionError("a finished run was trained again")

    with monkeypatch.context() as patch:
        patch.setattr(vgg_training, "train", fail)
        short = replace(FEW, hours=0.0)
        gathered = ladder.run(short, seeds=(0, 1), out=tmp_path, engine=IN_PROCESS)
        assert gathered["rows"] == first["rows"]
        # Networks restored from the recorded ones need no training.
        patch.setattr(evidence, "networks_file", lambda paper: tmp_path / "networks.jsonl")
        builder = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "build_experiments.py"))
        assert builder["record_networks"]("ji2022", tmp_path) == 4
        assert restore_networks("ji2022", tmp_path / "elsewhere") == 4
        again = ladder.run(short, seeds=(0, 1), out=tmp_path / "elsewhere", engine=IN_PROCESS)
        assert (again["rows"], again["runs"]) == (first["rows"], first["runs"])
    assert [rung["runs"] for rung in gathered["rungs"]] == [2, 2, 0]
    (table,) = ladder.tables(gathered)
    assert [row[2] for row in table.rows] == ["2", "2", "0"]
    assert "Rungs below Figure 3" in as_text(for_terminal(table))
    with pytest.raises(NclabError, match="different seeds"):
        ladder.run(FEW, seeds=(0, 0), out=tmp_path)


def test_figure_3_is_open_and_judged_at_the_largest_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = all_rungs()
    names = [rung.name for rung in RUNGS[:6]]  # 1000 × 0.5 is the largest of them
    few = {**numbers, "rows": [row for row in numbers["rows"] if row["rung"] in names]}
    largest = ladder.furthest(few)
    assert largest is not None
    assert (largest["config"]["images"], largest["config"]["width"]) == (1000, 0.5)
    assert {row["rung"] for row in largest["rows"]} == {"1000 × 0.5"}
    monkeypatch.setattr(evidence, "read_evidence", {"ji2022_ladder": few}.get)
    [row] = ledger.judge_all(ids=["ji2022/fig-3a"])
    assert row["verdict"] == "open"
    variant = "VGG-13 with batch norm, without its fully connected layers"
    size = f"1000 of 60000 images, width 0.5 of 1, 500 of 500 epochs, {variant}; at this size"
    assert size in row["evidence"]
    assert "undecided" in row["evidence"]  # two seeds
    assert "probably 4 more seeds settle it" in row["evidence"]
    assert row["size"].endswith("of the ladder: 1000 images, width 0.5, 500 epochs; 2 seeds")
    one_seed = [row for row in few["rows"] if not (row["rung"] == "1000 × 0.5" and row["seed"])]
    assert ladder.furthest({**few, "rows": one_seed})["config"]["width"] == 0.25  # type: ignore[index]
    assert ladder.furthest({**few, "rows": []}) is None


def all_rungs() -> dict[str, Any]:
    """Return numbers that fall like images^-1/4, and by a tenth per doubling of the width."""
    rows = []
    for rung in RUNGS:
        value = 2 * rung.images**-0.25 * (8 * rung.width) ** -0.15
        for seed in (0, 1):
            row: dict[str, Any] = {"rung": rung.name, "seed": seed, "epoch": 500, "accuracy": 1.0}
            rows.append(row | dict.fromkeys(QUANTITIES, value * (1 + 0.01 * seed)))
    rungs = [
        {**rung._asdict(), "name": rung.name, "hours": rung.hours, "runs": 2} for rung in RUNGS
    ]
    config = {"training": asdict(PRESETS["paper"].training)}
    return {"config": config, "seeds": [0, 1], "rungs": rungs, "rows": rows}


def test_the_picture_has_every_rung() -> None:
    numbers = all_rungs()
    (picture,) = ladder.pictures(numbers)
    panel: Any = picture.panels[0]
    assert panel.x_names == tuple(rung.name for rung in RUNGS)
    assert [len(series.x) for series in panel.series] == [15, 15]
    assert ladder.pictures({**numbers, "rows": []}) == []
    assert len(draw(picture).axes) == 4

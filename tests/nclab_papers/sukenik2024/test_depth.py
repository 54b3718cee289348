"""The study of depth: its batches, one tiny run, its table and picture, and both built networks."""

import json
from pathlib import Path

import pytest

from nclab.figures.matplotlib_renderer import draw
from nclab_papers.shared.study import as_rows
from nclab_papers.sukenik2024 import depth
from nclab_papers.sukenik2024.depth import PRESETS, Config, batches
from nclab_papers.sukenik2024.descent import best_value, collapsed, on_graph
from tests.claims.paper_attacks import IDEAL

TINY = Config(
    layers=(2, 4),
    classes=(3,),
    weight_decays=(1e-3,),
    widths=(1, 2),
    starts=(1.0,),
    steps=30,
    workers=0,
)


def test_the_design_has_5760_runs() -> None:
    design = batches(PRESETS["paper"], range(8))
    assert len(design) == len(set(design)) == 120
    runs = [len(batch.seeds) * len(batch.starts) * len(batch.weight_decays) for batch in design]
    assert sum(runs) == 5760


def test_a_tiny_study_has_a_row_for_every_run(tmp_path: Path) -> None:
    numbers = depth.run(TINY, seeds=(0, 1), out=tmp_path)
    rows = as_rows(numbers)
    assert len(rows) == 2 * 2 * 2 * 2 * 2
    assert {row["width"] for row in rows} == {1, 2}
    assert all(
        (row["etf"] is None) is (row["kind"] == "relu" or row["loss"] == "mse") for row in rows
    )
    json.dumps(numbers, allow_nan=False)
    assert depth.run(TINY, seeds=(0, 1), out=tmp_path) == numbers
    assert len(depth.tables(numbers)[0].rows) == 2 * 2 * 2 * 2


def test_the_picture_has_a_panel_for_every_model() -> None:
    [picture] = depth.pictures(IDEAL["sukenik2024_depth"])
    assert len(draw(picture).axes) == 4


@pytest.mark.parametrize(
    ("classes", "collapse", "graph"), [(6, 0.01498193, 0.01443226), (10, 0.02494970, 0.02249303)]
)
def test_objectives_of_the_built_networks(classes: int, collapse: float, graph: float) -> None:
    for build, expected in ((collapsed, collapse), (on_graph, graph)):
        value = best_value(build(classes, 4), classes, 4, 0.001)
        assert value == pytest.approx(expected, abs=1e-8)

"""Figure 3 of ji2022: runs reused and shown, claims judged from rows, pictures as plain data."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Finding, Verdict
from nclab.claims.paper import find_preset
from nclab.claims.tables import for_terminal
from nclab.engine import LOCAL, Engine
from nclab.engine.jobs import JobList
from nclab.errors import MissingData, NclabError, NclabWarning
from nclab.figures.matplotlib_renderer import draw
from nclab.figures.picture import Panel
from nclab.figures.plotly_renderer import plotly_figure
from nclab.text import as_text
from nclab.training.data import fashion_mnist
from nclab_papers.ji2022 import fig3
from nclab_papers.ji2022.fig3 import QUANTITIES, panels
from nclab_papers.ji2022.vgg_training import Config
from tests.nclab_papers.ji2022.test_vgg_training import TINY

Row = dict[str, Any]


class Here(Engine):
    """An engine that trains in this process."""

    here = True

    def slots(self) -> int:
        return 1

    def run_all(self, work: JobList) -> None:
        LOCAL.run_all(replace(work, workers=0))


HERE = Here()


@pytest.mark.usefixtures("small")
def test_rows_are_measured_where_due_and_runs_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = fig3.run(TINY, seeds=(0, 1), out=tmp_path, engine=HERE)
    assert [row["epoch"] for row in numbers["rows"]] == [0, 1, 2, 3, 4, 6] * 2
    assert [row["step"] for row in numbers["rows"][:6]] == [0, 3, 6, 9, 12, 18]
    assert {row["seed"] for row in numbers["rows"]} == {0, 1}
    assert fig3.fig_3b.judge(numbers).verdict is Verdict.OPEN

    (table,) = fig3.tables(numbers)
    assert "VGG-13 × 0.05, 20 images" in table.title
    assert [row[:2] for row in table.rows] == [("0", "0"), ("0", "6"), ("1", "0"), ("1", "6")]
    assert "(d)" in as_text(for_terminal(table))
    assert fig3.fig_3d.location == "ji2022, Fig. 3 (d)"
    (picture,) = fig3.pictures(numbers)
    assert picture.name == "ji2022_fig3"
    assert len(picture.panels) == 4

    def refuse(*arguments: object) -> None:
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(fig3, "train", refuse)
    assert fig3.run(TINY, seeds=(0, 1), out=tmp_path, engine=HERE) == numbers
    with pytest.raises(NclabError, match="seed 2 failed: AssertionError"):
        fig3.run(TINY, seeds=(2,), out=tmp_path, engine=HERE)


def test_without_the_data_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(**options: object) -> None:
        raise MissingData("FashionMNIST is not here.")

    monkeypatch.setattr(fashion_mnist, "load", nothing)
    with pytest.raises(MissingData, match="not here"):
        fig3.run(Config(), seeds=(0,), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_presets_and_repeated_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NclabError, match="quick, accelerated, paper, published; got 'large'"):
        find_preset(fig3, "large")
    for seeds in ((), (1, 1)):
        with pytest.raises(NclabError, match="different seeds"):
            fig3.run(Config(), seeds=seeds, out=tmp_path)


def test_presets_say_what_they_are() -> None:
    presets = fig3.PRESETS
    assert {name: config.variant for name, config in presets.items()} == {
        "quick": "plain",
        "accelerated": "accelerated",
        "paper": "plain",
        "published": "plain",
    }
    paper, published = presets["paper"], presets["published"]
    assert (paper.width, paper.images, paper.epochs, paper.device) == (1.0, 60_000, 500, "auto")
    assert replace(published, batch_norm=True, dense=0) == paper
    assert len({config.run_name(0) for config in presets.values()}) == 4


@pytest.mark.usefixtures("small")
def test_a_long_training_without_gpu_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = Config(**{**vars(TINY), "device": "auto", "epochs": 1})
    with pytest.warns(NclabWarning, match="No GPU"):
        fig3.run(config, seeds=(0,), out=tmp_path, engine=HERE)


PAPER = asdict(fig3.PRESETS["published"])
SMALLER = asdict(fig3.QUICK)
EPOCHS = (0, 1, 3, 10, 30, 100, 140, 200, 250, 300, 400, 500)
SEEDS = range(8)
CLAIMS = (fig3.fig_3a, fig3.fig_3b, fig3.fig_3c, fig3.fig_3d, fig3.sec_4_realistic)


def collapsing(seed: int = 0) -> list[Row]:
    """Every quantity falls like 1/log t and ends below 0.1, within a percent or so."""
    rows = []
    for epoch in EPOCHS:
        value = (0.5 + 0.01 * seed) / math.log(epoch + 3)
        rows.append({"seed": seed, "epoch": epoch, "accuracy": float(epoch >= 100)})
        rows[-1] |= dict.fromkeys(QUANTITIES, value)
    return rows


ALL = [row for seed in SEEDS for row in collapsing(seed)]


def changed(rows: list[Row], name: str, value: Callable[[int], float]) -> list[Row]:
    return [row | {name: value(row["epoch"])} for row in rows]


def judge(rows: list[Row], config: Row = PAPER) -> dict[str, Finding]:
    """Every claim by its id, without the paper's key."""
    numbers = {"config": config, "rows": rows}
    return {claim.id.split("/")[1]: claim.judge(numbers) for claim in CLAIMS}


def test_collapse_at_the_papers_size_reproduces_everything() -> None:
    found = judge(ALL)
    assert {name: finding.verdict for name, finding in found.items()} == dict.fromkeys(
        ("fig-3a", "fig-3b", "fig-3c", "fig-3d", "sec-4-realistic"), Verdict.REPRODUCED
    )
    ahead, falls = found["fig-3b"].numbers["effects"]
    assert ahead["estimate"] > 1
    assert falls["estimate"] == pytest.approx(1, abs=0.03)


def test_below_the_papers_size_all_is_open_and_says_how_far_it_got() -> None:
    for finding in judge(ALL, SMALLER).values():
        assert finding.verdict is Verdict.OPEN
        assert finding.evidence.startswith("1000 of 60000 images, width 0.125 of 1, 200 of 500")
        assert finding.numbers["there"] == "reproduced"
        assert finding.numbers["effects"]
    hurried = judge(ALL, {**PAPER, "power": 0.25})["fig-3a"]
    assert hurried.verdict is Verdict.OPEN
    assert "accelerated" in hurried.evidence


def test_another_network_than_the_published_is_open_and_every_verdict_says_which_it_is() -> None:
    for changed_layers, words in (
        ({"batch_norm": True, "dense": 0}, "with batch norm, without its fully connected layers;"),
        ({"batch_norm": True}, "with batch norm, with its fully connected layers (no dropout);"),
        ({"dense": 0}, "without batch norm, without its fully connected layers;"),
        ({"dense": 100}, "without batch norm, with other fully connected layers"),
    ):
        for finding in judge(ALL, {**PAPER, **changed_layers}).values():
            assert finding.verdict is Verdict.OPEN
            assert f"500 of 500 epochs, VGG-13 {words}" in finding.evidence
            assert finding.numbers["there"] == "reproduced"
    published = "VGG-13 without batch norm, with its fully connected layers (no dropout); "
    early = [row for row in ALL if row["epoch"] < 100]
    for finding in (*judge(ALL).values(), *judge(early).values()):
        assert finding.evidence.startswith(published)


def test_the_ladders_numbers_are_shown_without_a_word_on_the_variant() -> None:
    for config, name in ((SMALLER, "ji2022_fig3"), ({**SMALLER, "clip": 1.0}, "ji2022_fig3_acc")):
        numbers = {"config": config, "rows": [row | {"loss": 0.1} for row in ALL]}
        (picture,), (table,) = fig3.pictures(numbers), fig3.tables(numbers)
        assert picture.name.startswith(name)
        assert ("accelerated" in table.title) == (name != "ji2022_fig3")


CASES: list[tuple[str, str, Callable[[int], float]]] = [
    ("fig-3a", "nc2_norm_variation_weights", lambda t: 0.11),
    ("fig-3a", "nc2_norm_variation_means", lambda t: 1 / (t + 1) if t < 500 else 0.101),
    ("fig-3b", "nc1_within_variation", lambda t: 0.1 * math.log(t + 3)),
    ("fig-3b", "nc1_within_variation", lambda t: (t + 3) ** -0.5),
    ("fig-3b", "nc1_within_variation", lambda t: math.exp(-t / 300)),
    ("fig-3c", "nc2_equiangularity_means", lambda t: 0.2 / math.log(t + 3) + 0.09),
    ("fig-3c", "nc2_equiangularity_weights", lambda t: 0.05 - 0.02 / math.log(t + 3)),
    ("fig-3d", "nc3_self_duality", lambda t: 0.5 + 0.001 * t),
    ("sec-4-realistic", "nc3_self_duality", lambda t: 0.5 + 0.001 * t),
]


@pytest.mark.parametrize(("name", "quantity", "value"), CASES)
def test_verdicts_follow_the_rows(name: str, quantity: str, value: Callable[[int], float]) -> None:
    wrong = changed(ALL, quantity, value)
    assert judge(wrong)[name].verdict is Verdict.CONTRADICTED
    half = [row for row in wrong if row["seed"] < 4] + [row for row in ALL if row["seed"] >= 4]
    assert judge(half)[name].verdict is Verdict.UNDECIDED
    assert judge([row for row in ALL if row["seed"] == 0])[name].verdict is Verdict.UNDECIDED


def test_what_stays_as_it_is_does_not_decrease() -> None:
    level = changed(ALL, "nc3_self_duality", lambda t: 0.5)
    assert judge(level)["fig-3d"].verdict is Verdict.NO_EFFECT
    small = changed(ALL, "nc2_equiangularity_weights", lambda t: 0.05)
    assert judge(small)["fig-3c"].verdict is Verdict.NO_EFFECT
    assert judge(level)["sec-4-realistic"].verdict is Verdict.CONTRADICTED
    rng = np.random.default_rng(0)
    noise = changed(ALL, "nc1_within_variation", lambda t: float(rng.uniform(0.3, 0.5)))
    assert judge(noise)["fig-3b"].verdict is not Verdict.REPRODUCED


def test_a_small_quantity_need_not_fall() -> None:
    rows = changed(ALL, "nc2_norm_variation_weights", lambda t: 0.05 + t * 1e-5)
    assert judge(rows)["sec-4-realistic"].verdict is Verdict.REPRODUCED
    rows = changed(ALL, "nc2_norm_variation_weights", lambda t: 0.05 + t * 2e-4)
    found = judge(rows)["sec-4-realistic"]
    assert found.verdict is Verdict.CONTRADICTED
    assert "(a) W decreases or stays below 0.1" in found.evidence


def test_open_before_the_terminal_phase() -> None:
    rows = [row | {"accuracy": 0.99} for row in ALL]
    assert {finding.verdict for finding in judge(rows).values()} == {Verdict.OPEN}
    assert {finding.verdict for finding in judge([]).values()} == {Verdict.OPEN}
    early = [row | {"accuracy": 1.0} for row in ALL if row["epoch"] <= 250]
    found = judge(early)
    assert found["fig-3b"].verdict is Verdict.OPEN
    assert found["fig-3d"].verdict is Verdict.REPRODUCED


def test_open_where_a_quantity_could_not_be_measured() -> None:
    rows = [row | {"nc3_self_duality": None if row["epoch"] == 0 else 0.1} for row in ALL]
    found = judge(rows)
    assert {finding.verdict for finding in found.values()} == {Verdict.OPEN}
    assert "seed 0 has measurements without nc3_self_duality" in found["fig-3b"].evidence


ROWS = [
    {"seed": seed, "epoch": epoch} | {name: (place + 1) / (epoch + 1 + seed)}
    for seed in (0, 1)
    for epoch in (0, 1, 2, 5, 10)
    for place, name in enumerate(QUANTITIES[:1])
]
ROWS = [
    row | {name: row[QUANTITIES[0]] * (1 + i) for i, name in enumerate(QUANTITIES)} for row in ROWS
]


def test_lines_are_means_and_bands_the_range() -> None:
    picture = panels(ROWS, title="two seeds")
    assert [len(panel.series) for panel in picture.panels if isinstance(panel, Panel)] == [
        2,
        1,
        2,
        1,
    ]
    first = picture.panels[0]
    assert isinstance(first, Panel)
    assert (first.x_scale, first.y_scale) == ("loglog", "log")
    assert [line.y for line in first.references] == [0.1]
    means, weights = first.series
    assert list(means.x) == pytest.approx(np.log([2, 5, 10]))
    assert means.low is not None
    assert means.high is not None
    assert means.high[0] == pytest.approx(1 / 3)
    assert means.low[0] == pytest.approx(1 / 4)
    assert means.y[0] == pytest.approx((1 / 3 + 1 / 4) / 2)
    assert weights.y[2] == pytest.approx(1 / 11 + 1 / 12)
    assert (means.style, weights.style) == ("solid", "dashed")


def test_one_seed_has_no_band() -> None:
    picture = panels([row for row in ROWS if row["seed"] == 0], title="one")
    panel = picture.panels[0]
    assert isinstance(panel, Panel)
    assert panel.series[0].low is None
    assert "seeds" not in picture.caption


def test_epochs_that_a_seed_lacks_are_left_out() -> None:
    rows = [row for row in ROWS if (row["seed"], row["epoch"]) != (1, 5)]
    panel = panels(rows, title="").panels[0]
    assert isinstance(panel, Panel)
    assert list(panel.series[0].x) == pytest.approx(np.log([2, 10]))


def test_too_few_measurements_say_so() -> None:
    with pytest.raises(NclabError, match="Train for longer"):
        panels(ROWS[:3], title="")


def test_drawn_on_paper_and_on_pages() -> None:
    picture = panels(ROWS, title="two seeds")
    assert len(draw(picture).axes) == 4
    assert len(plotly_figure(picture).data) >= 6


def test_what_was_not_measured_is_not_drawn() -> None:
    name = QUANTITIES[2]
    rows = [row | ({name: None} if row["epoch"] == 5 else {}) for row in ROWS]
    panel = panels(rows, title="").panels[1]
    assert isinstance(panel, Panel)
    assert [y is None for y in panel.series[0].y] == [False, True, False]

"""Figure 3 of ji2022: reuse of runs, claims judged from rows, laws of decay, and pictures."""

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
from nclab.text import as_text
from nclab.training.data import fashion_mnist
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022 import fig3, vgg_training
from nclab_papers.ji2022.fig3 import LAWS, advantage, fall, held_out
from nclab_papers.ji2022.vgg_training import Config
from tests.nclab_papers.ji2022.test_vgg_training import TINY

Row = dict[str, Any]


class InProcess(Engine):
    """An engine that trains in this process."""

    here = True

    def slots(self) -> int:
        return 1

    def run_all(self, work: JobList) -> None:
        LOCAL.run_all(replace(work, workers=0))


IN_PROCESS = InProcess()


@pytest.mark.usefixtures("small")
def test_rows_have_the_due_epochs_and_runs_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = fig3.run(TINY, seeds=(0, 1), out=tmp_path, engine=IN_PROCESS)
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

    def fail(*arguments: object) -> None:
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(vgg_training, "train", fail)
    assert fig3.run(TINY, seeds=(0, 1), out=tmp_path, engine=IN_PROCESS) == numbers
    with pytest.raises(NclabError, match="seed 2 failed: AssertionError"):
        fig3.run(TINY, seeds=(2,), out=tmp_path, engine=IN_PROCESS)


def test_missing_data_raise_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**options: object) -> None:
        raise MissingData("FashionMNIST is missing.")

    monkeypatch.setattr(fashion_mnist, "load", missing)
    with pytest.raises(MissingData, match="is missing"):
        fig3.run(Config(), seeds=(0,), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_presets_and_repeated_seeds_raise(tmp_path: Path) -> None:
    with pytest.raises(NclabError, match="quick, paper, published; got 'large'"):
        find_preset(fig3, "large")
    for seeds in ((), (1, 1)):
        with pytest.raises(NclabError, match="different seeds"):
            fig3.run(Config(), seeds=seeds, out=tmp_path)


def test_presets_have_their_variants_and_sizes() -> None:
    presets = fig3.PRESETS
    paper, published = presets["paper"], presets["published"]
    assert (paper.width, paper.images, paper.epochs, paper.device) == (1.0, 60_000, 500, "auto")
    assert replace(published, batch_norm=True, dense=0) == paper
    assert len({config.run_name(0) for config in presets.values()}) == 3


@pytest.mark.usefixtures("small")
def test_long_training_without_gpu_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = Config(**{**vars(TINY), "device": "auto", "epochs": 1})
    with pytest.warns(NclabWarning, match="No GPU"):
        fig3.run(config, seeds=(0,), out=tmp_path, engine=IN_PROCESS)


PAPER = asdict(fig3.PRESETS["published"])
SMALLER = asdict(fig3.QUICK)
EPOCHS = (0, 1, 3, 10, 30, 100, 140, 200, 250, 300, 400, 500)
SEEDS = range(8)
CLAIMS = (fig3.fig_3a, fig3.fig_3b, fig3.fig_3c, fig3.fig_3d, fig3.sec_4_realistic)


def collapsing(seed: int = 0) -> list[Row]:
    """Return rows in which every quantity falls like 1/log t and ends near 0.1 or below."""
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
    """Return the finding of every claim by its id, without the paper's key."""
    numbers = {"config": config, "rows": rows}
    return {claim.id.split("/")[1]: claim.judge(numbers) for claim in CLAIMS}


def test_collapse_at_the_papers_size_reproduces_all_claims() -> None:
    findings = judge(ALL)
    assert {name: finding.verdict for name, finding in findings.items()} == dict.fromkeys(
        ("fig-3a", "fig-3b", "fig-3c", "fig-3d", "sec-4-realistic"), Verdict.REPRODUCED
    )
    ahead, falls = findings["fig-3b"].numbers["effects"]
    assert ahead["estimate"] > 1
    assert falls["estimate"] == pytest.approx(1, abs=0.03)


def test_below_the_papers_size_all_claims_are_open_and_name_the_size() -> None:
    for finding in judge(ALL, SMALLER).values():
        assert finding.verdict is Verdict.OPEN
        assert finding.evidence.startswith("1000 of 60000 images, width 0.125 of 1, 200 of 500")
        assert finding.numbers["there"] == "reproduced"
        assert finding.numbers["effects"]


def test_claims_on_another_variant_are_open_and_name_the_variant() -> None:
    for layers, variant in (
        ({"batch_norm": True, "dense": 0}, "with batch norm, without its fully connected layers;"),
        ({"batch_norm": True}, "with batch norm, with its fully connected layers (no dropout);"),
        ({"dense": 0}, "without batch norm, without its fully connected layers;"),
        ({"dense": 100}, "without batch norm, with other fully connected layers"),
    ):
        for finding in judge(ALL, {**PAPER, **layers}).values():
            assert finding.verdict is Verdict.OPEN
            assert f"500 of 500 epochs, VGG-13 {variant}" in finding.evidence
            assert finding.numbers["there"] == "reproduced"
    published = "VGG-13 without batch norm, with its fully connected layers (no dropout); "
    early = [row for row in ALL if row["epoch"] < 100]
    for finding in (*judge(ALL).values(), *judge(early).values()):
        assert finding.evidence.startswith(published)


def test_numbers_without_a_variant_have_tables_and_pictures() -> None:
    rows = [row | {"loss": 0.1} for row in ALL]
    numbers = {"config": SMALLER, "seeds": list(SEEDS), "rows": rows}
    (picture,), (table,) = fig3.pictures(numbers), fig3.tables(numbers)
    assert picture.name == "ji2022_fig3"
    assert "VGG-13 × 0.125" in table.title


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


def test_a_constant_quantity_does_not_decrease() -> None:
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
    finding = judge(rows)["sec-4-realistic"]
    assert finding.verdict is Verdict.CONTRADICTED
    assert "(a) W decreases or stays below 0.1" in finding.evidence


def test_claims_are_open_before_the_terminal_phase() -> None:
    rows = [row | {"accuracy": 0.99} for row in ALL]
    assert {finding.verdict for finding in judge(rows).values()} == {Verdict.OPEN}
    assert {finding.verdict for finding in judge([]).values()} == {Verdict.OPEN}
    early = [row | {"accuracy": 1.0} for row in ALL if row["epoch"] <= 250]
    findings = judge(early)
    assert findings["fig-3b"].verdict is Verdict.OPEN
    assert findings["fig-3d"].verdict is Verdict.REPRODUCED


def test_claims_are_open_if_a_quantity_was_not_measured() -> None:
    rows = [row | {"nc3_self_duality": None if row["epoch"] == 0 else 0.1} for row in ALL]
    findings = judge(rows)
    assert {finding.verdict for finding in findings.values()} == {Verdict.OPEN}
    assert "seed 0 has measurements without nc3_self_duality" in findings["fig-3b"].evidence


def picture_of(rows: list[Row], seeds: int = 8) -> Panel:
    numbers = {"config": SMALLER, "seeds": list(range(seeds)), "rows": rows}
    (picture,) = fig3.pictures(numbers)
    assert len(draw(picture).axes) == 4
    panel = picture.panels[0]
    assert isinstance(panel, Panel)
    return panel


def test_lines_are_means_over_the_seeds() -> None:
    panel = picture_of(ALL)
    assert (panel.x_scale, panel.y_scale) == ("loglog", "log")
    means, weights, rate = panel.series
    drawn = [epoch for epoch in EPOCHS if math.log(epoch or 1) > 1]
    assert list(means.x) == list(weights.x) == pytest.approx(np.log(drawn))
    assert means.y[-1] == pytest.approx(0.535 / math.log(503))
    assert rate.label == "1/log t"


def test_epochs_that_a_seed_lacks_are_skipped() -> None:
    rows = [row for row in ALL if (row["seed"], row["epoch"]) != (1, 30)]
    rows = [row | ({QUANTITIES[2]: None} if row["epoch"] == 10 else {}) for row in rows]
    assert len(picture_of(rows).series[0].x) == len(picture_of(ALL).series[0].x) - 2


def test_too_few_measurements_raise() -> None:
    with pytest.raises(NclabError, match="Run for longer"):
        picture_of([row for row in ALL if row["epoch"] < 3])


TIMES = [100, 115, 130, 150, 175, 200, 230, 260, 300, 340, 390, 440, 500]
CURVES = {
    "(log t)^-r": lambda t: math.log(t) ** -1.0,
    "power law": lambda t: t**-0.3,
    "exponential": lambda t: math.exp(-t / 1000),
}


@pytest.mark.parametrize("law", LAWS)
def test_each_law_is_recognised_despite_noise(law: str) -> None:
    rng = np.random.default_rng(0)
    recognised = 0
    for _ in range(20):
        values = [CURVES[law](t) * math.exp(0.002 * rng.normal()) for t in TIMES]
        densities = {name: held_out(TIMES, values, name) for name in LAWS}
        recognised += max(densities, key=lambda name: densities[name]) == law
    assert recognised >= 18


def test_only_the_claimed_law_has_an_advantage() -> None:
    for name, curve in CURVES.items():
        values = [curve(t) for t in TIMES]
        assert (advantage(TIMES, values) > 0) is (name == "(log t)^-r")
        assert fall(TIMES, values) > 0


def test_too_few_points_raise() -> None:
    with pytest.raises(ValueError, match="Expected at least 5 points, got 4"):
        held_out(TIMES[:4], [1.0] * 4, "power law")

"""The report of a sweep has a figure for every setting without any option."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from nclab.figures.picture import Panel, from_json
from nclab.report.compare import CHOSEN, Value, differing, with_axes
from nclab.report.site import write_report
from nclab.report.sweep_figures import sweep_pictures
from tests.cli.runner import call
from tests.report.sweeps import DECAYS, sweep


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(tmp_path_factory.mktemp("figures") / "runs")


def panels(site: Path, axis: str) -> dict[str, Panel]:
    text = (site / f"data/figures/sweep-against_{axis}.json").read_text()
    found = from_json(json.loads(text)).panels
    return {panel.title: panel for panel in found if isinstance(panel, Panel)}


def test_both_settings_are_drawn_with_their_spread(root: Path) -> None:
    report = write_report(root)
    site = report.page.parent
    assert report.figures == 2
    against = panels(site, "weight_decay")
    assert list(against) == [name for name in CHOSEN if name in against]
    assert {"accuracy", "loss", "min_intra", "max_inter"} == set(against)
    panel = against["min_intra"]
    assert panel.x_scale == "log"
    assert panel.references[0].y == 1
    affine, none = panel.series
    assert (affine.label, affine.x) == ("norm affine", list(DECAYS))
    assert affine.y == pytest.approx([0.81] * 3)
    assert affine.low == pytest.approx([0.8] * 3)
    assert none.high == pytest.approx([-0.78] * 3)
    named = panels(site, "norm")["loss"]
    assert named.x_names == ("affine", "none")
    assert [one.label for one in named.series] == [f"weight_decay {one:g}" for one in DECAYS]
    page = report.page.read_text()
    assert 'data-picture="sweep-against_norm"' in page
    assert "6 of 12 runs have not converged" in page
    text = (site / "data/figures/sweep-against_norm.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["panel"] for row in rows} == set(against)


def test_metrics_are_chosen_and_unknown_ones_refused(root: Path, tmp_path: Path) -> None:
    done = call("report", root, "--out", tmp_path / "a", "--metrics", "max_inter, loss")
    assert done.code == 0
    assert "2 figures" in done.out
    assert list(panels(tmp_path / "a", "norm")) == ["max_inter", "loss"]
    wrong = call("report", root, "--out", tmp_path / "b", "--metrics", "nothing")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "min_intra" in wrong.err
    assert not (tmp_path / "b").exists()


def test_settings_of_other_runs_are_not_differences() -> None:
    ours: list[dict[str, Value]] = [
        {"a.rate": 1, "b.rate": 1, "note": "x"},
        {"a.rate": 2, "b.rate": 3, "note": "x"},
    ]
    assert differing([*ours, {"epochs": 5}]) == {"a.rate": "a.rate", "b.rate": "b.rate"}


def row(seed: int, value: float, **config: Value) -> dict[str, Any]:
    own = {"recipe.epochs": 8, "shape.width": 4, "member.seed": seed, **config}
    state = {"state": "finished", "health": ""}
    return {"kind": "fleet", "config": own, "values": {"loss": value}, **state}


def test_options_at_their_default_are_on_the_axis_too() -> None:
    """Every combination of the other settings has a line, so that its band shows seeds only."""
    rows = []
    for seed, rate, noise, adam in itertools.product((0, 1), (1, 2), (0, 0.5), (False, True)):
        own: dict[str, Value] = {"recipe.rate": rate, "recipe.noise": noise}
        own |= {"recipe.optimizer": "adam"} if adam else {}
        rows.append(row(seed, rate + 10 * noise + 100 * adam + seed / 10, **own))
    pictures = sweep_pictures(with_axes(rows, []))
    by_name = {one.name: one.panels[0] for one in pictures}
    assert set(by_name) == {"against_rate", "against_noise", "against_optimizer"}
    panel = by_name["against_optimizer"]
    assert isinstance(panel, Panel)
    assert panel.x_names == ("sgd", "adam")
    lines = {line.label: line for line in panel.series}
    assert len(lines) == 4
    line = lines["rate 2, noise 0.5"]
    assert line.low == pytest.approx([7, 107])
    assert line.high == pytest.approx([7.1, 107.1])


def test_one_setting_under_two_names_is_one_axis() -> None:
    rows = [row(0, n, **{"data.classes": n, "shape.classes": n}) for n in (2, 3)]
    assert with_axes(rows, [])["axes"] == ["classes"]
    rows[0]["config"]["shape.classes"] = 5
    assert with_axes(rows, [])["axes"] == ["data.classes", "shape.classes"]

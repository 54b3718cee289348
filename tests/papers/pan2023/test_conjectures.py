"""The conjectures: their smallest e, intervals, judges and picture."""

from typing import Any

from nclab.figures.draw import draw
from nclab.figures.interactive import spec
from nclab.figures.picture import Panel
from nclab.papers.pan2023 import conjectures
from nclab.papers.verdict import Verdict
from tests.papers.pan2023 import thesis_rows
from tests.papers.pan2023.tiny import panel


def test_conjectures_have_an_e_for_every_seed(numbers: dict[str, dict[str, Any]]) -> None:
    found = numbers["pan2023_conjectures"]
    converged = [row for row in numbers["pan2023_fig31"]["rows"] if row["converged"]]
    expected = {row["seed"] for row in converged if row["norm"] == "affine"}
    seeds = {
        row["seed"]
        for row in found["worst"]
        if row["conjecture"] == "3.2.1" and row["data"] == "teacher"
    }
    assert seeds == expected
    for row in found["intervals"]:
        assert (row["low"] is None) == (row["seeds"] < 2)
        if row["low"] is not None:
            assert 0 <= row["low"] <= row["median"] <= row["high"]


def test_one_seed_has_no_interval_in_table_and_picture() -> None:
    worst = [row for row in thesis_rows.conjectures()["worst"] if row["seed"] == 1]
    found = conjectures.intervals(worst)
    numbers = {"worst": worst, "intervals": found, "small": 0.05}
    assert conjectures.tables(numbers)[0].rows[0][3:] == ("0.0100", "–", "0.0100")
    first = conjectures.pictures(numbers)[0].panels[0]
    assert isinstance(first, Panel)
    assert first.series[0].low is None


def test_a_network_without_cosines_in_some_layer_is_not_defined() -> None:
    layer = {"min_intra": 0.5, "max_inter": 0.1, "nc4_ncc_accuracy": 1.0}
    network = {**layer, "measured": [layer, layer]}
    assert conjectures.defined(network)
    for name in layer:
        spoiled = {**network, "measured": [layer | {name: None}, layer]}
        assert not conjectures.defined(spoiled)


def test_a_conjecture_with_one_hard_data_set_is_partly_supported() -> None:
    numbers = thesis_rows.conjectures()
    numbers["intervals"][1].update(median=0.4, high=0.5)
    found = conjectures.grows_with_decay.judge(numbers)
    assert found.verdict is Verdict.PARTLY
    assert "conic, 6 layers: median 0.4" in found.evidence


def test_a_conjecture_without_some_places_or_seeds_is_at_most_partly_supported() -> None:
    numbers = thesis_rows.conjectures()
    del numbers["intervals"][1]
    numbers["intervals"][1].update(seeds=2)
    grows = conjectures.grows_with_decay.judge(numbers)
    assert grows.verdict is Verdict.PARTLY
    assert "conic, 6 layers: 3 of 3 seeds have no e" in grows.evidence
    sharpens = conjectures.sharpens_with_depth.judge(numbers)
    assert sharpens.verdict is Verdict.PARTLY
    assert "teacher, 6 layers: 1 of 3 seeds have no e" in sharpens.evidence
    assert conjectures.depth_falls.judge(numbers).verdict is Verdict.REPRODUCED


def test_one_seed_has_no_interval_and_says_so() -> None:
    numbers = thesis_rows.conjectures()
    numbers["config"]["seeds"] = [0]
    for row in numbers["intervals"]:
        row.update(seeds=1, low=None, high=None)
    found = conjectures.grows_with_decay.judge(numbers)
    assert found.verdict is Verdict.PARTLY
    assert "median 0.01, 1 seed, no interval" in found.evidence


def test_conjectures_show_seeds_and_intervals() -> None:
    picture = conjectures.pictures(thesis_rows.conjectures())[0]
    first = panel(picture)
    interval, seeds = first.series[0], first.series[1]
    assert first.x_ticks[0] == 1
    assert first.x_names[0] == "conic,\n6 layers"
    axis = spec(picture)["layout"]["xaxis"]
    assert axis["ticktext"][0] == "conic,<br>6 layers"
    assert draw(picture).axes[0].get_xticklabels()[0].get_text() == first.x_names[0]
    assert (interval.y, interval.low, interval.high) == ([0.01], [0.0], [0.02])
    assert list(seeds.y) == [0.0, 0.01, 0.02]
    assert first.references[0].y == 0.05

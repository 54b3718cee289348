"""The conjectures: their smallest e, intervals, judges and picture."""

from typing import Any

import pytest

from nclab.claims.claim import Verdict
from nclab.figures.matplotlib_renderer import draw
from nclab.figures.picture import Panel
from nclab.figures.plotly_renderer import plotly_spec
from nclab_papers.pan2023 import attacks, conjectures
from tests.nclab_papers.pan2023.tiny import panel


def test_conjectures_have_an_e_for_every_seed(numbers: dict[str, dict[str, Any]]) -> None:
    recorded = numbers["pan2023_conjectures"]
    converged = [row for row in numbers["pan2023_fig31"]["rows"] if row["converged"]]
    expected = {row["seed"] for row in converged if row["norm"] == "affine"}
    seeds = {
        row["seed"]
        for row in recorded["worst"]
        if row["conjecture"] == "3.2.1" and row["data"] == "teacher"
    }
    assert seeds == expected
    assert all(0 <= row["smallest_e"] <= 2 for row in recorded["worst"])


def test_one_seed_has_no_interval_in_table_and_picture() -> None:
    numbers = attacks.conjectures()
    numbers["worst"] = [row for row in numbers["worst"] if row["seed"] == 5]
    assert conjectures.tables(numbers)[0].rows[0][4:] == ("0.0100", "–", "0.0100")
    first = conjectures.pictures(numbers)[0].panels[0]
    assert isinstance(first, Panel)
    assert list(first.series[0].low or ()) == [None] * 4


def test_a_network_without_cosines_in_some_layer_is_not_defined() -> None:
    layer = {"min_intra": 0.5, "max_inter": 0.1, "nc4_ncc_accuracy": 1.0}
    network = {**layer, "measured": [layer, layer]}
    assert conjectures.is_defined(network)
    for name in layer:
        spoiled = {**network, "measured": [layer | {name: None}, layer]}
        assert not conjectures.is_defined(spoiled)


def test_the_conjectures_are_tested_at_both_depths_on_both_data() -> None:
    for config in conjectures.PRESETS.values():
        places = {(place.data, place.layers) for place in config.places}
        assert places == {("conic", 6), ("conic", 15), ("teacher", 6), ("teacher", 15)}


def test_other_data_say_nothing_about_a_conjecture() -> None:
    numbers = attacks.conjectures()
    for row in numbers["worst"]:
        if row["data"] == "teacher":
            row["smallest_e"] = 0.4
    assert conjectures.grows_with_decay.judge(numbers).verdict is Verdict.REPRODUCED
    teacher = conjectures.grows_with_decay_teacher.judge(numbers)
    assert teacher.verdict is Verdict.CONTRADICTED
    assert "smallest e on teacher data with 6 layers: 0.4" in teacher.evidence


def test_one_setting_with_a_large_e_decides() -> None:
    numbers = attacks.conjectures()
    for row in numbers["worst"]:
        if row["layers"] == 15:
            row["smallest_e"] = 0.4 if row["seed"] % 2 else 0.0
    finding = conjectures.sharpens_with_depth.judge(numbers)
    assert finding.verdict is Verdict.UNDECIDED
    assert finding.numbers["weakest"] == "smallest e on conic data with 15 layers"


def test_a_setting_without_any_e_leaves_a_conjecture_undecided() -> None:
    numbers = attacks.conjectures()
    numbers["worst"] = [row for row in numbers["worst"] if row["layers"] == 6]
    finding = conjectures.grows_with_decay.judge(numbers)
    assert finding.verdict is Verdict.UNDECIDED
    assert "not measured: smallest e on conic data with 15 layers" in finding.evidence


def test_a_conjecture_that_fails_for_one_reading_says_so() -> None:
    numbers = attacks.conjectures()
    for row in numbers["worst"]:
        if row["reading"] == conjectures.CONVERGED:
            row["smallest_e"] = 0.4
    finding = conjectures.grows_with_decay.judge(numbers)
    assert finding.verdict is Verdict.CONTRADICTED
    assert finding.sentence.startswith(
        "Contradicted. Reproduced if perfect means that every sample is correct. "
    )


def test_networks_below_accuracy_1_count_for_one_reading_only() -> None:
    def network(decay: float, gap: float, accuracy: float) -> dict[str, Any]:
        layer = {"min_intra": gap, "max_inter": 0.0, "nc4_ncc_accuracy": 1.0}
        return {"weight_decay": decay, "accuracy": accuracy, **layer, "measured": [layer, layer]}

    networks = [network(1e-4, 0.3, 1.0), network(1e-3, 0.4, 1.0), network(1e-2, 0.1, 0.995)]
    finding = {
        (row["conjecture"], row["reading"]): row["smallest_e"]
        for row in conjectures.smallest(networks)
    }
    assert finding["3.1.1", conjectures.CONVERGED] == pytest.approx(0.3 / 2.302585092994046)
    assert finding["3.1.1", conjectures.PERFECT] == 0
    assert finding["3.2.1", conjectures.PERFECT] == 0


def test_conjectures_show_medians_and_intervals() -> None:
    picture = conjectures.pictures(attacks.conjectures())[0]
    first = panel(picture)
    interval = first.series[0]
    assert first.x_names[0] == "conic,\n6 layers"
    axis = plotly_spec(picture)["layout"]["xaxis"]
    assert axis["ticktext"][0] == "conic,<br>6 layers"
    assert draw(picture).axes[0].get_xticklabels()[0].get_text() == first.x_names[0]
    assert list(interval.y) == pytest.approx([0.007] * 4)
    assert interval.low is not None
    assert interval.high is not None
    assert [interval.low[0], interval.high[0]] == pytest.approx([0.0019, 0.0121], abs=1e-4)
    assert first.references[0].y == 0.05


def test_a_seed_needs_the_largest_e_of_its_weight_decays() -> None:
    where = {"conjecture": "3.2.1", "data": "conic", "layers": 6, "reading": "all", "seed": 0}
    rows = [{**where, "weight_decay": decay, "smallest_e": e} for decay, e in ((1, 0.4), (2, 0.01))]
    [finding] = conjectures.worst_of_seeds(rows)
    assert finding["smallest_e"] == 0.4

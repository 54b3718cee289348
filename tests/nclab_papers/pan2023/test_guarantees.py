"""The guarantees experiment at a tiny size: numbers, claims, pictures and files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.claims.pictures import write_results
from nclab.figures.matplotlib_renderer import save
from nclab.figures.picture import Picture
from nclab_papers.pan2023 import attacks, guarantees
from nclab_papers.pan2023.guarantees import Config
from nclab_papers.shared.small_classifier import NetworkConfig
from tests.nclab_papers.pan2023.tiny import panel

TINY = Config(
    num_classes=3,
    product=2.0,
    relative_excess=(1e-3, 1e-2),
    starts=2,
    weight_decays=(3e-3,),
    network=NetworkConfig(epochs=60),
)
ROWS = [
    {
        "excess_loss": excess,
        "intra_lower": 1 - 3 * excess,
        "true_intra": 1 - 2 * excess,
        "thesis_intra_lower": 1 - 5 * excess**0.5,
        "inter_upper": None if excess > 1e-3 else -1 / 3 + 4 * excess**0.5,
        "true_inter": -1 / 3 + 3 * excess**0.5,
        "thesis_inter_upper": -1 / 3 + 30 * excess ** (1 / 6),
    }
    for excess in np.geomspace(1e-6, 1e-2, 9)
]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return guarantees.run(TINY, seeds=(0,), out=tmp_path_factory.mktemp("runs"))


def test_the_claims_are_judged_from_numbers(numbers: dict[str, Any]) -> None:
    finding = guarantees.worst_case.judge(numbers)
    assert finding.verdict is Verdict.HOLDS
    assert finding.numbers["compared"] > 2
    wrong = [{**row, "intra_lower": 1.0} for row in numbers["curve"]]
    spoiled = guarantees.worst_case.judge({**numbers, "curve": wrong})
    assert spoiled.verdict is Verdict.REFUTED
    nothing = [{**row, "intra_lower": 0.0, "inter_upper": None} for row in numbers["curve"]]
    assert guarantees.worst_case.judge({**numbers, "curve": nothing}).verdict is Verdict.OPEN
    telling = guarantees.telling.judge(numbers)
    assert telling.verdict is Verdict.UNDECIDED  # one seed
    assert telling.numbers["estimate"] > 0


def test_a_decay_without_converged_networks_leaves_the_claim_undecided() -> None:
    numbers = attacks.guarantees()
    for row in numbers["networks"]:
        if row["weight_decay"] == 5e-3:
            row["accuracy"] = 0.9
    finding = guarantees.telling.judge(numbers)
    assert finding.verdict is Verdict.UNDECIDED
    assert finding.numbers["missing"] == ["guaranteed cosine at weight decay 0.005"]
    assert finding.evidence.endswith("accuracy is below 0.99: 8 of 32 networks")


def test_the_worst_case_is_close_to_the_certificate(numbers: dict[str, Any]) -> None:
    for row in numbers["curve"]:
        assert 1 - row["intra_lower"] == pytest.approx(1 - row["true_intra"], rel=0.01)


def test_a_network_with_affine_batch_norm_is_certified_class_by_class(
    numbers: dict[str, Any],
) -> None:
    (row,) = numbers["networks"]
    assert row["accuracy"] == 1.0
    assert all(
        promised <= measured
        for promised, measured in zip(row["class_intra_lower"], row["intra_cosine"], strict=True)
    )
    assert row["mean_guaranteed"] >= 0.5
    assert row["thesis_intra_lower"] <= 0


def test_numbers_and_figures_are_written(numbers: dict[str, Any], tmp_path: Path) -> None:
    write_results(guarantees.pictures(numbers), numbers, tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "numbers.json").read_text())
    assert kept["curve"] == numbers["curve"]
    assert (tmp_path / "run" / "guarantees.png").stat().st_size > 10_000


def drawn(rows: list[dict[str, Any]], num_classes: int, product: float) -> Picture:
    """Return the picture of some curves."""
    config = {"num_classes": num_classes, "product": product}
    [picture] = guarantees.pictures({"config": config, "curve": rows})
    return picture


def test_guarantee_curves_have_the_slopes_of_their_rows() -> None:
    panels = [panel(drawn(ROWS, 4, 3.0), index) for index in (0, 1)]
    labels = [series.label for one in panels for series in one.series]
    slopes = [float(label.rpartition("slope ")[2]) for label in labels]
    assert slopes == pytest.approx([0.5, 1.0, 1.0, 1 / 6, 0.5, 0.5], abs=0.005)


def test_a_curve_without_a_bound_has_no_slope() -> None:
    rows = [{"excess_loss": 0.1}, {"excess_loss": 1.0}]
    assert panel(drawn(rows, 3, 1.0)).series[1].label == "nclab, no bound"


def test_figures_are_written_whole(tmp_path: Path) -> None:
    written = save(drawn(ROWS, 4, 3.0), tmp_path)
    assert [path.suffix for path in written] == [".png", ".pdf", ".svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[1].read_bytes().startswith(b"%PDF")
    assert len(list(tmp_path.iterdir())) == 3


def test_pictures_hold_the_arrays() -> None:
    picture = drawn(ROWS, 4, 3.0)
    intra, inter = panel(picture), panel(picture, 1)
    assert intra.series[1].y == pytest.approx([1 - row["intra_lower"] for row in ROWS])
    assert inter.series[1].y[-1] is None
    assert intra.references[0].y == 1.0

"""The guarantees experiment at a tiny size: its numbers, its checks, its files."""

import json
from pathlib import Path
from typing import Any

import pytest

from nclab.papers.drawing import keep
from nclab.papers.pan2023 import guarantees as pan2023_guarantees
from nclab.papers.pan2023.guarantees import Config, checks, guarantees
from nclab.papers.small_network import NetworkConfig

TINY = Config(
    num_classes=3,
    product=2.0,
    relative_excess=(1e-3, 1e-2),
    starts=2,
    weight_decays=(3e-3,),
    network=NetworkConfig(epochs=60),
)


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return guarantees(TINY)


def test_the_claims_hold_and_are_judged_from_numbers(numbers: dict[str, Any]) -> None:
    assert all(numbers["checks"].values()), numbers["checks"]
    liar = [{**row, "class_intra_lower": [1.5] * 4} for row in numbers["networks"]]
    assert not checks({**numbers, "networks": liar})["no network violates its certificate"]
    wrong = [{**row, "intra_lower": 1.0} for row in numbers["curve"]]
    assert not checks({**numbers, "curve": wrong})["no worst case violates the certificate"]


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


def test_numbers_and_figures_are_kept(numbers: dict[str, Any], tmp_path: Path) -> None:
    keep(pan2023_guarantees, numbers, tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "numbers.json").read_text())
    assert kept["curve"] == numbers["curve"]
    assert (tmp_path / "run" / "guarantees.png").stat().st_size > 10_000

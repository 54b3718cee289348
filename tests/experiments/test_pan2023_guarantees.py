"""The guarantees experiment at a tiny size: its numbers, its checks, its files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nclab.experiments.keep import keep
from nclab.experiments.pan2023_guarantees import Config, GuaranteesResult, guarantees
from nclab.experiments.small_network import NetworkConfig

TINY = Config(
    num_classes=3,
    product=2.0,
    relative_excess=(1e-3, 1e-2),
    starts=2,
    weight_decays=(3e-3,),
    network=NetworkConfig(epochs=60),
)


@pytest.fixture(scope="module")
def result() -> GuaranteesResult:
    return guarantees(TINY, seed=0)


def test_the_claims_hold_and_are_judged_from_numbers(result: GuaranteesResult) -> None:
    assert all(result.checks().values()), result.checks()
    liar = [{**row, "class_intra_lower": [1.5] * 4} for row in result.networks]
    assert not replace(result, networks=liar).checks()["no network violates its certificate"]
    wrong = [{**row, "intra_lower": 1.0} for row in result.curve]
    checks = replace(result, curve=wrong).checks()
    assert not checks["no worst case violates the certificate"]


def test_the_worst_case_is_close_to_the_certificate(result: GuaranteesResult) -> None:
    for row in result.curve:
        assert row["true_intra"] is not None
        assert row["intra_lower"] is not None
        assert 1 - row["intra_lower"] == pytest.approx(1 - row["true_intra"], rel=0.01)


def test_a_network_with_affine_batch_norm_is_certified_class_by_class(
    result: GuaranteesResult,
) -> None:
    (row,) = result.networks
    assert row["accuracy"] == 1.0
    assert all(
        promised <= measured
        for promised, measured in zip(row["class_intra_lower"], row["intra_cosine"], strict=True)
    )
    assert row["mean_guaranteed"] >= 0.5
    assert row["thesis_intra_lower"] <= 0


def test_numbers_and_figures_are_kept(result: GuaranteesResult, tmp_path: Path) -> None:
    lines = keep(result, tmp_path / "run")
    assert len(lines) == 5
    numbers = json.loads((tmp_path / "run" / "numbers.json").read_text())
    assert numbers["curve"] == result.curve
    assert (tmp_path / "run" / "guarantees.png").stat().st_size > 10_000

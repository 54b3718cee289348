"""Norms and guarantees of trained networks, compared with the optimum."""

from pathlib import Path
from typing import Any

import pytest

from nclab.theory.certificates.certification import certify
from nclab_papers.pan2023 import attacks, norms
from nclab_papers.pan2023.networks import last_layers
from tests.nclab_papers.pan2023.tiny import panel


def test_networks_satisfy_their_guarantees(numbers: dict[str, dict[str, Any]]) -> None:
    for row in numbers["pan2023_norms"]["rows"]:
        assert row["guarantee_slack"] >= 0
        assert row["guaranteed_min_intra"] <= row["guaranteed_mean_intra"] <= row["mean_intra"]


def test_the_guarantee_equals_that_of_the_certificate(
    out: Path, numbers: dict[str, dict[str, Any]]
) -> None:
    row = numbers["pan2023_norms"]["rows"][0]
    layer = last_layers(out, row)[-1]
    certificate = certify(
        layer["num_classes"],
        layer["alpha"],
        layer["beta"],
        layer["balanced_loss"],
        class_losses=layer["class_loss"],
        class_alphas=layer["class_alpha"],
        class_betas=layer["class_beta"],
        bias_norm=layer["bias_norm"],
    )
    assert certificate.class_intra_lower is not None
    assert certificate.class_intra_lower.min() == row["guaranteed_min_intra"]
    assert certificate.class_intra_lower.mean() == row["guaranteed_mean_intra"]


def test_a_network_without_loss_has_no_guarantee() -> None:
    assert set(norms.guarantee({}).values()) == {None}


def test_norms_are_shown_with_the_optimum() -> None:
    picture = norms.pictures(attacks.norms())[0]
    alpha = panel(picture)
    assert list(alpha.series[0].y)[:2] == [8.0, 7.0]
    assert set(alpha.series[1].y) == {3.0}
    assert panel(picture, 2).y_scale == "log"
    assert panel(picture, 2).series[0].y[0] == pytest.approx(0.5e-4)
    guaranteed = panel(picture, 3).series[1]
    assert guaranteed.y[0] == pytest.approx(0.4465 - 0.2)

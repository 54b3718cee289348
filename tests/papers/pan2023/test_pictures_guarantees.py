"""The arrays behind the figures of the theory desk, and that they can be drawn and saved."""

from pathlib import Path

import numpy as np
import pytest

from nclab.figures.draw import draw, save
from nclab.figures.picture import Panel
from nclab.papers.pan2023 import pictures_guarantees as theory

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
NETWORKS = [
    {
        "weight_decay": decay,
        "alpha": 3.0,
        "beta": 2.0,
        "product": 6.0,
        "loss": decay,
        "intra_cosine": [0.9, 0.8],
        "class_intra_lower": [0.6, 0.5],
    }
    for decay in (1e-3, 1e-2)
]


def test_guarantee_curves_have_the_slopes_of_their_rows() -> None:
    panels = theory.guarantee_panels(ROWS, num_classes=4, product=3.0)
    slopes = [curve.slope for curve in (*panels.intra, *panels.inter)]
    assert slopes == pytest.approx([0.5, 1.0, 1.0, 1 / 6, 0.5, 0.5], abs=1e-6)
    none = panels.inter[1].deviation
    assert np.isnan(none[-1])
    assert not np.isnan(none[0])


def test_a_curve_without_a_bound_has_no_slope() -> None:
    panels = theory.guarantee_panels(
        [{"excess_loss": 0.1}, {"excess_loss": 1.0}], num_classes=3, product=1.0
    )
    assert np.isnan(panels.intra[1].slope)


def test_figures_are_written_whole(tmp_path: Path) -> None:
    guarantees = theory.guarantee_panels(ROWS, num_classes=4, product=3.0)
    optima = [{**row, "optimal_loss": row["loss"]} for row in NETWORKS]
    networks = theory.network_panels(NETWORKS, optima)
    assert networks.intra.shape == (2, 2)
    assert len(draw(theory.networks_picture(networks)).axes) == 3
    written = save(theory.guarantees_picture(guarantees), tmp_path)
    assert [path.suffix for path in written] == [".png", ".pdf", ".svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[1].read_bytes().startswith(b"%PDF")
    assert len(list(tmp_path.iterdir())) == 3


def test_pictures_hold_the_arrays() -> None:
    panels = theory.guarantee_panels(ROWS, num_classes=4, product=3.0)
    intra, inter = theory.guarantees_picture(panels).panels
    assert isinstance(intra, Panel)
    assert isinstance(inter, Panel)
    assert intra.series[1].y == pytest.approx(panels.intra[1].deviation.tolist())
    assert inter.series[1].y[-1] is None
    assert intra.references[0].y == 1.0
    optima = [{**row, "optimal_loss": row["loss"]} for row in NETWORKS]
    cosines = theory.networks_picture(theory.network_panels(NETWORKS, optima)).panels[2]
    assert isinstance(cosines, Panel)
    assert cosines.series[1].y == [0.9, 0.8, 0.9, 0.8]
    assert cosines.series[1].x == [1e-3, 1e-3, 1e-2, 1e-2]

"""Example 3.1 of ji2022: verdicts follow the runs, and figures hold their arrays."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.claims.pictures import write_results
from nclab.errors import NclabError
from nclab.figures.picture import HeatMap, Panel
from nclab.records.results import read_json
from nclab.ulpm import certify, classify, escape, flow
from nclab.ulpm.examination import example_point, example_problem
from nclab.ulpm.landscape import PointKind
from nclab.ulpm.problem import log_gradient
from nclab_papers.ji2022 import saddle
from nclab_papers.ji2022.saddle import (
    example_multipliers,
    family_change,
    family_point,
    gradient_coefficient,
    off_ray,
    run_escape,
    smallest_beta,
)
from tests.ulpm.golden import GOLDEN

STUCK, NOISE = saddle.example_3_1_stuck, saddle.example_3_1_noise


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return saddle.run(saddle.Config(), seeds=(0, 1), out=Path("unused"))


def test_the_point_is_a_strict_saddle_at_every_scale(numbers: dict[str, Any]) -> None:
    values = [point["smallest_eigenvalue"] for point in numbers["points"]]
    assert values == pytest.approx([-0.184934, -0.181568, -0.021491], abs=1e-6)
    assert {point["kind"] for point in numbers["points"]} == {"strict saddle"}


def test_only_noise_in_every_coordinate_escapes(numbers: dict[str, Any]) -> None:
    assert [seed["seed"] for seed in numbers["per_seed"]] == [0, 1]
    for ends in numbers["per_seed"]:
        assert ends["stuck"]["off_ray"] < 1e-12
        assert ends["stochastic"]["off_plane"] < 1e-9
        assert ends["noisy"]["off_plane"] > 0.1
        assert ends["settled"]["normalised_margin"] > 0.999
    assert STUCK.judge(numbers).verdict is Verdict.HOLDS
    assert NOISE.judge(numbers).verdict is Verdict.CORRECTED


def test_verdicts_follow_the_worst_seed(numbers: dict[str, Any]) -> None:
    wrong = copy.deepcopy(numbers)
    wrong["per_seed"][1]["stuck"]["off_ray"] = 0.1
    wrong["per_seed"][1]["settled"]["normalised_margin"] = 0.75
    assert STUCK.judge(wrong).verdict is Verdict.REFUTED
    assert NOISE.judge(wrong).verdict is Verdict.REFUTED


def test_claims_use_the_numbers_of_the_experiment(numbers: dict[str, Any]) -> None:
    for claim in (STUCK, NOISE):
        assert claim.check(numbers=numbers).evidence == claim.judge(numbers).evidence


def test_the_tables_have_every_scale_and_run(numbers: dict[str, Any]) -> None:
    points, ends = saddle.tables(numbers)
    assert [row[:2] for row in points.rows] == [
        (scale, "strict saddle") for scale in ("0.5", "1", "1.5")
    ]
    assert [row[3].split(" ±")[0] for row in ends.rows][::3] == ["0.75", "1"]


def test_figures_hold_the_samples(numbers: dict[str, Any], tmp_path: Path) -> None:
    escape, loss_map = saddle.pictures(numbers)
    assert isinstance(escape.panels[0], Panel)
    names = [series.label for series in escape.panels[0].series]
    assert names[:2] == ["plain descent", "stochastic descent"]
    last = numbers["samples"]["settled"][-1]["normalised_margin"]
    assert escape.panels[0].series[3].y[-1] == last
    assert isinstance(loss_map.panels[0], HeatMap)
    values = np.array(loss_map.panels[0].values, dtype=float)
    assert values[30, 30] == 0.0
    assert values.min() < -0.05
    write_results(saddle.pictures(numbers), numbers, tmp_path)
    assert read_json(tmp_path / "numbers.json")["per_seed"] == numbers["per_seed"]
    assert {path.name for path in tmp_path.iterdir()} >= {"escape.svg", "slice.png"}


FACTS = GOLDEN["example_3_1"]


def test_the_point_is_a_kkt_point_but_not_optimal() -> None:
    problem = example_problem()
    certificate = certify(problem, example_point(), example_multipliers())
    assert certificate.residual < 1e-12
    assert certificate.kind() == "KKT point"
    assert certificate.gap == pytest.approx(1 / 3)
    np.testing.assert_allclose(
        certify(problem, example_point()).multipliers, certificate.multipliers, atol=1e-12
    )
    np.testing.assert_allclose(certificate.theta, example_point(math.sqrt(0.5)))


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_the_gradient_is_parallel_to_the_point(scale: float) -> None:
    value, gradient = log_gradient(example_problem(), example_point(scale))
    expected = -gradient_coefficient(scale) * example_point(scale)
    np.testing.assert_allclose(gradient * math.exp(value), expected, atol=1e-14)


def test_the_printed_coefficient_differs() -> None:
    assert gradient_coefficient(1.0) == pytest.approx(FACTS["coefficient"], abs=5e-8)
    printed = gradient_coefficient(1.0, printed=True)
    assert printed == pytest.approx(FACTS["printed_coefficient"], abs=5e-8)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_the_point_is_a_strict_saddle(scale: float) -> None:
    point = classify(example_problem(), example_point(scale))
    assert point.kind is PointKind.strict_saddle
    expected = FACTS["smallest_eigenvalue"][str(scale)]
    assert point.smallest_eigenvalue == pytest.approx(expected, abs=1e-4)
    assert point.negative_eigenvalues == FACTS["negative_eigenvalues"]


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_the_loss_falls_along_the_escape_as_predicted(scale: float) -> None:
    for angle in (0.003, 0.01):
        step = escape(example_problem(), example_point(scale), angle=angle)
        assert step is not None
        assert step.order == 2
        assert step.actual == pytest.approx(step.predicted, rel=0.01)
        assert abs(float(np.vdot(step.direction, example_point()))) < 1e-10


def test_the_loss_along_the_papers_family_rises_before_it_falls() -> None:
    for beta, change in FACTS["family_change"].items():
        assert family_change(1.0, float(beta)) == pytest.approx(change, rel=0.03)
    assert all(family_change(0.5, beta) > 0 for beta in np.linspace(-0.7, -0.01, 30))


@pytest.mark.parametrize("scale", [1.0, 1.5, 1.75])
def test_the_loss_falls_beyond_a_threshold_of_beta(scale: float) -> None:
    threshold = smallest_beta(scale)
    assert family_change(scale, -1.02 * threshold) < 0 < family_change(scale, -0.98 * threshold)
    assert threshold == pytest.approx(math.exp(-2 * scale**2), rel=0.04)
    for beta in (-0.6, -0.2):
        norms = np.linalg.norm(family_point(1.0, beta)), np.linalg.norm(example_point())
        assert norms[0] == pytest.approx(norms[1])


def test_only_noise_in_every_coordinate_leaves_the_plane() -> None:
    runs = run_escape()
    assert runs.stuck.last.step == 10_000
    assert off_ray(runs.stuck.theta) < 1e-12
    assert runs.stuck.last.normalised_margin == pytest.approx(0.75)
    # Stochastic gradients stay in the plane that W and H span: no simplex ETF fits in it.
    values = np.linalg.svd(runs.stochastic.theta, compute_uv=False)
    assert values[2] < 1e-12 * values[0]
    assert runs.stochastic.last.normalised_margin < 0.76
    assert off_ray(runs.noisy.theta) > 0.1
    assert runs.settled.last.normalised_margin > 0.9999
    assert runs.settled.last.nc2_equiangularity_means < 1e-3


def test_the_flow_leaves_the_ray_in_proportion_to_the_norm() -> None:
    noise = np.random.default_rng(0).standard_normal(example_point().shape)
    start = example_point() + 1e-6 * noise
    growth = []
    for log_time in (100.0, 1000.0):
        theta = flow(example_problem(), start, log_time=log_time).theta
        growth.append(off_ray(theta) / float(np.linalg.norm(theta)))
    assert growth[1] == pytest.approx(growth[0], rel=0.01)


def test_invalid_scales_raise() -> None:
    with pytest.raises(NclabError, match="positive scale"):
        example_point(0.0)

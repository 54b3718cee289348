"""The facts of Example 3.1, with the errors of the paper."""

import math

import numpy as np
import pytest

from nclab.errors import NclabError
from nclab.ulpm import certify, classify, escape, flow
from nclab.ulpm.examination import example_point, example_problem, off_ray, run_escape
from nclab.ulpm.landscape import PointKind
from nclab.ulpm.problem import log_gradient
from nclab_papers.ji2022.example_3_1 import (
    example_multipliers,
    family_change,
    family_point,
    gradient_coefficient,
)
from tests.ulpm.golden import GOLDEN

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
    with pytest.raises(NclabError, match="sqrt"):
        family_point(1.0, -0.9)

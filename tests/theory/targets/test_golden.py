"""Reference numbers from independent optimisation, compared to all their digits."""

import math
from dataclasses import replace

import pytest
import torch

import nclab
from nclab.theory.targets.deep_heads import deep_relu, shape_value, shapes
from nclab.theory.targets.limits import best_margin, limit_grams, softmax_code, softmax_margin
from nclab.theory.targets.program import nuclear_norm, program_of_counts
from nclab.theory.targets.program_solver import solve
from nclab.theory.targets.result import cosines
from nclab.theory.targets.search import _random_start as start

STEP = [10] * 3 + [1] * 3


def test_least_loss_of_norms_and_counts() -> None:
    for counts, product, expected, balanced in (
        (STEP, 2, 0.26746353, 0.37403620),
        (STEP, 4, 0.02221950, 0.04032466),
        ([100] * 5 + [1] * 5, 4, 0.02793679, 0.10047198),
    ):
        optimum = nclab.target(counts=counts, norms=(1.0, float(product)))
        assert optimum.loss == pytest.approx(expected, abs=5e-9)
        assert optimum.relative_gap is not None
        assert optimum.relative_gap < 1e-9
        even = nclab.target(len(counts), norms=(1.0, float(product)))
        assert even.loss == pytest.approx(balanced, abs=5e-9)


@pytest.mark.parametrize(
    ("t", "objective", "lifts"),
    [
        (0.001, 0.0748385775, (6.672945, 4.842543)),
        (0.02, 0.8297525874, (3.440099, 1.200114)),
        (0.031, 1.1065813233, (None, 0.0)),
    ],
)
def test_imbalanced_cross_entropy(
    t: float, objective: float, lifts: tuple[float | None, float]
) -> None:
    optimum = nclab.target(counts=STEP, weight_decay=(t, t))
    assert optimum.objective == pytest.approx(objective, abs=5.1e-11)
    for index, expected in zip((0, 3), lifts, strict=True):
        lift = float(optimum.logits[index, index] - optimum.logits[index + 1, index])
        assert expected is None or lift == pytest.approx(expected, abs=5.1e-7)
    assert optimum.merged == (((3, 4, 5),) if t > 1 / 33 else ())


def test_imbalanced_cosines_and_distinct_counts() -> None:
    optimum = nclab.target(counts=STEP, weight_decay=(0.02, 0.02)).classifier_cosines
    for (a, b), expected in {(0, 1): -0.348293, (0, 3): -0.225982, (3, 4): 0.257399}.items():
        assert float(optimum[a, b]) == pytest.approx(expected, abs=5.1e-7)
    found_objective = nclab.target(counts=[100, 50, 20, 10, 5], weight_decay=(1e-3, 1e-3)).objective
    assert found_objective == pytest.approx(0.1342047254, abs=5.1e-11)


@pytest.mark.parametrize(
    ("large", "small", "size", "ratio", "digits"),
    [
        (5, 5, 1, 1.73542, 5),
        pytest.param(5, 5, 2, 7.75770, 5, marks=pytest.mark.slow),
        pytest.param(7, 3, 2, 3.06196, 5, marks=pytest.mark.slow),
        pytest.param(3, 7, 2, 107.692, 3, marks=pytest.mark.slow),
    ],
)
def test_critical_ratio_of_class_averaged_norms(
    large: int, small: int, size: float, ratio: float, digits: int
) -> None:
    """Minority classes of one sample merge iff n t >= 1: above the ratio, not below.

    The norm at n t = 1 decides the side. The weight for a given norm is known to 1e-7 only, which
    is not enough for six digits of the ratio.

    The norm at n t = 1 says on which side of it the weight of a norm is; that weight itself is
    found to 1e-7, which is not enough for six digits of the ratio.
    """
    for side in (-1, 1):
        R = ratio + side * 0.6 * 10**-digits
        counts = torch.tensor([R] * large + [1.0] * small, dtype=torch.float64)
        program, _ = program_of_counts(counts, 0.0, metric=torch.ones_like(counts))
        merging = replace(program, weight=1 / float(counts.sum()))
        norm = nuclear_norm(merging, solve(merging).point)
        assert (norm > (large + small) * size) == (side > 0)


def test_limit_of_no_weight_decay() -> None:
    W, H = limit_grams(torch.tensor([10.0] * 2 + [1.0] * 2))
    assert float((W[0, 0] / W[2, 2]).sqrt()) == pytest.approx(1.41253214, abs=5.1e-9)
    pairs = ((0, 1), (0, 2), (2, 3))
    for gram, expected in (
        (W, (-0.45899148, -0.38209596, 0.07944565)),
        (H, (-0.19460050, -0.26602269, -0.64853183)),
    ):
        for (a, b), value in zip(pairs, expected, strict=True):
            assert float(cosines(gram)[a, b]) == pytest.approx(value, abs=5.1e-9)
    W, _ = limit_grams(torch.tensor([100.0] * 5 + [1.0] * 5))
    assert float((W[0, 0] / W[5, 5]).sqrt()) == pytest.approx(2.40129387, abs=5.1e-9)
    for (a, b), value in {(0, 1): -0.14802212, (0, 5): -0.19590308, (5, 6): 0.33802608}.items():
        assert float(cosines(W)[a, b]) == pytest.approx(value, abs=5.1e-9)


@pytest.mark.parametrize("counts", [[10.0, 5.0, 1.0], [10.0, 10.0, 1.0, 1.0], [50, 20, 7, 3, 1]])
def test_the_limit_with_a_free_bias(counts: list[float]) -> None:
    """Compare with optima at small weights and check the conditions of the least norm with margins
    1."""
    D = torch.tensor(counts, dtype=torch.float64)
    limit = nclab.target(counts=counts, weight_decay=0.0, bias=0.0)
    far, near = (nclab.target(counts=counts, weight_decay=(t, t), bias=0.0) for t in (1e-4, 1e-9))
    for name in ("classifier_gram", "mean_gram"):
        grams = [
            getattr(target, name) / getattr(target, name).norm() for target in (limit, far, near)
        ]
        assert (grams[2] - grams[0]).norm() < 0.5 * (grams[1] - grams[0]).norm()
        assert (grams[2] - grams[0]).norm() < 0.025
    covariance = limit.classifier_gram @ limit.classifier_gram
    assert torch.allclose(covariance, D.diag() - torch.outer(D, D) / D.sum(), atol=1e-9)
    full = limit.logits + limit.bias[:, None]
    assert torch.allclose(full.diagonal() - full, torch.ones_like(full) - torch.eye(len(D)))
    left, _, right = torch.linalg.svd(limit.logits * D.sqrt())
    multipliers = left[:, :-1] @ right[:-1] * D.sqrt()
    assert float((multipliers - multipliers.diagonal().diag()).max()) <= 1e-12
    assert torch.allclose(multipliers.sum(1), torch.zeros_like(D), atol=1e-9)


def test_the_limit_is_approached_slowly() -> None:
    for t, expected in ((1e-2, 0.2285), (1e-4, 0.1301), (1e-6, 0.1108), (1e-8, 0.1021)):
        optimum = nclab.target(counts=[10, 10, 1, 1], weight_decay=(t, t))
        assert float(optimum.classifier_cosines[2, 3]) == pytest.approx(expected, abs=5.1e-5)


def test_relu_features() -> None:
    optimum = nclab.target(counts=[20, 20, 5, 5], weight_decay=(0.002, 0.002), features="relu")
    assert optimum.objective == pytest.approx(0.134752365, abs=5.1e-10)
    gaps = [group.logit_gap for group in optimum.groups]
    assert gaps == pytest.approx([5.023350, 4.310258], abs=5.1e-7)
    optimum = nclab.target(counts=[50, 20, 5, 1], weight_decay=(0.01, 1e-4), features="relu")
    assert optimum.objective == pytest.approx(0.080908004, abs=5.1e-10)
    gaps = [group.logit_gap for group in optimum.groups]
    assert gaps == pytest.approx([5.766135, 5.302515, 4.594318, 3.751391], abs=5.1e-7)


def test_mean_squared_error() -> None:
    even = {"counts": [5] * 4, "weight_decay": (0.01, 0.01), "loss": "mse"}
    for bias, objective, cosine in (
        (None, 0.0854427191, 0.0),
        (0.0, 0.0640820393, -1 / 3),
        (0.15, 0.0787760524, -0.19576352),
        (1.0, None, -0.02517537),
    ):
        optimum = nclab.target(**even, bias=bias)  # type: ignore[arg-type]
        assert objective is None or optimum.objective == pytest.approx(objective, abs=5.1e-11)
        assert float(optimum.classifier_cosines[0, 1]) == pytest.approx(cosine, abs=5.1e-9)
    # The singular values of Z: s without a bias, s_0 on constant vectors with one.
    plain = nclab.target(**even)  # type: ignore[arg-type]
    assert float(plain.logits[0, 0]) * math.sqrt(5) == pytest.approx(2.03606798, abs=5.1e-9)
    penalised = nclab.target(**even, bias=0.15)  # type: ignore[arg-type]
    constant = float(penalised.logits[0].sum()) * math.sqrt(5)
    assert constant == pytest.approx(0.70273464, abs=5.1e-9)
    for bias, objective in ((None, 0.0563342712), (0.0, 0.0336344537)):
        optimum = nclab.target(counts=[8, 4, 1], weight_decay=(0.01, 0.01), loss="mse", bias=bias)
        assert optimum.objective == pytest.approx(objective, abs=5.1e-11)


@pytest.mark.parametrize(
    ("C", "decay", "option", "objective", "product"),
    [
        (4, 0.01, {"smoothing": 0.1}, 0.401412929, 2.559185413),
        (10, 0.001, {"smoothing": 0.1}, 0.513077178, 4.028934604),
        (10, 0.005, {"smoothing": 0.05}, 0.354986413, 4.466241557),
        (4, 0.01, {"focal_gamma": 2.0}, 0.045629446, 1.988561051),
        (10, 0.001, {"focal_gamma": 2.0}, 0.013560261, 3.960931014),
        (10, 0.001, {"focal_gamma": 3.0}, 0.011677965, 3.429431025),
    ],
)
def test_other_losses(
    C: int, decay: float, option: dict[str, float], objective: float, product: float
) -> None:
    loss = "focal" if "focal_gamma" in option else "label_smoothing"
    optimum = nclab.target(C, weight_decay=decay, loss=loss, **option)  # type: ignore[arg-type]
    assert optimum.objective == pytest.approx(objective, abs=5.1e-10)
    gap = float(optimum.logits[0, 0] - optimum.logits[1, 0])
    if loss == "focal":
        # The references of the product come from a minimiser and have its error; this is exact.
        p = 1 / (1 + (C - 1) * math.exp(-gap))
        gamma = option["focal_gamma"]
        slope = (1 - p) ** gamma * ((1 - p) - gamma * p * math.log(p))
        assert slope == pytest.approx(decay * (C - 1) / math.sqrt(C), rel=1e-12)
        assert gap * (C - 1) / C == pytest.approx(product, abs=2.5e-8)
    else:
        assert gap * (C - 1) / C == pytest.approx(product, abs=5.1e-10)


@pytest.mark.parametrize(("temperature", "loss"), [(0.1, 1.34499001e-4), (1.0, 1.37693492)])
def test_unit_spheres(temperature: float, loss: float) -> None:
    optimum = nclab.target(10, norms=(1.0, 1 / temperature))
    assert optimum.loss == pytest.approx(loss, rel=5e-9)


@pytest.mark.parametrize(
    ("C", "d", "margin"),
    [
        (5, 2, 0.69098301),
        (5, 3, 1.0),
        (6, 4, 1.0),
        (7, 4, 1.0),
        (12, 3, 0.55278640),
        (24, 4, 0.5),
        (4, 5, 4 / 3),
    ],
)
def test_softmax_codes(C: int, d: int, margin: float) -> None:
    known = best_margin(C, d)
    assert known.exact
    assert known.lower == pytest.approx(margin, abs=5.1e-9)
    assert softmax_margin(softmax_code(C, d)) == pytest.approx(margin, abs=5.1e-9)


def test_a_code_found_by_search() -> None:
    assert softmax_margin(softmax_code(8, 3, starts=2)) == pytest.approx(0.73879612, abs=5.1e-9)
    assert best_margin(8, 3).lower == pytest.approx(0.73879612, abs=5.1e-9)


def test_deep_linear_mean_squared_error() -> None:
    for F, critical, objective in (
        (2, 0.235702260, 0.081252814),
        (3, 0.104993421, 0.110458969),
        (4, 0.076287672, 0.140061291),
    ):
        even = {"counts": [2] * 3, "loss": "mse", "depth": F - 1}
        optimum = nclab.target(**even, weight_decay=(0.02, 0.02))  # type: ignore[arg-type]
        assert optimum.objective == pytest.approx(objective, abs=5.1e-10)
        for side in (0.999, 1.001):
            decay = critical * side
            optimum = nclab.target(**even, weight_decay=(decay, decay))  # type: ignore[arg-type]
            assert optimum.is_zero == (side > 1)


@pytest.mark.parametrize(
    ("C", "F", "values"),
    [
        (6, 3, (0.031490144, 0.029568473, 0.037454429)),
        (10, 4, (0.053921140, 0.042673846, 0.055011686)),
        (10, 6, (0.056900566, 0.040191352, 0.035890576)),
    ],
)
def test_deep_linear_cross_entropy(C: int, F: int, values: tuple[float, ...]) -> None:
    setting = nclab.target(C, weight_decay=(0.001, 0.001)).setting
    deep = replace(setting, depth=F - 1)
    for shape, expected in zip(shapes(C), values, strict=True):
        assert shape_value(deep, shape, 0.001)[1] == pytest.approx(expected, abs=5.1e-10)


def test_random_starts_of_deep_linear_heads() -> None:
    optimum = nclab.target(6, weight_decay=(0.001, 0.001), depth=2)
    assert optimum.geometry == "orthoplex"
    assert optimum.objective == pytest.approx(0.029568473, abs=5.1e-10)


@pytest.mark.slow
def test_random_starts_of_deeper_linear_heads() -> None:
    """One end is the best of the reference, of rank 4; other ends are lower."""
    optimum = nclab.target(10, weight_decay=(0.001, 0.001), depth=3)
    assert optimum.objective == pytest.approx(0.04070236, abs=5.1e-9)
    assert "rank 3" in optimum.geometry
    assert "24 random starts" in str(optimum)
    ends = [start(optimum.setting, seed)[0] for seed in (5, 13)]
    assert min(abs(end - 0.0414437) for end in ends) < 5.1e-8
    assert optimum.objective is not None
    assert optimum.objective <= min(ends)


@pytest.mark.slow
def test_random_starts_of_deep_heads_with_fifty_maps() -> None:
    optimum = nclab.target(4, weight_decay=(1e-4, 1e-4), depth=50)
    assert optimum.geometry == "orthoplex"
    assert optimum.objective == pytest.approx(0.005787534, abs=5.1e-10)


@pytest.mark.parametrize(
    ("C", "depth", "collapse", "graph", "digits"),
    [
        (6, 4, 0.01498193, 0.01443226, 8),
        (10, 4, 0.02494970, 0.02249303, 8),
        (10, 3, 0.019950, 0.020834, 6),
    ],
)
def test_deep_relu(C: int, depth: int, collapse: float, graph: float, digits: int) -> None:
    objectives = deep_relu(C, depth, 0.001)
    half = 0.51 * 10**-digits
    assert objectives.collapse == pytest.approx(collapse, abs=half)
    assert objectives.graph == pytest.approx(graph, abs=half)

"""Bound for a fraction of the pairs: its proof rebuilt graph by graph, and its limits."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nclab.errors import DataError
from nclab.theory.certificates import fraction_of_pairs
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.fraction_of_pairs import (
    FeatureSpread,
    GraphGroups,
    graphs_with,
    least_rise,
    pairs_upper,
)
from nclab.theory.certificates.norms_and_loss import norm_range, norm_ratio, norms_and_loss
from nclab.theory.certificates.theorem_constants import asymptotic_constants
from nclab.theory.layer_peeled import FloatArray, g

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def random_graph(rng: np.random.Generator, classes: int, edges: int) -> FloatArray:
    pairs = [(i, j) for i in range(classes) for j in range(i)]
    order = rng.permutation(len(pairs))
    if rng.random() < 0.3:  # crowd the edges on few classes
        order = np.array(sorted(range(len(pairs)), key=lambda index: pairs[index]))
    adjacency = np.zeros((classes, classes))
    for index in order[:edges]:
        i, j = pairs[index]
        adjacency[i, j] = adjacency[j, i] = 1.0
    return adjacency


def exact_dual(E: FloatArray, v: float, y: float, product: float) -> float:
    """Return the dual bound at one graph, without any estimate: entropy of q, less C A mu."""
    classes = len(E)
    identity = np.eye(classes)
    pulled = identity - y * (E - v * np.diag(E.sum(0)))
    values, vectors = np.linalg.eigh(pulled)
    G = -(identity - 1 / classes) @ (vectors * np.sqrt(values) @ vectors.T)  # over mu
    assert (G - np.diag(np.diag(G)) + identity).min() > 0
    assert np.linalg.eigvalsh(pulled - G.T @ G)[0] > -1e-12

    def negative(log_mu: float) -> float:
        mu = math.exp(log_mu)
        q = identity + classes * mu * G
        assert q.sum(0) == pytest.approx(1.0)
        return float((q * np.log(q)).sum(0).mean()) + classes * product * mu

    largest = -math.log(-classes * float(np.diag(G).min())) - 1e-6
    minimum = minimize_scalar(negative, bounds=(-stretch_of(classes, product) - 3, largest))
    return -float(minimum.fun)


def stretch_of(classes: int, product: float) -> float:
    return classes * product / (classes - 1)


@pytest.mark.parametrize("seed", range(60))
def test_no_graph_beats_the_estimate_of_its_group(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    classes, product = int(rng.integers(3, 13)), float(rng.uniform(1, 9))
    total = classes * (classes - 1) // 2
    edges = int(rng.integers(1, total + 1))
    E = random_graph(rng, classes, edges)
    squares, largest = float((E.sum(0) ** 2).sum()), float(E.sum(0).max())
    groups = graphs_with(classes, edges)
    at = int(np.argmax(groups.most >= squares))
    assert groups.least[at] <= squares
    assert groups.degree[at] >= largest
    v = float(-1 / (classes - 1) + 10 ** rng.uniform(-3, -0.2))
    inputs = norms_and_loss(classes, product, 1.0, g(product, classes) * 1.5)
    exact_squares = np.array([squares])
    group = GraphGroups(edges, exact_squares, exact_squares, np.array([largest]))
    for step in 2.0 ** np.linspace(-5, 1, 7):
        monkeypatch.setattr(fraction_of_pairs, "STEPS", np.array([step]))
        rise = least_rise(inputs, group, v, FeatureSpread(1.0, None))
        group_rise = least_rise(inputs, groups, v, FeatureSpread(1.0, None))
        assert group_rise <= rise or math.isinf(group_rise)
        if math.isinf(rise):
            continue
        y = 2 * step * product * (v + 1 / (classes - 1))
        y /= (1 - edges / total + 1 / classes) * (classes + stretch_of(classes, product))
        exact = exact_dual(E, v, y, product) - inputs.optimal_loss
        assert rise <= exact + 1e-9 * inputs.optimal_loss
        if squares == 2 * edges == classes and abs(v) < 0.1:  # a matching
            assert rise == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("classes", "product"), [(4, 3.0), (10, 5.0), (12, 8.0)])
def test_a_matching_is_treated_exactly(classes: int, product: float) -> None:
    E: FloatArray = np.kron(np.eye(classes // 2), np.array([[0.0, 1.0], [1.0, 0.0]]))
    v = -0.5 / (classes - 1)
    inputs = norms_and_loss(classes, product, 1.0, g(product, classes) * 1.01)
    size = np.array([float(classes)])
    group = GraphGroups(classes // 2, size, size, np.array([1.0]))
    rise = least_rise(inputs, group, v, FeatureSpread(1.0, None))
    exact = max(exact_dual(E, v, float(y), product) for y in np.linspace(0.005, 0.3, 120))
    assert rise == pytest.approx(exact - inputs.optimal_loss, rel=0.015)


def all_pairs_and_fraction(
    classes: int, product: float, relative: float, delta: float
) -> tuple[float | None, float | None]:
    loss = g(product, classes) * (1 + relative)
    certificate = certify(classes, math.sqrt(product), math.sqrt(product), loss, delta)
    return certificate.inter_upper.value, certificate.fraction_inter_upper.value


@pytest.mark.parametrize(
    ("classes", "product", "excess", "delta", "known"),
    [
        (10, 5.0, 1e-4, 0.1, -0.0573),
        (10, 5.0, 1e-4, 0.2, -0.0750),
        (12, 8.0, 1e-5, 0.08, -0.0365),
        (10, 5.0, 1e-4, 0.01, 0.0111),
        (100, 10.0, 1e-5, 0.1, None),
    ],
)
def test_bound_exists_if_two_means_may_have_a_positive_cosine(
    classes: int, product: float, excess: float, delta: float, known: float | None
) -> None:
    every, most = all_pairs_and_fraction(classes, product, excess / g(product, classes), delta)
    assert every is None
    assert most is not None
    assert -1 / (classes - 1) < most < 0.1
    assert known is None or most == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize(
    ("classes", "product"), [(3, 2.0), (4, 3.0), (10, 2.0), (10, 5.0), (30, 8.0)]
)
def test_monotone_in_excess_and_delta(classes: int, product: float) -> None:
    total = classes * (classes - 1) // 2
    excluded = sorted({int(share * total) for share in (0, 0.05, 0.1, 0.2, 0.4, 0.7)})
    best = g(product, classes)
    table = []
    for relative in (1e-8, 1e-5, 1e-4, 1e-3, 1e-2, 0.1):
        inputs = norms_and_loss(classes, product, 1.0, best * (1 + relative))
        bounds = [pairs_upper(inputs, number) for number in excluded]
        table.append([1.0 if bound is None else bound for bound in bounds])
    values = np.array(table)
    assert (values > -1 / (classes - 1)).all()
    assert (np.diff(values, axis=0) >= -1e-9).all()
    assert (np.diff(values, axis=1) <= 1e-6).all()


@pytest.mark.parametrize(("classes", "product"), [(4, 3.0), (10, 5.0), (30, 8.0)])
def test_delta_to_zero_gives_all_pairs(classes: int, product: float) -> None:
    """With fewer than one excluded pair, the two bounds are close."""
    every, nearly_all = all_pairs_and_fraction(classes, product, 1e-5, 1e-6)
    assert every is not None
    assert nearly_all is not None
    assert nearly_all <= every
    inputs = norms_and_loss(classes, product, 1.0, g(product, classes) * (1 + 1e-5))
    free = pairs_upper(inputs, 0)
    assert free is not None
    collapse = -1 / (classes - 1)
    assert free - collapse == pytest.approx(every - collapse, rel=0.03)


@pytest.mark.parametrize(
    ("classes", "product", "edges"), [(10, 5.0, 5), (10, 5.0, 20), (12, 8.0, 6)]
)
def test_small_excess_is_the_asymptotic_constant(classes: int, product: float, edges: int) -> None:
    best, total = g(product, classes), classes * (classes - 1) // 2
    bound = pairs_upper(norms_and_loss(classes, product, 1.0, best * (1 + 1e-8)), edges - 1)
    assert bound is not None
    size = asymptotic_constants(classes, product).mu_pairs * best * 1e-8
    limit = math.sqrt(size * (total - edges) / (edges * total))
    assert bound + 1 / (classes - 1) == pytest.approx(limit, rel=2e-3)


@pytest.mark.parametrize("case", [(4, 3.0, 1e-3, 0.2), (6, 4.0, 1e-4, 0.15), (8, 5.0, 1e-4, 0.12)])
def test_worst_case_search_comes_within_five_per_cent(
    case: tuple[int, float, float, float],
) -> None:
    row = benchmark("fraction_of_pairs").run(case, starts=1)
    assert 0 <= row["over"] < 0.05


def test_adversary_on_pairs_finds_no_violation() -> None:
    module = benchmark("certificate_adversary")
    rng, slacks = np.random.default_rng(7), module.Slacks()
    for network in module.pair_networks(rng, 160):
        module.attack(network, rng, slacks)
    assert not slacks.violations
    assert slacks.checks["fraction_inter_upper alone"] > 10
    assert slacks.nearest < 0.05


def test_a_bias_weakens_the_bound() -> None:
    values = [
        certify(10, 2.0, 2.5, 0.0343, 0.1, bias_norm=bias).fraction_inter_upper.value
        for bias in (0.0, 0.01, 0.1)
    ]
    assert None not in values
    assert values == sorted(values)  # type: ignore[type-var]
    assert values[0] != values[2]


def test_class_norms_of_networks_are_in_range() -> None:
    rng = np.random.default_rng(0)
    module = benchmark("certificate_adversary")
    for network in module.random_networks(rng, 200):
        w, h = network.weight, network.features
        offset = network.bias - network.bias.mean()
        alphas = (h**2).sum(-1).mean(1)
        beta = float(np.linalg.norm(w)) / math.sqrt(len(w))
        alpha = math.sqrt(float(alphas.mean()))
        loss = float(module._class_losses(network).mean())
        inputs = norms_and_loss(len(w), alpha, beta, loss, bias_norm=float(np.linalg.norm(offset)))
        norms = np.sort(alphas) * beta / alpha
        low, high = norm_range(inputs)
        assert low <= norms[0]
        assert norms[-1] <= high
    assert norm_ratio(norms_and_loss(10, 2.0, 2.5, 2.0)) == math.inf


def test_a_class_that_may_be_lost_leaves_no_bound() -> None:
    inputs = norms_and_loss(60, 12.0, 1.0, g(12.0, 60) + 1.05 * math.log(60) / 60)
    assert norm_ratio(inputs) == math.inf
    assert pairs_upper(inputs, 200) is None


def test_fraction_in_text_and_json() -> None:
    certificate = certify(10, 2.0, 2.5, 0.0343, 0.1)
    text = str(certificate)
    assert "inter-class cosine (90%)" in text
    assert "In 90% of the pairs of classes" in text.replace("\n", " ")
    kept = certificate.to_dict()
    assert kept["fraction_inter_upper"] == certificate.fraction_inter_upper.value
    assert kept["bounds"]["fraction_inter_upper"]["valid"]
    skipped = certify(10, 2.0, 2.5, 0.0343, 0.1, pairs=False).fraction_inter_upper
    assert not skipped.valid
    assert skipped.reason == "not searched"
    none = certify(10, 2.0, 2.5, 0.5, 0.1).fraction_inter_upper
    assert none.value is None
    assert "pairs" in none.reason


@pytest.mark.parametrize(
    ("classes", "product", "relative", "delta"),
    [(50, 30.0, 1e-3, 0.8), (2000, 12.0, 1e-5, 0.1), (10_000, 12.0, 1e-6, 0.1)],
)
def test_a_bound_is_found_where_cosine_1_is_not_refuted(
    classes: int, product: float, relative: float, delta: float
) -> None:
    """The bound at cosine 1 is too weak; at smaller cosines it is strong enough."""
    root, loss = math.sqrt(product), g(product, classes) * (1 + relative)
    excluded = math.floor(delta * classes * (classes - 1) / 2)
    graphs = graphs_with(classes, excluded + 1)
    inputs = norms_and_loss(classes, root, root, loss)
    value = certify(classes, root, root, loss, delta).fraction_inter_upper.value
    assert value is not None
    assert value < 0.01
    assert least_rise(inputs, graphs, 1.0, FeatureSpread(norm_ratio(inputs), None)) < inputs.excess


def test_more_excluded_pairs_never_weaken_the_bound() -> None:
    product = 19.105503243524954
    loss, root = g(product, 12) * 1.4478346950954165, math.sqrt(product)
    values = [
        certify(12, root, root, loss, delta, bias_norm=0.1).fraction_inter_upper.value
        for delta in (0.9, 0.95, 0.98, 0.99, 1 - 1e-9, 1 - 1e-12)
    ]
    known = [value for value in values if value is not None]
    assert len(known) == len(values)
    assert known == sorted(known, reverse=True)


def test_a_share_below_one_is_not_rounded_to_100_per_cent() -> None:
    root, loss = math.sqrt(12.0), g(12.0, 300) * (1 + 1e-5)
    text = str(certify(300, root, root, loss, 4e-5))
    assert "99.99%" in text
    assert "100%" not in text
    assert "95%" in str(certify(10, 2.0, 2.5, 0.0343, 0.05))


def test_too_many_classes_raise() -> None:
    for classes in (10**10, 10**19):
        with pytest.raises(DataError, match=r"classes from 2 to 1e\+09"):
            certify(classes, 2.0, 2.5, 50.0)

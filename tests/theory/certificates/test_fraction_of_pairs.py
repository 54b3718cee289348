"""The guarantee for a fraction of the pairs: its proof rebuilt graph by graph, and its limits."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from nclab.theory.certificates import fraction_of_pairs
from nclab.theory.certificates.asymptotic import asymptotic_constants
from nclab.theory.certificates.certificate import certify
from nclab.theory.certificates.class_norms import norm_range, norm_ratio
from nclab.theory.certificates.fraction_of_pairs import (
    Graphs,
    Spread,
    graphs_with,
    least_rise,
    pairs_upper,
)
from nclab.theory.certificates.norms_and_loss import norms_and_loss
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
        order = np.array(sorted(range(len(pairs)), key=lambda at: pairs[at]))
    adjacency = np.zeros((classes, classes))
    for at in order[:edges]:
        i, j = pairs[at]
        adjacency[i, j] = adjacency[j, i] = 1.0
    return adjacency


def exact_dual(E: FloatArray, v: float, y: float, product: float) -> float:
    """The dual bound at one graph, without any estimate: entropy of q, less C A mu."""
    classes = len(E)
    one = np.eye(classes)
    pulled = one - y * (E - v * np.diag(E.sum(0)))
    values, vectors = np.linalg.eigh(pulled)
    G = -(one - 1 / classes) @ (vectors * np.sqrt(values) @ vectors.T)  # over mu
    assert (G - np.diag(np.diag(G)) + one).min() > 0
    assert np.linalg.eigvalsh(pulled - G.T @ G)[0] > -1e-12

    def negative(log_mu: float) -> float:
        mu = math.exp(log_mu)
        q = one + classes * mu * G
        assert q.sum(0) == pytest.approx(1.0)
        return float((q * np.log(q)).sum(0).mean()) + classes * product * mu

    largest = -math.log(-classes * float(np.diag(G).min())) - 1e-6
    found = minimize_scalar(negative, bounds=(-stretch_of(classes, product) - 3, largest))
    return -float(found.fun)


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
    given = norms_and_loss(classes, product, 1.0, g(product, classes) * 1.5)
    one = np.array([squares])
    group = Graphs(edges, one, one, np.array([largest]))
    for step in 2.0 ** np.linspace(-5, 1, 7):
        monkeypatch.setattr(fraction_of_pairs, "STEPS", np.array([step]))
        rise = least_rise(given, group, v, Spread(1.0, None))
        whole = least_rise(given, groups, v, Spread(1.0, None))
        assert whole <= rise or math.isinf(whole)
        if math.isinf(rise):
            continue
        y = 2 * step * product * (v + 1 / (classes - 1))
        y /= (1 - edges / total + 1 / classes) * (classes + stretch_of(classes, product))
        exact = exact_dual(E, v, y, product) - given.optimal_loss
        assert rise <= exact + 1e-9 * given.optimal_loss
        if squares == 2 * edges == classes and abs(v) < 0.1:  # a matching
            assert rise == pytest.approx(exact, rel=0.02)

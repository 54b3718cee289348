"""The worst-case search: feasible, close to an independent bound, with the known slopes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq, minimize_scalar

from nclab.errors import DataError
from nclab.theory import worst_case
from nclab.theory.certificates.norms_and_loss import norms_and_loss
from nclab.theory.certificates.one_class import alignment_lower, intra_lower
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.worst_case import (
    WorstCase,
    WorstCaseProblem,
    make_problem,
    worst_inter,
    worst_intra,
)

CLASSES, PRODUCT = 4, 3.0
INTER_GOLDEN = {1e-4: 0.013534, 1e-3: 0.042934, 1e-2: 0.13665}
"""Values of inter + 1/(C - 1) for C = 4, product 3, two samples, from an independent search."""
KAPPA = 5.84228
"""Asymptotic constant of the inter-class cosine for C = 4, product 3."""


def one_class_loss(score: float, classes: int) -> float:
    """Return g, in an independent implementation."""
    return math.log1p((classes - 1) * math.exp(-classes / (classes - 1) * score))


def alignment_bound(classes: int, product: float, excess: float) -> float:
    """Return the smallest cosine of a classifier row and its class mean, by the exact 1-D
    problem."""
    lowest = one_class_loss(product, classes)

    def loss_above(cosine: float) -> float:
        def loss(p: float) -> float:
            others = one_class_loss((classes * product - p) / (classes - 1), classes)
            return (one_class_loss(cosine * p, classes) + (classes - 1) * others) / classes

        best = minimize_scalar(
            loss, bounds=(0, classes * product), method="bounded", options={"xatol": 1e-10}
        )
        return float(best.fun) - lowest - excess

    return float(brentq(loss_above, 0.0, 1.0, xtol=1e-14))


def assert_feasible(case: WorstCase) -> None:
    """Check norms, loss and cosine by slow loops that share no code with the search."""
    classes, per_class = case.features.shape[:2]
    total = 0.0
    for c in range(classes):
        for h in case.features[c]:
            logits = case.weight @ h
            total += math.log1p(sum(math.exp(z - logits[c]) for z in np.delete(logits, c)))
    lowest = one_class_loss(case.product, classes)
    assert total / (classes * per_class) - lowest <= case.excess * (1 + 1e-9)
    alpha = math.sqrt((case.features**2).sum() / (classes * per_class))
    beta = math.sqrt((case.weight**2).sum() / classes)
    assert alpha * beta <= case.product * (1 + 1e-9)
    assert case.feasible
    assert (case.alpha, case.beta) == pytest.approx((alpha, beta))


def unit_mean(rows: FloatArray) -> FloatArray:
    """Return the mean of the rows scaled to norm one."""
    mean: FloatArray = np.mean([h / np.linalg.norm(h) for h in rows], axis=0)
    return mean


def slope(x: list[float], y: list[float]) -> float:
    """Return the exponent of a power law fitted on logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_intra_reaches_the_bound_with_slope_one() -> None:
    """1 - intra is within 0.5 % of 1 - rho^2, never above it, and linear in the loss."""
    lowest = one_class_loss(PRODUCT, CLASSES)
    shares, deviations = [1e-4, 1e-3, 1e-2], []
    for share in shares:
        case = worst_intra(CLASSES, PRODUCT, share * lowest, starts=2)
        assert_feasible(case)
        assert case.value == pytest.approx(float((unit_mean(case.features[0]) ** 2).sum()))
        bound = 1 - alignment_bound(CLASSES, PRODUCT, share * lowest) ** 2
        assert 0.995 * bound <= 1 - case.value <= bound * (1 + 1e-6)
        deviations.append(1 - case.value)
    assert slope(shares, deviations) == pytest.approx(1.0, abs=0.05)


def test_inter_has_slope_one_half() -> None:
    """The deviation from -1/(C-1) grows like kappa times the square root of the loss."""
    lowest = one_class_loss(PRODUCT, CLASSES)
    deviations = []
    for share, golden in INTER_GOLDEN.items():
        case = worst_inter(CLASSES, PRODUCT, share * lowest, starts=2)
        assert_feasible(case)
        means = [unit_mean(case.features[c]) for c in (0, 1)]
        assert case.value == pytest.approx(float(means[0] @ means[1]))
        deviations.append(case.value + 1 / (CLASSES - 1))
        assert deviations[-1] == pytest.approx(golden, rel=1e-4)
    assert slope(list(INTER_GOLDEN), deviations) == pytest.approx(0.5, abs=0.05)
    assert deviations[0] / math.sqrt(1e-4 * lowest) == pytest.approx(KAPPA, rel=3e-3)


@pytest.mark.parametrize(
    ("excess", "intra", "inter"), [(1e-3, 0.901424, 0.235141), (1e-4, 0.989384, 0.006444)]
)
def test_ten_classes(excess: float, intra: float, inter: float) -> None:
    """Values for C = 10 and product 5 from an independent search."""
    assert worst_intra(10, 5.0, excess, starts=1).value == pytest.approx(intra, abs=1e-6)
    assert worst_inter(10, 5.0, excess, starts=1).value == pytest.approx(inter, abs=1e-6)


def test_every_start_agrees_near_the_optimum() -> None:
    """Six starts end at one value."""
    lowest = one_class_loss(PRODUCT, CLASSES)
    for search in (worst_intra, worst_inter):
        values = search(CLASSES, PRODUCT, 0.1 * lowest).start_values
        assert len(values) == 6
        assert max(values) - min(values) < 1e-8


def test_short_samples_beat_the_squared_alignment() -> None:
    """If features are short enough, intra is below rho^2: the sharp bound needs its condition."""
    excess = 0.1 * one_class_loss(1.0, 3)
    case = worst_intra(3, 1.0, excess, per_class=8)
    assert_feasible(case)
    assert case.value < alignment_bound(3, 1.0, excess) ** 2 - 0.1
    lengths = np.linalg.norm(case.features[0], axis=1)
    assert lengths.min() < 0.1 * lengths.max()


@pytest.mark.parametrize("per_class", [2, 4])
@pytest.mark.parametrize(("classes", "product"), [(2, 2.0), (3, 1.0), (4, 3.0), (6, 5.0)])
def test_the_guarantee_survives_its_adversary(classes: int, product: float, per_class: int) -> None:
    """No worst case is below the intra-class cosine that the loss guarantees."""
    lowest = one_class_loss(product, classes)
    for share in (1e-2, 0.2, 1.0):
        case = worst_intra(classes, product, share * lowest, per_class=per_class, starts=4)
        inputs = norms_and_loss(classes, product, 1.0, lowest * (1 + share))
        assert intra_lower(inputs, alignment_lower(inputs)).value <= case.value + 1e-9


def test_two_classes_have_a_linear_inter() -> None:
    """With two classes inter + 1 is linear in the loss."""
    excesses = [1e-4, 1e-3]
    deviations = [worst_inter(2, 2.0, e, per_class=1, starts=2).value + 1 for e in excesses]
    assert slope(excesses, deviations) == pytest.approx(1.0, abs=0.05)


def test_more_loss_is_never_better() -> None:
    """The worst case is monotone in the excess and feasible, from nearly optimal to chance."""
    cases = [worst_intra(3, 2.0, e, starts=2) for e in (1e-5, 1e-3, 1e-1, 0.8)]
    values = [case.value for case in cases]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(alignment_bound(3, 2.0, 1e-5) ** 2, abs=1e-6)
    assert values[-1] < 1e-6
    for case in cases:
        assert_feasible(case)


@pytest.mark.parametrize("free", [1, 2])
def test_gradients(free: int) -> None:
    """The gradients of cosine, loss and norms agree with finite differences."""
    search = make_problem(3, 2.0, 0.1, 2, None, free)
    point = search.optimum() + 0.5 * np.random.default_rng(0).normal(size=search.size)
    for both in (search.cosine_and_gradient, search.excess_and_gradient):
        numeric = approx_fprime(point, lambda x, f=both: f(x)[0], 1e-7)
        np.testing.assert_allclose(both(point)[1], numeric, atol=1e-6)
    numeric = approx_fprime(point, search.norm_slack, 1e-7)
    np.testing.assert_allclose(search.norm_slack_gradient(point), numeric, atol=1e-6)


def test_results_are_reproducible() -> None:
    """Two calls with one seed return the same numbers."""
    first, second = (worst_intra(3, 2.0, 1e-2, starts=1, seed=7) for _ in range(2))
    assert first.value == second.value
    np.testing.assert_array_equal(first.features, second.features)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1, 3.0, 0.1), {}, "at least 2 classes"),
        ((4, 3.0, 0.1), {"dim": 2}, "dimension C - 1"),
        ((4, 0.0, 0.1), {}, "positive product"),
        ((4, 3.0, 0.0), {}, "positive excess"),
        ((4, 3.0, 1e-12), {}, "lost in rounding"),
        ((4, 3.0, 0.1), {"starts": 0}, "at least 1 start"),
    ],
)
def test_bad_problems_raise(
    arguments: tuple[int, float, float], options: dict[str, int], message: str
) -> None:
    """The error says what was expected."""
    with pytest.raises(DataError, match=message):
        worst_intra(*arguments, **options)


class SharedProblem(WorstCaseProblem):
    """A class with a share of features of norm 0 that point backwards, and two others.

    Only the two others are variables: the share costs log C and leaves its norm to them.
    """

    @property
    def share(self) -> float:
        return 1 - 2 * float(self.weights[0]) * self.num_classes

    @property
    def lowest(self) -> float:
        rest = 1 - self.share
        one = rest * g(self.product / math.sqrt(rest), self.num_classes)
        return ((self.num_classes - 1) * g(self.product, self.num_classes) + one) / self.num_classes

    def optimum(self) -> FloatArray:
        point = super().optimum().reshape(-1, self.dim).copy()
        point[self.num_classes : self.num_classes + 2] /= math.sqrt(1 - self.share)
        return point.ravel()


def worst_with_share(classes: int, product: float, excess: float, steps: int) -> float:
    """Return the smallest intra-class cosine found over shares of reversed features."""
    plain = make_problem(classes, product, excess, 2, None, 1)
    total = g(product, classes) + excess

    def problem(share: float) -> SharedProblem:
        weights = plain.weights.copy()
        weights[:2] *= 1 - share
        fields = {**vars(plain), "weights": weights}
        rest = SharedProblem(**fields)
        left = total - share * math.log(classes) / classes - rest.lowest
        return replace(rest, excess=left)

    largest = 0.5
    if problem(largest).excess < 0:
        largest = brentq(lambda share: problem(share).excess, 0.0, largest)
    least = 1.0
    for part in (*np.linspace(0, 1, steps)[:-1], 0.9999):
        case = problem(part * largest)
        start = worst_case._start(case, 0, np.random.default_rng(0))
        end = worst_case._repair(case, worst_case._descend(case, 1.0, start))
        mean = math.sqrt(case.cosine_and_gradient(end)[0])
        least = min(least, max((1 - case.share) * mean - case.share, 0.0) ** 2)
    return least


QUICK_CASES = [(3, 2.0, 1 / 3), (4, 1.0, 0.01), (10, 5.0, 0.1)]
SLOW_CASES = [
    (classes, product, relative)
    for classes in (2, 3, 4, 6, 10)
    for product in (1.0, 1.5, 2.0, 3.0, 5.0)
    for relative in (0.01, 0.1, 1 / 3)
]


@pytest.mark.parametrize(
    "cases", [QUICK_CASES, pytest.param(SLOW_CASES, marks=pytest.mark.slow)], ids=["quick", "grid"]
)
def test_intra_bound_is_close_to_the_worst_network_of_any_share(
    cases: list[tuple[int, float, float]],
) -> None:
    """docs/index.md gives this distance."""
    for classes, product, relative in cases:
        excess = relative * g(product, classes)
        inputs = norms_and_loss(classes, product, 1.0, g(product, classes) + excess)
        bound = intra_lower(inputs, alignment_lower(inputs)).value
        reached = worst_with_share(classes, product, excess, 4 if cases is QUICK_CASES else 12)
        assert bound <= reached + 1e-9
        assert bound >= reached - 0.025, (classes, product, relative, bound, reached)

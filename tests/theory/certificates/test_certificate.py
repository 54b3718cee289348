"""Certificates: reference numbers, independent checks of the proofs, and an adversary."""

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from nclab.errors import DataError
from nclab.measurement.arrays import measure_features
from nclab.metrics.cross_entropy import g
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.inter import WorstPair, mean_cosine_upper
from nclab.theory.certificates.norms_and_loss import (
    NormsAndLoss,
    excess_to_leave,
    norms_and_loss,
    score_range,
)
from nclab.theory.certificates.one_class import alignment_lower, intra_lower, sharp_holds
from nclab.theory.certificates.theorem_constants import asymptotic_constants
from nclab.theory.layer_peeled import FloatArray, g_inverse, g_prime, g_rise
from nclab.theory.statements import sample_losses, units
from nclab.theory.worst_case import worst_inter, worst_intra

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "golden" / "certificates.json").read_text())


def adversary() -> ModuleType:
    file = ROOT.parent / "benchmarks" / "certificate_adversary.py"
    spec = importlib.util.spec_from_file_location("certificate_adversary", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("row", GOLDEN["certificates"]["rows"])
def test_reference_table(row: dict[str, Any]) -> None:
    product, excess = row["product"], row["excess"]
    certificate = certify(10, product, 1.0, g(product, 10) + excess, 0.1)
    assert certificate.thesis_delta == 0.05  # that of the table; it leaves out twice as many
    assert certificate.intra_lower.value == pytest.approx(row["intra_lower"], abs=1e-4)
    assert certificate.excess_loss == pytest.approx(excess)
    if row["inter_upper"] is None:
        assert certificate.inter_upper.value is None
        assert not certificate.inter_upper.valid
    else:
        assert certificate.inter_upper.value == pytest.approx(row["inter_upper"], abs=1e-3)
    assert certificate.thesis_intra_lower.value == pytest.approx(
        row["thesis_intra_lower"], abs=1e-2
    )
    if row["thesis_inter_upper"] is not None:
        printed = row["thesis_inter_upper"]
        one_decimal = round(printed, 1) == printed  # the table prints some rows to one decimal only
        assert certificate.thesis_inter_upper.value == pytest.approx(
            printed, abs=5e-2 if one_decimal else 1e-2
        )
    assert not certificate.thesis_printed_intra_lower.valid


@pytest.mark.parametrize("num_classes", [3, 4, 10])
@pytest.mark.parametrize("product", [0.1, 1.0, 5.0])
def test_excess_at_which_scores_leave_the_range_of_the_thesis(
    num_classes: int, product: float
) -> None:
    enough = excess_to_leave(num_classes, product)
    for factor, inside in ((0.999, True), (1.001, False)):
        inputs = NormsAndLoss(num_classes, product, g(product, num_classes), factor * enough, 0.0)
        low, high = score_range(inputs)
        assert (max(-low, high) <= (num_classes - 1) * product) == inside


def test_printed_thesis_bound_fails_where_scores_leave_its_range() -> None:
    """With two classes, which the theorem excludes, every class above the average leaves the
    range."""
    loss = g(1.0, 2) + 1e-9
    assert certify(2, 1.0, 1.0, loss, pairs=False).thesis_intra_lower.valid
    printed = certify(2, 1.0, 1.0, loss, pairs=False).thesis_printed_intra_lower
    assert printed.value is not None
    assert printed.value > 0.9
    assert "leave the range" in printed.reason
    assert certify(3, 1.0, 1.0, g(1.0, 3) + 1e-9, pairs=False).thesis_printed_intra_lower.valid


@pytest.mark.parametrize("row", GOLDEN["optimal_loss"])
def test_reference_optimal_loss(row: dict[str, float]) -> None:
    assert g(float(row["product"]), 10) == pytest.approx(row["value"], abs=1e-6)


@pytest.mark.parametrize("row", GOLDEN["asymptotic"])
def test_reference_asymptotic_constants(row: dict[str, float]) -> None:
    constants = asymptotic_constants(int(row["num_classes"]), row["product"])
    for name in ("kappa", "mu_standard", "mu_pairs"):
        assert getattr(constants, name) == pytest.approx(row[name], rel=1e-5)


def one_class(
    classes: int, product: float, shares: FloatArray, sigma: FloatArray, r: FloatArray
) -> tuple[float, float]:
    """Return excess loss and intra-class cosine of an ETF with one class of several kinds of
    features: shares, norms (scaled to mean square `product`^2) and cosines with the row."""
    sigma = sigma * product / math.sqrt(float(shares @ sigma**2))
    rise = g_rise(sigma * r - product, classes, product)
    return float(shares @ rise) / classes, float(shares @ r) ** 2


@pytest.mark.parametrize(
    ("classes", "product", "turned", "rare"),
    [(4, 1.0, 13.587, 31.419), (10, 2.5, 20.067, 29.416), (10, 5.0, 107.068, 18.390)],
)
def test_asymptotic_intra_counts_rare_reversed_samples(
    classes: int, product: float, turned: float, rare: float
) -> None:
    """One of 1,000 samples with norm near 0 that points backwards may be worse than turned ones."""
    constant = asymptotic_constants(classes, product).intra
    assert constant == pytest.approx(max(turned, rare), rel=1e-3)
    one, tiny = np.ones(1), np.array([1.0, 1e-9])
    excess, intra = one_class(classes, product, one, one, np.array([1 - 1e-6]))
    assert (1 - intra) / excess == pytest.approx(turned, rel=1e-3)
    for share in (1e-3, 1e-5):
        shares = np.array([1 - share, share])
        excess, intra = one_class(classes, product, shares, tiny, np.array([1.0, -1.0]))
        assert (1 - intra) / excess == pytest.approx(rare, rel=5 * share + 1e-3)


@pytest.mark.parametrize("relative", [1e-8, 1e-4])
@pytest.mark.parametrize(
    ("classes", "product"), [(3, 0.3), (4, 1.0), (4, 2.0), (10, 2.5), (10, 5.0)]
)
def test_the_exact_form_follows_the_asymptotic_constant(
    classes: int, product: float, relative: float
) -> None:
    inputs = norms_and_loss(classes, product, 1.0, g(product, classes) * (1 + relative))
    gap = 1 - intra_lower(inputs, alignment_lower(inputs)).value
    constant = asymptotic_constants(classes, product).intra
    assert gap / (inputs.excess * constant) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("classes", "product", "close"), [(4, 1.0, 0.01), (10, 2.5, 0.01)])
def test_one_reversed_sample_of_a_thousand_nearly_reaches_the_bound(
    classes: int, product: float, close: float
) -> None:
    samples = 1000
    W = math.sqrt(product * classes / (classes - 1)) * (np.eye(classes) - 1 / classes)
    H = np.repeat(W[:, None], samples, axis=1)
    H[0] *= math.sqrt(samples / (samples - 1))
    H[0, 0] *= -1e-9
    loss = float(sample_losses(W, H).mean())
    root = math.sqrt(product)
    bound = certify(classes, root, root, loss, pairs=False).intra_lower.value
    assert bound is not None
    intra = float(np.linalg.norm(units(H)[0].mean(0))) ** 2
    assert bound <= intra
    assert 1 - intra == pytest.approx(1 - bound, rel=close)


def test_no_rare_features_exceed_the_asymptotic_constant() -> None:
    rng = np.random.default_rng(0)
    closest = math.inf
    for _ in range(4000):
        classes, product = int(rng.integers(2, 20)), math.exp(rng.uniform(-2, 2.5))
        kinds = int(rng.integers(1, 4))
        few = 10 ** rng.uniform(-7, -5, size=kinds)
        shares = np.append(few, 1 - few.sum())
        r = np.append(rng.choice([-1.0, 0.0, 0.5, *rng.uniform(-1, 1, 3)], size=kinds), 1.0)
        r[-1] -= rng.choice([0.0, 10 ** rng.uniform(-8, -5)])
        sigma = np.append(10 ** rng.uniform(-6, 0.3, size=kinds), 1.0)
        excess, intra = one_class(classes, product, shares, sigma, r)
        constant = asymptotic_constants(classes, product).intra
        slack = 1 - (1 - intra) / (excess * constant)
        closest = min(closest, slack)
    assert -1e-4 < closest < 0.01


@pytest.mark.parametrize("row", GOLDEN["true_worst_case"]["intra"])
def test_intra_is_close_to_the_true_worst_case(row: dict[str, float]) -> None:
    best = g(3.0, 4)
    certificate = certify(4, 3.0, 1.0, best * (1 + row["relative_excess"]))
    assert certificate.intra_lower.value is not None
    gap = 1 - certificate.intra_lower.value
    assert row["gap"] * (1 - 1e-4) <= gap <= row["gap"] * 1.01


def test_slopes_of_the_envelope() -> None:
    best = g(3.0, 4)
    small, large = (certify(4, 3.0, 1.0, best * (1 + r)) for r in (1e-4, 1e-3))
    assert small.intra_lower.value is not None
    assert large.intra_lower.value is not None
    assert small.inter_proof is not None
    assert large.inter_proof is not None
    intra = math.log10((1 - large.intra_lower.value) / (1 - small.intra_lower.value))
    inter = math.log10((large.inter_proof.cosine + 1 / 3) / (small.inter_proof.cosine + 1 / 3))
    assert intra == pytest.approx(1.0, abs=0.05)
    assert inter == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("num_classes", "product"), [(3, 2.0), (10, 5.0), (100, 10.0)])
def test_inter_follows_kappa(num_classes: int, product: float) -> None:
    best = g(product, num_classes)
    excess = 1e-8 * best
    proof = mean_cosine_upper(norms_and_loss(num_classes, product, 1.0, best + excess))
    assert proof is not None
    kappa = asymptotic_constants(num_classes, product).kappa
    assert kappa is not None
    moved = proof.cosine + 1 / (num_classes - 1)
    assert moved == pytest.approx(kappa * math.sqrt(excess), rel=1e-2)


def test_proof_holds_in_the_full_space() -> None:
    """The dual matrix, rebuilt without symmetry, is semidefinite and gives the same bound."""
    classes, product = 6, 4.0
    inputs = norms_and_loss(classes, product, 1.0, g(product, classes) * 1.001)
    proof = mean_cosine_upper(inputs)
    assert proof is not None
    z11, z12, zr1, z1r, zrr, zrq = proof.logits
    z = np.full((classes, classes), zrq)
    np.fill_diagonal(z, zrr)
    z[:2, 2:], z[2:, :2] = z1r, zr1
    z[:2, :2] = [[z11, z12], [z12, z11]]
    exps = np.exp(z - z.max(0))
    gradient = (exps / exps.sum(0) - np.eye(classes)) / classes
    loss = float(np.mean(np.log(exps.sum(0)) + z.max(0) - np.diag(z)))
    pull = np.zeros((classes, classes))
    pull[:2, :2] = [[-proof.cosine / 2, 0.5], [0.5, -proof.cosine / 2]]
    identity = np.eye(classes)
    matrix = np.block(
        [
            [proof.mu_weights * identity, gradient / 2],
            [gradient.T / 2, proof.mu_features * identity - proof.xi * pull],
        ]
    )
    assert np.linalg.eigvalsh(matrix)[0] > -1e-15
    total = (proof.mu_weights + proof.mu_features) * classes * product
    bound = loss - float((gradient * z).sum()) - total
    assert bound == pytest.approx(proof.loss_lower, rel=1e-9)
    assert proof.loss_lower >= inputs.loss


def test_dual_check_agrees_with_a_fine_grid() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        classes, p, r = int(rng.integers(2, 13)), rng.uniform(0.1, 12), rng.uniform(0.1, 1)
        y = p * r
        slope = -g_prime(y, classes)
        mu, nu = r * slope / (2 * p), p * slope
        u = np.logspace(-8, math.log10(20 * p + 50), 4000)
        cosines = np.sqrt(2 * u * mu / -g_prime(u, classes))
        values = g(u, classes) - u * g_prime(u, classes) / 2 + nu * cosines
        level = g(y, classes) + mu * p**2 + nu * r
        passes = (
            values[cosines <= 1].min() >= level * (1 - 1e-6) and math.log(classes) - nu >= level
        )
        assert sharp_holds(classes, r, y, y) == passes


def test_no_distribution_of_features_is_below_the_exact_form() -> None:
    """A linear program over distributions of (norm, cosine) on a grid: no proof is shared."""
    rng = np.random.default_rng(1)
    r, distances = np.linspace(-1, 1, 61), []
    for _ in range(40):
        classes, p = int(rng.integers(2, 20)), math.exp(rng.uniform(-1.5, 2.5))
        mean_r = float(rng.uniform(0.05, 0.98))
        sigma = np.concatenate([[0.0], p * np.geomspace(0.02, 8, 60)])
        grid_s, grid_r = (axis.ravel() for axis in np.meshgrid(sigma, r))
        losses = g(grid_s * grid_r, classes)
        constraints = np.stack([np.ones_like(grid_s), grid_r, (grid_s / p) ** 2])
        program = linprog(losses, A_eq=constraints, b_eq=[1.0, mean_r, 1.0], method="highs")
        theta = np.linspace(0, (1 - mean_r) / 2, 20001)
        rest = (1 - theta) * g(p * (mean_r + theta) / (1 - theta) ** 1.5, classes)
        least = float((theta * math.log(classes) + rest).min())
        assert program.fun >= least * (1 - 1e-6)
        distances.append(program.fun / least - 1)
    assert np.median(distances) < 0.02


@pytest.mark.parametrize("cases", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_no_mixture_on_a_grid_is_below_the_bound(cases: int) -> None:
    """Shares and norm products on a grid attain a mean cosine; the bound is below, but close."""
    rng = np.random.default_rng(4)
    compared = 0
    while compared < cases:
        classes, product = int(rng.integers(2, 30)), math.exp(rng.uniform(-2, 2))
        inputs = norms_and_loss(
            classes, product, 1.0, g(product, classes) * (1 + 10 ** rng.uniform(-6, 0.3))
        )
        rho = alignment_lower(inputs)
        bound = intra_lower(inputs, rho)
        if rho <= 0 or bound.sharp:
            continue
        compared += 1
        low, high = score_range(inputs)
        p = np.linspace(max(low, 1e-9), min(high / rho, classes * product), 900)
        theta = np.linspace(0, 1 - rho**2, 600)[:, None]
        others = (classes - 1) * g_rise(-(p - product) / (classes - 1), classes, product)
        loss = inputs.optimal_loss + classes * inputs.excess - others - theta * math.log(classes)
        score = g_inverse(np.maximum(loss, 0.0) / (1 - theta), classes)
        cosine = (1 - theta) ** 1.5 * score / p - theta
        least = float(np.where((loss > 0) & (cosine <= 1 - 2 * theta), cosine, np.inf).min())
        assert bound.value <= max(least, 0.0) ** 2 + 1e-12
        close = 1e-2 * (1 - rho**2) + 1e-9
        assert math.sqrt(bound.value) >= max(least - close, 0.0)


def test_sharp_bound_is_not_claimed_if_its_check_fails() -> None:
    inputs = norms_and_loss(4, 3.0, 1.0, g(3.0, 4) * 1.3)
    rho = alignment_lower(inputs)
    bound = intra_lower(inputs, rho)
    assert not bound.sharp
    assert (2 * rho**2 - 1) ** 2 < bound.value < rho**2


def test_zero_features_pointing_backwards_reach_the_mixture_bound() -> None:
    """The worst spread of a class has some reversed features of norm zero."""
    classes, product, loss = 10, 5.0, 0.5
    certificate = certify(
        classes,
        product,
        1.0,
        loss,
        class_losses=[loss] * classes,
        class_alphas=[product] * classes,
        class_betas=[1.0] * classes,
    )
    assert certificate.class_intra_lower is not None
    least = math.inf
    for theta in np.linspace(0, 0.5, 2001)[:-1]:
        score = (loss - theta * math.log(classes)) / (1 - theta)
        if score <= 0:
            break
        cosine = g_inverse(score, classes) * math.sqrt(1 - theta) / product
        if cosine <= 1:
            least = min(least, (1 - theta) * cosine - theta)
    assert certificate.class_intra_lower[0] <= least**2 + 1e-12
    assert certificate.class_intra_lower[0] == pytest.approx(least**2, abs=1e-2)


@pytest.mark.parametrize("networks", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_adversary_finds_no_violation(networks: int) -> None:
    slacks = adversary().run(networks, seed=1)
    assert slacks.networks >= networks
    assert not slacks.violations
    assert set(slacks.checks) >= {
        "alignment_lower",
        "intra_lower",
        "inter_upper",
        "mean_cosine",
        "class_intra_lower",
        "deviation_upper",
        "thesis_intra_lower",
    }


@pytest.mark.parametrize("networks", [15, pytest.param(400, marks=pytest.mark.slow)])
def test_rare_samples_that_point_the_wrong_way_violate_no_bound(networks: int) -> None:
    """A few of up to 1,000 samples of a class are short, reversed or along another class."""
    rng, attacks = np.random.default_rng(7), adversary()
    slacks = attacks.Slacks()
    for _ in range(networks):
        C, N = int(rng.integers(2, 9)), int(rng.choice([50, 200, 1000]))
        rows = (np.eye(C) - 1 / C) * math.sqrt(C / (C - 1))
        size = 10 ** rng.uniform(-7, -1)
        W = rows + size * rng.normal(size=(C, C))
        H = np.repeat(rows[:, None], N, axis=1) + size * rng.normal(size=(C, N, C))
        for _ in range(int(rng.integers(1, 5))):
            c, other = rng.integers(C, size=2)
            direction = -rows[c] if rng.random() < 0.5 else rows[other]
            H[c, int(rng.integers(N))] = direction * 10 ** rng.uniform(-8, 0.3)
        bias = np.zeros(C)
        if rng.random() < 0.3:
            bias = 10 ** rng.uniform(-6, -1) * rng.normal(size=C)
        product = math.exp(rng.uniform(-0.7, 2.3))
        attacks.attack(attacks._scaled(W, H, bias, product, rng), rng, slacks)
    assert not slacks.violations
    assert slacks.checks["class_intra_lower"] == networks


@pytest.mark.parametrize(
    ("num_classes", "product", "relative", "per_class"),
    [(4, 3.0, 0.01, 2), (4, 3.0, 0.3, 4), (4, 3.0, 2.0, 8), (3, 2.0, 0.5, 6)],
)
def test_worst_case_search_respects_intra(
    num_classes: int, product: float, relative: float, per_class: int
) -> None:
    best = g(product, num_classes)
    case = worst_intra(num_classes, product, relative * best, per_class=per_class)
    certificate = certify(num_classes, product, 1.0, best * (1 + relative))
    assert case.feasible
    assert certificate.intra_lower.value is not None
    assert certificate.intra_lower.value <= case.value
    if num_classes == 4:
        gap, true_gap = 1 - certificate.intra_lower.value, 1 - case.value
        assert gap == pytest.approx(true_gap, rel=0.01)


@pytest.mark.parametrize("relative", [1e-3, 1e-2])
def test_worst_case_search_reaches_the_cosine_of_means(relative: float) -> None:
    best = g(3.0, 4)
    case = worst_inter(4, 3.0, relative * best, starts=3)
    certificate = certify(4, 3.0, 1.0, best * (1 + relative))
    assert certificate.inter_proof is not None
    assert certificate.inter_upper.value is not None
    assert case.value <= certificate.inter_upper.value
    assert certificate.inter_proof.cosine == pytest.approx(case.value, abs=1e-4)


def test_simplex_etf_is_certified_as_collapsed() -> None:
    certificate = certify(10, 2.0, 2.5, g(5.0, 10))
    assert certificate.intra_lower.value == pytest.approx(1.0, abs=1e-9)
    assert certificate.deviation_upper.value == pytest.approx(0.0, abs=1e-9)
    assert certificate.inter_upper.value == pytest.approx(-1 / 9, abs=1e-4)


def test_losses_of_1e_300() -> None:
    certificate = certify(10, 30.0, 20.8, 1.5e-300)
    assert certificate.alignment_lower.valid
    assert certificate.intra_lower.value is not None
    assert 0.9 < certificate.intra_lower.value < 1
    certificate.to_dict()
    certify(10, 100.0, 70.0, 1e-300).to_dict()


def test_fraction_is_at_least_as_good_as_all() -> None:
    certificate = certify(10, 2.0, 2.5, 0.06, 0.3)
    assert certificate.fraction == pytest.approx(0.7)
    assert certificate.fraction_alignment_lower.value is not None
    assert certificate.alignment_lower.value is not None
    assert certificate.fraction_alignment_lower.value > certificate.alignment_lower.value


def test_high_loss_guarantees_nothing_and_gives_the_reason() -> None:
    for loss in (1.5, math.log(10), 5.0):
        certificate = certify(10, 2.0, 2.5, loss)
        assert not certificate.alignment_lower.valid
        assert not certificate.intra_lower.valid
        assert certificate.inter_upper.value is None
        assert certificate.intra_lower.reason


def test_bias_weakens_the_bounds_but_not_the_deviation() -> None:
    plain, biased = (certify(10, 2.0, 2.5, 0.0342017 + 1e-5, bias_norm=b) for b in (0.0, 0.05))
    assert plain.deviation_upper.value == biased.deviation_upper.value
    for name in ("alignment_lower", "intra_lower"):
        assert 0.99 < getattr(biased, name).value < getattr(plain, name).value
    assert plain.inter_upper.value is not None
    assert biased.inter_upper.value is not None
    assert plain.inter_upper.value < biased.inter_upper.value < 0


def test_large_bias_can_lose_a_class() -> None:
    assert not certify(10, 2.0, 2.5, 0.035, bias_norm=10.0).alignment_lower.valid


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1.0, 1.0, 0.5), "classes"),
        ((10, -1.0, 1.0, 0.5), "alpha"),
        ((10, 1.0, 0.0, 0.5), "beta"),
        ((10, 1.0, 1.0, math.nan), "loss"),
        ((10, 1.0, 1.0, math.inf), "loss"),
        ((10, 2.0, 2.5, 0.03), "contradicts the norms"),
        ((10, 2.0, 2.5, 0.04, 1.0), "delta"),
        ((10, 2.0, 2.5, 0.04, 0.0), "delta"),
    ],
)
def test_bad_inputs_raise(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        certify(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"class_losses": [0.04] * 10}, "missing"),
        ({"class_losses": [0.04] * 9}, "missing"),
        (
            {"class_losses": [0.04] * 9, "class_alphas": [2.0] * 10, "class_betas": [2.5] * 10},
            "shape",
        ),
        (
            {"class_losses": [0.05] * 10, "class_alphas": [2.0] * 10, "class_betas": [2.5] * 10},
            "average",
        ),
        (
            {"class_losses": [0.04] * 10, "class_alphas": [2.0] * 10, "class_betas": [2.0] * 10},
            "class 0",
        ),
        (
            {"class_losses": [0.04] * 10, "class_alphas": [2.0] * 10, "class_betas": [3.0] * 10},
            "centred classifier rows",
        ),
    ],
)
def test_bad_class_arrays_raise(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        certify(10, 2.0, 2.5, 0.04, **arrays)
    assert "\n" not in str(caught.value)


def test_measurement_gets_a_bound_for_every_class() -> None:
    rng = np.random.default_rng(0)
    weight = 3 * (np.eye(5) - 0.2)
    labels = np.repeat(np.arange(5), 20)
    features = 2 * weight[labels] / 3 + 0.05 * rng.normal(size=(100, 5))
    collapse = measure_features(features, labels, weight=weight)
    certificate = collapse.certificate(0.2)
    assert certificate.class_intra_lower is not None
    assert (certificate.class_intra_lower <= collapse.intra_cosine.numpy()).all()
    assert certificate.class_intra_lower.mean() > 0.5
    assert collapse.max_inter is not None
    with pytest.raises(DataError, match="no classifier"):
        measure_features(features, labels).certificate()


def test_trained_network_with_batch_norm_has_a_guarantee() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 16)
    y = x[:, :4].argmax(1)
    body = torch.nn.Sequential(
        torch.nn.Linear(16, 192),
        torch.nn.BatchNorm1d(192),
        torch.nn.ReLU(),
        torch.nn.Linear(192, 192),
        torch.nn.BatchNorm1d(192),
        torch.nn.ReLU(),
        torch.nn.Linear(192, 32),
        torch.nn.BatchNorm1d(32),
    )
    head = torch.nn.Linear(32, 4, bias=False)
    parameters = [*body.parameters(), *head.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 400)
    for _ in range(400):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(head(body(x)), y).backward()
        optimiser.step()
        schedule.step()
    collapse = measure_features(body(x).detach(), y, weight=head.weight.detach())
    certificate = collapse.certificate()
    assert collapse.accuracy == 1
    assert certificate.class_intra_lower is not None
    assert (certificate.class_intra_lower <= collapse.intra_cosine.numpy()).all()
    assert certificate.class_intra_lower.mean() >= 0.5
    assert not certificate.thesis_intra_lower.valid


def test_score_range_brackets_the_product() -> None:
    low, high = score_range(norms_and_loss(10, 2.0, 2.5, 0.04))
    assert low < 5 < high


def test_sectors_describe_the_simplex() -> None:
    sectors = WorstPair(7, 3.0)
    assert sectors.cosine(sectors.etf) == pytest.approx(-1 / 6)
    assert sectors.loss_at(sectors.etf)[0] == pytest.approx(g(3.0, 7), rel=1e-12)
    rng = np.random.default_rng(0)
    x = sectors.etf + 0.1 * rng.normal(size=24)
    _, gradient = sectors.loss_at(x)
    move = rng.normal(size=24)
    numeric = sectors.loss_at(x + 1e-6 * move)[0] - sectors.loss_at(x - 1e-6 * move)[0]
    assert gradient @ move == pytest.approx(numeric / 2e-6, rel=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        (float("nan"), 2.0, 2.0, 0.1),
        (float("inf"), 2.0, 2.0, 0.1),
        ("10", 2.0, 2.0, 0.1),
        (None, 2.0, 2.0, 0.1),
        (10, "a", 2.0, 0.1),
        (10, [1.0, 2.0], 2.0, 0.1),
        (10, 1e-100, 1e-100, 2.302585092994046),
        (10, 2.0, 2.0, 0.1, "x"),
    ],
)
def test_inputs_of_wrong_type_raise(arguments: Any) -> None:
    with pytest.raises(DataError) as caught:
        certify(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("relative", [1e-3, 0.5, 500.0])
def test_pairs_option_changes_only_the_bound_on_pairs(relative: float) -> None:
    loss = g(5.0, 10) * (1 + relative)
    arrays: Any = {
        "class_losses": [loss] * 10,
        "class_alphas": [2.0] * 10,
        "class_betas": [2.5] * 10,
    }
    with_pairs = certify(10, 2.0, 2.5, loss, 0.2, **arrays).to_dict()
    part = certify(10, 2.0, 2.5, loss, 0.2, pairs=False, **arrays).to_dict()
    assert part["inter_upper"] is None
    assert part["fraction_inter_upper"] is None
    for found in (with_pairs, part):
        for name in ("inter_upper", "fraction_inter_upper"):
            del found[name], found["bounds"][name]
    assert part == with_pairs


def test_a_misspelt_option_raises() -> None:
    with pytest.raises(TypeError, match="pair"):
        certify(10, 2.0, 2.5, 0.05, pair=False)  # type: ignore[call-arg]


def test_inputs_may_be_tensors() -> None:
    plain = certify(10, 2.2, 2.3, 0.035)
    inputs = [torch.tensor(value, dtype=torch.float64) for value in (2.2, 2.3, 0.035)]
    assert certify(10, *inputs).to_dict() == plain.to_dict()  # type: ignore[arg-type]
    assert str(certify(10, *inputs)) == str(plain)  # type: ignore[arg-type]

"""Every lemma of the thesis on at least 10,000 data sets, adversarial ones among them."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from nclab.errors import DataError
from nclab.metrics import simplex_etf
from nclab.theory.batch_norm import batch_norm_mean_square, batch_norm_rms_printed
from nclab.theory.both_sides import BoolArray, BothSides
from nclab.theory.jensen import (
    exp_excess,
    exponential_subset_envelope,
    exponential_subset_mean,
    jensen_subset_mean,
    jensen_variance,
    jensen_weighted,
)
from nclab.theory.layer_peeled import FloatArray
from nclab.theory.loss_steps import (
    argument_range,
    argument_range_printed,
    class_loss_bound,
    log_sum_step,
    log_sum_step_printed,
    loss_strong_convexity,
    minimal_loss,
    sample_losses,
    tangent_step,
)
from nclab.theory.unit_mean_shift import (
    opposed_cosine,
    opposed_cosine_counterexample,
    opposed_cosine_printed,
    opposed_inner,
    opposed_inner_linear,
    unit_mean_shift,
    unit_mean_shift_linear,
)
from nclab.theory.unit_means import (
    cosine_identity,
    pairing,
    ratio_sum,
    ratio_sum_counterexample,
    ratio_sum_printed,
    unit_mean_norm,
    unit_mean_norm_from_mean,
)

DRAWS = 10_000
SIZES = (2, 3, 5, 12)


def assert_true(batches: list[BothSides], *, at_least: int = DRAWS) -> None:
    """No violation, and enough data sets that meet the hypotheses.

    Counted are only those whose tolerance for rounding is below a millionth of the two sides.
    """
    assert all(both.always for both in batches), min(
        float(np.where(both.applies, both.slack, np.inf).min()) for both in batches
    )
    telling = [
        both.applies & (both.tolerance <= 1e-6 * (np.abs(both.left) + np.abs(both.right)))
        for both in batches
    ]
    assert sum(int(np.asarray(these).sum()) for these in telling) >= at_least


def numbers(rng: np.random.Generator, size: int) -> tuple[FloatArray, BoolArray]:
    """Numbers of many scales with subsets: random, the largest ones, and two-valued data."""
    count = DRAWS
    x = rng.normal(size=(count, size)) * 10 ** rng.uniform(-6, 1, size=(count, 1))
    x += rng.normal(size=(count, 1)) * 3
    chosen = rng.random((count, size)) < rng.uniform(0.1, 0.9, size=(count, 1))
    chosen[np.arange(count), rng.integers(size, size=count)] = True
    third = count // 3
    chosen[:third] = x[:third] >= np.median(x[:third], axis=1, keepdims=True)
    # One value inside the subset, another outside: the data that make the lemmas tight.
    x[-third:] = np.where(chosen[-third:], x[-third:, :1], x[-third:, 1:2])
    return x, chosen


def softplus(classes: int) -> Callable[[FloatArray], FloatArray]:
    """The function of the thesis's proof."""
    return lambda x: np.logaddexp(0.0, math.log(classes - 1) + x)


@pytest.mark.parametrize("classes", [2, 10])
def test_subset_means_of_the_loss(classes: int) -> None:
    """Lemma 2.4.1 and Corollary 2.4.1 with the loss itself, and lambda from the data's range."""
    rng = np.random.default_rng(0)
    means, variances = [], []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        convexity = loss_strong_convexity(classes, x.min(1), x.max(1))
        means.append(jensen_subset_mean(x, chosen, softplus(classes), convexity))
        variances.append(jensen_variance(x, softplus(classes), convexity))
    assert_true(means)
    assert_true(variances)


def test_subset_means_of_a_parabola() -> None:
    """Lemma 2.4.1 is tight: two-valued data reach it."""
    rng = np.random.default_rng(1)
    batches, ratios = [], []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        both = jensen_subset_mean(x, chosen, np.square, 2.0)
        batches.append(both)
        ratios.append((both.left / np.maximum(both.right, 1e-3)).max())
    assert_true(batches)
    assert max(ratios) == pytest.approx(1.0, abs=1e-6)


def test_weighted_jensen() -> None:
    """Lemma 2.4.2, for a parabola with equality and for a function above it."""
    rng = np.random.default_rng(2)
    batches = []
    for size in SIZES:
        x, _ = numbers(rng, size)
        shares = rng.dirichlet(np.full(size, 0.5), size=len(x))
        equal = jensen_weighted(x, shares, np.square, 1.0)
        assert (np.abs(equal.slack) <= equal.tolerance).all()
        batches += [equal, jensen_weighted(x, shares, lambda t: np.square(t) + t**4, 1.0)]
    assert_true(batches)
    with pytest.raises(DataError, match="sum to 1"):
        jensen_weighted([0.0, 1.0], [0.5, 0.6], np.square, 1.0)


def test_subset_means_of_the_exponential() -> None:
    """Lemma 2.4.3 and its exact envelope, which two-valued data reach."""
    rng = np.random.default_rng(3)
    bounds, envelopes = [], []
    for size in SIZES:
        x, chosen = numbers(rng, size)
        bound, envelope = exponential_subset_mean(x, chosen), exponential_subset_envelope(x, chosen)
        inside = envelope.applies
        assert (envelope.right <= bound.right + bound.tolerance)[inside].all()
        bounds.append(bound)
        envelopes.append(envelope)
    assert_true(bounds)
    assert_true(envelopes)
    tight = exponential_subset_envelope(
        [[0.0, 0.0, 5.0], [-2.0, -2.0, 1.0]], [[0, 0, 1], [0, 0, 1]]
    )
    assert np.abs(tight.slack).max() < 1e-12


def test_printed_bound_of_the_exponential_is_approached_by_rare_subsets() -> None:
    """The ratio of Lemma 2.4.3 tends to 1 as the subset's share goes to 0, 1/sqrt 2 at a half."""
    ratios = []
    for size in (2, 100_000):
        x = np.zeros(size)
        x[0] = 1e-3
        both = exponential_subset_mean(x, x > 0)
        ratios.append(float((both.left - x.mean()) / (both.right - x.mean())))
    assert ratios == pytest.approx([math.sqrt(0.5), 1.0], abs=1e-3)


def test_exponential_excess_is_accurate() -> None:
    """Against the exactly rounded sum of the series."""
    x = np.array([1e-12, 1e-4, 0.029, 0.031, 1.0, -0.029, -3.0])
    exact = [math.fsum(t**k / math.factorial(k) for k in range(2, 40)) for t in x.tolist()]
    np.testing.assert_allclose(exp_excess(x), exact, rtol=2e-14)


def features_and_vectors(rng: np.random.Generator, size: int) -> tuple[FloatArray, FloatArray]:
    """Features from one cloud to none, norms over decades, some reversed, some nearly zero."""
    count, dim = DRAWS, 4
    centre = rng.normal(size=(count, 1, dim))
    h = centre + rng.normal(size=(count, size, dim)) * 10 ** rng.uniform(-4, 0.5, (count, 1, 1))
    h *= 10 ** (rng.uniform(-3, 0.5, (count, 1, 1)) * rng.normal(size=(count, size, 1)))
    third = count // 3
    # The tight data of Lemma 2.4.5: most along one direction, the rest tiny and against it.
    signs = np.where(rng.random((third, size, 1)) < 0.3, -(10 ** rng.uniform(-9, -1)), 1.0)
    h[:third] = centre[:third] * signs
    w = rng.normal(size=(count, dim))
    w[:third] = centre[:third, 0] * rng.uniform(0.5, 2, (third, 1))
    toward_mean = slice(third, 2 * third)
    w[toward_mean] = h[toward_mean].mean(1) + 0.1 * rng.normal(size=(third, dim))
    return h, w


def test_cosines_are_inner_products_of_unit_means() -> None:
    """Lemma 2.4.4, within and between classes."""
    rng = np.random.default_rng(4)
    batches = []
    for size in SIZES:
        h, _ = features_and_vectors(rng, size)
        batches += [cosine_identity(h, h), cosine_identity(h, np.roll(h, 1, axis=0))]
    assert_true(batches)


def test_long_unit_means() -> None:
    """Lemma 2.4.5 and Corollary 2.4.2; the adversary reaches equality."""
    rng = np.random.default_rng(5)
    along, own = [], []
    for size in SIZES:
        h, w = features_and_vectors(rng, size)
        along.append(unit_mean_norm(w, h))
        own.append(unit_mean_norm_from_mean(h))
    assert_true(along)
    assert_true(own)
    smallest = min(float(both.slack[np.asarray(both.applies)].min()) for both in along)
    assert smallest == pytest.approx(0.0, abs=1e-8)


def test_many_random_draws_meet_the_hypothesis_of_lemma_2_4_5() -> None:
    """Clouds around u, so that every one of 10,000 draws counts."""
    rng = np.random.default_rng(6)
    u = rng.normal(size=(DRAWS, 3))
    h = u[:, None] * rng.lognormal(0, 0.3, (DRAWS, 6, 1)) + 0.2 * rng.normal(size=(DRAWS, 6, 3))
    both = unit_mean_norm(u, h)
    assert both.tested > 0.9 * DRAWS
    assert both.always


def test_inner_proposition_of_lemma_2_4_5() -> None:
    """False as printed; the repaired one holds and is reached."""
    assert not ratio_sum_counterexample().always
    rng = np.random.default_rng(7)
    b = 10 ** rng.uniform(-6, 1, (DRAWS, 5))
    r = rng.beta(0.3, 0.3, (DRAWS, 5))
    a = r * b
    a[: DRAWS // 2] = np.where(r[: DRAWS // 2] > 0.5, b[: DRAWS // 2], 0.0)
    printed, repaired = ratio_sum_printed(a, b), ratio_sum(a, b, np.ones(DRAWS))
    assert not printed.always
    assert_true([repaired])
    outside = ratio_sum(3 * b, b, np.ones(DRAWS))
    assert outside.tested == 0


def test_lemma_2_4_6() -> None:
    """False as printed; repaired for inner product and cosine, and with a linear error."""
    counterexample = opposed_cosine_counterexample()
    assert counterexample.tested == 1
    assert not counterexample.always
    rng = np.random.default_rng(8)
    printed, repaired, cosine, linear = [], [], [], []
    for size in SIZES:
        h, w = features_and_vectors(rng, size)
        w *= -np.sign((w * h.mean(1)).sum(1, keepdims=True))
        printed.append(opposed_cosine_printed(w, h, 1e-9))
        repaired.append(opposed_inner(w, h))
        cosine.append(opposed_cosine(w, h))
        linear.append(opposed_inner_linear(w, h))
        data = pairing(w, h)
        stronger = 2 * (1 - data.ratio**2) <= 4 * np.cbrt(np.maximum(1 - data.ratio, 0)) + 1e-12
        assert stronger.all()
    assert not all(both.always for both in printed)
    assert_true(repaired)
    assert_true(cosine)
    assert_true(linear)


def test_cosine_form_where_its_bound_is_positive_and_small() -> None:
    """w nearly orthogonal to tight clouds: here dividing by the norm of the unit mean matters."""
    rng = np.random.default_rng(9)
    h = np.array([1.0, 0.0, 0.0]) + 10 ** rng.uniform(-5, -0.3, (DRAWS, 1, 1)) * rng.normal(
        size=(DRAWS, 4, 3)
    )
    mean = h.mean(1)
    w = rng.normal(size=(DRAWS, 3))
    w -= mean * ((w * mean).sum(1) / (mean**2).sum(1) + rng.uniform(0, 0.1, DRAWS))[:, None]
    assert_true([opposed_cosine(w, h)], at_least=9000)
    assert_true([opposed_inner(w, h)], at_least=9000)
    assert_true([opposed_inner_linear(w, h)], at_least=9000)


def test_unit_mean_shift() -> None:
    """The linear lemma behind 2.4.6; two features of different norms reach its first form."""
    rng = np.random.default_rng(10)
    general, linear = [], []
    for size in SIZES:
        h, _ = features_and_vectors(rng, size)
        general.append(unit_mean_shift(h))
        linear.append(unit_mean_shift_linear(h))
    assert_true(general)
    assert_true(linear)
    pair = unit_mean_shift(rng.normal(size=(50, 2, 3)))
    assert np.abs(pair.slack).max() < 1e-12


def weights_and_features(
    rng: np.random.Generator, classes: int, count: int
) -> tuple[FloatArray, FloatArray]:
    """From an exact simplex ETF to noise, with N = 3; some give all their norm to one class."""
    dim = classes + 1
    etf = simplex_etf(classes, dim).numpy()
    noise = np.where(np.arange(count) % 10 == 0, 0.0, 10 ** rng.uniform(-6, 1, count))
    size = 10 ** rng.uniform(-1, 1.2, (count, 1, 1))
    w = size * (etf + noise[:, None, None] * rng.normal(size=(count, classes, dim)))
    h = etf[:, None] + noise[:, None, None, None] * rng.normal(size=(count, classes, 3, dim))
    w[5::10, 1:], h[5::10, 1:] = -w[5::10, :1] / (classes - 1), 0.0
    h[5::10, 0] = w[5::10, :1]
    return w, h


def test_no_loss_is_below_m() -> None:
    """Minimality of m for C = 2 to 7, the bound of every class, and the range of its argument."""
    rng = np.random.default_rng(11)
    losses, classwise, ranges, printed = [], [], [], []
    for classes in range(2, 8):
        w, h = weights_and_features(rng, classes, 1700)
        losses.append(minimal_loss(w, h))
        classwise.append(class_loss_bound(w, h))
        ranges.append(argument_range(w, h))
        printed.append(argument_range_printed(w, h))
        at_etf = losses[-1].slack[::10]
        assert (np.abs(at_etf) <= np.asarray(losses[-1].tolerance)[::10]).all()
        # One class that takes all: equality in the repaired range, and out of the printed one.
        reached = ranges[-1].slack[5::10, 0] / ranges[-1].right[5::10, 0]
        assert np.abs(reached).max() < 1e-12
        assert not printed[-1].holds[5::10, 0].any()
    assert_true(losses)
    assert_true(classwise)
    assert_true(ranges)


def test_losses_below_rounding() -> None:
    """A loss of exp(-600) is not zero, and the bound by m is still tight."""
    etf = simplex_etf(3, 2).numpy()
    both = minimal_loss(20 * etf, 20 * etf[:, None])
    assert 0 < float(both.left) < 1e-250
    assert both.always
    assert float(both.left) == pytest.approx(float(both.right), rel=1e-11)


def test_steps_of_the_proof() -> None:
    """(2.17) to (2.18) fails as printed whenever there is a gap; both repaired steps hold."""
    rng = np.random.default_rng(12)
    argument, gap = rng.uniform(-30, 10, DRAWS), 10 ** rng.uniform(-6, 2, DRAWS)
    printed = log_sum_step_printed(10, argument, gap)
    visible = gap > 1e-3 * (1 + 9 * np.exp(argument))
    assert visible.sum() > 1000
    assert not printed.holds[visible].any()
    assert_true([log_sum_step(10, argument, gap)])
    product = rng.uniform(0, 15, DRAWS)
    assert_true(
        [tangent_step(7, product, rng.normal(size=DRAWS) * 10 ** rng.uniform(-6, 1, DRAWS))]
    )


@pytest.mark.parametrize("eps", [1e-300, 1e-5, 1e-2, 3.0])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_batch_norm(eps: float, batch_size: int | None) -> None:
    """Proposition 2.2.1 against torch, with eps, bias and coordinates of tiny variance."""
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(20, eps=eps).double()
    inputs = torch.randn(128, 20, dtype=torch.float64) * torch.logspace(-3, 1, 20) + 1
    nn.init.normal_(layer.weight)
    printed = batch_norm_rms_printed(layer, inputs, batch_size=batch_size)
    assert printed.tested == 1
    assert printed.always == (eps == 1e-300)
    assert float(printed.left) <= float(printed.right) * (1 + 1e-12)
    assert batch_norm_mean_square(layer, inputs, batch_size=batch_size).always
    nn.init.normal_(layer.bias)
    assert batch_norm_mean_square(layer, inputs, batch_size=batch_size).always
    assert batch_norm_rms_printed(layer, inputs, batch_size=batch_size).tested == 0
    assert int(layer.num_batches_tracked or 0) == 0


def test_batch_norm_on_many_layers() -> None:
    """500 layers of 20 coordinates: 10,000 random scales, biases and variances."""
    torch.manual_seed(1)
    layer = nn.BatchNorm1d(20).double()
    for _ in range(500):
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        layer.eps = float(10 ** torch.empty(()).uniform_(-8, 1))
        spread = 10 ** torch.empty(20, dtype=torch.float64).uniform_(-5, 2)
        spread[0] = 0.0  # a coordinate that never varies
        inputs = torch.randn(16, 20, dtype=torch.float64) * spread
        both = batch_norm_mean_square(layer, inputs)
        assert both.always
        bound = (layer.weight.square().sum() + layer.bias.square().sum()).detach()
        assert float(both.left) <= float(bound) * (1 + 1e-12)


def test_bad_inputs_are_refused() -> None:
    """One line that says what was expected."""
    with pytest.raises(DataError, match="one True or False per number"):
        jensen_subset_mean([0.0, 1.0], [True], np.square, 2.0)
    with pytest.raises(DataError, match="finite"):
        unit_mean_shift([[math.nan, 1.0]])
    with pytest.raises(DataError, match="same C >= 2 and d"):
        sample_losses(np.ones((2, 3)), np.ones((3, 1, 3)))
    with pytest.raises(DataError, match="at least 2 rows"):
        batch_norm_mean_square(nn.BatchNorm1d(2), torch.zeros(5, 2), batch_size=4)
    with pytest.raises(DataError, match=r"inputs \(N, 2\)"):
        batch_norm_mean_square(nn.BatchNorm1d(2), torch.zeros(5, 3))


def test_nan_does_not_hold() -> None:
    """A side that is not a number never passes."""
    both = BothSides(np.array([math.nan]), "<=", np.array([1.0]), "")
    assert not both.always

"""Lemmas 2.4.4 to 2.4.6 on at least 10,000 data sets."""

import numpy as np
import pytest

from nclab_papers.pan2023.unit_means import (
    cosine_identity,
    opposed_cosine,
    opposed_inner,
    opposed_inner_linear,
    pairing,
    ratio_sum,
    ratio_sum_printed,
    unit_mean_norm,
    unit_mean_norm_from_mean,
)
from tests.nclab_papers.pan2023.lemma_data import (
    DRAWS,
    SIZES,
    assert_true,
    features_and_vectors,
)


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
    features = [[10.0, 0.0]] * 11 + [[-11.0, 0.0]] * 10
    counterexample = opposed_cosine([1.0, 0.0], features, printed=True)
    assert counterexample.tested == 1
    assert not counterexample.always
    assert opposed_cosine([1.0, 0.0], features, printed=False).always
    assert opposed_inner([1.0, 0.0], features).always
    rng = np.random.default_rng(8)
    printed, repaired, cosine, linear = [], [], [], []
    for size in SIZES:
        h, w = features_and_vectors(rng, size)
        w *= -np.sign((w * h.mean(1)).sum(1, keepdims=True))
        printed.append(opposed_cosine(w, h, printed=True))
        repaired.append(opposed_inner(w, h))
        cosine.append(opposed_cosine(w, h, printed=False))
        linear.append(opposed_inner_linear(w, h))
        data = pairing(w, h)
        stronger = 2 * (1 - data.ratio**2) <= 4 * np.cbrt(np.maximum(1 - data.ratio, 0)) + 1e-12
        assert stronger.all()
    assert sum(both.tested for both in printed) > DRAWS
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
    assert_true([opposed_cosine(w, h, printed=False)], at_least=9000)
    assert_true([opposed_inner(w, h)], at_least=9000)
    assert_true([opposed_inner_linear(w, h)], at_least=9000)

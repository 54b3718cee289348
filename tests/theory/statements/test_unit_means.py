"""Lemmas 2.4.4 and 2.4.5 on at least 10,000 data sets."""

import numpy as np
import pytest

from nclab.theory.statements.unit_means import (
    cosine_identity,
    ratio_sum,
    ratio_sum_counterexample,
    ratio_sum_printed,
    unit_mean_norm,
    unit_mean_norm_from_mean,
)
from tests.theory.statements.lemma_data import DRAWS, SIZES, assert_true, features_and_vectors


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

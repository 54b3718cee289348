"""The steps of the proof of Theorem 2.3.1 on at least 10,000 data sets."""

import numpy as np
import pytest

from nclab.errors import DataError
from nclab.metrics import simplex_etf
from nclab.theory.statements import sample_losses
from nclab_papers.pan2023.loss_steps import (
    argument_range_printed,
    class_loss_bound,
    log_sum_step,
    minimal_loss,
    one_longer_class,
    tangent_step,
)
from tests.nclab_papers.pan2023.lemma_data import (
    DRAWS,
    assert_true,
    weights_and_features,
)


def test_a_mean_feature_is_longer_than_alpha_near_the_minimum() -> None:
    W, H = one_longer_class(4, 3.0, 1.0075)
    lengths = np.linalg.norm(H[:, 0], axis=1)
    assert lengths[0] == pytest.approx(1.0075 * 3**0.5)
    assert np.square(lengths).mean() == pytest.approx(3.0)
    both = minimal_loss(W, H)
    assert 9e-6 < both.left - both.right < 1e-5


def test_no_loss_is_below_m() -> None:
    """Minimality of m for C = 2 to 7, the bound of every class, and the range of its argument."""
    rng = np.random.default_rng(11)
    losses, classwise, printed = [], [], []
    for classes in range(2, 8):
        w, h = weights_and_features(rng, classes, 1700)
        losses.append(minimal_loss(w, h))
        classwise.append(class_loss_bound(w, h))
        printed.append(argument_range_printed(w, h))
        at_etf = losses[-1].slack[::10]
        assert (np.abs(at_etf) <= np.asarray(losses[-1].tolerance)[::10]).all()
        # One class has all of the norms and is out of the range of the thesis.
        assert not printed[-1].holds[5::10, 0].any()
    assert_true(losses)
    assert_true(classwise)


def test_losses_below_rounding() -> None:
    """A loss of exp(-600) is not zero, and the bound by m is still tight."""
    etf = simplex_etf(3, 2).numpy()
    both = minimal_loss(20 * etf, 20 * etf[:, None])
    assert 0 < float(both.left) < 1e-250
    assert both.always
    assert float(both.left) == pytest.approx(float(both.right), rel=1e-11)


def test_steps_of_the_proof() -> None:
    """The step to (2.18) up to a class loss of log C, and not far beyond; the tangent."""
    rng = np.random.default_rng(12)
    argument, gap = rng.uniform(-30, 0, DRAWS), 10 ** rng.uniform(-6, 3, DRAWS)
    step = log_sum_step(10, argument, gap)
    assert 1000 < step.tested < DRAWS - 1000
    assert_true([step], at_least=1000)
    assert (step.slack[gap > 50] < 0).all()
    product = rng.uniform(0, 15, DRAWS)
    assert_true(
        [tangent_step(7, product, rng.normal(size=DRAWS) * 10 ** rng.uniform(-6, 1, DRAWS))]
    )


def test_bad_inputs_are_refused() -> None:
    """One line that says what was expected."""
    with pytest.raises(DataError, match="same C >= 2 and d"):
        sample_losses(np.ones((2, 3)), np.ones((3, 1, 3)))

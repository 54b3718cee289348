"""nclab.target: invariances, proofs compared with optimisation of the full problem, and errors."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import nclab
from nclab.errors import DataError
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.targets.search import search
from nclab.theory.targets.setting import AVERAGES


def test_one_weight_decay_penalises_the_mean_squared_feature() -> None:
    """Compare with descent on the objective of the docstring, for samples and for classes."""
    counts, decay = torch.tensor([4.0, 2.0, 1.0]).double(), 0.03
    for average in ("samples", "classes"):
        share = counts / counts.sum() if average == "samples" else torch.ones(3).double() / 3

        def function(x: np.ndarray, share: torch.Tensor = share) -> tuple[float, np.ndarray]:
            v = torch.tensor(x, requires_grad=True)
            W, H = v[:9].view(3, 3), v[9:].view(3, 3)
            losses = -torch.log_softmax(W @ H, 0).diagonal()
            value = losses @ counts / counts.sum() + decay / 2 * W.square().sum()
            value = value + decay / 2 * H.square().sum(0) @ share
            value.backward()
            assert v.grad is not None
            return float(value.detach()), v.grad.numpy()

        start = np.random.default_rng(0).normal(size=18)
        options = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-15, "gtol": 1e-10}
        best = minimize(function, start, jac=True, method="L-BFGS-B", options=options)
        optimum = nclab.target(counts=counts, weight_decay=decay, average=average)
        assert best.fun == pytest.approx(optimum.objective, rel=1e-8)
    even = [nclab.target(counts=[5] * 4, weight_decay=decay, average=a) for a in AVERAGES]
    assert even[0].objective == pytest.approx(even[1].objective, rel=1e-12)


@pytest.mark.slow
def test_search_exchanges_classes_in_the_plane() -> None:
    """One of 24 random starts ends at this value; the others are up to .4 % above."""
    optimum = nclab.target(counts=[20, 10, 5, 3, 2, 1], dim=2, weight_decay=(0.002, 0.002))
    assert optimum.objective == pytest.approx(0.220883725, abs=5.1e-10)
    assert optimum.proof == "best of 24 starts and exchanges of classes: no proof"


def test_balanced_cross_entropy_agrees_with_regularised_optimum() -> None:
    for C, decay in ((2, 0.01), (10, 5e-4), (100, 1e-3)):
        optimum, before = nclab.target(C, weight_decay=decay), regularised_optimum(C, decay)
        P = torch.eye(C, dtype=torch.float64) - 1 / C
        assert optimum.geometry == "simplex ETF"
        assert optimum.loss == pytest.approx(before.optimal_loss, rel=1e-12)
        assert optimum.objective == pytest.approx(before.objective, rel=1e-12)
        for gram, norm in (
            (optimum.classifier_gram, before.beta),
            (optimum.mean_gram, before.alpha),
        ):
            assert torch.allclose(gram, norm**2 * C / (C - 1) * P, rtol=1e-12, atol=1e-12)
        assert float(optimum.mean_norms[0]) == pytest.approx(before.alpha, rel=1e-12)
    assert nclab.target(7, norms=(2.0, 1.5)).loss == nclab.metrics.optimal_loss(7, 3.0)


def test_program_agrees_with_closed_forms() -> None:
    even = nclab.target(counts=[3] * 4, weight_decay=(0.01, 0.02))
    targets = nclab.target(counts=[3] * 4, weight_decay=(0.01, 0.02), targets=torch.eye(4))
    assert targets.proof == "duality gap"
    assert targets.objective == pytest.approx(even.objective, rel=1e-12)
    assert torch.allclose(targets.mean_gram, even.mean_gram, atol=1e-6)


def test_proofs_of_random_counts() -> None:
    rng = np.random.default_rng(1)
    for _ in range(8):
        counts = np.round(10 ** rng.uniform(0, 3, int(rng.integers(2, 25))))
        optimum = nclab.target(counts=counts, weight_decay=float(10 ** rng.uniform(-4, -1)))
        assert optimum.relative_gap is not None
        assert optimum.relative_gap <= 1e-6


def test_grams_belong_to_logits_and_norms() -> None:
    optimum = nclab.target(counts=[9, 4, 4, 1], weight_decay=(0.01, 0.03), bias=0.0)
    W, H, M = optimum.classifier_gram, optimum.mean_gram, optimum.logits
    assert torch.allclose(M @ torch.linalg.pinv(H) @ M.T, W, atol=1e-8)  # M = W H, same span
    balance = 0.01 * float(W.trace()), 0.03 * float(H.diagonal() @ optimum.counts)
    assert balance[0] == pytest.approx(balance[1], rel=1e-9)
    at_norms = nclab.target(counts=[9, 4, 4, 1], norms=(2.0, 1.5))
    assert float(at_norms.classifier_gram.trace()) == pytest.approx(4 * 1.5**2, rel=1e-9)
    mean_square = float(at_norms.mean_gram.diagonal() @ at_norms.counts) / 18
    assert mean_square == pytest.approx(2.0**2, rel=1e-9)


def test_zero_targets_are_reported() -> None:
    for optimum in (
        nclab.target(4, weight_decay=0.6),
        nclab.target(counts=[9, 2, 1], weight_decay=(1.0, 1.0)),
        nclab.target(counts=[9, 2, 1], weight_decay=(1.0, 1.0), bias=0.0),
        nclab.target(counts=[9, 2, 1], weight_decay=(1.0, 1.0), features="relu"),
        nclab.target(counts=[9, 2, 1], weight_decay=(1.0, 1.0), loss="mse"),
    ):
        assert optimum.is_zero
        assert optimum.geometry == "zero"
        assert "everything except the bias is zero" in str(optimum)
    free = nclab.target(counts=[9, 2, 1], weight_decay=(1.0, 1.0), bias=0.0)
    shares = torch.softmax(free.bias, 0)
    assert shares.tolist() == pytest.approx([9 / 12, 2 / 12, 1 / 12])


def test_small_norms_are_no_penalty() -> None:
    optimum = nclab.target(counts=[4, 2, 1], norms=(1e-9, 1e-3))
    assert not optimum.is_zero
    assert optimum.geometry == "between simplex ETF and SELI"
    nothing = nclab.target(counts=[4, 2], norms=(1.0, 1.0), targets=[[0.5, 0.5], [0.5, 0.5]])
    assert nothing.is_zero
    assert "norms cannot lower the loss" in str(nothing)


def test_counts_and_targets_keep_their_digits() -> None:
    """A list of Python numbers is not rounded to float32."""
    assert nclab.target(counts=[1e8 + 1.0, 0.1], weight_decay=0.01).counts[0] == 1e8 + 1
    T = [[0.9, 0.1], [0.1, 0.9]]
    optimum = nclab.target(counts=[1.0, 1.0], weight_decay=0.01, targets=T)
    exact = nclab.target(2, weight_decay=0.01, loss="label_smoothing", smoothing=0.2)
    assert optimum.objective == pytest.approx(exact.objective, rel=1e-13)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_any_penalty_of_the_bias_is_proved(loss: str) -> None:
    """The objective grows with the penalty, from nearly free to nearly no bias, and the dual meets
    it."""
    penalties = (0.0, 1e-12, 1e-6, 1e-2, 1.0, 1e4, 1e9, None)
    optima = [
        nclab.target(counts=[4, 2, 1], weight_decay=(0.01, 0.01), bias=penalty, loss=loss)
        for penalty in penalties
    ]
    values = [optimum.value for optimum in optima]
    assert all(a <= b * (1 + 1e-10) for a, b in pairwise(values))
    assert values[1] == pytest.approx(values[0], rel=1e-9)
    assert values[-2] == pytest.approx(values[-1], rel=1e-9)
    for optimum in optima:
        assert optimum.relative_gap is not None
        assert optimum.relative_gap < 1e-9


@pytest.mark.parametrize(("focal_gamma", "decay"), [(99.0, 0.01), (2.0, 5.0), (30.0, 0.01)])
def test_zero_is_optimal_for_some_focal_losses(focal_gamma: float, decay: float) -> None:
    optimum = nclab.target(4, loss="focal", focal_gamma=focal_gamma, weight_decay=decay)
    assert optimum.is_zero
    assert optimum.objective == pytest.approx(0.75**focal_gamma * math.log(4), rel=1e-12)


def test_json_names_the_loss_function() -> None:
    value = nclab.target(3, weight_decay=0.01, loss="focal").to_dict()
    assert value["loss_function"] == "focal"
    assert value["loss"] < 1


def test_lost_and_merged_classes_are_named() -> None:
    optimum = nclab.target(counts=[50, 20, 1, 1], weight_decay=(0.02, 0.02), features="relu")
    assert optimum.lost == (2, 3)
    assert "Lost" in str(optimum)
    assert nclab.target(counts=[8, 4, 1], weight_decay=(0.1, 0.1), loss="mse").lost == (2,)


def test_few_dimensions() -> None:
    optimum = nclab.target(5, dim=2, weight_decay=0.01)
    assert "no proof" in optimum.proof
    assert optimum.relative_gap is not None
    assert 0 < optimum.relative_gap < 1
    assert int(torch.linalg.matrix_rank(optimum.logits, rtol=1e-6)) == 2
    limit = nclab.target(5, dim=2, weight_decay=0)
    assert limit.proof == "closed form"
    gaps = [group.logit_gap for group in limit.groups]
    assert gaps == pytest.approx([1 - math.cos(2 * math.pi / 5)])
    assert "no proof" in nclab.target(8, dim=3, weight_decay=0).proof


def test_search_of_deep_heads_tries_a_line() -> None:
    """With a bias, three classes fit on a line, 8 per cent below every plane."""
    options: Any = {"loss": "focal", "focal_gamma": 2.411, "bias": 0.0, "depth": 3}
    optimum = nclab.target(3, weight_decay=(0.5, 0.5), **options)  # cheap: everything is zero
    setting = replace(
        optimum.setting,
        counts=torch.full((3,), 8.0, dtype=torch.float64),
        weight_decay=(0.00269, 0.03563),
    )
    lines = search(setting, starts=2)
    assert lines.loss + lines.penalty == pytest.approx(0.049789229, abs=5.1e-10)
    assert int(torch.linalg.matrix_rank(lines.logits, rtol=1e-6)) == 1


def test_smaller_norms_can_have_the_same_loss() -> None:
    T = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    optimum = nclab.target(counts=[3, 2, 1], norms=(50.0, 50.0), targets=T)
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.1))
    assert optimum.loss == pytest.approx(entropy, abs=1e-6)
    smooth = nclab.target(3, norms=(50.0, 50.0), loss="label_smoothing", smoothing=0.3)
    assert smooth.loss == pytest.approx(entropy, abs=1e-9)


def test_search_finds_known_optima() -> None:
    setting = nclab.target(counts=[3, 1, 1], weight_decay=(0.02, 0.02)).setting
    optimum = search(setting, starts=2)
    known = nclab.target(counts=[3, 1, 1], weight_decay=(0.02, 0.02)).objective
    assert optimum.loss + optimum.penalty == pytest.approx(known, rel=1e-7)


def test_json_and_plot() -> None:
    optimum = nclab.target(counts=[5, 5, 1], weight_decay=0.01)
    value = json.loads(json.dumps(optimum.to_dict(), allow_nan=False))
    assert value["groups"][1]["samples"] == 1
    assert len(value["logits"]) == 3
    figure, axes = optimum.plot()
    assert [axis.get_title(loc="left") for axis in axes][-1] == "norms"
    assert figure is axes[0].figure
    assert nclab.target(101, weight_decay=0.01).to_dict()["logits"] is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_classes": 1, "weight_decay": 0.1}, "at least 2 classes, got 1"),
        ({"counts": [3, -1], "weight_decay": 0.1}, "counts above 0, got -1 for class 1"),
        ({"counts": [[3, 1]], "weight_decay": 0.1}, "got shape"),
        ({"num_classes": 3, "counts": [1, 1], "weight_decay": 0.1}, "3 classes, got 2"),
        ({"weight_decay": 0.1}, "num_classes= or counts="),
        ({"num_classes": 3}, "got neither"),
        ({"num_classes": 3, "weight_decay": 0.1, "norms": (1, 1)}, "got both"),
        ({"num_classes": 3, "weight_decay": 0.1, "dim": 1}, "dim of at least 2"),
        ({"num_classes": 3, "weight_decay": 0.1, "dim": 2.5}, "got 2.5"),
        ({"num_classes": 3, "weight_decay": 0.1, "dim": math.nan}, "got nan"),
        ({"num_classes": 10**9, "weight_decay": 0.1}, "from 2 to 5000"),
        ({"num_classes": 2.5, "weight_decay": 0.1}, "got 2.5"),
        ({"num_classes": math.nan, "weight_decay": 0.1}, "got nan"),
        ({"counts": [3, math.nan], "weight_decay": 0.1}, "got nan for class 1"),
        ({"num_classes": 3, "weight_decay": math.nan}, "got nan"),
        ({"num_classes": 3, "weight_decay": "x"}, "two numbers, got 'x'"),
        ({"num_classes": 2, "weight_decay": 0.1, "targets": "x"}, "matrix of numbers, got 'x'"),
        (
            {"num_classes": 6, "weight_decay": (0.1, 0.1), "loss": "mse", "features": "relu"}
            | {"depth": 4},
            "depth=1 with features relu, got depth=4",
        ),
        ({"num_classes": 3, "weight_decay": 0.1, "loss": "hinge"}, "got 'hinge'"),
        ({"num_classes": 3, "weight_decay": 0.1, "loss": np.array(["mse"] * 2)}, "got array"),
        ({"num_classes": 3, "weight_decay": 0.1, "dim": "4"}, "got '4'"),
        ({"num_classes": 3, "weight_decay": 0.1, "depth": "2"}, "got '2'"),
        ({"num_classes": 3, "weight_decay": -0.1}, "weight_decay above 0"),
        ({"num_classes": 3, "weight_decay": (0.1, 0.0)}, "weight_decay above 0"),
        ({"num_classes": 3, "norms": (0.0, 1.0)}, "norms=(α, β) above 0"),
        ({"num_classes": 3, "weight_decay": 0.1, "bias": -1.0}, "a penalty >= 0"),
        (
            {"num_classes": 3, "weight_decay": 0.1, "smoothing": 0.1},
            "only with loss label_smoothing",
        ),
        ({"num_classes": 3, "weight_decay": 0.1, "depth": 0}, "at least 1, got 0"),
        ({"num_classes": 3, "weight_decay": 0, "loss": "mse"}, "weight_decay above 0, got 0"),
        ({"num_classes": 2, "weight_decay": 0.1, "targets": [[1, 1], [1, 0]]}, "sum to 1"),
        ({"num_classes": -3, "weight_decay": 0.1}, "at least 2 classes, got -3"),
        ({"num_classes": 3, "weight_decay": -1}, "got -1"),
        ({"num_classes": 3, "weight_decay": 1e300}, "from 1e-100 to 1e+100, got 1e+300"),
        ({"num_classes": 3, "norms": (1e200, 1e200)}, "from 1e-100 to 1e+100, got 1e+200"),
        ({"counts": [1e300, 1.0], "weight_decay": 0.1}, "counts from 1e-100 to 1e+100"),
        ({"counts": [4, 2, 1], "weight_decay": 0.1, "bias": 1e300}, "0 for a free bias"),
        ({"counts": [4, 2, 1], "weight_decay": 0.1, "bias": 1e-300}, "0 for a free bias"),
        ({"counts": [4, 2, 1], "norms": (1, 2), "bias": 0.3, "loss": "mse"}, "with norms"),
        ({"num_classes": 3, "norms": (1, 2), "bias": 0.3}, "with norms"),
        ({"counts": [4, 2, 1], "norms": (50, 50), "features": "relu"}, "got alpha, beta = 50, 50:"),
    ],
)
def test_bad_settings_raise(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=r"^Expected") as raised:
        nclab.target(**options)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_given_norms_bound_the_loss_itself() -> None:
    optimum = nclab.target(3, norms=(2.5, 2.5))
    assert optimum.lower_bound == optimum.loss


@pytest.mark.parametrize(
    "options", [{"dim": 2}, pytest.param({"loss": "focal"}, marks=pytest.mark.slow)]
)
def test_search_keeps_the_given_norms(options: Any) -> None:
    optimum = nclab.target(counts=[8, 2, 1, 1, 1], norms=(1.5, 2.5), **options)
    assert float(optimum.classifier_norms.square().mean().sqrt()) == pytest.approx(2.5, rel=1e-6)


def test_norms_and_weight_decays_beyond_rounding_raise() -> None:
    with pytest.raises(nclab.DataError, match="rounding hides the smallest loss of these counts"):
        nclab.target(counts=[8, 2, 1], norms=(6, 6))
    for options in ({"num_classes": 4}, {"counts": [3, 1, 1]}, {"num_classes": 3, "depth": 3}):
        with pytest.raises(nclab.DataError, match="lost in rounding"):
            nclab.target(weight_decay=1e-30, **options)

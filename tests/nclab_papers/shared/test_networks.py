"""Metrics that studies keep of a network, and effective weight decays."""

import math

import pytest
import torch

from nclab.errors import DataError
from nclab.measurement import measure_features
from nclab.training.models.mlp import MLP
from nclab.training.sweep.rows_only import TrainedNetwork
from nclab_papers.shared.networks import FieldNetworks, LastLayer, collapse

TINY = FieldNetworks(width=12, layers=3, samples=60, epochs=2, batch=20, workers=0)


def ended(**options: bool) -> TrainedNetwork:
    config = TINY.config("teacher", classes=4, seed=0, weight_decays=(1e-3,), **options)
    train, test = config.draw()
    model, _ = MLP.seeded(config.shape_for(train), seed=1)
    return TrainedNetwork(model.eval(), train, test, config, 1e-3)


def test_numbers_are_those_of_a_measurement() -> None:
    one = ended()
    found = collapse(one)
    features = one.model.features(one.train.inputs)[-1].detach()
    head = one.model.classifier
    whole = measure_features(
        features, one.train.labels, weight=head.weight.detach(), bias=head.bias.detach()
    )
    for name, metric in (
        ("accuracy", "accuracy"),
        ("loss", "loss"),
        ("nc0", "nc0_weight_mean"),
        ("nc1", "nc1_trace_ratio"),
        ("nc2", "nc2_equiangularity_means"),
    ):
        assert found[name] == pytest.approx(getattr(whole, metric), rel=1e-4), name
    assert whole.nc3_frobenius is not None
    assert found["nc3"] == pytest.approx(math.sqrt(whole.nc3_frobenius), rel=1e-4)
    W, M = head.weight.detach().double(), LastLayer(one).moments.means
    assert found["raw_nc3"] == pytest.approx(float((W / W.norm() - M / M.norm()).norm()), rel=1e-4)


def test_the_decay_of_features_makes_both_penalties_equal() -> None:
    last = LastLayer(ended())
    on_weights, on_features = last.decays
    features = float(last.features.double().square().sum())
    assert on_weights * float(last.weight.square().sum()) == pytest.approx(on_features * features)


def test_features_that_overflow_raise() -> None:
    one = ended()
    with torch.no_grad():
        one.model.classifier.weight.fill_(float("inf"))
    with pytest.raises(DataError, match="finite features"):
        collapse(one)


def test_held_out_samples_are_as_many_as_training_samples() -> None:
    config = TINY.config("teacher", classes=4, seed=3, weight_decays=(1e-3,), held_out=True)
    train, test = config.draw()
    assert test is not None
    assert abs(len(train) - 60) <= 2
    assert len(train) + len(test) == 120
    assert config.recipe.rate_at(0) == pytest.approx(10 * config.recipe.rate_at(1))
    whole = FieldNetworks().config("fashion", classes=7, seed=0, weight_decays=(0.0,))
    assert (whole.data.samples, whole.data.classes) == (1995, 7)  # type: ignore[union-attr]

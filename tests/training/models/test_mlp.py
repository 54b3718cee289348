"""The MLP of the thesis: sizes, features, seeds and the statistics of its batch norms."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.errors import ModelError
from nclab.training.models.mlp import MLP, Norm, Shape

SHAPE = Shape(inputs=5, classes=3, layers=4, width=12)
NORMS: list[Norm] = ["affine", "plain", "none", "last"]


def data(samples: int = 90) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(samples, 5, generator=torch.Generator().manual_seed(1))
    return inputs, torch.arange(samples) % 3


@pytest.mark.parametrize("norm", NORMS)
def test_measured_features_are_the_inputs_of_the_next_linear_layer(norm: Norm) -> None:
    inputs, labels = data()
    model = MLP.seeded(SHAPE, norm, seed=0)[0].with_full_statistics(inputs)
    report = nclab.measure(model, [(inputs, labels)], layers="all")
    assert report.classifier == "classifier"
    assert [layer.layer for layer in report.layers] == ["hidden.0", "hidden.1", "hidden.2"]
    with torch.no_grad():
        features = model.features(inputs)
    assert torch.equal(model.classifier(features[-1]), model(inputs))
    for measured, feature in zip(report.layers, features, strict=True):
        alone = nclab.measure_features(feature, labels)
        assert measured.nc1_trace_ratio == pytest.approx(alone.nc1_trace_ratio, rel=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_full_statistics_equal_training_mode_on_all_data(norm: Norm) -> None:
    inputs = data()[0].double()
    model = MLP.seeded(SHAPE, norm, seed=0)[0].double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact = model.with_full_statistics(inputs, batch=17)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    torch.testing.assert_close(exact(inputs), model.train()(inputs), rtol=1e-12, atol=1e-12)
    assert not exact.training


def test_seeded_equals_manual_seed_and_keeps_the_callers_state() -> None:
    torch.manual_seed(7)
    built = MLP(SHAPE, "affine")
    following = torch.rand(3)
    torch.manual_seed(5)
    seeded, state = MLP.seeded(SHAPE, "affine", seed=7)
    plain, _ = MLP.seeded(SHAPE, "none", seed=7)
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(5)))
    generator = torch.Generator()
    generator.set_state(state)
    assert torch.equal(torch.rand(3, generator=generator), following)
    weights, plain_weights = built.state_dict(), plain.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in seeded.state_dict().items())
    assert all(torch.equal(weights[name], value) for name, value in plain_weights.items())


def test_without_bias_and_without_hidden_layers() -> None:
    model = MLP(Shape(inputs=5, classes=3, layers=1, bias=False), "none")
    assert model.features(torch.zeros(2, 5)) == []
    assert [name for name, _ in model.named_parameters()] == ["classifier.weight"]


@pytest.mark.parametrize("sizes", [{"layers": 0}, {"width": 0}, {"classes": 1}, {"inputs": 2.5}])
def test_bad_sizes_raise(sizes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(sizes))}.*got {next(iter(sizes.values()))}"):
        Shape(**sizes)


def test_bad_norm_raises() -> None:
    with pytest.raises(ModelError, match="got 'layer'"):
        MLP(SHAPE, "layer")  # type: ignore[arg-type]


def test_the_norm_last_is_one_batch_norm_before_the_classifier() -> None:
    model = MLP(SHAPE, "last")
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm1d)]
    assert norms == ["hidden.2.norm"]
    assert "hidden.2.norm.weight" in model.state_dict()
    single = MLP(Shape(inputs=5, classes=3, layers=1), "last")
    assert not any(isinstance(module, nn.BatchNorm1d) for module in single.modules())

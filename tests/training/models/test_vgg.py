"""VGG-13: sizes, initialisation, and its classifier in a measurement."""

import pytest
import torch
from torch import nn

import nclab
from nclab.errors import ModelError
from nclab.training.models.vgg import VGG13, VGGShape, vgg13


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_published_sizes() -> None:
    """The convolutions of VGG-13 on 3 channels have 9,404,992 weights and biases."""
    plain = VGG13(VGGShape(channels=3, batch_norm=False))
    assert count(plain.body) == 9_404_992
    normalised = VGG13(VGGShape(channels=3))
    # A bias per channel goes, a scale and a bias per channel come: 2944 channels.
    assert count(normalised.body) == 9_404_992 + 2944
    assert sum(isinstance(module, nn.Conv2d) for module in plain.modules()) == 10


@pytest.mark.parametrize("batch_norm", [True, False])
def test_classifier_is_found_and_reads_the_features(batch_norm: bool) -> None:
    network = vgg13(VGGShape(width=0.125, batch_norm=batch_norm), seed=0).eval()
    images = torch.randn(40, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 10
    report = nclab.measure(network, [(images, labels)])
    assert report.classifier == "classifier"
    assert report.last.dim == 64
    with torch.no_grad():
        expected = nclab.measure_features(
            network.features(images),
            labels,
            weight=network.classifier.weight,
            bias=network.classifier.bias,
        )
    assert report.last.nc2_equiangularity_means == expected.nc2_equiangularity_means
    assert report.last.loss == pytest.approx(expected.loss, rel=1e-6)
    assert len(nclab.measure(network, [(images, labels)], layers="all").layers) >= 10


def test_initialisation_keeps_the_size_of_the_signal() -> None:
    network = vgg13(VGGShape(width=0.5, batch_norm=False), seed=0)
    with torch.no_grad():
        features = network.features(torch.randn(16, 1, 32, 32))
    assert 0.01 < features.abs().mean() < 100


def test_the_seed_alone_determines_the_weights() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first_weights = vgg13(VGGShape(width=0.1), seed=1).state_dict()
    assert torch.equal(torch.rand(3), expected)
    same, other = (vgg13(VGGShape(width=0.1), seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(value, same[name]) for name, value in first_weights.items())
    assert not torch.equal(first_weights["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (2, 3, 32, 32), (2, 32, 32)])
def test_images_of_other_sizes_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="Expected images"):
        VGG13(VGGShape(width=0.1))(torch.zeros(shape))


def test_an_impossible_width_raises() -> None:
    with pytest.raises(ModelError, match="Expected"):
        VGGShape(width=0.01)


def test_dense_layers_are_those_of_the_published_network() -> None:
    published = VGG13(VGGShape(dense=4096))
    sizes = [
        (first_weights.in_features, first_weights.out_features)
        for first_weights in published.modules()
        if isinstance(first_weights, nn.Linear)
    ]
    assert sizes == [(512, 4096), (4096, 4096), (4096, 10)]
    small = vgg13(VGGShape(width=0.125, dense=4096, batch_norm=False), seed=0)
    assert small.features(torch.zeros(2, 1, 32, 32)).shape == (2, 512)

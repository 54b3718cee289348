"""The measurement of a member equals `nclab.measure`."""

import pytest
import torch

import nclab
from nclab.training.data.artificial import Teacher
from nclab.training.models.mlp import MLP, Norm, Shape
from nclab.training.sweep.measure import measure_member


@pytest.mark.parametrize("norm", ["affine", "plain", "none"])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_equals_nclab_measure(norm: Norm, layers: str) -> None:
    samples = Teacher(samples=300, width=10).draw()
    model, _ = MLP.seeded(Shape(layers=4, width=12), norm, seed=1)
    model.train()
    with torch.no_grad():
        model(samples.inputs)  # moves the running statistics
    model.eval()
    expected = nclab.measure(model, [tuple(samples)], layers=layers).layers
    if layers == "all":
        expected = tuple(layer for layer in expected if layer.dim == 12)
    result = measure_member(model, samples, layers="all" if layers == "all" else "last")
    held_out = Teacher(samples=90, width=10, seed=1).draw()
    expected_layers = nclab.measure(
        model, [tuple(samples)], test=[tuple(held_out)], layers=layers
    ).test
    assert expected_layers is not None
    test_result = measure_member(model, held_out, layers="last", reference=result.layers)
    for name in ("reference_ncc_accuracy", "strong_test_collapse", "accuracy"):
        assert getattr(test_result.layers[-1], name) == pytest.approx(
            getattr(expected_layers.layers[-1], name)
        )
    assert result.geometry["layer"] == "hidden.2"
    assert len(result.geometry["means"]) == len(result.geometry["weights"]) == 4
    measured = result.layers
    assert len(measured) == len(expected) == (3 if layers == "all" else 1)
    for measured_layer, other in zip(measured, expected, strict=True):
        assert measured_layer.layer == other.layer
        for name, value in other.scalars().items():
            number = measured_layer.scalars()[name]
            if value is None:
                assert number is None, name
            else:
                assert number == pytest.approx(value, rel=1e-6, abs=1e-9), name

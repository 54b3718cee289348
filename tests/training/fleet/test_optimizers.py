"""Every optimiser, loss and norm equals torch.optim and torch.nn; resuming of their states."""

from functools import cache
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from nclab.errors import NclabError
from nclab.training.fleet import Fleet, Loss, Member, Recipe
from nclab.training.fleet.fleet import Backend
from nclab.training.models.mlp import Activation, Norm, Shape
from tests.reference.slow_training import plain_network, plain_training

NORMS: list[Norm] = ["affine", "plain", "none", "last"]
SAMPLES, BATCH, EPOCHS = 75, 16, 10
"""Sizes of five batches per epoch, the last of 11 samples, hence 50 steps."""
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"rate": 0.05},
    "nesterov": {"optimizer": "sgd", "nesterov": True, "rate": 0.05},
    "sgdw": {"rate": 0.05},
    "sgdw nesterov": {"optimizer": "sgdw", "nesterov": True, "rate": 0.05},
    "adam": {"rate": 0.01},
    "adamw": {"rate": 0.01},
    "signum": {"rate": 0.002},
    "signumw": {"rate": 0.002},
}
SEEDS: dict[Norm, int] = {"affine": 5, "plain": 5, "none": 5, "last": 2}
"""Seeds of initial weights and batches."""
DTYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
BACKENDS: list[Backend] = ["kernel", "torch"]


def data(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    normals = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    return inputs.to(dtype), (inputs @ normals).argmax(1)


def options_of(optimizer: str, loss: str) -> dict[str, Any]:
    return {"optimizer": optimizer, **OPTIMIZERS[optimizer], "loss": loss}


@cache
def expected(
    norm: Norm, dtype: torch.dtype, shape: Shape, options: tuple[tuple[str, Any], ...]
) -> tuple[list[Tensor], list[float]]:
    """Return weights and mean losses of plain torch, cached for both backends."""
    torch.manual_seed(SEEDS[norm])
    parts = {"bias": shape.bias, "activation": shape.activation, "head_bias": shape.head_bias}
    network = plain_network(shape.widths, norm, **parts).to(dtype)  # type: ignore[arg-type]
    batches = [torch.randperm(SAMPLES).split(BATCH) for _ in range(EPOCHS)]
    assert sum(map(len, batches)) == 50
    assert len(batches[0][-1]) == 11
    torch_options = {"milestones": [4, 8], "weight_decay": 0.02, **dict(options)}
    means = plain_training(network, *data(dtype), batches, **torch_options)
    return [v for k, v in network.state_dict().items() if "num_batches" not in k], means


def check(
    norm: Norm,
    dtype: torch.dtype,
    tolerance: float,
    shape: Shape,
    options: dict[str, Any],
    backend: Backend,
) -> None:
    recipe = Recipe(epochs=EPOCHS, batch=BATCH, milestones=(0.4, 0.8), **options)
    members = [Member(norm, 0.02, seed=SEEDS[norm])]
    fleet = Fleet(shape, members, recipe, *data(dtype), dtype=dtype, backend=backend)
    means = [fleet.train_epoch()[0].loss for _ in range(EPOCHS)]
    want, losses = expected(norm, dtype, shape, tuple(sorted(options.items())))
    ours = fleet.model(0).state_dict().items()
    got = [value for name, value in ours if "num_batches" not in name]
    assert len(got) == len(want)
    for mine, other in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert float((mine - other).abs().max()) < tolerance
    assert means == pytest.approx(losses, rel=10 * tolerance)
    assert means[-1] < means[0]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", get_args(Loss))
@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "sgdw nesterov"])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_torch(
    backend: Backend, dtype: torch.dtype, tolerance: float, optimizer: str, loss: str, norm: Norm
) -> None:
    # With "last", a ReLU may be active in every batch. The batch norm then cancels the bias of its
    # unit, and Adam and signum scale up the gradient of this bias, which is a rounding error.
    activation: Activation = "tanh" if norm == "last" else "relu"
    shape = Shape(inputs=6, classes=3, layers=3, width=8, activation=activation)
    check(norm, dtype, tolerance, shape, options_of(optimizer, loss), backend)


SHAPES: dict[str, dict[str, Any]] = {
    "fewer features than classes": {"features": 2},
    "more features": {"features": 12},
    "no bias in the head": {"head_bias": False},
    "no bias": {"bias": False},
}


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_and_activations_equal_torch(
    backend: Backend, dtype: torch.dtype, tolerance: float, sizes: str, norm: Norm, activation: Any
) -> None:
    shape = Shape(inputs=6, classes=3, layers=3, width=8, activation=activation, **SHAPES[sizes])
    check(norm, dtype, tolerance, shape, {"rate": 0.05, "optimizer": "sgd"}, backend)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_the_classifier_bias_has_a_separate_weight_decay(optimizer: str, decay: float) -> None:
    shape = Shape(inputs=6, classes=3, layers=2, width=8)
    options = {**options_of(optimizer, "mse"), "head_bias_decay": decay}
    for backend in BACKENDS:
        check("none", torch.float64, 1e-10, shape, options, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ["adam", "sgdw nesterov", "signum"])
def test_resumes_bit_for_bit(optimizer: str, backend: Backend) -> None:
    recipe = Recipe(epochs=4, batch=BATCH, **options_of(optimizer, "focal"))

    def build() -> Fleet:
        shape = Shape(inputs=6, classes=3, layers=3, width=8, features=5, activation="gelu")
        return Fleet(
            shape,
            [Member(), Member("none"), Member("last")],
            recipe,
            *data(torch.float32),
            backend=backend,
        )

    complete, resumed = build(), build()
    for _ in range(2):
        complete.train_epoch()
    for index in range(3):
        resumed.load(index, complete.tensors(index), 2)
    assert [complete.train_epoch() for _ in range(2)] == [resumed.train_epoch() for _ in range(2)]
    for index in range(3):
        first, second = complete.tensors(index), resumed.tensors(index)
        assert any(name.startswith("square.") for name in first) == (optimizer == "adam")
        assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_state_of_another_optimizer_raises() -> None:
    def build(optimizer: Any) -> Fleet:
        shape = Shape(inputs=6, classes=3, layers=2, width=4)
        return Fleet(shape, [Member()], Recipe(optimizer=optimizer), *data(torch.float32))

    with pytest.raises(NclabError, match=r"square\.hidden\.0\.linear\.weight.*got none.*optimizer"):
        build("adam").load(0, build("sgd").tensors(0), 0)

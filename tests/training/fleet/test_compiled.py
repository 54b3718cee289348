"""The compiled kernel beside plain torch, and the two libraries it can take products from."""

import pytest
import torch

from nclab.errors import NclabError
from nclab.training.fleet import Fleet, Member, Recipe, compiled
from nclab.training.fleet.backend import Backend, find_backend
from nclab.training.models.mlp import Norm, Shape


def trained(norm: Norm, backend: Backend, *, layers: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (90,), generator=generator)
    shape = Shape(inputs=7, classes=5, layers=layers, width=11)
    recipe = Recipe(epochs=3, batch=40, rate=0.1)
    fleet = Fleet(
        shape, [Member(norm, 1e-2)], recipe, inputs, labels, dtype=torch.float64, backend=backend
    )
    for _ in range(3):
        fleet.train_epoch()
    return fleet.tensors(0)


@pytest.mark.parametrize("norm", ["affine", "plain", "none"])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_kernel_and_torch_agree(norm: Norm, layers: int) -> None:
    """Momenta and running statistics too; odd sizes, so that no row is a whole vector."""
    kernel, plain = trained(norm, "kernel", layers=layers), trained(norm, "torch", layers=layers)
    assert kernel.keys() == plain.keys()
    for name, value in kernel.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-10, atol=1e-12)


def test_products_of_scipy_serve_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trained("affine", "kernel")
    address = compiled.gemm_address.__wrapped__
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    monkeypatch.setattr(compiled, "gemm_address", address)
    for name, value in trained("affine", "kernel").items():
        torch.testing.assert_close(value, usual[name], rtol=1e-10, atol=1e-12)


def test_backends_by_name() -> None:
    cpu = torch.device("cpu")
    assert find_backend("auto", cpu) is compiled.train_epoch
    assert find_backend("auto", torch.device("cuda")) is find_backend("torch", cpu)
    with pytest.raises(NclabError, match="got cuda"):
        find_backend("kernel", torch.device("cuda"))
    with pytest.raises(NclabError, match="got 'jit'"):
        find_backend("jit", cpu)  # type: ignore[arg-type]

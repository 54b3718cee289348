"""The compiled kernel agrees with plain torch, with matrix products of torch or of scipy."""

import pytest
import torch

from nclab.errors import NclabError
from nclab.training.fleet import Backend, Fleet, Member, Recipe, kernel_backend
from nclab.training.fleet.fleet import choose_backend
from nclab.training.models import Norm, Shape


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


@pytest.mark.parametrize("norm", ["affine", "plain", "none", "last"])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_kernel_and_torch_agree(norm: Norm, layers: int) -> None:
    """Compare momenta and running statistics too; odd sizes leave no row a whole vector."""
    kernel, plain = trained(norm, "kernel", layers=layers), trained(norm, "torch", layers=layers)
    assert kernel.keys() == plain.keys()
    for name, value in kernel.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-10, atol=1e-12)


def test_scipy_products_agree_with_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained("affine", "kernel")
    address = kernel_backend.gemm_address.__wrapped__
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    monkeypatch.setattr(kernel_backend, "gemm_address", address)
    for name, value in trained("affine", "kernel").items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12)


def test_backends_by_name() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_backend("auto", cpu) == choose_backend("kernel", cpu) == "kernel"
    assert choose_backend("auto", cuda) == choose_backend("torch", cpu) == "torch"
    with pytest.raises(NclabError, match="got cuda"):
        choose_backend("kernel", cuda)
    with pytest.raises(NclabError, match="got 'jit'"):
        choose_backend("jit", cpu)  # type: ignore[arg-type]

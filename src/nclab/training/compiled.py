"""The compiled kernel's door: memory and numbers for one epoch of one member."""

import ctypes
from functools import cache
from pathlib import Path

import torch
from numba.extending import get_cython_function_address
from torch import Tensor

from nclab.training.epoch_kernel import Numbers, Work, run_epoch
from nclab.training.portable import EPSILON, RUNNING
from nclab.training.recipe import Recipe
from nclab.training.state import ALIGNMENT, State, places


def train_epoch(
    state: State, inputs: Tensor, labels: Tensor, order: Tensor, recipe: Recipe, **rates: float
) -> tuple[Tensor, Tensor]:
    """The steps of one epoch, in place; the mean loss and the hits of every batch.

    Ends early at a loss that is not finite; the batches after it have zeros.
    """
    steps, shape, dtype = recipe.steps(len(order)), state.shape, inputs.dtype
    losses, hits = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.int64)
    norm = state.norm != "none"
    # Memory of torch begins at a multiple of 64 bytes, on which the last bits of MKL depend.
    room = -(-max(shape.widths) * recipe.batch // ALIGNMENT) * ALIGNMENT
    features, active = torch.empty(2, shape.layers, room, dtype=dtype)
    work = (features, active if norm else features[1:], torch.empty(2, room, dtype=dtype))
    moments = torch.empty(shape.layers, 2, shape.width, dtype=dtype)
    scalars = (rates["rate"], rates["weight_decay"], recipe.momentum, EPSILON, RUNNING, 0, 1)
    run_epoch(
        gemm_address(dtype),
        (state.parameters.numpy(), state.momenta.numpy(), state.statistics.numpy()),
        (places(shape, state.norm).numpy(), norm),
        (inputs.numpy(), labels.numpy(), order.numpy(), recipe.batch),
        Work(*(tensor.numpy() for tensor in (*work, moments))),
        Numbers(*torch.tensor(scalars, dtype=dtype).numpy()),
        (losses.numpy(), hits.numpy()),
    )
    return losses, hits


@cache
def gemm_address(dtype: torch.dtype) -> int:
    """Where `sgemm` (float32) or `dgemm` (float64) is: in torch's MKL, else in scipy's OpenBLAS.

    MKL takes up to a fifth less time at the sizes of a fleet. An address is an ordinary number,
    so that the code that calls it can be cached.
    """
    name = "sgemm" if dtype == torch.float32 else "dgemm"
    return torch_gemm(name) or scipy_gemm(name)


def torch_gemm(name: str) -> int | None:
    """The address in torch's own library, if it was built with MKL and shows it."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not torch.backends.mkl.is_available() or not library.exists():
        return None
    function = getattr(ctypes.CDLL(str(library)), f"{name}_", None)
    return ctypes.cast(function, ctypes.c_void_p).value if function is not None else None


def scipy_gemm(name: str) -> int:
    """The address in scipy, whose number of threads OPENBLAS_NUM_THREADS sets."""
    return int(get_cython_function_address("scipy.linalg.cython_blas", name))

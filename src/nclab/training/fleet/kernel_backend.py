"""Training steps by the compiled kernel.

This file prepares the arrays and hyperparameters that the kernel needs for one epoch of one member.
"""

import ctypes
import math
from functools import cache
from pathlib import Path

import torch
from numba.extending import get_cython_function_address
from torch import Tensor

from nclab.training.fleet import epoch_kernel
from nclab.training.fleet.epoch_kernel import Choices, Numbers, Vectors, Work, run_epoch
from nclab.training.fleet.recipe import Recipe
from nclab.training.fleet.state import ALIGNMENT, State, layout_table
from nclab.training.fleet.torch_backend import (
    EPSILON,
    RUNNING,
    adam_corrections,
    decays_of,
    gradient_vector,
)

RULES = {"sgd": "MOMENTUM", "adam": "ADAM", "signum": "SIGN"}
"""Name of the kernel's constant for every optimiser except plain SGD."""


def train_epoch(
    state: State,
    inputs: Tensor,
    labels: Tensor,
    order: Tensor,
    recipe: Recipe,
    *,
    rate: float,
    weight_decay: float,
    first_step: int,
) -> tuple[Tensor, Tensor]:
    """Train one epoch in place; return mean loss and number of correct samples of each batch.

    `first_step` is the number of the first step, counted from 1 over all epochs. The epoch ends
    early at a loss that is not finite; later batches have zeros.
    """
    steps, shape, dtype = recipe.steps(len(order)), state.shape, inputs.dtype
    losses, hits = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.int64)
    # torch aligns memory to 64 bytes, on which the last bits of MKL's results depend.
    size = -(-max(shape.widths) * recipe.batch // ALIGNMENT) * ALIGNMENT
    features, active = torch.empty(2, shape.layers, size, dtype=dtype)
    decays = decays_of(state, recipe, rate=rate, weight_decay=weight_decay)
    adam_steps = range(first_step, first_step + (steps if recipe.rule == "adam" else 0))
    corrections = [adam_corrections(recipe, step, rate=rate) for step in adam_steps]
    work = Work(
        features=features,
        active=active,
        slopes=torch.empty_like(features) if shape.activation == "gelu" else features,
        gradients=torch.empty(2, size, dtype=dtype),
        moments=torch.empty(shape.layers, 2, max(shape.hidden, default=0), dtype=dtype),
        decays=torch.tensor([(decay.coupled, decay.remaining) for decay in decays], dtype=dtype),
        corrections=torch.tensor(corrections, dtype=dtype).reshape(-1, 2),
    )
    gradients = gradient_vector(state, recipe)
    rule = "SGD" if gradients is state.momenta else RULES[recipe.rule]
    choices = Choices(
        layout=layout_table(shape, state.norm).numpy(),
        first_norm=shape.first_norm(state.norm),
        activation=getattr(epoch_kernel, shape.activation.upper()),
        loss=getattr(epoch_kernel, recipe.loss.upper()),
        optimizer=getattr(epoch_kernel, rule),
        nesterov=recipe.nesterov,
    )
    vectors = (state.parameters, state.momenta, state.squares, gradients, state.statistics)
    run_epoch(
        gemm_address(dtype),
        Vectors(*(vector.numpy() for vector in vectors)),
        choices,
        (inputs.numpy(), labels.numpy(), order.numpy(), recipe.batch),
        Work(*(tensor.numpy() for tensor in work)),
        _numbers(recipe, rate, dtype),
        (losses.numpy(), hits.numpy()),
    )
    return losses, hits


def _numbers(recipe: Recipe, rate: float, dtype: torch.dtype) -> Numbers:
    values = Numbers(
        rate=rate,
        momentum=recipe.momentum,
        beta2=recipe.beta2,
        fresh1=1 - recipe.beta1,
        fresh2=1 - recipe.beta2,
        adam_epsilon=recipe.epsilon,
        smoothing=recipe.smoothing,
        focal_gamma=recipe.focal_gamma,
        epsilon=EPSILON,
        running=RUNNING,
        lowest=-math.inf,
        zero=0,
        one=1,
    )
    return Numbers(*torch.tensor(values, dtype=dtype).numpy())


@cache
def gemm_address(dtype: torch.dtype) -> int:
    """Return the address of `sgemm` (float32) or `dgemm` (float64) in torch's MKL, else in scipy.

    MKL is up to a fifth faster at the sizes of a fleet. An address is an ordinary number, so numba
    can cache the code that calls it.
    """
    name = "sgemm" if dtype == torch.float32 else "dgemm"
    return torch_gemm(name) or scipy_gemm(name)


def torch_gemm(name: str) -> int | None:
    """Return the address of a BLAS function in torch; None unless torch has MKL and exports it."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not torch.backends.mkl.is_available() or not library.exists():
        return None
    function = getattr(ctypes.CDLL(str(library)), f"{name}_", None)
    return ctypes.cast(function, ctypes.c_void_p).value if function is not None else None


def scipy_gemm(name: str) -> int:
    """Return the address of a BLAS function in scipy, which uses OPENBLAS_NUM_THREADS threads."""
    return int(get_cython_function_address("scipy.linalg.cython_blas", name))

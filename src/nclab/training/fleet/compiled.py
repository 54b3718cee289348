"""The compiled kernel's door: memory and numbers for one epoch of one member."""

import ctypes
import math
from functools import cache
from pathlib import Path

import torch
from numba.extending import get_cython_function_address
from torch import Tensor

from nclab.training.fleet import epoch_kernel
from nclab.training.fleet.epoch_kernel import Choices, Numbers, Vectors, Work, run_epoch
from nclab.training.fleet.optimizers import corrections, decays, sums_into
from nclab.training.fleet.portable import EPSILON, RUNNING
from nclab.training.fleet.recipe import Recipe
from nclab.training.fleet.state import ALIGNMENT, State, places

RULES = {"sgd": "MOMENTUM", "adam": "ADAM", "signum": "SIGN"}
"""Of optimisers whose gradients are added to a vector of their own, as the kernel calls them."""


def train_epoch(
    state: State,
    inputs: Tensor,
    labels: Tensor,
    order: Tensor,
    recipe: Recipe,
    *,
    rate: float,
    weight_decay: float,
    taken: int,
) -> tuple[Tensor, Tensor]:
    """The steps of one epoch after those `taken`, in place; mean loss and hits of every batch.

    Ends early at a loss that is not finite; the batches after it have zeros.
    """
    steps, shape, dtype = recipe.steps(len(order)), state.shape, inputs.dtype
    losses, hits = torch.zeros(steps, dtype=torch.float64), torch.zeros(steps, dtype=torch.int64)
    norm = state.norm != "none"
    # Memory of torch begins at a multiple of 64 bytes, on which the last bits of MKL depend.
    room = -(-max(shape.widths) * recipe.batch // ALIGNMENT) * ALIGNMENT
    features, active = torch.empty(2, shape.layers, room, dtype=dtype)
    parts = decays(state, recipe, rate=rate, weight_decay=weight_decay)
    counted = range(taken + 1, taken + 1 + (steps if recipe.rule == "adam" else 0))
    adam = [corrections(recipe, step, rate=rate) for step in counted]
    work = Work(
        features=features,
        active=active if norm else features[1:],
        slopes=torch.empty_like(features) if shape.activation == "gelu" else features,
        gradients=torch.empty(2, room, dtype=dtype),
        moments=torch.empty(shape.layers, 2, max(shape.hidden, default=0), dtype=dtype),
        decays=torch.tensor([(part.added, part.left) for part in parts], dtype=dtype),
        corrections=torch.tensor(adam, dtype=dtype).reshape(-1, 2),
    )
    sums = sums_into(state, recipe)
    vectors = (state.parameters, state.momenta, state.squares, sums, state.statistics)
    run_epoch(
        gemm_address(dtype),
        Vectors(*(vector.numpy() for vector in vectors)),
        _choices(state, recipe, plain=sums is state.momenta),
        (inputs.numpy(), labels.numpy(), order.numpy(), recipe.batch),
        Work(*(tensor.numpy() for tensor in work)),
        _numbers(recipe, rate, dtype),
        (losses.numpy(), hits.numpy()),
    )
    return losses, hits


def _choices(state: State, recipe: Recipe, *, plain: bool) -> Choices:
    """Names as the kernel's numbers."""
    names = (state.shape.activation.upper(), recipe.loss.upper())
    rule = "SGD" if plain else RULES[recipe.rule]
    activation, loss, optimizer = (getattr(epoch_kernel, name) for name in (*names, rule))
    where = places(state.shape, state.norm).numpy()
    return Choices(where, state.norm != "none", activation, loss, optimizer, recipe.nesterov)


def _numbers(recipe: Recipe, rate: float, dtype: torch.dtype) -> Numbers:
    values = Numbers(
        rate=rate,
        momentum=recipe.momentum,
        beta2=recipe.beta2,
        fresh1=1 - recipe.beta1,
        fresh2=1 - recipe.beta2,
        adam_epsilon=recipe.epsilon,
        smoothing=recipe.smoothing,
        focusing=recipe.focusing,
        epsilon=EPSILON,
        running=RUNNING,
        lowest=-math.inf,
        zero=0,
        one=1,
    )
    return Numbers(*torch.tensor(values, dtype=dtype).numpy())


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

"""Which code takes a fleet's steps: the compiled kernel where it can, else plain torch."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from nclab.compute import has_numba
from nclab.errors import NclabError
from nclab.training.fleet import portable
from nclab.training.fleet.recipe import Recipe

Backend = Literal["auto", "kernel", "torch"]
"""The compiled kernel (CPU, extra `fast`), plain torch (any device), or the first that works."""
Code = Literal["kernel", "torch"]
TrainEpoch = Callable[..., tuple[Tensor, Tensor]]


def choose_backend(backend: Backend, device: torch.device, recipe: Recipe | None = None) -> Code:
    """Which code trains here; what cannot is refused. A plugin's loss is not in the kernel.

    >>> choose_backend("auto", torch.device("cuda"))
    'torch'
    """
    if backend not in get_args(Backend):
        raise NclabError(f"Expected backend 'auto', 'kernel' or 'torch', got {backend!r}.")
    if backend == "kernel" and device.type != "cpu":
        raise NclabError(f"Expected the device cpu for the kernel, got {device}. Take 'torch'.")
    if backend == "kernel" and not has_numba():
        raise NclabError("The kernel needs numba, which is not there: pip install nclab[fast].")
    plugged = recipe is not None and recipe.plugged_loss
    if backend == "kernel" and plugged:
        raise NclabError(
            f"Expected a loss of ours for the kernel, got the plugin's {recipe.loss!r}. Take "  # type: ignore[union-attr]
            "'torch'."
        )
    if backend == "torch" or device.type != "cpu" or plugged:
        return "torch"
    return "kernel" if has_numba() else "torch"


def find_backend(
    backend: Backend, device: torch.device, recipe: Recipe | None = None
) -> TrainEpoch:
    """The function that trains one member for one epoch.

    >>> find_backend("torch", torch.device("cpu")) is portable.train_epoch
    True
    """
    if choose_backend(backend, device, recipe) == "torch":
        return portable.train_epoch
    from nclab.training.fleet import compiled

    return compiled.train_epoch

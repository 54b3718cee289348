"""Leaves a model and the world's random numbers as they were found."""

import random
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from nclab.features.turns import measuring, others_train


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside torch.compile, DataParallel and DistributedDataParallel wrappers.

    >>> inner = nn.Linear(2, 2)
    >>> unwrap(nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def compiled_parts(model: nn.Module) -> list[str]:
    """Names of modules that are compiled, inside which no hook is run in training.

    >>> compiled_parts(nn.Sequential(nn.Linear(2, 2), torch.compile(nn.ReLU(), backend="eager")))
    ['1._orig_mod']
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(getattr(module, "_orig_mod", None), nn.Module):
            found.append(f"{name}._orig_mod".removeprefix("."))
        elif getattr(module, "_compiled_call_impl", None) is not None:
            found.append(name)
    return found


def is_inside(name: str, parts: Collection[str]) -> bool:
    """Whether a module is one of these, or part of one."""
    return any(not part or name == part or name.startswith(f"{part}.") for part in parts)


@contextmanager
def evaluating(model: nn.Module, loader: Any = None) -> Iterator[None]:
    """Evaluate without gradients; then restore every module's mode and all random states.

    Those of the loader's own generators too. The fused path of PyTorch's transformer layers is
    off meanwhile, and so is torch.compile: they go around the modules inside, and round
    differently from them. Threads take turns, see `turns.py`; while another one trains under a
    Monitor, the random numbers of the process are not rewound, as they are also its own.
    """
    with measuring(model), _evaluating(model, loader):
        yield


@contextmanager
def _evaluating(model: nn.Module, loader: Any) -> Iterator[None]:
    own = [(generator, generator.get_state()) for generator in _generators(loader)]
    fused = torch.backends.mha.get_fastpath_enabled()
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    alone = not others_train()
    try:
        # Tensors made in inference mode do not tell when they are changed in place.
        not_inference = torch.inference_mode(False)
        forked = torch.random.fork_rng(devices=devices, enabled=alone)
        with _same_modes(model), forked, not_inference, torch.no_grad(), _not_compiled():
            torch.backends.mha.set_fastpath_enabled(False)
            model.eval()
            yield
    finally:
        for generator, state in own:
            generator.set_state(state)
        torch.backends.mha.set_fastpath_enabled(fused)
        if alone:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def reading_weights(model: nn.Module) -> Iterator[None]:
    """Read weights as in evaluation: a spectral norm would move on each time it is looked at."""
    with _same_modes(model), torch.no_grad():
        for module in model.modules():
            module.training = False
        yield


@contextmanager
def _same_modes(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _not_compiled() -> AbstractContextManager[Any]:
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    return nullcontext() if set_stance is None else set_stance("force_eager")


def _generators(loader: Any) -> list[torch.Generator]:
    owners = (loader, getattr(loader, "sampler", None))
    found = (getattr(owner, "generator", None) for owner in owners)
    return [generator for generator in found if isinstance(generator, torch.Generator)]

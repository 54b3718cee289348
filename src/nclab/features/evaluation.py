"""Contexts that evaluate a model and leave the model and the random states unchanged."""

import random
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

_MEASURING = threading.RLock()
"""Held by the thread that measures. A measurement changes global state (modes of modules, random
states, PyTorch's fused transformer path), which two measurements at once would confuse."""


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside torch.compile, DataParallel and DistributedDataParallel wrappers.

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
    """Return the names of compiled modules; hooks inside them do not run in training.

    >>> compiled_parts(nn.Sequential(nn.Linear(2, 2), torch.compile(nn.ReLU(), backend="eager")))
    ['1._orig_mod']
    """
    names = []
    for name, module in model.named_modules():
        if isinstance(getattr(module, "_orig_mod", None), nn.Module):
            names.append(f"{name}._orig_mod".removeprefix("."))
        elif getattr(module, "_compiled_call_impl", None) is not None:
            names.append(name)
    return names


def is_inside(name: str, parts: Collection[str]) -> bool:
    """Whether a module name equals one of `parts` or lies below one of them."""
    return any(not part or name == part or name.startswith(f"{part}.") for part in parts)


@contextmanager
def evaluating(model: nn.Module, loader: Any = None) -> Iterator[None]:
    """Evaluate without gradients, then restore the modes of all modules and all random states.

    The states of the loader's generators are restored as well. PyTorch's fused transformer path
    and torch.compile are switched off, because they skip the hooks of inner modules and round
    differently. One thread measures at a time; the others wait.
    """
    owners = (loader, getattr(loader, "sampler", None))
    generators = (getattr(owner, "generator", None) for owner in owners)
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    not_compiled = nullcontext() if set_stance is None else set_stance("force_eager")
    with _MEASURING:
        states = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
        fused = torch.backends.mha.get_fastpath_enabled()
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        try:
            # Tensors made in inference mode do not record in-place changes.
            not_inference = torch.inference_mode(False)
            forked = torch.random.fork_rng(devices=devices)
            with _same_modes(model), forked, not_inference, torch.no_grad(), not_compiled:
                torch.backends.mha.set_fastpath_enabled(False)
                model.eval()
                yield
        finally:
            for generator, state in states:
                generator.set_state(state)
            torch.backends.mha.set_fastpath_enabled(fused)
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def reading_weights(model: nn.Module) -> Iterator[None]:
    """Read weights in evaluation mode: in training mode, reading would advance a spectral norm."""
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

"""Contexts that evaluate a model and leave the model and the random states unchanged."""

import random
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from nclab.errors import ModelError


class ThreadGuard:
    """Lets one thread measure at a time, and never a model that another thread trains.

    A measurement changes global state: modes of modules, random states, and the fused path of
    PyTorch's transformer layers. Two measurements at once would restore each other's changes.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Held by the thread that measures."""
        self._measured: nn.Module | None = None
        self._training: dict[int, tuple[threading.Thread, nn.Module]] = {}
        """Monitor id -> the thread that trains under this monitor, and its model."""

    @contextmanager
    def measuring(self, model: nn.Module) -> Iterator[None]:
        """Wait for measurements of other threads; raise if another thread trains the model."""
        with self._lock:
            if any(_share_modules(model, other) for other in self._trained_elsewhere()):
                raise ModelError(
                    "Expected a model that no other thread trains, got one in an epoch that a "
                    "Monitor watches in another thread. Measure between epochs, or measure a copy "
                    "of the model."
                )
            previous, self._measured = self._measured, model
            try:
                yield
            finally:
                self._measured = previous

    def begin_training(self, monitor: object, model: nn.Module) -> None:
        """Register a training thread; wait first while another thread measures the model."""
        if id(monitor) in self._training:
            return
        entry = threading.current_thread(), model
        if self._measured is None or not _share_modules(model, self._measured):
            self._training[id(monitor)] = entry
            return
        with self._lock:
            self._training[id(monitor)] = entry

    def end_training(self, monitor: object) -> None:
        """Mark the training under this monitor as finished."""
        self._training.pop(id(monitor), None)

    def others_train(self) -> bool:
        """Whether another thread trains; the global random state is then left alone."""
        return bool(self._trained_elsewhere())

    def _trained_elsewhere(self) -> list[nn.Module]:
        current = threading.current_thread()
        entries = list(self._training.values())
        return [model for thread, model in entries if thread is not current and thread.is_alive()]


THREADS = ThreadGuard()
"""The guard of this process."""


def _share_modules(first: nn.Module, second: nn.Module) -> bool:
    """Whether two models have a module in common."""
    ids = {id(module) for module in first.modules()}
    return not ids.isdisjoint(id(module) for module in second.modules())


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
    differently. While another thread trains under a Monitor, the global random states are not
    restored, because that thread draws from them.
    """
    owners = (loader, getattr(loader, "sampler", None))
    generators = (getattr(owner, "generator", None) for owner in owners)
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    not_compiled = nullcontext() if set_stance is None else set_stance("force_eager")
    with THREADS.measuring(model):
        states = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
        fused = torch.backends.mha.get_fastpath_enabled()
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        alone = not THREADS.others_train()
        try:
            # Tensors made in inference mode do not record in-place changes.
            not_inference = torch.inference_mode(False)
            forked = torch.random.fork_rng(devices=devices, enabled=alone)
            with _same_modes(model), forked, not_inference, torch.no_grad(), not_compiled:
                torch.backends.mha.set_fastpath_enabled(False)
                model.eval()
                yield
        finally:
            for generator, state in states:
                generator.set_state(state)
            torch.backends.mha.set_fastpath_enabled(fused)
            if alone:
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

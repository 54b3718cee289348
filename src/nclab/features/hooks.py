"""Hooks that nclab puts on modules: they follow no model into copies, files or compiled code."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class Hook:
    """Calls a function; a copy of it, as in a copied or saved model, does nothing.

    >>> from copy import deepcopy
    >>> hook = Hook(lambda: 7)
    >>> hook(), deepcopy(hook)()
    (7, None)
    """

    def __init__(self, act: Callable[..., None] | None = None) -> None:
        self._act = act

    def __call__(self, *args: Any) -> None:
        if self._act is None or torch.compiler.is_compiling():
            return None  # what the compiler traces here would become part of the model
        return self._act(*args)

    def __copy__(self) -> "Hook":
        return Hook()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hook":
        return Hook()

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()


def only_ours(module: nn.Module) -> bool:
    """Whether no other hook can change what a module returns."""
    return all(isinstance(hook, Hook) for hook in module._forward_hooks.values())


def before(module: nn.Module, act: Callable[..., None]) -> RemovableHandle:
    """Call `act(module, args, kwargs)` whenever the module is entered."""
    return module.register_forward_pre_hook(Hook(act), with_kwargs=True)


def after(module: nn.Module, act: Callable[..., None]) -> RemovableHandle:
    """Call `act(module, args, output)` whenever the module is left."""
    return module.register_forward_hook(Hook(act))

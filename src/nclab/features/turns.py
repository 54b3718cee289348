"""Threads take turns: one measurement at a time, and none of a model that another one trains.

A measurement changes what belongs to the whole process: the modes of modules, random states, how
PyTorch runs transformers. Two at once would undo each other's repairs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import nn

from nclab.errors import ModelError


@dataclass
class _Turns:
    measuring: threading.RLock = field(default_factory=threading.RLock)
    """Held by the thread that measures."""
    measured: nn.Module | None = None
    """What it measures."""
    training: dict[int, tuple[threading.Thread, nn.Module]] = field(default_factory=dict)
    """Monitor -> the thread that trains under it, and what."""

    def elsewhere(self) -> list[nn.Module]:
        """What other threads train."""
        here = threading.current_thread()
        known = list(self.training.values())
        return [model for thread, model in known if thread is not here and thread.is_alive()]


_turns = _Turns()


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Wait for measurements of other threads; refuse a model that another thread trains."""
    with _turns.measuring:
        if any(_overlap(model, other) for other in _turns.elsewhere()):
            raise ModelError(
                "Expected a model that no other thread trains, got one in an epoch that a Monitor "
                "watches in another thread. Measure between epochs, or a copy of the model."
            )
        before, _turns.measured = _turns.measured, model
        try:
            yield
        finally:
            _turns.measured = before


def begin_training(monitor: object, model: nn.Module) -> None:
    """A thread trains from now on; waits while another one measures the model."""
    if id(monitor) in _turns.training:
        return
    measured = _turns.measured
    if measured is None or not _overlap(model, measured):
        _turns.training[id(monitor)] = threading.current_thread(), model
        return
    with _turns.measuring:
        _turns.training[id(monitor)] = threading.current_thread(), model


def end_training(monitor: object) -> None:
    """It does so no longer."""
    _turns.training.pop(id(monitor), None)


def others_train() -> bool:
    """Whether another thread trains, so that the common random numbers are not ours to rewind."""
    return bool(_turns.elsewhere())


def _overlap(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models share a module."""
    return not {id(part) for part in one.modules()}.isdisjoint(id(p) for p in other.modules())

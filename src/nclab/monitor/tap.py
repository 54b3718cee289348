"""Tap: hooks that read features in the training forward pass and leave it as it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.features.batches import Batch
from nclab.features.hooks import Hook
from nclab.features.pooling import NoRows, channel_dim
from nclab.features.recorder import Point, Recorder, first_tensor
from nclab.measurement.survey import Survey


class Labels(NamedTuple):
    """The labels of the batch that is about to be trained on."""

    labels: Tensor
    mask: Tensor | None


Finder = Callable[[tuple[Any, ...], dict[str, Any]], Labels]
"""Finds the labels in what the model is called with."""


class Reading(NamedTuple):
    """What one forward pass has shown: rows of every place, the logits, the labels."""

    rows: list[Tensor]
    logits: Tensor | None
    labels: Tensor


class Tap:
    """Hooks on a model: the first pass finds the places, the later ones read them.

    Only a pass in training mode counts, only once for each `expect`, and only what happens inside
    it: modules that gradient checkpointing runs again during the backward pass do not.
    """

    def __init__(self, survey: Survey, take: Callable[[Reading], None]) -> None:
        self.survey = survey
        self.take = take
        self.passes = 0
        """Training passes that were read."""
        self.unclaimed = 0
        """Training passes without labels."""
        self.refused: str | None = None
        """Why the last pass with labels could not be read."""
        self._expected: Labels | Finder | None = None
        self._reading: Labels | None = None
        self._handles: list[Any] = []
        self._ready = False
        self._recorder: Recorder | None = None
        self._inputs: Batch | None = None
        self._calls: dict[str, int] = {}
        self._found: dict[Point, Tensor | NoRows] = {}

    def listen(self) -> None:
        """Notice training passes that come before any labels are expected."""
        if not self._handles:
            self._before(self.survey.model, self._begin)

    def expect(self, labels: Labels | Finder | None) -> None:
        """The labels of the next training pass, or how to find them there; None for none."""
        if labels is not None and (not self._ready or self._recorder is not None):
            self.remove()
            self._install()
        self._expected = labels
        self._reading = None

    def remove(self) -> Labels | Finder | None:
        """Take all hooks off; the labels that were still expected are returned."""
        expected = self._expected
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._recorder is not None:
            self._recorder.__exit__(None, None, None)
            self._recorder = None
        self._ready = False
        self._expected = self._reading = None
        return expected

    def _install(self) -> None:
        model = self.survey.model
        self._before(model, self._begin)
        if self.survey.found is None:
            blank = Batch((), {}, torch.empty(0, dtype=torch.int64), None)
            self._recorder = self.survey.recorder(blank)
            self._recorder.reader = self._read_now
            self._recorder.__enter__()
        else:
            for module, points in _by_module(self._points()).items():
                own = model.get_submodule(module)
                self._before(own, self._entering(module, points))
                if any(point.side == "output" for point in points):
                    self._after(own, self._leaving(module, points))
        self._after(model, self._end)
        self._ready = True

    def _before(self, module: nn.Module, act: Callable[..., None]) -> None:
        self._handles.append(module.register_forward_pre_hook(Hook(act), with_kwargs=True))

    def _after(self, module: nn.Module, act: Callable[..., None]) -> None:
        self._handles.append(module.register_forward_hook(Hook(act)))

    def _points(self) -> list[Point]:
        assert self.survey.found is not None
        head = self.survey.found.call
        places = [place.layer.point for place in self.survey.places]
        return [*places, Point(head.name, "output", head.index)]

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        expected = self._expected
        if not model.training:
            self._reading = None
        elif self._reading is None:
            self._reading = expected(args, kwargs) if callable(expected) else expected
        elif self._recorder is not None:
            # Called inside its own call, as by trainers that put a training step for the forward
            # pass: the inner one is the pass to read.
            self._recorder.restart()
        if self._reading is None:
            self.unclaimed += model.training
            return
        self._expected = None
        self._calls.clear()
        self._found.clear()
        if self._recorder is not None:
            self._inputs = Batch(args, kwargs, *self._reading)

    def _end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        labels, self._reading = self._reading, None
        if self._recorder is not None:
            self._settle(labels, output)
        elif labels is not None:
            self._finish(labels)

    def _settle(self, labels: Labels | None, output: Any) -> None:
        """The traced pass is over: find the places, then read there from now on."""
        recorder, batch = self._recorder, self._inputs
        assert recorder is not None
        expected = self.remove()
        if labels is None or batch is None:  # an evaluation came first
            self.expect(expected)
            return
        self._inputs = None
        with torch.no_grad(), at_rest(self.survey.model):
            self.survey.settle(recorder, batch, output)
            self._found = dict(recorder.rows)
        self._finish(labels)
        self._install()

    def _finish(self, labels: Labels) -> None:
        rows = []
        for place in self.survey.places:
            found = self._found.get(place.layer.point, NoRows("it was not called"))
            if isinstance(found, NoRows):
                self.refused = f"{place.layer.name}: {found}"
                return
            rows.append(found)
        logits = self._found.get(self._points()[-1])
        self.refused = None
        self.passes += 1
        own = labels.labels.reshape(-1).clone()
        self.take(Reading(rows, logits if isinstance(logits, Tensor) else None, own))
        self._found = {}

    def _entering(self, name: str, points: Sequence[Point]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._reading is None or torch.compiler.is_compiling():
                return
            index = self._calls.get(name, 0)
            self._calls[name] = index + 1
            point = Point(name, "input", index)
            if point in points:
                source = first_tensor(args)
                self._note(point, first_tensor(kwargs) if source is None else source, module)

        return hook

    def _leaving(self, name: str, points: Sequence[Point]) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._reading is None or torch.compiler.is_compiling():
                return
            point = Point(name, "output", self._calls.get(name, 1) - 1)
            if point in points:
                self._note(point, first_tensor(output), module)

        return hook

    def _note(self, point: Point, tensor: Tensor | None, module: nn.Module) -> None:
        try:
            if tensor is None:
                raise NoRows("it is not a tensor")
            self._found[point] = self._read_now(tensor, self.survey.deciders.get(point, module))
        except NoRows as reason:
            self._found[point] = reason

    def _read_now(self, tensor: Tensor, module: nn.Module) -> Tensor:
        if self._reading is None:
            raise NoRows("no labels are expected")
        labels, mask = self._reading
        tensor = tensor.detach()
        plain = labels.ndim == 1 and tensor.ndim == 4 and self.survey.pool == "mean"
        if plain and len(tensor) == len(labels) and channel_dim(module, 4) == 1:
            return tensor.mean((2, 3), dtype=_single(tensor))  # as to_rows, in single precision
        with torch.no_grad():
            return self.survey.rows(tensor, module, labels=labels, mask=mask)


def _single(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _by_module(points: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.module, []).append(point)
    return found


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Read weights as in evaluation: a spectral norm would move on each time it is looked at."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training

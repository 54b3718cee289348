"""TrainingHooks: read features in the training forward pass and leave it as it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nclab.errors import DataError
from nclab.features.batches import Batch, as_label_tensor, two_classes
from nclab.features.evaluation import compiled_parts, reading_weights
from nclab.features.hooks import after, before
from nclab.features.own_loss import next_labels, own_loss
from nclab.features.pooling import NoRows, channel_dim
from nclab.features.recorder import Point, Recorder
from nclab.measurement.model_layers import ModelLayers
from nclab.statistics.checks import IGNORE_INDEX


class Labels(NamedTuple):
    """The labels of the batch that is about to be trained on."""

    labels: Tensor
    mask: Tensor | None

    @classmethod
    def checked(
        cls, values: Any, mask: Tensor | None, names: tuple[str, ...] | None = None
    ) -> "Labels":
        """Class numbers as a tensor, not copied; names of classes as their numbers."""
        labels = values.detach() if isinstance(values, Tensor) else as_label_tensor(values, names)
        labels = two_classes(labels) if labels.is_floating_point() else labels
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype.is_floating_point or labels.dtype.is_complex:
            raise DataError(
                f"Expected class numbers as labels, got {labels.dtype} of shape "
                f"{tuple(labels.shape)}. Pass hard labels, such as labels.argmax(1)."
            )
        return cls(labels, mask)


LabelFinder = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Tensor | None]]
"""Finds labels and mask in what the model is called with."""


class Reading(NamedTuple):
    """What one forward pass has shown: rows of every layer, the logits, the labels."""

    rows: list[Tensor]
    logits: Tensor | None
    labels: Tensor
    own_loss: float | None = None
    """What the model itself has found, of the first pass that was read."""


class TrainingHooks:
    """Hooks on a model: the first pass finds the layers, the later ones read them.

    Only a pass in training mode counts, only once for each `expect`, and only what happens inside
    it: modules that gradient checkpointing runs again during the backward pass do not.
    """

    def __init__(
        self,
        layers: ModelLayers,
        take: Callable[[Reading], None],
        names: tuple[str, ...] | None = None,
    ) -> None:
        self.layers = layers
        self.take = take
        self.names = names
        """Of the classes, where labels may be names."""
        self.passes = 0
        """Training passes that were read."""
        self.unclaimed = 0
        """Training passes without labels."""
        self.refused: str | None = None
        """Why the last pass with labels could not be read."""
        self._expected: Labels | LabelFinder | None = None
        self._reading: Labels | None = None
        self._handles: list[RemovableHandle] = []
        self._recorder: Recorder | None = None
        self._inputs: Batch | None = None  # of the traced pass

    def listen(self) -> None:
        """Notice training passes that come before any labels are expected."""
        if not self._handles:
            self._handles.append(before(self.layers.model, self._begin))

    def expect(self, labels: Labels | LabelFinder | None) -> None:
        """The labels of the next training pass, or how to find them there; None for none."""
        if labels is not None and (self._recorder is None or self._recorder.trace):
            self.remove()
            self._install()
        elif self._recorder is not None:
            self._recorder.active = False  # of a pass that has failed
        self._expected = labels
        self._reading = None

    def remove(self) -> Labels | LabelFinder | None:
        """Take all hooks off; the labels that were still expected are returned."""
        expected = self._expected
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._recorder is not None:
            self._recorder.remove()
        self._recorder = self._inputs = self._expected = self._reading = None
        return expected

    def _install(self) -> None:
        points = self._points() if self.layers.found else None
        self._recorder = self.layers.recorder(self._rows, points, keep=True)
        self._recorder.active = False
        self._recorder.without = compiled_parts(self.layers.model)
        self._handles.append(before(self.layers.model, self._begin))
        self._recorder.install()
        self._handles.append(after(self.layers.model, self._end))

    def _points(self) -> list[Point]:
        """Where the layers are read and, last, the logits where a module returns them."""
        layers = [layer.point for layer in self.layers.measured]
        logits = self._direct_logits()
        return layers if logits is None else [*layers, logits]

    def _direct_logits(self) -> Point | None:
        """Where a module returns the logits of the rows that are read."""
        head = self.layers.classifier
        return head.logits if head is not None and head.takes == "rows" else None

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        expected = self._expected
        if not model.training:
            self._reading = None
        elif self._reading is None:
            if callable(expected):
                expected = Labels.checked(*expected(args, kwargs), self.names)
            self._reading = expected
        # Else called inside its own call, as by trainers that put a training step for the forward
        # pass: the inner one is the pass to read.
        if self._recorder is not None:
            self._recorder.active = self._reading is not None
        if self._reading is None:
            self.unclaimed += model.training
            return
        self._expected = None
        assert self._recorder is not None
        self._recorder.restart()
        if self._recorder.trace:
            self._inputs = Batch(args, kwargs, *self._reading)

    def _end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        recorder, batch, labels = self._recorder, self._inputs, self._reading
        self._reading = None
        if recorder is None or labels is None:
            return
        recorder.active = False
        if batch is None:
            self._finish(recorder, labels, output)
            return
        self.remove()  # the traced pass is over: find the layers, then read there from now on
        with reading_weights(model):
            self.layers.find(recorder, batch, output)
            own = self._own_loss(model, batch, output)
        self._finish(recorder, labels, output, own)
        self._install()

    def _own_loss(self, model: nn.Module, batch: Batch, output: Any) -> float | None:
        """How the model takes its labels, and the loss it has found with them."""
        if self.layers.classifier is None:
            return None
        called = dict(batch.kwargs)
        if batch.args:
            called.setdefault("input_ids", batch.args[0])
        found = own_loss(model, output, batch.labels, called_with=called, ignore_index=IGNORE_INDEX)
        self.layers.shifted = found.shifted
        return found.loss

    def _finish(
        self, recorder: Recorder, labels: Labels, output: Any, own: float | None = None
    ) -> None:
        rows = []
        for layer in self.layers.measured:
            found = self.layers.features(layer, recorder, output)
            if isinstance(found, NoRows):
                self.refused = f"{layer.name}: {found}"
                return
            rows.append(found)
        at = self._direct_logits()
        logits = None if at is None else recorder.rows.get(at)
        recorder.rows.clear()
        self.refused = None
        self.passes += 1
        shifted = self.layers.shifted
        classes = next_labels(labels.labels, IGNORE_INDEX) if shifted else labels.labels.clone()
        shown = logits if isinstance(logits, Tensor) else None
        self.take(Reading(rows, shown, classes.reshape(-1), own))

    def _rows(self, tensor: Tensor, module: nn.Module) -> Tensor:
        assert self._reading is not None
        labels, mask = self._reading
        tensor = tensor.detach()
        plain = labels.ndim == 1 and tensor.ndim == 4 and self.layers.pool == "mean"
        if plain and len(tensor) == len(labels) and channel_dim(module, 4) == 1:
            single = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            return tensor.mean((2, 3), dtype=single)  # as to_rows, in single precision
        with torch.no_grad():
            return self.layers.rows(tensor, module, labels=labels, mask=mask)

"""ModelLayers: which layers of a model are measured, found in one traced forward pass."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError, NclabError
from nclab.features.batches import Batch
from nclab.features.classifier import Classifier, find_classifier
from nclab.features.layers import FoundLayer, all_layers, input_layer, named_points
from nclab.features.pooling import NoRows, Pool, is_turned, to_rows
from nclab.features.recorder import Call, Point, Reader, Recorder, is_weight_layer, possible_logits
from nclab.measurement.layer_stream import Head
from nclab.statistics.checks import check_sizes


class MeasuredLayer(NamedTuple):
    """A layer that can be measured."""

    name: str
    point: Point
    dim: int
    is_last: bool
    """Whether the classifier reads it."""


class ModelLayers:
    """What a caller wants to see of a model, and after one traced pass, where it is.

    A recorder made by `recorder(reader)` traces the pass; `find` then finds classifier and layers.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str],
        *,
        classifier: str | None = None,
        pool: Pool = "mean",
    ) -> None:
        self.model = model
        self.wanted = layers
        self.chosen = classifier
        self.pool = pool
        self.classifier: Classifier
        """There once `find` has found it."""
        self.measured: list[MeasuredLayer] = []
        self.skipped: dict[str, str] = {}
        self.deciders: dict[Point, nn.Module] = {}
        self._turned: dict[int, bool | None] = {}
        self._named: list[tuple[str, Point]] = []
        if layers is None:
            raise ModelError("Expected layers='last', 'all' or a list of names, got None.")
        if not isinstance(layers, str):
            self._named = named_points(model, layers)
        elif layers not in ("last", "all"):
            self._named = named_points(model, [layers])
        self._sequence_first = any(
            getattr(module, "batch_first", True) is False for module in model.modules()
        )
        self._weight_layers = [n for n, m in model.named_modules() if is_weight_layer(m)]
        # What a convolution over several pixels reads is no input of a classifier.
        self._may_classify = [n for n in self._weight_layers if _one_place(model.get_submodule(n))]

    @property
    def found(self) -> bool:
        """Whether the traced pass is over."""
        return hasattr(self, "classifier")

    @property
    def num_classes(self) -> int:
        """Outputs of the classifier."""
        return len(self.classifier.weight)

    @property
    def classifier_name(self) -> str:
        """Name of the classifier."""
        return self.classifier.call.name or type(self.model).__name__

    @property
    def remarks(self) -> tuple[str, ...]:
        """How the classifier was found, where that needs saying."""
        return (self.classifier.remark,) if self.classifier.remark else ()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        parameter = next(self.model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def head(self) -> Head:
        """The classifier's weights as they are now."""
        module = self.classifier.call.module
        bias = getattr(module, "bias", None)
        return Head.checked(module.weight, bias if isinstance(bias, Tensor) else None, None)

    def rows(self, tensor: Tensor, module: nn.Module, *, labels: Tensor, mask: Any) -> Tensor:
        """(rows, d) features of a batch, channels where `module` has them; raises NoRows."""
        turned, first = None, self._sequence_first
        if first and not tensor.is_nested and tensor.ndim == 3:
            turned = is_turned(tensor, labels, module)
            # A last batch of T samples is turned as the batches before it were.
            turned = self._turned.get(id(module)) if turned is None else turned
            self._turned[id(module)] = turned
        how = {"pool": self.pool, "mask": mask, "sequence_first": first, "turned": turned}
        return to_rows(tensor, labels, module, **how)

    def recorder(self, reader: Reader, points: Sequence[Point] | None = None) -> Recorder:
        """A recorder of the given points or, without them, one that traces the pass."""
        if points is not None:
            return Recorder(self.model, reader, points, deciders=self.deciders)
        names = self._weight_layers if self.wanted == "all" else self._may_classify
        inputs = [Point(name, "input", None) for name in names]
        named = [point for _, point in self._named]
        return Recorder(self.model, reader, inputs + named, trace=True, deciders=self.deciders)

    def find(self, recorder: Recorder, batch: Batch, output: Any) -> None:
        """After the traced pass: find the classifier and the layers to measure."""
        self.classifier = find_classifier(recorder.calls, possible_logits(output), self.chosen)
        last = input_layer(self.classifier.call, recorder.calls)
        classes = len(self.head().weight)
        for layer in self._layers(recorder.calls, batch, last):
            rows = recorder.rows.get(layer.point, NoRows("it was not called"))
            is_last = layer.identity is not None and layer.identity == last.identity
            try:
                if isinstance(rows, NoRows):
                    raise ModelError(f"Cannot measure {layer.name}: {rows}.") from rows
                check_sizes(classes, rows.shape[1])
            except NclabError as error:
                if is_last or self._named:
                    raise
                self.skipped[layer.name] = str(error.__cause__ or error)
            else:
                self.measured.append(MeasuredLayer(layer.name, layer.point, rows.shape[1], is_last))
        recorder.calls.clear()
        recorder.forget()  # The tensors of this pass are not ours to keep alive.

    def _layers(self, calls: list[Call], batch: Batch, last: FoundLayer) -> list[FoundLayer]:
        if self._named:
            placed = [_named_layer(name, point, calls) for name, point in self._named]
            return [layer for _, layer in sorted(placed, key=lambda place: place[0])]
        if self.wanted == "last":
            return [last]
        layers = all_layers(calls, self._weight_layers, batch)
        # The classifier's input closes the list, also where it is the network's own input.
        return [layer for layer in layers if layer.identity != last.identity] + [last]


def _one_place(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return not isinstance(weight, Tensor) or all(size == 1 for size in weight.shape[2:])


def _named_layer(name: str, point: Point, calls: list[Call]) -> tuple[int, FoundLayer]:
    """The layer, and when the forward pass came by."""
    for call in calls:
        if (call.name, call.index) == (point.module, point.call):
            if point.side == "input":
                return call.entered, FoundLayer(name, point, call.source_identity)
            return call.left, FoundLayer(name, point, call.target_identity)
    return 0, FoundLayer(name, point, None)

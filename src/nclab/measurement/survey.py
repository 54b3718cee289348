"""Survey: which places of a model are measured, found in one traced forward pass."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from nclab.errors import DataError, ModelError
from nclab.features.batches import Batch
from nclab.features.classifier import Classifier, find_classifier
from nclab.features.layers import Layer, all_layers, input_layer, named_points
from nclab.features.pooling import NoRows, Pool, is_turned, to_rows
from nclab.features.recorder import Call, Point, Recorder, is_weight_layer, possible_logits
from nclab.measurement.layer_stream import Head
from nclab.statistics.checks import check_sizes


class Place(NamedTuple):
    """A layer that can be measured."""

    layer: Layer
    dim: int
    is_last: bool
    """Whether the classifier reads it."""


class Survey:
    """What a caller wants to see of a model, and after one traced pass, where it is.

    A recorder made by `recorder(batch)` traces the pass; `settle` then finds classifier and places.
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
        self.found: Classifier | None = None
        self.places: list[Place] = []
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

    @property
    def num_classes(self) -> int:
        """Outputs of the classifier."""
        assert self.found is not None
        return len(self.found.weight)

    @property
    def classifier(self) -> str:
        """Name of the classifier."""
        assert self.found is not None
        return self.found.call.name or type(self.model).__name__

    @property
    def remarks(self) -> tuple[str, ...]:
        """How the classifier was found, where that needs saying."""
        return (self.found.remark,) if self.found is not None and self.found.remark else ()

    def head(self) -> Head:
        """The classifier's weights as they are now."""
        assert self.found is not None
        module = self.found.call.module
        bias = getattr(module, "bias", None)
        return Head.checked(module.weight, bias if isinstance(bias, Tensor) else None, None)

    def rows(self, tensor: Tensor, module: nn.Module, *, labels: Tensor, mask: Any) -> Tensor:
        """(rows, d) features of a batch, channels where `module` has them; raises NoRows."""
        turned = None
        if self._sequence_first and not tensor.is_nested and tensor.ndim == 3:
            turned = is_turned(tensor, labels, module)
            # A last batch of T samples is turned as the batches before it were.
            turned = self._turned.get(id(module)) if turned is None else turned
            self._turned[id(module)] = turned
        return to_rows(
            tensor,
            labels,
            module,
            pool=self.pool,
            mask=mask,
            sequence_first=self._sequence_first,
            turned=turned,
        )

    def recorder(self, batch: Batch, points: Sequence[Point] | None = None) -> Recorder:
        """A recorder for one pass: of the given points or, without them, tracing all."""
        reader = partial(self.rows, labels=batch.labels, mask=batch.mask)
        if points is None:
            own = {point.module for _, point in self._named if point.side == "input"}
            inputs = {*self._weight_layers, *own}
            outputs = {point.module for _, point in self._named if point.side == "output"}
        else:
            inputs = {point.module for point in points if point.side == "input"}
            outputs = {point.module for point in points if point.side == "output"}
        return Recorder(
            self.model, reader, inputs, outputs, trace=points is None, deciders=self.deciders
        )

    def settle(self, recorder: Recorder, batch: Batch, output: Any) -> None:
        """After the traced pass: find the classifier and the places to measure."""
        self.found = find_classifier(recorder.calls, possible_logits(output), self.chosen)
        last = input_layer(self.found.call, recorder.calls)
        classes = len(self.head().weight)
        for layer in self._layers(recorder.calls, batch, last):
            rows = recorder.rows.get(layer.point, NoRows("it was not called"))
            is_last = layer.identity is not None and layer.identity == last.identity
            if isinstance(rows, NoRows):
                if is_last or self._named:
                    raise ModelError(f"Cannot measure {layer.name}: {rows}.")
                self.skipped[layer.name] = str(rows)
                continue
            try:
                check_sizes(classes, rows.shape[1])
            except DataError as error:
                if is_last or self._named:
                    raise
                self.skipped[layer.name] = str(error)
                continue
            self.places.append(Place(layer, rows.shape[1], is_last))
        recorder.calls.clear()
        # The tensors of this pass are not ours to keep alive.
        self.found.call.source = self.found.call.target = None

    def _layers(self, calls: list[Call], batch: Batch, last: Layer) -> list[Layer]:
        if self._named:
            placed = [_named_layer(name, point, calls) for name, point in self._named]
            return [layer for _, layer in sorted(placed, key=lambda place: place[0])]
        if self.wanted == "last":
            return [last]
        layers = all_layers(calls, self._weight_layers, batch)
        # The classifier's input closes the list, also where it is the network's own input.
        return [layer for layer in layers if layer.identity != last.identity] + [last]


def _named_layer(name: str, point: Point, calls: list[Call]) -> tuple[int, Layer]:
    """The layer, and when the forward pass came by."""
    for call in calls:
        if (call.name, call.index) == (point.module, point.call):
            if point.side == "input":
                return call.entered, Layer(name, point, call.source_identity)
            return call.left, Layer(name, point, call.target_identity)
    return 0, Layer(name, point, None)

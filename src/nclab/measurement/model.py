"""measure: the door for any nn.Module and the loader that feeds it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn

from nclab.errors import DataError, ModelError
from nclab.features.batches import Batch, split_batch
from nclab.features.classifier import Classifier, find_classifier
from nclab.features.layers import Layer, all_layers, input_layer, named_points
from nclab.features.pooling import NoRows, Pool, is_turned, to_rows
from nclab.features.recorder import Call, Point, Recorder, is_weight_layer, possible_logits
from nclab.features.undisturbed import undisturbed, unwrap
from nclab.measurement.layer_stream import CACHE_BYTES, Cache, Head, LayerStream
from nclab.measurement.report import Report
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX, check_sizes

NOT_THE_LAST = "the classifier does not read this layer"


def measure(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layers: str | Sequence[str] = "last",
    classifier: str | None = None,
    pool: Pool = "mean",
    ignore_index: int | None = IGNORE_INDEX,
    allow_missing: bool = False,
    second_look: bool = True,
    cache_bytes: int = CACHE_BYTES,
) -> Report:
    """Measure the neural collapse of a model over the batches of a loader.

    Finds the classifier, the last linear map that produces the logits, and measures the features
    it reads; with `layers="all"` what every weight layer reads; with names the outputs of those
    modules (`"name.input"` for an input, `"name#2"` for what the second call returns). All layers
    come from one forward pass per batch, in evaluation mode and without gradients; mode, hooks,
    gradients and random states are afterwards as before. Batches are (inputs, labels) or mappings
    with `labels`.

    Costs the forward passes and, per layer, what `measure_features` costs. The second look reads
    features kept in `cache_bytes` of memory, shared by all layers; layers that do not fit need a
    second round of forward passes.

    Args:
        classifier: name of the linear module to take instead of the one found.
        pool: "mean" or "flatten" for feature maps and tokens, see `nclab.features.pooling`.
        ignore_index: label of padded tokens to skip.
        allow_missing: leave out classes without samples instead of refusing.
        second_look: False for the one-pass metrics alone.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(60, 4, generator=generator)
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> report = measure(net, [(x, torch.arange(60) % 3)])
    >>> report.classifier, report.last.layer, report.last.dim
    ('2', '1', 8)
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected a torch.nn.Module, got a {type(model).__name__}.")
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise DataError(f"Expected a loader of batches, got a {type(loader).__name__}.")
    if pool not in get_args(Pool):
        raise ModelError(f"Expected pool='mean' or 'flatten', got {pool!r}.")
    measurement = _Measurement(unwrap(model), layers, classifier, pool, ignore_index, cache_bytes)
    measurement.keeps = second_look
    # Not iter(loader) is loader: a DataLoader draws a random number and starts workers for that.
    repeatable = not isinstance(loader, Iterator)
    with undisturbed(measurement.model, loader):
        for batch in track(loader, "measuring"):
            measurement.first_pass(batch)
        measurement.require_data(allow_missing=allow_missing)
        reasons: dict[str, str] = {}
        again = [stream for stream in measurement.streams.values() if not stream.cached]
        if second_look:
            for stream in measurement.streams.values():
                if stream.cached:
                    stream.look_at_cache()
            if again and repeatable:
                for batch in track(loader, "second look"):
                    measurement.second_pass(batch, again)
                for stream in again:
                    stream.finish_second_look()
            elif again:
                reasons["second look"] = (
                    f"the features exceed cache_bytes={cache_bytes} and the loader can be "
                    "read only once"
                )
    return measurement.report(reasons)


@dataclass
class _Measurement:
    """One measurement under way: the plan made from the first batch, and a stream per layer."""

    model: nn.Module
    wanted: str | Sequence[str]
    chosen: str | None
    pool: Pool
    ignore_index: int | None
    cache_bytes: int
    keeps: bool = True

    def __post_init__(self) -> None:
        self.streams: dict[Point, LayerStream] = {}
        self.deciders: dict[Point, nn.Module] = {}
        self.skipped: dict[str, str] = {}
        self.turned: dict[int, bool | None] = {}
        self.found: Classifier | None = None
        self.budget = [self.cache_bytes]
        parameter = next(self.model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        self.named: list[tuple[str, Point]] = []
        if not isinstance(self.wanted, str):
            self.named = named_points(self.model, self.wanted)
        elif self.wanted not in ("last", "all"):
            self.named = named_points(self.model, [self.wanted])
        self.sequence_first = any(
            getattr(module, "batch_first", True) is False for module in self.model.modules()
        )
        self.weight_layers = [n for n, m in self.model.named_modules() if is_weight_layer(m)]

    def first_pass(self, raw: Any) -> None:
        """Run one batch; the first one also decides what is measured."""
        batch = split_batch(raw, self.device)
        if self.found is None:
            recorder = self._run(
                batch,
                inputs={*self.weight_layers, *self._names("input")},
                outputs=set(self._names("output")),
                trace=True,
            )
            self._plan(recorder, batch)
            recorder.calls.clear()
        else:
            recorder = self._run_planned(batch, list(self.streams))
        self._check_labels(batch.labels)
        for point, stream in self.streams.items():
            stream.update(self._rows(recorder, point, stream), batch.labels.reshape(-1))

    def second_pass(self, raw: Any, streams: Sequence[LayerStream]) -> None:
        """Run one batch again for the layers that were not kept."""
        batch = split_batch(raw, self.device)
        points = [point for point, stream in self.streams.items() if stream in streams]
        recorder = self._run_planned(batch, points)
        for point in points:
            stream = self.streams[point]
            stream.look_again(self._rows(recorder, point, stream), batch.labels.reshape(-1))

    def require_data(self, *, allow_missing: bool) -> None:
        """After the first pass: refuse an empty loader and absent classes."""
        if self.found is None:
            raise DataError("Expected at least one batch, the loader gave none.")
        for stream in self.streams.values():
            try:
                stream.require_classes(allow_missing=allow_missing)
            except DataError as error:
                name = self.found.call.name
                raise DataError(f"{error} Or is {name!r} not the classifier?") from error

    def report(self, reasons: dict[str, str]) -> Report:
        """The finished measurement."""
        assert self.found is not None
        measured = []
        for stream in self.streams.values():
            own = reasons if stream.head else {"weight": NOT_THE_LAST, **reasons}
            measured.append(stream.collapse(own))
        remark = self.found.remark
        return Report(
            layers=tuple(measured),
            classifier=self.found.call.name or type(self.model).__name__,
            samples=measured[-1].samples,
            skipped=self.skipped,
            remarks=(remark,) if remark else (),
        )

    def _names(self, side: str) -> list[str]:
        return [point.module for _, point in self.named if point.side == side]

    def _run_planned(self, batch: Batch, points: Sequence[Point]) -> Recorder:
        inputs = {point.module for point in points if point.side == "input"}
        outputs = {point.module for point in points if point.side == "output"}
        return self._run(batch, inputs=inputs, outputs=outputs)

    def _run(
        self, batch: Batch, *, inputs: set[str], outputs: set[str], trace: bool = False
    ) -> Recorder:
        def reader(tensor: Tensor, module: nn.Module) -> Tensor:
            turned = None
            if self.sequence_first and not tensor.is_nested and tensor.ndim == 3:
                turned = is_turned(tensor, batch.labels, module)
                # A last batch of T samples is turned as the batches before it were.
                turned = self.turned.get(id(module)) if turned is None else turned
                self.turned[id(module)] = turned
            return read(tensor, batch.labels, module, turned=turned)

        read = partial(to_rows, pool=self.pool, mask=batch.mask, sequence_first=self.sequence_first)
        with Recorder(
            self.model, reader, inputs, outputs, trace=trace, deciders=self.deciders
        ) as recorder:
            output = self.model(*batch.args, **batch.kwargs)
        if trace:
            self.found = find_classifier(recorder.calls, possible_logits(output), self.chosen)
        return recorder

    def _plan(self, recorder: Recorder, batch: Batch) -> None:
        assert self.found is not None
        last = input_layer(self.found.call, recorder.calls)
        head = Head.checked(self.found.weight, self.found.bias, None)
        for layer in self._layers(recorder.calls, batch, last):
            rows = recorder.rows.get(layer.point, NoRows("it was not called"))
            is_last = layer.identity is not None and layer.identity == last.identity
            if isinstance(rows, NoRows):
                if is_last or self.named:
                    raise ModelError(f"Cannot measure {layer.name}: {rows}.")
                self.skipped[layer.name] = str(rows)
                continue
            try:
                check_sizes(len(head.weight), rows.shape[1])
            except DataError as error:
                if is_last or self.named:
                    raise
                self.skipped[layer.name] = str(error)
                continue
            self.streams[layer.point] = LayerStream(
                num_classes=len(head.weight),
                head=head if is_last else None,
                ignore_index=self.ignore_index,
                scatter=None,
                cache=Cache(self.budget) if self.keeps else None,
                layer=layer.name,
            )

    def _check_labels(self, labels: Tensor) -> None:
        assert self.found is not None
        outputs, name = len(self.found.weight), self.found.call.name or "the model"
        used = labels if self.ignore_index is None else labels[labels != self.ignore_index]
        if used.numel() and used.max() >= outputs:
            raise DataError(
                f"Expected labels in [0, {outputs}) for the {outputs} outputs of {name}, "
                f"got {int(used.max())}. Check the labels, or pass classifier= another module."
            )

    def _layers(self, calls: list[Call], batch: Batch, last: Layer) -> list[Layer]:
        if self.named:
            placed = [self._named_layer(name, point, calls) for name, point in self.named]
            return [layer for _, layer in sorted(placed, key=lambda place: place[0])]
        if self.wanted == "last":
            return [last]
        layers = all_layers(calls, self.weight_layers, batch)
        # The classifier's input closes the list, also where it is the network's own input.
        return [layer for layer in layers if layer.identity != last.identity] + [last]

    @staticmethod
    def _named_layer(name: str, point: Point, calls: list[Call]) -> tuple[int, Layer]:
        """The layer, and when the forward pass came by."""
        for call in calls:
            if (call.name, call.index) == (point.module, point.call):
                if point.side == "input":
                    return call.entered, Layer(name, point, call.source_identity)
                return call.left, Layer(name, point, call.target_identity)
        return 0, Layer(name, point, None)

    def _rows(self, recorder: Recorder, point: Point, stream: LayerStream) -> Tensor:
        rows = recorder.rows.get(point, NoRows("it was not called for this batch"))
        if isinstance(rows, NoRows):
            raise ModelError(f"Cannot measure {stream.layer} on every batch: {rows}.")
        return rows

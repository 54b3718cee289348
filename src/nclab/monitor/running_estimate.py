"""The running estimate: hooks read the features of training batches, and streams sum them up.

The hooks do not change the forward pass. A *stream* holds the sums over samples from which the
metrics of one layer are computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # type: ignore[attr-defined]
from torch.utils.hooks import RemovableHandle

from nclab.errors import DataError, ModelError
from nclab.features.batches import (
    CONVERTED_INTEGERS,
    TOKENS,
    Batch,
    as_label_tensor,
    binary_labels,
    mean_loss,
    model_loss,
    require_unshifted,
)
from nclab.features.pooling import NoRows, channel_dim
from nclab.features.recorder import (
    Point,
    Recorder,
    add_hook,
    add_pre_hook,
    compiled_parts,
    is_inside,
    is_weight_layer,
    reading_weights,
)
from nclab.measurement.collapse import Report
from nclab.measurement.layer_stream import DistributedData, LayerStream
from nclab.measurement.model import NO_CLASSIFIER, NOT_THE_LAST
from nclab.measurement.model_layers import MeasuredLayer, ModelLayers
from nclab.measurement.options import Head, MeasureOptions
from nclab.statistics import ClassMoments
from nclab.statistics.checks import IGNORE_INDEX, as_labels

INSTEAD = "Use monitor.measure(loader) at chosen moments"
BLOCK_ROWS = 2048
"""Number of collected rows that are added to the sums at once, as large updates are faster."""
BLOCK_BYTES = 2**25
"""Collected rows are also added if they have this many bytes, which limits the memory."""
BLOCK_LOGITS = 2**19
"""A batch with this number of logits or more is added at once, as collecting would copy them."""
REASONS = {
    "second pass": "a running estimate sees each feature once; use monitor.measure(loader)",
    "scatter": "the d x d scatter is not kept with this preset or dimension",
}
NOT_FINITE = "the classifier's weights are not finite"
REMARK = (
    "running estimate on training batches: the weights changed from batch to batch, and dropout "
    "and batch norm were in training mode"
)


def check_hookable(model: nn.Module) -> None:
    """Raise if hooks cannot read features in the forward pass of a model."""
    compiled = compiled_parts(model)
    weights = [name for name, module in model.named_modules() if is_weight_layer(module)]
    if compiled and all(is_inside(name, compiled) for name in weights):
        first = compiled[0].removesuffix("_orig_mod").removesuffix(".")
        part = f"module {first!r}" if first else "the model"
        raise ModelError(
            f"Expected a model that is not compiled, got {part} under torch.compile, which does "
            f"not run hooks. {INSTEAD}, or compile only the part before the classifier, as in "
            "model.body.compile()."
        )
    for name, module in model.named_modules():
        part = f"module {name!r}" if name else "the model"
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ModelError(
                f"Expected a model on one device, got DataParallel on {len(module.device_ids)} "
                f"devices. {INSTEAD}, or train with DistributedDataParallel."
            )
        classes = " ".join(parent.__name__ for parent in type(module).__mro__)
        if "FSDP" in classes or "FullySharded" in classes:
            raise ModelError(
                f"Expected whole weights, got {part} under FSDP, which shards them. {INSTEAD} "
                "on the gathered model."
            )


class BatchLabels(NamedTuple):
    """The labels of the next training batch, and the mask of its real tokens."""

    labels: Tensor
    mask: Tensor | None

    @classmethod
    def checked(
        cls, values: Any, mask: Tensor | None, names: tuple[str, ...] | None = None
    ) -> "BatchLabels":
        """Return labels as a tensor of class numbers, without a copy; raise on soft labels."""
        labels = values.detach() if isinstance(values, Tensor) else as_label_tensor(values, names)
        labels = binary_labels(labels) if labels.is_floating_point() else labels
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype in CONVERTED_INTEGERS:
            labels = labels.long()
        if labels.dtype.is_floating_point or labels.dtype.is_complex:
            raise DataError(
                f"Expected class numbers as labels, got {labels.dtype} of shape "
                f"{tuple(labels.shape)}. Pass hard labels, such as labels.argmax(1)."
            )
        return cls(labels, mask)


LabelFunction = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Tensor | None]]
"""Function that takes the arguments of the model and returns labels and mask of real tokens."""


class BatchFeatures(NamedTuple):
    """Result of one forward pass: feature rows of every layer, logits and labels."""

    rows: list[Tensor]
    logits: Tensor | None
    labels: Tensor
    model_loss: float | None = None
    """Loss that the model returned for the first batch; None for later batches."""
    keep: Tensor | None = None
    """Indices of the rows that the measurement uses; None for all."""
    ignored: int = 0
    """Number of tokens that were skipped because they have no label."""
    dtypes: Sequence[torch.dtype | None] = ()
    """Types in which the model computed the features of each layer; rows may have a wider type."""


class RowSelection(NamedTuple):
    """Rows of a batch whose features the monitor reads."""

    classes: Tensor
    """(N,) classes of all rows of the batch."""
    keep: Tensor | None = None
    """(n,) indices of the rows that are read; None for all."""
    ignored: int = 0
    """Number of rows that are skipped because they have no label."""


class TrainingHooks:
    """Hooks that read features in the forward passes of a model in training mode.

    The first pass finds the layers. Each call of `expect` lets the hooks read one pass. If gradient
    checkpointing runs a module again during the backward pass, the second run is not read.
    """

    def __init__(
        self,
        layers: ModelLayers,
        take: Callable[[BatchFeatures], None],
        names: tuple[str, ...] | None = None,
        *,
        ignore_index: int | None = IGNORE_INDEX,
        most: int | None = None,
    ) -> None:
        self.layers = layers
        self.take = take
        """Function that receives the features of each batch."""
        self.names = names
        """Names of the classes, if labels may be names."""
        self.ignore_index = ignore_index
        self.most = most
        """Largest number of rows of a batch that are read."""
        self.passes = 0
        """Number of forward passes that were read."""
        self.unclaimed = 0
        """Number of forward passes in training mode for which no labels were set."""
        self.refused: str | None = None
        """Reason why the last pass with labels could not be read."""
        self._batch = 0
        self._expected: BatchLabels | LabelFunction | None = None
        self._reading: BatchLabels | None = None
        self._chosen: RowSelection | None = None
        self._handles: list[RemovableHandle] = []
        self._recorder: Recorder | None = None
        self._inputs: Batch | None = None  # arguments of the first pass

    def listen(self) -> None:
        """Count forward passes in training mode before the first call of `expect`."""
        if not self._handles:
            self._handles.append(add_pre_hook(self.layers.model, self._begin))

    def expect(self, labels: BatchLabels | LabelFunction | None, batch: int | None = None) -> None:
        """Set the labels of the next forward pass, or a function that returns them.

        With None the next pass is not read. `batch` is the number of the batch; it seeds the random
        choice of rows.
        """
        self._batch = self._batch if batch is None else batch
        if labels is not None and (self._recorder is None or self._recorder.trace):
            self.remove()
            self._install()
        elif self._recorder is not None:
            self._recorder.pause()  # still active if the last pass raised an error
        self._expected = labels
        self._reading = None

    def remove(self) -> BatchLabels | LabelFunction | None:
        """Remove all hooks; return the labels that `expect` set and no pass has used."""
        expected = self._expected
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._recorder is not None:
            self._recorder.remove()
        self._recorder = self._inputs = self._expected = self._reading = None
        return expected

    def _install(self) -> None:
        points: list[Point] | None = None
        if self.layers.found:
            logits = self._logits_point()
            points = [layer.point for layer in self.layers.measured]
            points += [] if logits is None else [logits]
        self._recorder = self.layers.recorder(self._rows, points, keep=True)
        self._recorder.pause()
        self._handles.append(add_pre_hook(self.layers.model, self._begin))
        self._recorder.install(without=compiled_parts(self.layers.model))
        self._handles.append(add_hook(self.layers.model, self._end))

    def _logits_point(self) -> Point | None:
        """Return the place in the model where a hook can read the logits; None if there is none."""
        head = self.layers.classifier
        return head.logits if head is not None and head.selection == "rows" else None

    def _needs_all_rows(self) -> bool:
        """Whether rows can be chosen only after the forward pass.

        Some models choose the position in a sequence whose features the classifier gets.
        """
        head = self.layers.classifier
        return head is not None and head.selection != "rows"

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        expected = self._expected
        if not model.training:
            self._reading = None
        elif self._reading is None:
            if callable(expected):
                expected = BatchLabels.checked(*expected(args, kwargs), self.names)
            self._reading = expected
        # Otherwise the model calls itself, as in trainers whose forward pass is a training step.
        # The inner call is the pass to read.
        if self._reading is None:
            if self._recorder is not None:
                self._recorder.pause()
            self.unclaimed += model.training
            return
        self._expected = None
        assert self._recorder is not None
        self._recorder.restart()
        self._chosen = None
        if self._recorder.trace:
            self._inputs = Batch(args, kwargs, *self._reading)
            if self.layers.labels == "next":
                tokens = kwargs.get(TOKENS, args[0] if args else None)
                require_unshifted(self._reading.labels, tokens, self.ignore_index)
        else:
            self._chosen = self._choose(self._reading)

    def _end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        recorder, batch, labels = self._recorder, self._inputs, self._reading
        self._reading = None
        if recorder is None or labels is None:
            return
        recorder.pause()
        if batch is None:
            self._finish(recorder, labels, output)
            return
        self.remove()  # find the layers from the first pass, then install hooks there
        with reading_weights(model):
            self.layers.find(recorder, batch, output)
            loss = self._model_loss(model, batch, output)
        self._finish(recorder, labels, output, loss)
        self._install()

    def _model_loss(self, model: nn.Module, batch: Batch, output: Any) -> float | None:
        """Learn from the loss in the output how the model uses labels; return this loss.

        A model may, for example, shift the labels by one token.
        """
        if self.layers.classifier is None or self.layers.labels != "auto":
            return None
        called_with = dict(batch.kwargs)
        if batch.args:
            called_with.setdefault(TOKENS, batch.args[0])
        result = model_loss(
            *(model, output, batch.labels),
            called_with=called_with,
            ignore_index=self.ignore_index,
            mask=batch.mask,
        )
        self.layers.use_label_rule(result, batch, self.ignore_index)
        return result.loss

    def _choose(self, labels: BatchLabels) -> RowSelection:
        """Return the rows to read: at most `self.most` rows, all of them with a label."""
        classes = self.layers.row_labels(*labels, self.ignore_index)
        if labels.labels.ndim < 2 and self.most is None:
            return RowSelection(classes)
        keep = torch.arange(len(classes), device=classes.device)
        if self.ignore_index is not None:
            keep = (classes != self.ignore_index).nonzero().flatten()
        ignored = len(classes) - len(keep)
        if self.most is not None and len(keep) > self.most:
            # A generator seeded by the batch number leaves the global random state unchanged.
            generator = torch.Generator().manual_seed(self._batch)
            order = torch.randperm(len(keep), generator=generator)[: self.most]
            keep = keep[order.sort().values.to(keep.device)]
        return RowSelection(classes, None if len(keep) == len(classes) else keep, ignored)

    def _finish(
        self, recorder: Recorder, labels: BatchLabels, output: Any, loss: float | None = None
    ) -> None:
        """Pass on features, logits and labels of a forward pass, or store why they are missing."""
        rows = []
        for layer in self.layers.measured:
            features = self.layers.features(layer, recorder, output)
            if isinstance(features, NoRows):
                self.refused = f"{layer.name}: {features}"
                return
            rows.append(features)
        point = self._logits_point()
        logits = None if point is None else recorder.rows.get(point)
        logits = logits if isinstance(logits, Tensor) else None
        dtypes = [recorder.dtypes.get(layer.point) for layer in self.layers.measured]
        recorder.rows.clear()
        self.refused = None
        self.passes += 1
        chosen, self._chosen = self._chosen, None
        keep = None
        if chosen is None:  # in the first pass, which reads all rows
            chosen = self._choose(labels)
            classes, keep = chosen.classes.clone(), chosen.keep
        elif chosen.keep is None:
            classes = chosen.classes.clone()
        else:
            classes = chosen.classes[chosen.keep]
            if self._needs_all_rows():
                rows = [features[chosen.keep.to(features.device)] for features in rows]
        self.take(BatchFeatures(rows, logits, classes, loss, keep, chosen.ignored, dtypes))

    def _rows(self, tensor: Tensor, module: nn.Module) -> Tensor:
        """Return the rows to measure from the output of a module; the hooks call this."""
        assert self._reading is not None
        labels, mask = self._reading
        tensor = tensor.detach()
        keep = None if self._chosen is None or self._needs_all_rows() else self._chosen.keep
        plain = labels.ndim == 1 and tensor.ndim == 4 and self.layers.pool == "mean"
        if plain and len(tensor) == len(labels) and channel_dim(module, 4) == 1:
            dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            rows = tensor.mean((2, 3), dtype=dtype)  # as to_rows, but in single precision
            return rows if keep is None else rows[keep.to(rows.device)]
        with torch.no_grad():
            chosen = keep if labels.ndim > 1 else None
            rows = self.layers.rows(*(tensor, module), labels=labels, mask=mask, keep=chosen)
        return rows if keep is None or labels.ndim > 1 else rows[keep.to(rows.device)]


class RunningEstimate:
    """Sums of features and their products over the training batches since the last measurement."""

    def __init__(self, layers: ModelLayers, options: MeasureOptions, *, points: int = 0) -> None:
        self.layers = layers
        self.options = options
        self.points = points
        """Number of features of the last layer that are kept for its picture."""
        self.streams: list[LayerStream] = []
        """One stream for each measured layer, once there are rows."""
        self._waiting: list[BatchFeatures] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: BatchFeatures) -> None:
        """Add the features of one batch without copying the tensors."""
        if batch.logits is None:
            batch = batch._replace(logits=self._logits(batch.rows))
        if batch.model_loss is not None and batch.logits is not None:
            index = IGNORE_INDEX if self.options.ignore_index is None else self.options.ignore_index
            measured = mean_loss(batch.logits.detach(), batch.labels, index)
            if measured is not None:
                self.layers.compare_loss(batch.model_loss, measured)
        if (keep := batch.keep) is not None:
            rows = [layer[keep.to(layer.device)] for layer in batch.rows]
            logits = None if batch.logits is None else batch.logits[keep.to(batch.logits.device)]
            labels = batch.labels[keep]
            batch = batch._replace(rows=rows, logits=logits, labels=labels, keep=None)
        self._waiting.append(batch)
        self._rows += len(batch.labels)
        self._bytes += sum(rows.nbytes for rows in batch.rows)
        size = 0 if batch.logits is None else batch.logits.numel()
        if self._rows >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES or size >= BLOCK_LOGITS:
            self.flush()

    def flush(self) -> None:
        """Add the collected rows to the sums."""
        if not self._waiting:
            return
        waiting, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        device = waiting[0].rows[0].device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            self.streams = self.streams or self._new_streams(device)
            device = self.streams[0].nonfinite.device
            labels = torch.cat([batch.labels.to(device) for batch in waiting])
            size, classes = len(labels), self.layers.num_classes
            self.layers.check_labels(labels, self.options.ignore_index)
            labels = as_labels(
                labels, rows=size, ignore_index=self.options.ignore_index, num_classes=classes
            )
            if classes is None:  # without a classifier only the labels show the number of classes
                largest = int(labels.max()) + 1 if len(labels) else 0
                for stream in self.streams:
                    stream.grow(largest)
            parts = [batch.logits for batch in waiting if batch.logits is not None]
            logits = _joined(parts) if len(parts) == len(waiting) else None
            for index, stream in enumerate(self.streams):
                rows = _joined([batch.rows[index] for batch in waiting])
                used = (batch.dtypes[index] for batch in waiting if batch.dtypes)
                known = [dtype for dtype in used if dtype is not None]
                # The least precise type in which rows of the layer were computed.
                dtype = max(known, key=lambda dtype: torch.finfo(dtype).eps) if known else None
                stream.update(rows, labels, logits=logits, dtype=dtype, in_training=True)
                stream.count_ignored(sum(batch.ignored for batch in waiting))

    def clear(self) -> None:
        """Remove all sums and collected rows."""
        self.streams.clear()
        self._waiting.clear()
        self._rows = self._bytes = 0

    def report(self) -> Report:
        """Return the measurement; layers that cannot be measured are skipped with a reason."""
        skipped = dict(self.layers.skipped)
        head = self._head()
        measured = []
        for layer, stream in self._pairs():
            present = int((stream.moments.counts > 0).sum())
            if present < 2:
                skipped[layer.name] = f"it has finite features of {present} classes; 2 are needed"
                ignored = stream.moments.ignored
                if ignored and not present:
                    ignore = self.options.ignore_index
                    skipped[layer.name] += (
                        f": all {ignored} labels are the ignored {ignore}, or of padded tokens"
                    )
                continue
            reasons = dict(REASONS)
            if not layer.is_last or head is None:
                missing = NOT_THE_LAST if self.layers.classifier else NO_CLASSIFIER
                reasons["weight"] = NOT_FINITE if layer.is_last else missing
            try:
                stream.leave_out_rare(second_pass=False)
                measured.append(stream.collapse(reasons, head=head if layer.is_last else None))
            except (DataError, LinAlgError) as error:  # must not end the training
                skipped[layer.name] = str(error)
        return Report(
            layers=tuple(measured),
            classifier=self.layers.classifier_name,
            samples=self.streams[-1].moments.total if self.streams else 0,
            skipped=skipped,
            remarks=(*self.layers.remarks, REMARK, *_dropout_remarks(self.layers.model)),
        )

    def picture(self) -> dict[str, Any] | None:
        """Return the 3-D picture of the last layer, after `report`; None if the picture is off."""
        return self.streams[-1].picture() if self.streams else None

    def nonfinite(self) -> dict[str, dict[int, int]]:
        """Return how many rows with nan or infinity were skipped, by layer and class."""
        result = {}
        for layer, stream in self._pairs():
            counts = stream.nonfinite.tolist()
            by_class = {number: count for number, count in enumerate(counts) if count}
            if by_class:
                result[layer.name] = by_class
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return the sums as plain tensors by layer, for `load_state_dict`."""
        self.flush()
        state: dict[str, Any] = {"layers": {}}
        for layer, stream in self._pairs():
            state["layers"][layer.name] = {
                "moments": stream.moments.state_dict(),
                "nonfinite": stream.nonfinite.clone(),
            }
            if stream.logits is not None:
                state["logits"] = stream.logits.sums()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same layers; raise and change nothing if it does not fit."""
        names = [layer.name for layer in self.layers.measured]
        sums = state["layers"]
        streams: list[LayerStream] = []
        if sums and names != list(sums):
            raise DataError(
                f"Expected the state of layers {', '.join(names)}, got {', '.join(sums)}. Load it "
                "into a monitor of the same model."
            )
        if sums:
            streams = self._new_streams(sums[names[0]]["nonfinite"].device)
        for stream, layer in zip(streams, sums.values(), strict=True):
            moments = read_moments(layer)
            logits = None if stream.logits is None else state["logits"]
            stream.restore(moments, nonfinite=layer["nonfinite"], logits=logits)
        self.clear()
        self.streams = streams

    def _new_streams(self, device: torch.device) -> list[LayerStream]:
        """Return a stream without samples for each measured layer."""
        options = replace(self.options, num_classes=self.layers.num_classes)
        streams = []
        for layer in self.layers.measured:
            points = self.points if layer is self.layers.measured[-1] else 0
            stream = LayerStream(options, layer=layer.name, points=points)
            stream.start(layer.dim, device, logits=layer.is_last)
            streams.append(stream)
        return streams

    def join_processes(self) -> None:
        """Give every process the merged sums of all processes; do nothing if there are no sums."""
        shared = DistributedData.over(None)
        if shared is None or not bool(shared.ranks.gather([len(self.streams)]).any()):
            return
        if self.layers.found and not self.streams:
            self.streams = self._new_streams(self.layers.device)
        shared.join_first(self.streams)

    def _pairs(self) -> Iterator[tuple[MeasuredLayer, LayerStream]]:
        """Return pairs of a measured layer and its stream; no pairs before the first batch."""
        return zip(self.layers.measured, self.streams, strict=False)

    def _logits(self, rows: list[Tensor]) -> Tensor | None:
        """Return logits computed from the features, for models in which no module returns them."""
        for layer, features in zip(self.layers.measured, rows, strict=True):
            if layer.is_last:
                head = self._head()
                return None if head is None else head.logits(features.double())
        return None

    def _head(self) -> Head | None:
        with reading_weights(self.layers.model):
            try:
                return self.layers.head()
            except DataError:  # the weights are not finite
                return None


def read_moments(layer: Mapping[str, Any]) -> ClassMoments:
    """Return the moments in the state of one layer; raise if the state is damaged."""
    moments = ClassMoments.from_state_dict(layer["moments"])
    if layer["nonfinite"].shape != (moments.num_classes,):
        raise ValueError("not one count of rows with nan or infinity for each class")
    return moments


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _dropout_remarks(model: nn.Module) -> list[str]:
    """Return a remark if dropout increases the spread of features during training."""
    names = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    ]
    if not names:
        return []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return [
        f"dropout is on ({names[0]}{more}): features after it vary more within classes than in "
        "evaluation; monitor.measure(loader) measures without dropout"
    ]

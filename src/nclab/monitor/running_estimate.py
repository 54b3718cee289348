"""RunningEstimate: statistics of the training batches since the last measurement."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from nclab.errors import DataError
from nclab.features.evaluation import reading_weights
from nclab.features.labels import mean_loss
from nclab.measurement.collapse import Report
from nclab.measurement.layer_stream import DistributedData, LayerStream
from nclab.measurement.model import NO_CLASSIFIER, NOT_THE_LAST
from nclab.measurement.model_layers import MeasuredLayer, ModelLayers
from nclab.measurement.options import Head, MeasureOptions
from nclab.monitor.training_hooks import BatchFeatures
from nclab.statistics import ClassMoments
from nclab.statistics.checks import IGNORE_INDEX, as_labels
from nclab.statistics.process_group import ProcessGroup

BLOCK_ROWS = 2048
"""Rows collected before an update: one update of a large block costs less than many small ones."""
BLOCK_BYTES = 2**25
"""Bytes of rows after which a block is added at once."""
BLOCK_LOGITS = 2**19
"""Logits of one batch from which the batch is added at once, since joining would copy them."""
REASONS = {
    "second pass": "a running estimate sees each feature once; use monitor.measure(loader)",
    "scatter": "the preset or the dimension leaves the d x d scatter out",
}
NOT_FINITE = "the classifier's weights are not finite"
REMARK = (
    "running estimate on training batches: the weights changed from batch to batch, and dropout "
    "and batch norm were in training mode"
)


class RunningEstimate:
    """Sums over the training batches since the last measurement."""

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
        """Add the features of one batch; the estimate keeps the tensors without a copy."""
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
        """Return the last layer in 3-D, after `report`; None if no points are kept."""
        return self.streams[-1].picture() if self.streams else None

    def nonfinite(self) -> dict[str, dict[int, int]]:
        """Return the number of skipped rows with nan or infinity, by layer and class."""
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
            moments = ClassMoments.from_state_dict(layer["moments"])
            if layer["nonfinite"].shape != (moments.num_classes,):
                raise ValueError("counts of another number of classes")
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
        """Merge the sums of all processes into each of them, unless no process has any."""
        shared = DistributedData.over(None)
        if shared is None or not bool(shared.ranks.gather([len(self.streams)]).any()):
            return
        if self.layers.found and not self.streams:
            self.streams = self._new_streams(self.layers.device)
        shared.join_first(self.streams)

    def _pairs(self) -> Iterator[tuple[MeasuredLayer, LayerStream]]:
        """Return the measured layers with their streams; empty before the first rows."""
        return zip(self.layers.measured, self.streams, strict=False)

    def _logits(self, rows: list[Tensor]) -> Tensor | None:
        """Return logits of pooled rows, if no module returned the logits of these rows."""
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


def is_first_process() -> bool:
    """Whether this process writes: the first of torch.distributed, or the only one."""
    return ProcessGroup().rank == 0


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

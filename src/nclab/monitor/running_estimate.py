"""RunningEstimate: the statistics of training batches as they come, a block of rows at a time."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from nclab.errors import DataError, NclabError
from nclab.features.evaluation import reading_weights
from nclab.features.labels import mean_loss
from nclab.measurement.class_names import named
from nclab.measurement.kept_points import KeptPoints
from nclab.measurement.layer_stream import Head, LayerStream
from nclab.measurement.model import NO_CLASSIFIER, NOT_THE_LAST
from nclab.measurement.model_layers import MeasuredLayer, ModelLayers
from nclab.measurement.ranks import SharedData
from nclab.measurement.report import Report
from nclab.monitor.training_hooks import BatchFeatures
from nclab.statistics import ClassMoments
from nclab.statistics.checks import IGNORE_INDEX, as_labels
from nclab.statistics.process_group import ProcessGroup

BLOCK_ROWS = 2048
"""Rows collected before they are added: one update of large blocks costs less than many."""
BLOCK_BYTES = 2**25
BLOCK_LOGITS = 2**19
REASONS = {
    "second pass": "a running estimate sees each feature once; use monitor.measure(loader)",
    "scatter": "the preset or the dimension leaves the d x d scatter out",
}
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""What tensors that are missing, or of other shapes, end in."""
NOT_FINITE = "the classifier's weights are not finite"
REMARK = (
    "running estimate on training batches: the weights moved meanwhile, and dropout and batch "
    "norm were in training mode"
)


class RunningEstimate:
    """Sums over the training batches since the last measurement."""

    def __init__(
        self,
        layers: ModelLayers,
        *,
        scatter: bool | None,
        names: tuple[str, ...] | None = None,
        ignore_index: int | None = IGNORE_INDEX,
        min_count: int | None = None,
        points: int = 0,
    ) -> None:
        self.layers = layers
        self.scatter = scatter
        self.names = names
        self.ignore_index = ignore_index
        self.min_count = min_count
        self.points = points
        """Features of the last layer that are kept for its picture."""
        self.streams: list[LayerStream] = []
        """One for each measured layer, once there are rows."""
        self._waiting: list[BatchFeatures] = []
        self._rows = 0
        self._bytes = 0

    def add(self, reading: BatchFeatures) -> None:
        """Take what one forward pass has shown; the rows are ours to keep."""
        if reading.logits is None:
            reading = reading._replace(logits=self._logits(reading.rows))
        if reading.model_loss is not None and reading.logits is not None:
            index = IGNORE_INDEX if self.ignore_index is None else self.ignore_index
            ours = mean_loss(reading.logits.detach(), reading.labels, index)
            if ours is not None:
                self.layers.agree(reading.model_loss, ours)
        if reading.keep is not None:
            reading = _kept(reading, reading.keep)
        self._waiting.append(reading)
        self._rows += len(reading.labels)
        self._bytes += sum(rows.nbytes for rows in reading.rows)
        logits = 0 if reading.logits is None else reading.logits.numel()
        # Where a batch has many logits, to let them wait for others would cost a copy.
        if self._rows >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES or logits >= BLOCK_LOGITS:
            self.flush()

    def flush(self) -> None:
        """Add the rows that wait to the sums."""
        if not self._waiting:
            return
        waiting, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        device = waiting[0].rows[0].device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            self.start(device)
            here = self.streams[0].nonfinite.device
            labels = torch.cat([reading.labels.to(here) for reading in waiting])
            size, classes, index = len(labels), self.layers.num_classes, self.ignore_index
            self.layers.check_labels(labels, index)
            labels = as_labels(labels, rows=size, ignore_index=index, num_classes=classes)
            if classes is None:
                self._grow(labels)
            parts = [reading.logits for reading in waiting if reading.logits is not None]
            logits = _joined(parts) if len(parts) == len(waiting) else None
            for place, stream in enumerate(self.streams):
                rows = _joined([reading.rows[place] for reading in waiting])
                stream.add(rows, labels, logits, dtype=_coarsest(waiting, place))
                stream.moments.ignored += sum(reading.ignored for reading in waiting)

    def _grow(self, labels: Tensor) -> None:
        """Without a classifier only the labels tell how many classes there are."""
        most = int(labels.max()) + 1 if len(labels) else 0
        for stream in self.streams:
            stream.grow(most)

    def clear(self) -> None:
        """Forget everything seen so far."""
        self.streams.clear()
        self._waiting.clear()
        self._rows = self._bytes = 0

    def report(self) -> Report:
        """The measurement of what was seen; layers that allow none are skipped with a reason."""
        skipped = dict(self.layers.skipped)
        head = self._head()
        measured = []
        for layer, stream in self._pairs():
            present = int((stream.moments.counts > 0).sum())
            if present < 2:
                skipped[layer.name] = f"it has finite features of {present} classes; 2 are needed"
                ignored = stream.moments.ignored
                if ignored and not present:
                    skipped[layer.name] += (
                        f": all {ignored} labels are the ignored {self.ignore_index}, or of "
                        "padded tokens"
                    )
                continue
            reasons = dict(REASONS)
            if not layer.is_last or head is None:
                lost = NOT_THE_LAST if self.layers.classifier else NO_CLASSIFIER
                reasons["weight"] = NOT_FINITE if layer.is_last else lost
            else:
                stream.head = head.to(stream.moments.device)
            try:
                if self.min_count is not None:
                    stream.leave_out(self.min_count, whole=False)
                measured.append(named(stream.collapse(reasons), self.names))
            except (DataError, LinAlgError) as error:  # never a training's end
                skipped[layer.name] = str(error)
        return Report(
            layers=tuple(measured),
            classifier=self.layers.classifier_name,
            samples=self.streams[-1].moments.total if self.streams else 0,
            skipped=skipped,
            remarks=(*self.layers.remarks, REMARK, *_dropout(self.layers.model)),
        )

    def picture(self) -> dict[str, Any] | None:
        """The last layer in 3-D, after `report`; None where no points are kept."""
        return self.streams[-1].picture() if self.streams else None

    def nonfinite(self) -> dict[str, dict[int, int]]:
        """Layer -> class -> rows that were left out."""
        found = {}
        for layer, stream in self._pairs():
            counts = {own: count for own, count in enumerate(stream.nonfinite.tolist()) if count}
            if counts:
                found[layer.name] = counts
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors by layer, from which `load_state_dict` goes on."""
        self.flush()
        state: dict[str, Any] = {"layers": {}}
        for layer, stream in self._pairs():
            own = {"moments": stream.moments.state_dict(), "nonfinite": stream.nonfinite.clone()}
            state["layers"][layer.name] = own
            if stream.logits is not None:
                state["logits"] = stream.logits.sums()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; the same layers must have been found. A wrong one changes nothing."""
        before = (self.streams.copy(), self._waiting.copy(), self._rows, self._bytes)
        try:
            self._load(state)
        except Exception as error:
            self.streams, self._waiting, self._rows, self._bytes = before
            if isinstance(error, DAMAGED) and not isinstance(error, NclabError):
                raise DataError(
                    "Expected the sums of a monitor of the same model, got others "
                    f"({type(error).__name__}). Pass what state_dict() gave."
                ) from error
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        self.clear()
        if not state["layers"]:
            return
        self.start(next(iter(state["layers"].values()))["nonfinite"].device)
        names = [layer.name for layer in self.layers.measured]
        if names != list(state["layers"]):
            raise DataError(
                f"Expected the state of layers {', '.join(names)}, got "
                f"{', '.join(state['layers'])}. Load it into a monitor of the same model."
            )
        for stream, own in zip(self.streams, state["layers"].values(), strict=True):
            stream.moments = ClassMoments.from_state_dict(own["moments"])
            stream.nonfinite = own["nonfinite"].clone()
            if stream.logits is not None:
                stream.logits.load_sums(state["logits"])

    def start(self, device: torch.device | None = None) -> None:
        """Open sums for every layer, if there are none yet; by default where the model is."""
        if self.streams:
            return
        told = None if self.names is None else len(self.names)
        for layer in self.layers.measured:
            stream = LayerStream(
                num_classes=self.layers.num_classes or told,
                scatter=self.scatter,
                layer=layer.name,
                ignore_index=self.ignore_index,
            )
            stream.start(layer.dim, device or self.layers.device, logits=layer.is_last)
            if self.points and layer is self.layers.measured[-1]:
                stream.points = KeptPoints(self.points)
            self.streams.append(stream)

    def _pairs(self) -> Iterator[tuple[MeasuredLayer, LayerStream]]:
        """The measured layers and their streams; none before there are rows."""
        return zip(self.layers.measured, self.streams, strict=False)

    def _logits(self, rows: list[Tensor]) -> Tensor | None:
        """Logits of pooled rows, where the classifier itself returned something else."""
        own = [row for layer, row in zip(self.layers.measured, rows, strict=True) if layer.is_last]
        head = self._head() if own else None
        return None if head is None else head.logits(own[0].double())

    def _head(self) -> Head | None:
        with reading_weights(self.layers.model):
            try:
                return self.layers.head()
            except DataError:  # not finite
                return None


def _coarsest(waiting: list[BatchFeatures], place: int) -> torch.dtype | None:
    """The type of the least precision that rows of a layer were computed in."""
    found = (reading.dtypes[place] for reading in waiting if reading.dtypes)
    known = [dtype for dtype in found if dtype is not None]
    return max(known, key=lambda dtype: torch.finfo(dtype).eps) if known else None


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _kept(reading: BatchFeatures, keep: Tensor) -> BatchFeatures:
    """Some of the rows."""
    rows = [own[keep.to(own.device)] for own in reading.rows]
    logits = None if reading.logits is None else reading.logits[keep.to(reading.logits.device)]
    return reading._replace(rows=rows, logits=logits, labels=reading.labels[keep], keep=None)


def _dropout(model: nn.Module) -> list[str]:
    """That features behind a dropout spread more here than in evaluation."""
    found = [
        name or type(module).__name__
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    ]
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"dropout is on ({found[0]}{more}): features behind it vary more within classes than in "
        "evaluation; monitor.measure(loader) measures without"
    ]


def is_first_process() -> bool:
    """Whether this process is the one that writes."""
    return ProcessGroup().rank == 0


def join_processes(running: RunningEstimate) -> None:
    """Make every process's running estimate that of all; empty where none has read a batch."""
    shared = SharedData.over(None)
    if shared is None or not bool(shared.ranks.gather([len(running.streams)]).any()):
        return
    if running.layers.found:
        running.start()
    shared.moments(running.streams)

"""TrainingHooks: read features in the training forward pass without changing the pass."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nclab.errors import DataError, ModelError
from nclab.features.batches import Batch
from nclab.features.evaluation import compiled_parts, is_inside, reading_weights
from nclab.features.labels import (
    TOKENS,
    WHOLE,
    as_label_tensor,
    binary_labels,
    model_loss,
    require_unshifted,
)
from nclab.features.pooling import NoRows, channel_dim
from nclab.features.recorder import Point, Recorder, add_hook, add_pre_hook, is_weight_layer
from nclab.measurement.model_layers import ModelLayers
from nclab.statistics.checks import IGNORE_INDEX

INSTEAD = "Use monitor.measure(loader) at chosen moments"


def check_hookable(model: nn.Module) -> None:
    """Raise if hooks cannot read the training pass of a model.

    >>> check_hookable(nn.DataParallel(nn.Linear(2, 2)))
    """
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
                f"Expected one device, got DataParallel over {len(module.device_ids)}. "
                f"{INSTEAD}, or train with DistributedDataParallel."
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
        """Return labels as class numbers in a tensor, without a copy; raise on soft labels."""
        labels = values.detach() if isinstance(values, Tensor) else as_label_tensor(values, names)
        labels = binary_labels(labels) if labels.is_floating_point() else labels
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.dtype in WHOLE:
            labels = labels.long()
        if labels.dtype.is_floating_point or labels.dtype.is_complex:
            raise DataError(
                f"Expected class numbers as labels, got {labels.dtype} of shape "
                f"{tuple(labels.shape)}. Pass hard labels, such as labels.argmax(1)."
            )
        return cls(labels, mask)


LabelFunction = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Tensor | None]]
"""Function of the model's arguments that returns labels and mask."""


class BatchFeatures(NamedTuple):
    """Result of one forward pass: rows of every layer, the logits, the labels."""

    rows: list[Tensor]
    logits: Tensor | None
    labels: Tensor
    model_loss: float | None = None
    """Loss that the model itself returned in the first pass that was read."""
    keep: Tensor | None = None
    """Indices of the rows that enter the measurement; None for all."""
    ignored: int = 0
    """Number of tokens that were skipped because they have no label."""
    dtypes: Sequence[torch.dtype | None] = ()
    """Type in which the rows of each layer were computed; means of positions are in double."""


class RowSelection(NamedTuple):
    """Rows of a batch whose features the monitor reads."""

    classes: Tensor
    """(N,) classes of all rows of the batch."""
    keep: Tensor | None = None
    """(n,) indices of the rows that are read; None for all."""
    ignored: int = 0
    """Number of rows that are skipped because they have no label."""


class TrainingHooks:
    """Hooks on a model: the first pass finds the layers, later passes read them.

    A pass is read if it is in training mode, once for each `expect`. Modules that gradient
    checkpointing runs again during the backward pass are not read.
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
        """Number of training passes that were read."""
        self.unclaimed = 0
        """Number of training passes without labels."""
        self.refused: str | None = None
        """Reason why the last pass with labels could not be read."""
        self._batch = 0
        self._expected: BatchLabels | LabelFunction | None = None
        self._reading: BatchLabels | None = None
        self._chosen: RowSelection | None = None
        self._handles: list[RemovableHandle] = []
        self._recorder: Recorder | None = None
        self._inputs: Batch | None = None  # of the traced pass

    def listen(self) -> None:
        """Count training passes that come before any labels are expected."""
        if not self._handles:
            self._handles.append(add_pre_hook(self.layers.model, self._begin))

    def expect(self, labels: BatchLabels | LabelFunction | None, batch: int | None = None) -> None:
        """Set the labels of the next training pass, or a function that returns them.

        None means that the next pass is not read. `batch` is the number of the batch, which seeds
        the choice of its rows.
        """
        self._batch = self._batch if batch is None else batch
        if labels is not None and (self._recorder is None or self._recorder.trace):
            self.remove()
            self._install()
        elif self._recorder is not None:
            self._recorder.pause()  # the last pass may have failed
        self._expected = labels
        self._reading = None

    def remove(self) -> BatchLabels | LabelFunction | None:
        """Remove all hooks; return the labels that were still expected."""
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
        self._recorder.pause()
        self._handles.append(add_pre_hook(self.layers.model, self._begin))
        self._recorder.install(without=compiled_parts(self.layers.model))
        self._handles.append(add_hook(self.layers.model, self._end))

    def _points(self) -> list[Point]:
        """Return the points of the layers, and of the logits if a module returns them."""
        layers = [layer.point for layer in self.layers.measured]
        logits = self._logits_point()
        return layers if logits is None else [*layers, logits]

    def _logits_point(self) -> Point | None:
        """Return the point at which a module returns the logits of the rows that are read."""
        head = self.layers.classifier
        return head.logits if head is not None and head.selection == "rows" else None

    def _needs_all_rows(self) -> bool:
        """Whether the model's output decides which position of a sample is read."""
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
        # Otherwise the model is called inside its own call, as by trainers whose forward pass is a
        # training step: the inner call is the pass to read.
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
        self.remove()  # the traced pass is over: find the layers, then install hooks there
        with reading_weights(model):
            self.layers.find(recorder, batch, output)
            loss = self._model_loss(model, batch, output)
        self._finish(recorder, labels, output, loss)
        self._install()

    def _model_loss(self, model: nn.Module, batch: Batch, output: Any) -> float | None:
        """Apply the model's own use of the labels; return the loss that it computed with them."""
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
        """Return the rows to read: tokens with a label, and at most `most` of them."""
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
        """Pass the rows, logits and labels of a finished pass on, or note why they are missing."""
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
        if chosen is None:  # the traced pass, which read all rows
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
        """Return the rows of a tensor that are read; used by the recorder."""
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
            rows = self.layers.rows(
                *(tensor, module),
                labels=labels,
                mask=mask,
                keep=keep if labels.ndim > 1 else None,
            )
        return rows if keep is None or labels.ndim > 1 else rows[keep.to(rows.device)]

"""Refuses models whose forward pass runs around its hooks."""

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
from nclab.features.recorder import (
    Point,
    Recorder,
    add_hook,
    add_pre_hook,
    is_weight_layer,
)
from nclab.measurement.model_layers import ModelLayers
from nclab.statistics.checks import IGNORE_INDEX

INSTEAD = "Use monitor.measure(loader) at chosen moments"


def check_hookable(model: nn.Module) -> None:
    """Say in one line why hooks cannot read the training pass of a model, if they cannot.

    >>> check_hookable(nn.DataParallel(nn.Linear(2, 2)))
    """
    compiled = compiled_parts(model)
    weights = [name for name, module in model.named_modules() if is_weight_layer(module)]
    if compiled and all(is_inside(name, compiled) for name in weights):
        first = compiled[0].removesuffix("_orig_mod").removesuffix(".")
        where = f"module {first!r}" if first else "the model"
        raise ModelError(
            f"Expected a model that is not compiled, got {where} under torch.compile, which runs "
            f"around hooks. {INSTEAD}, or leave the classifier out: compile what comes before it, "
            "as in model.body.compile()."
        )
    for name, module in model.named_modules():
        where = f"module {name!r}" if name else "the model"
        if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
            raise ModelError(
                f"Expected one device, got DataParallel over {len(module.device_ids)}. "
                f"{INSTEAD}, or train with DistributedDataParallel."
            )
        kinds = [kind.__name__ for kind in type(module).__mro__]
        if any("FSDP" in kind or "FullySharded" in kind for kind in kinds):
            raise ModelError(
                f"Expected whole weights, got {where} under FSDP, which shards them. {INSTEAD} "
                "on the gathered model."
            )


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


LabelFinder = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Tensor | None]]
"""Finds labels and mask in what the model is called with."""


class BatchFeatures(NamedTuple):
    """What one forward pass has shown: rows of every layer, the logits, the labels."""

    rows: list[Tensor]
    logits: Tensor | None
    labels: Tensor
    model_loss: float | None = None
    """What the model itself has found, of the first pass that was read."""
    keep: Tensor | None = None
    """Which of the rows enter the measurement; None for all."""
    ignored: int = 0
    """Rows without a label that are not among these."""
    dtypes: Sequence[torch.dtype | None] = ()
    """What the rows of every layer were computed in; means of positions are in double."""


class RowSelection(NamedTuple):
    """Which rows of a batch are read."""

    classes: Tensor
    """(N,) of all rows of the batch."""
    keep: Tensor | None = None
    """(n,) the rows that are read; None for all."""
    ignored: int = 0
    """Rows without a label that are not."""

    @property
    def kept(self) -> Tensor:
        """(n,) classes of the rows that are read."""
        return self.classes.clone() if self.keep is None else self.classes[self.keep]


class TrainingHooks:
    """Hooks on a model: the first pass finds the layers, the later ones read them.

    Only a pass in training mode counts, only once for each `expect`, and only what happens inside
    it: modules that gradient checkpointing runs again during the backward pass do not.
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
        self.names = names
        """Of the classes, where labels may be names."""
        self.ignore_index = ignore_index
        self.most = most
        """Rows of a batch that are read at most."""
        self.batch = 0
        """The number of the batch, by which its rows are drawn."""
        self.passes = 0
        """Training passes that were read."""
        self.unclaimed = 0
        """Training passes without labels."""
        self.refused: str | None = None
        """Why the last pass with labels could not be read."""
        self.lost = False
        """Whether the last pass with labels began and never ended, as one out of memory."""
        self._expected: Labels | LabelFinder | None = None
        self._reading: Labels | None = None
        self._chosen: RowSelection | None = None
        self._handles: list[RemovableHandle] = []
        self._recorder: Recorder | None = None
        self._inputs: Batch | None = None  # of the traced pass

    def listen(self) -> None:
        """Notice training passes that come before any labels are expected."""
        if not self._handles:
            self._handles.append(add_pre_hook(self.layers.model, self._begin))

    def expect(self, labels: Labels | LabelFinder | None) -> None:
        """The labels of the next training pass, or how to find them there; None for none."""
        if labels is not None and (self._recorder is None or self._recorder.trace):
            self.remove()
            self._install()
        elif self._recorder is not None:
            self._recorder.pause()  # the last pass has failed
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
        self._recorder.pause()
        self._handles.append(add_pre_hook(self.layers.model, self._begin))
        self._recorder.install(without=compiled_parts(self.layers.model))
        self._handles.append(add_hook(self.layers.model, self._end))

    def _points(self) -> list[Point]:
        """Where the layers are read and, last, the logits where a module returns them."""
        layers = [layer.point for layer in self.layers.measured]
        logits = self._direct_logits()
        return layers if logits is None else [*layers, logits]

    def _direct_logits(self) -> Point | None:
        """Where a module returns the logits of the rows that are read."""
        head = self.layers.classifier
        return head.logits if head is not None and head.selection == "rows" else None

    def _selects(self) -> bool:
        """Whether the output tells which position of a sample counts: all rows are needed then."""
        head = self.layers.classifier
        return head is not None and head.selection != "rows"

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
        if self._reading is None and self._recorder is not None:
            self._recorder.pause()
        if self._reading is None:
            self.unclaimed += model.training
            return
        self._expected, self.lost = None, True
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
            self.lost = False
            return
        self.remove()  # the traced pass is over: find the layers, then read there from now on
        with reading_weights(model):
            self.layers.find(recorder, batch, output)
            own = self._model_loss(model, batch, output)
        self._finish(recorder, labels, output, own)
        self.lost = False
        self._install()

    def _model_loss(self, model: nn.Module, batch: Batch, output: Any) -> float | None:
        """How the model takes its labels, and the loss it has found with them."""
        if self.layers.classifier is None or self.layers.labels != "auto":
            return None
        called = dict(batch.kwargs)
        if batch.args:
            called.setdefault(TOKENS, batch.args[0])
        index = self.ignore_index
        found = model_loss(
            *(model, output, batch.labels),
            called_with=called,
            ignore_index=index,
            mask=batch.mask,
        )
        self.layers.take(found, batch, index)
        return found.loss

    def _choose(self, labels: Labels) -> RowSelection:
        """The rows to read: of tokens those with a label, and of those perhaps only some."""
        classes = self.layers.row_labels(*labels, self.ignore_index)
        if labels.labels.ndim < 2 and self.most is None:
            return RowSelection(classes)
        keep = torch.arange(len(classes), device=classes.device)
        if self.ignore_index is not None:
            keep = (classes != self.ignore_index).nonzero().flatten()
        ignored = len(classes) - len(keep)
        if self.most is not None and len(keep) > self.most:
            # Drawn by the number of the batch: nobody else's random numbers are touched.
            drawn = torch.Generator().manual_seed(self.batch)
            order = torch.randperm(len(keep), generator=drawn)[: self.most]
            keep = keep[order.sort().values.to(keep.device)]
        return RowSelection(classes, None if len(keep) == len(classes) else keep, ignored)

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
        dtypes = [recorder.dtypes.get(layer.point) for layer in self.layers.measured]
        recorder.rows.clear()
        self.refused = None
        self.passes += 1
        shown = logits if isinstance(logits, Tensor) else None
        chosen, self._chosen = self._chosen, None
        if chosen is not None:
            if chosen.keep is not None and self._selects():
                rows = [found[chosen.keep.to(found.device)] for found in rows]
            self.take(BatchFeatures(rows, shown, chosen.kept, own, None, chosen.ignored, dtypes))
            return
        chosen = self._choose(labels)  # of the traced pass, whose rows were all read
        classes = chosen.classes.clone()
        self.take(BatchFeatures(rows, shown, classes, own, chosen.keep, chosen.ignored, dtypes))

    def _rows(self, tensor: Tensor, module: nn.Module) -> Tensor:
        assert self._reading is not None
        labels, mask = self._reading
        tensor = tensor.detach()
        keep = None if self._chosen is None or self._selects() else self._chosen.keep
        plain = labels.ndim == 1 and tensor.ndim == 4 and self.layers.pool == "mean"
        if plain and len(tensor) == len(labels) and channel_dim(module, 4) == 1:
            single = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            rows = tensor.mean((2, 3), dtype=single)  # as to_rows, in single precision
            return rows if keep is None else rows[keep.to(rows.device)]
        with torch.no_grad():
            rows = self.layers.rows(
                *(tensor, module),
                labels=labels,
                mask=mask,
                keep=keep if labels.ndim > 1 else None,
            )
        return rows if keep is None or labels.ndim > 1 else rows[keep.to(rows.device)]

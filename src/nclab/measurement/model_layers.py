"""ModelLayers: the layers of a model to measure, found in one traced forward pass."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError, NclabWarning
from nclab.features.batches import (
    Batch,
    LabelChoice,
    ModelLoss,
    Outputs,
    check_label_choice,
    first_tensor,
    loss_mismatch,
    padding_warning,
    row_labels,
)
from nclab.features.classifier import AUTO, ClassifierChoice, find_classifier
from nclab.features.head_output import Classifier
from nclab.features.pooling import (
    NoRows,
    Pool,
    as_column,
    as_rows,
    binary_logits,
    is_sequence_first,
    mean_rows,
    select_positions,
    to_rows,
)
from nclab.features.recorder import (
    Call,
    FoundLayer,
    Point,
    Reader,
    Recorder,
    all_layers,
    is_weight_layer,
    named_points,
    reading_weights,
)
from nclab.measurement.options import Head
from nclab.statistics.checks import check_sizes

AVERAGED = (
    "the model returns logits for every position, but there is one label per sample: features, "
    "loss and accuracy are those of the mean over positions"
)


class MeasuredLayer(NamedTuple):
    """A layer that is measured."""

    name: str
    point: Point
    dim: int
    is_last: bool
    """Whether the classifier reads this layer."""


class ModelLayers:
    """The classifier and the layers of a model that a user wants to measure.

    A recorder made by `recorder(reader)` traces one forward pass; `find` then finds classifier and
    layers.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str],
        *,
        classifier: ClassifierChoice = AUTO,
        pool: Pool = "mean",
        labels: LabelChoice = "auto",
    ) -> None:
        check_label_choice(labels)
        self.model = model
        self.wanted = layers
        if isinstance(classifier, nn.Module):
            names = (name for name, module in model.named_modules() if module is classifier)
            classifier = next(names, type(classifier).__name__)
        self.chosen = classifier
        self.pool = pool
        self.classifier: Classifier | None
        """Set by `find`; None if only features are measured."""
        self.labels = labels
        self.shifted = labels == "next"
        """Whether the logits of a token are compared with the label of the next token."""
        self.masked = True
        """Whether padded tokens are skipped."""
        self.time_first = False
        """Whether labels of tokens are (T, B), in the order of the model's tokens."""
        self.measured: list[MeasuredLayer] = []
        self.skipped: dict[str, str] = {}
        self.remarks: tuple[str, ...] = ()
        """Remarks for the report on how the classifier and its loss were found."""
        self.num_classes: int | None = None
        """Number of outputs of the classifier; None without a classifier."""
        self.channel_modules: dict[Point, nn.Module] = {}
        self._layouts: dict[int, bool | None] = {}
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
        # A convolution over several pixels is not a classifier.
        self._may_classify = [
            name for name in self._weight_layers if _reads_one_position(model.get_submodule(name))
        ]

    @property
    def found(self) -> bool:
        """Whether `find` has found the layers."""
        return hasattr(self, "classifier")

    @property
    def classifier_name(self) -> str:
        """Name of the classifier; empty if only features are measured."""
        return "" if self.classifier is None else self.classifier.name or type(self.model).__name__

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        parameter = next(self.model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def head(self) -> Head | None:
        """Return the present weights of the classifier."""
        return None if self.classifier is None else Head.checked(*self.classifier.read(), None)

    def features(self, layer: MeasuredLayer, recorder: Recorder, output: Any) -> Tensor | NoRows:
        """Return the (rows, d) features of a layer.

        For the layer that the classifier reads, return the classifier's inputs. They may belong to
        one position of each sample, and may be divided by their norms.
        """
        rows = recorder.rows.get(layer.point, NoRows("it was not called for this batch"))
        if isinstance(rows, NoRows) or not layer.is_last or self.classifier is None:
            return rows
        if self.classifier.selection != "rows":
            selected = self._selected(self.classifier, rows, recorder, output)
            if isinstance(selected, NoRows):
                return selected
            rows = selected
        if self.classifier.unit_rows:
            return torch.nn.functional.normalize(rows.double(), dim=1)
        return rows

    def _selected(
        self, head: Classifier, features: Tensor, recorder: Recorder, output: Any
    ) -> Tensor | NoRows:
        """Return for each sample the features at the position whose logits the model returns, or
        their mean if the model averages over positions."""
        assert head.output is not None
        logits = as_column(Outputs.of(output).tensors[head.output].detach())
        if head.selection == "mean":
            return mean_rows(features, len(logits))
        all_logits = None if head.logits is None else recorder.rows.get(head.logits)
        if not isinstance(all_logits, Tensor):
            with reading_weights(self.model):
                weights = self.head()
            assert weights is not None
            rows = as_rows(features).to(weights.weight)
            rows = torch.nn.functional.normalize(rows, dim=1) if head.unit_rows else rows
            all_logits = weights.logits(rows).reshape(*features.shape[:-1], -1).to(features)
            logits = binary_logits(logits)
        selected = select_positions(features, all_logits, logits)
        if selected is None:
            return NoRows("no single position of a sample has the logits that the model returns")
        return selected

    def compare_loss(self, expected: float, measured: float) -> None:
        """Warn if the model's own loss differs from the loss of the classifier that was found."""
        parameter = next((p for p in self.model.parameters() if p.is_floating_point()), None)
        dtype = torch.float32 if parameter is None else parameter.dtype
        mismatch = loss_mismatch(expected, measured, self.classifier_name, dtype)
        if mismatch is not None:
            self.remarks = (*self.remarks, mismatch)
            message = f"Expected the model's loss, but {mismatch}."
            warnings.warn(message, NclabWarning, stacklevel=4)

    def use_label_rule(self, loss: ModelLoss, batch: Batch, ignore_index: int | None) -> None:
        """Apply the model's own label shift and padding rule to all following batches."""
        self.shifted, self.masked = loss.shifted, loss.masked
        remark = None
        if not loss.masked:
            remark = padding_warning(batch.labels, batch.mask, ignore_index)
        elif loss.repeats:
            remark = (
                "the labels repeat the tokens that the model reads: if it predicts the next "
                "tokens, pass labels='next', else labels='given'"
            )
        if remark is not None:
            self.remarks = (*self.remarks, remark)
            warnings.warn(f"{remark[0].upper()}{remark[1:]}.", NclabWarning, stacklevel=4)

    def row_labels(self, labels: Tensor, mask: Tensor | None, ignore_index: int | None) -> Tensor:
        """Return one class number for each row of a batch, as a vector."""
        return row_labels(
            *(labels, mask if self.masked else None),
            shifted=self.shifted,
            ignore_index=ignore_index,
            time_first=self.time_first,
        ).reshape(-1)

    def check_labels(self, labels: Tensor, ignore_index: int | None) -> None:
        """Raise if a label is not the number of one of the classifier's outputs."""
        outputs, name = self.num_classes, self.classifier_name
        used = labels if ignore_index is None else labels[labels != ignore_index]
        if outputs is None or not used.numel():
            return
        low, high = (int(bound) for bound in torch.aminmax(used))
        if high >= outputs:
            raise DataError(
                f"Expected labels in [0, {outputs}) for the {outputs} outputs of {name}, "
                f"got {high}. Check the labels, or pass classifier= another module."
            )
        if low < 0:
            raise DataError(
                f"Expected labels from 0 upwards, got {low}. "
                f"Pass ignore_index={low} if it marks samples to skip."
            )

    def rows(
        self,
        tensor: Tensor,
        module: nn.Module,
        *,
        labels: Tensor,
        mask: Any,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Return the (rows, d) features of a tensor that `module` reads or returns.

        Raise `NoRows` if the tensor does not fit the labels.
        """
        layout, sequence_first = None, self._sequence_first
        if sequence_first and not tensor.is_nested and tensor.ndim == 3:
            layout = is_sequence_first(tensor, labels, module)
            # A last batch of T samples is ambiguous and has the layout of the batches before it.
            layout = self._layouts.get(id(module)) if layout is None else layout
            self._layouts[id(module)] = layout
        return to_rows(
            *(tensor, labels, module),
            pool=self.pool,
            mask=mask,
            sequence_first=sequence_first,
            time_first=layout,
            keep=keep,
        )

    def recorder(
        self, reader: Reader, points: Sequence[Point] | None = None, *, keep: bool = False
    ) -> Recorder:
        """Return a recorder of the given points; without points, it traces the whole forward pass.

        With `keep` the tensors of the traced pass are kept for `find`.
        """
        if points is not None:
            # `features` needs all positions to find the one that the model uses.
            all_positions, head = list[Point](), self.classifier
            if head is not None and head.selection != "rows":
                all_positions = [layer.point for layer in self.measured if layer.is_last]
                all_positions += [] if head.logits is None else [head.logits]
            return Recorder(
                self.model,
                reader,
                [*points, *all_positions],
                channel_modules=self.channel_modules,
                full_points=all_positions,
            )
        names = self._weight_layers if self.wanted == "all" else self._may_classify
        inputs = [Point(name, "input", None) for name in names]
        named = [point for _, point in self._named]
        points, channel_modules = inputs + named, self.channel_modules
        return Recorder(
            self.model, reader, points, trace=True, keep=keep, channel_modules=channel_modules
        )

    def find(self, recorder: Recorder, batch: Batch, output: Any) -> None:
        """Find the classifier and the layers to measure in a traced pass."""
        calls = recorder.calls
        if self._sequence_first and batch.labels.ndim == 2:
            self.time_first = self._time_first(calls, batch.labels)
        outputs = Outputs.of(output)
        classifier = find_classifier(self.model, calls, outputs, self.chosen, batch.mask)
        last = FoundLayer("output", Point("", "output", 0), None)
        if classifier is not None:
            last = self._input_of_classifier(classifier.reads, calls)
        self.remarks = (classifier.remark,) if classifier and classifier.remark else ()
        if classifier is not None and _averages_positions(classifier, outputs, batch):
            self.remarks = (*self.remarks, AVERAGED)
        self.classifier = classifier and classifier._replace(tensor=None, result=None)
        head = self.head()
        self.num_classes = None if head is None else len(head.weight)
        by_point = {layer.point: layer for layer in self._layers(calls, batch, last)}
        for layer in by_point.values():
            known = head is not None and layer.identity is not None
            is_last = known and layer.identity == last.identity
            rows = recorder.rows.get(layer.point)
            try:
                if is_last and classifier is not None and classifier.selection != "rows":
                    rows = _all_positions(classifier, layer, recorder)
                elif rows is None:
                    tensor = classifier.tensor if classifier is not None and is_last else None
                    rows = self._late_rows(layer, tensor, batch, output, recorder)
                if isinstance(rows, NoRows):
                    raise ModelError(f"Cannot measure {layer.name}: {rows}.") from rows
                check_sizes(2 if head is None else len(head.weight), rows.shape[-1])
                if head is not None and is_last:
                    head.check_dim(rows.shape[-1])
            except NclabError as error:
                if is_last or self._named or layer == last:
                    raise
                self.skipped[layer.name] = str(error.__cause__ or error)
            else:
                recorder.rows[layer.point] = rows
                dim = rows.shape[-1]
                self.measured.append(MeasuredLayer(layer.name, layer.point, dim, is_last))
        recorder.calls.clear()
        recorder.forget()  # releases the tensors of this pass

    def _time_first(self, calls: list[Call], labels: Tensor) -> bool:
        """Whether labels are (T, B), because a layer with `batch_first=False` reads (T, B, d)."""
        for call in calls:
            source = call.source
            first = getattr(call.module, "batch_first", True) is False
            if not first or source is None or source.is_nested or source.ndim != 3:
                continue
            if labels.shape[0] == labels.shape[1] == source.shape[0] and self.labels == "next":
                size = tuple(labels.shape)
                raise DataError(
                    f"Expected different numbers of sequences and tokens in the first batch, got "
                    f"labels of shape {size}. With labels='next' their order must be known, since "
                    f"{call.name} reads tokens as (T, B)."
                )
            if source.shape[:2] == labels.shape:
                return True
        return False

    def _input_of_classifier(self, reads: FoundLayer, calls: list[Call]) -> FoundLayer:
        """Return the layer that the classifier reads.

        If the input of a given classifier is unknown, return the last of the named layers.
        """
        if reads.name or reads.identity is not None:
            return reads
        if not self._named:
            raise ModelError(
                "Expected a module whose input or output the given classifier turns into the "
                "model's output, found none. Name the layer that the classifier reads: "
                "layers=['name']."
            )
        layers = [_named_layer(name, point, calls) for name, point in self._named]
        return max(layers, key=lambda timed: timed[0])[1]

    def _late_rows(
        self,
        layer: FoundLayer,
        tensor: Tensor | None,
        batch: Batch,
        output: Any,
        recorder: Recorder,
    ) -> Tensor | NoRows:
        """Return the rows of a layer that were not recorded, from its `tensor` in the traced pass
        or from the model's output."""
        module = self.model
        if not layer.point.module:
            tensor = first_tensor(output)
        for call in recorder.calls:
            if call.name == layer.point.module and call.index == layer.point.call:
                module = call.module
        if tensor is None:
            return NoRows("it was not called")
        self.channel_modules[layer.point] = module
        recorder.dtypes[layer.point] = tensor.dtype
        try:
            return self.rows(tensor.detach(), module, labels=batch.labels, mask=batch.mask)
        except NoRows as reason:
            return reason

    def _layers(self, calls: list[Call], batch: Batch, last: FoundLayer) -> list[FoundLayer]:
        if self._named:
            named = [_named_layer(name, point, calls) for name, point in self._named]
            return [layer for _, layer in sorted(named, key=lambda timed: timed[0])]
        if self.wanted == "last":
            return [last]
        layers = all_layers(calls, self._weight_layers, batch.tensors())
        # The classifier's input is always last, even if it is the input of the network.
        return [layer for layer in layers if layer.identity != last.identity] + [last]


def _averages_positions(classifier: Classifier, outputs: Outputs, batch: Batch) -> bool:
    """Whether the model returns logits for every position, but each sample has one label."""
    if classifier.output is None or classifier.selection != "rows" or batch.labels.ndim != 1:
        return False
    logits, read = outputs.tensors[classifier.output], classifier.tensor
    if logits.ndim <= 2 or read is None or read.ndim <= 2:
        return False
    return logits.shape.numel() > len(batch.labels) * len(classifier.read()[0])


def _all_positions(classifier: Classifier, layer: FoundLayer, recorder: Recorder) -> Tensor:
    """Return the classifier's input at all positions.

    Also record the logits at all positions; `features` needs them to find the position whose
    logits the model returns.
    """
    read, logits = classifier.tensor, classifier.result
    assert read is not None
    recorder.dtypes[layer.point] = read.dtype
    if classifier.logits is not None and logits is not None:
        recorder.rows[classifier.logits] = logits.detach()
    return read.detach()


def _reads_one_position(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    if weight is not None:
        return all(size == 1 for size in weight.shape[2:])
    # Do not read a computed weight: in training that would update a spectral norm.
    return not isinstance(module, nn.modules.conv._ConvNd) or set(module.kernel_size) == {1}


def _named_layer(name: str, point: Point, calls: list[Call]) -> tuple[int, FoundLayer]:
    """Return the step at which the forward pass reached a layer (0 if never), and the layer."""
    for call in calls:
        if (call.name, call.index) == (point.module, point.call):
            if point.side == "input":
                return call.entered, FoundLayer(name, point, call.source_identity)
            return call.left, FoundLayer(name, point, call.target_identity)
    return 0, FoundLayer(name, point, None)

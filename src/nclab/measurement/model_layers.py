"""ModelLayers: which layers of a model are measured, found in one traced forward pass."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError, NclabWarning
from nclab.features.batches import Batch
from nclab.features.classifier import (
    AUTO,
    ClassifierChoice,
    find_classifier,
    needs_tensors,
)
from nclab.features.evaluation import reading_weights
from nclab.features.head_output import Classifier
from nclab.features.labels import (
    LabelChoice,
    ModelLoss,
    check_label_choice,
    loss_mismatch,
    padding_warning,
    row_labels,
)
from nclab.features.layers import FoundLayer, all_layers, named_points
from nclab.features.pooling import (
    NoRows,
    Pool,
    as_column,
    as_rows,
    binary_logits,
    count_positions,
    is_sequence_first,
    mean_rows,
    select_positions,
    to_rows,
)
from nclab.features.recorder import (
    Call,
    Outputs,
    Point,
    Reader,
    Recorder,
    first_tensor,
    is_weight_layer,
)
from nclab.measurement.layer_stream import Head
from nclab.statistics.checks import check_sizes

AVERAGED = (
    "the model returns logits of every position, the labels are one a sample: features, loss and "
    "accuracy are those of the mean over positions"
)


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
        classifier: ClassifierChoice = AUTO,
        pool: Pool = "mean",
        labels: LabelChoice = "auto",
    ) -> None:
        check_label_choice(labels)
        self.model = model
        self.wanted = layers
        if isinstance(classifier, nn.Module):
            names = (name for name, own in model.named_modules() if own is classifier)
            classifier = next(names, type(classifier).__name__)
        self.chosen = classifier
        self.pool = pool
        self.classifier: Classifier | None
        """There once `find` has found it; None where only features are measured."""
        self.labels = labels
        self.shifted = labels == "next"
        """Whether the logits of a token belong to the label of the next."""
        self.masked = True
        """Whether padded tokens are left out."""
        self.time_first = False
        """Whether labels of tokens are (T, B), as the model has its tokens."""
        self.measured: list[MeasuredLayer] = []
        self.skipped: dict[str, str] = {}
        self.remarks: tuple[str, ...] = ()
        """How the classifier was found, and its loss, where that needs saying."""
        self.num_classes: int | None = None
        """Outputs of the classifier; without one only the labels tell."""
        self.channel_modules: dict[Point, nn.Module] = {}
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
    def classifier_name(self) -> str:
        """Name of the classifier, empty without one."""
        return "" if self.classifier is None else self.classifier.name or type(self.model).__name__

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        parameter = next(self.model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def head(self) -> Head | None:
        """The classifier's weights as they are now."""
        return None if self.classifier is None else Head.checked(*self.classifier.read(), None)

    def features(self, layer: MeasuredLayer, recorder: Recorder, output: Any) -> Tensor | NoRows:
        """Rows of a layer as the classifier reads them: of a token, or directions, if it does."""
        rows = recorder.rows.get(layer.point, NoRows("it was not called for this batch"))
        if isinstance(rows, NoRows) or not layer.is_last or self.classifier is None:
            return rows
        if self.classifier.selection != "rows":
            taken = self._taken(self.classifier, rows, recorder, output)
            if isinstance(taken, NoRows):
                return taken
            rows = taken
        if self.classifier.unit_rows:
            return torch.nn.functional.normalize(rows.double(), dim=1)
        return rows

    def _taken(
        self, head: Classifier, features: Tensor, recorder: Recorder, output: Any
    ) -> Tensor | NoRows:
        """Of what the classifier has read of every position, what has become the output."""
        assert head.output is not None
        logits = as_column(Outputs.of(output).tensors[head.output].detach())
        if head.selection == "mean":
            own = count_positions(features, logits)
            if head.positions not in (None, own):
                return NoRows(
                    f"its factor was found for samples of {head.positions} positions, these have "
                    f"{own}"
                )
            return mean_rows(features, len(logits))
        made = None if head.logits is None else recorder.rows.get(head.logits)
        if not isinstance(made, Tensor):
            with reading_weights(self.model):
                weights = self.head()
            assert weights is not None
            rows = as_rows(features).to(weights.weight)
            rows = torch.nn.functional.normalize(rows, dim=1) if head.unit_rows else rows
            made = weights.logits(rows).reshape(*features.shape[:-1], -1).to(features)
            logits = binary_logits(logits)
        taken = select_positions(features, made, logits)
        if taken is None:
            return NoRows("the model's output is that of no single position of its samples")
        return taken

    def agree(self, own: float, ours: float) -> None:
        """Warn where the model's own loss is not that of the classifier that was found."""
        parameter = next((p for p in self.model.parameters() if p.is_floating_point()), None)
        dtype = torch.float32 if parameter is None else parameter.dtype
        said = loss_mismatch(own, ours, self.classifier_name, dtype)
        if said is not None:
            self.remarks = (*self.remarks, said)
            warnings.warn(f"Expected the model's loss, but {said}.", NclabWarning, stacklevel=4)

    def take(self, found: ModelLoss, batch: Batch, ignore_index: int | None) -> None:
        """From now on labels are taken as the model takes them."""
        self.shifted, self.masked = found.shifted, found.masked
        said = None
        if not found.masked:
            said = padding_warning(batch.labels, batch.mask, ignore_index)
        elif found.repeats:
            said = (
                "the labels repeat the tokens that the model reads: if it predicts the next ones, "
                "pass labels='next', else labels='given'"
            )
        if said is not None:
            self.remarks = (*self.remarks, said)
            warnings.warn(f"{said[0].upper()}{said[1:]}.", NclabWarning, stacklevel=4)

    def row_labels(self, labels: Tensor, mask: Tensor | None, ignore_index: int | None) -> Tensor:
        """One class number for each row of a batch, flat."""
        padding = mask if self.masked else None
        own = row_labels(
            *(labels, padding),
            shifted=self.shifted,
            ignore_index=ignore_index,
            time_first=self.time_first,
        )
        return own.reshape(-1)

    def check_labels(self, labels: Tensor, ignore_index: int | None) -> None:
        """Refuse classes that the classifier does not have."""
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
                f"Pass ignore_index={low} if it marks samples to leave out."
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
        """(rows, d) features of a batch, channels where `module` has them; raises NoRows."""
        turned, first = None, self._sequence_first
        if first and not tensor.is_nested and tensor.ndim == 3:
            turned = is_sequence_first(tensor, labels, module)
            # A last batch of T samples is turned as the batches before it were.
            turned = self._turned.get(id(module)) if turned is None else turned
            self._turned[id(module)] = turned
        return to_rows(
            *(tensor, labels, module),
            pool=self.pool,
            mask=mask,
            sequence_first=first,
            turned=turned,
            keep=keep,
        )

    def recorder(
        self, reader: Reader, points: Sequence[Point] | None = None, *, keep: bool = False
    ) -> Recorder:
        """A recorder of the given points or, without them, one that traces the pass.

        With `keep` the tensors of the traced pass live until `find` has seen them.
        """
        if points is not None:
            whole = self._whole()
            return Recorder(
                self.model,
                reader,
                [*points, *whole],
                channel_modules=self.channel_modules,
                whole=whole,
            )
        names = self._weight_layers if self.wanted == "all" else self._may_classify
        inputs = [Point(name, "input", None) for name in names]
        named = [point for _, point in self._named]
        points, channel_modules = inputs + named, self.channel_modules
        return Recorder(
            self.model, reader, points, trace=True, keep=keep, channel_modules=channel_modules
        )

    def _whole(self) -> list[Point]:
        """What is read of every position, to find those that the model takes."""
        head = self.classifier
        if head is None or head.selection == "rows":
            return []
        last = [layer.point for layer in self.measured if layer.is_last]
        return last if head.logits is None else [*last, head.logits]

    def needs_tensors(self, recorder: Recorder, output: Any) -> bool:
        """Whether `find` wants a traced pass that has kept its tensors."""
        return needs_tensors(recorder.calls, Outputs.of(output), self.chosen)

    def find(self, recorder: Recorder, batch: Batch, output: Any) -> None:
        """After the traced pass: find the classifier and the layers to measure."""
        calls = recorder.calls
        if self._sequence_first and batch.labels.ndim == 2:
            self.time_first = self._time_first(calls, batch.labels)
        outputs = Outputs.of(output)
        classifier = find_classifier(self.model, calls, outputs, self.chosen, batch.mask)
        last = FoundLayer("output", Point("", "output", 0), None)
        if classifier is not None:
            last = self._placed(classifier.reads, calls)
        self.remarks = (classifier.remark,) if classifier and classifier.remark else ()
        if classifier is not None and _averaged(classifier, outputs, batch):
            self.remarks = (*self.remarks, AVERAGED)
        self.classifier = classifier and classifier._replace(tensor=None, result=None)
        head = self.head()
        self.num_classes = None if head is None else len(head.weight)
        found = {layer.point: layer for layer in self._layers(calls, batch, last)}
        for layer in found.values():
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
        recorder.forget()  # the tensors of this pass are not ours to keep alive

    def _time_first(self, calls: list[Call], labels: Tensor) -> bool:
        """Whether layers that want (T, B, d) were given tensors in the order of the labels."""
        for call in calls:
            source = call.source
            first = getattr(call.module, "batch_first", True) is False
            if not first or source is None or source.is_nested or source.ndim != 3:
                continue
            if labels.shape[0] == labels.shape[1] == source.shape[0] and self.labels == "next":
                size = tuple(labels.shape)
                raise DataError(
                    f"Expected for labels='next' other numbers of sequences and tokens in the "
                    f"first batch, which {call.name} reads as (T, B); got labels of shape {size}."
                )
            if source.shape[:2] == labels.shape:
                return True
        return False

    def _placed(self, reads: FoundLayer, calls: list[Call]) -> FoundLayer:
        """What the classifier reads; of a given one that is not found, the last named layer."""
        if reads.name or reads.identity is not None:
            return reads
        if not self._named:
            raise ModelError(
                "Expected a given classifier whose result is the model's output, it is that of no "
                "tensor that a module reads or returns. Say what it reads: layers=['name']."
            )
        placed = [_named_layer(name, point, calls) for name, point in self._named]
        return max(placed, key=lambda place: place[0])[1]

    def _late_rows(
        self,
        layer: FoundLayer,
        tensor: Tensor | None,
        batch: Batch,
        output: Any,
        recorder: Recorder,
    ) -> Tensor | NoRows:
        """Rows of a place that was not known to be one while the pass was traced."""
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
            placed = [_named_layer(name, point, calls) for name, point in self._named]
            return [layer for _, layer in sorted(placed, key=lambda place: place[0])]
        if self.wanted == "last":
            return [last]
        layers = all_layers(calls, self._weight_layers, batch)
        # The classifier's input closes the list, also where it is the network's own input.
        return [layer for layer in layers if layer.identity != last.identity] + [last]


def _averaged(classifier: Classifier, outputs: Outputs, batch: Batch) -> bool:
    """Whether logits of every position meet one label a sample, outside the model."""
    if classifier.output is None or classifier.selection != "rows" or batch.labels.ndim != 1:
        return False
    logits, read = outputs.tensors[classifier.output], classifier.tensor
    several = logits.ndim > 2 and logits.shape.numel() > len(batch.labels) * _outputs(classifier)
    return several and read is not None and read.ndim > 2


def _outputs(classifier: Classifier) -> int:
    return len(classifier.read()[0])


def _all_positions(classifier: Classifier, layer: FoundLayer, recorder: Recorder) -> Tensor:
    """What the classifier has read, for `features` to take its rows from; its result beside."""
    read, made = classifier.tensor, classifier.result
    assert read is not None
    recorder.dtypes[layer.point] = read.dtype
    if classifier.logits is not None and made is not None:
        recorder.rows[classifier.logits] = made.detach()
    return read.detach()


def _one_place(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    if weight is not None:
        return all(size == 1 for size in weight.shape[2:])
    # One that is computed is not looked at: in training a spectral norm would move on.
    return not isinstance(module, nn.modules.conv._ConvNd) or set(module.kernel_size) == {1}


def _named_layer(name: str, point: Point, calls: list[Call]) -> tuple[int, FoundLayer]:
    """The layer, and when the forward pass came by."""
    for call in calls:
        if (call.name, call.index) == (point.module, point.call):
            if point.side == "input":
                return call.entered, FoundLayer(name, point, call.source_identity)
            return call.left, FoundLayer(name, point, call.target_identity)
    return 0, FoundLayer(name, point, None)

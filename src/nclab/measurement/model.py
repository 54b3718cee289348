"""measure: measure a torch module on the batches of a loader."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from typing import Any, get_args

from torch import Tensor, nn

from nclab.errors import DataError, ModelError
from nclab.features.batches import (
    LABEL_KEYS,
    TOKENS,
    Batch,
    LabelChoice,
    Outputs,
    binary_labels,
    check_loader,
    known_labels,
    model_loss,
    require_unshifted,
    split_batch,
)
from nclab.features.classifier import AUTO, ClassifierChoice, needs_tensors
from nclab.features.pooling import NoRows, Pool
from nclab.features.recorder import Point, Recorder, evaluating, unwrap
from nclab.measurement.collapse import Report
from nclab.measurement.layer_stream import Cache, DistributedData, LayerStream, ProcessGroupChoice
from nclab.measurement.model_layers import MeasuredLayer, ModelLayers
from nclab.measurement.options import (
    CACHE_BYTES,
    ClassNames,
    MeasureOptions,
    Reference,
    check_count,
    reject_one_hot,
    require_known_classes,
)
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX

NOT_THE_LAST = "the classifier does not read this layer"
NO_CLASSIFIER = "features only (classifier=None)"


def measure(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    test: Iterable[Any] | None = None,
    layers: str | Sequence[str] = "last",
    classifier: ClassifierChoice = AUTO,
    pool: Pool = "mean",
    labels: LabelChoice = "auto",
    ignore_index: int | None = IGNORE_INDEX,
    min_count: int | None = None,
    second_pass: bool = True,
    cache_bytes: int = CACHE_BYTES,
    reference: Report | Reference | None = None,
    class_names: ClassNames = None,
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    process_group: ProcessGroupChoice = None,
) -> Report:
    """Measure the neural collapse of a model over the batches of a loader.

    Finds the classifier, which is the last linear map that produces the logits, and measures the
    features that it reads. With `layers="all"` measures the inputs of all weight layers, and with
    names the outputs of those modules (`"name.input"` for an input, `"name#2"` for the output of
    the second call). All layers come from one forward pass per batch, in evaluation mode and
    without gradients. Mode, hooks, gradients and random states are restored afterwards. Batches
    are (inputs, labels) or mappings with `labels`. Causal language models get the labels of the
    next tokens, as in their own loss.

    Costs the forward passes and, per layer, what `measure_features` costs. The second pass reads
    features kept in `cache_bytes` of memory, shared by all layers. Layers that do not fit need a
    second round of forward passes.

    Inside torch.distributed every process of `process_group` calls this with its own part of the
    data, and all get the measurement of all data; docs/clusters.md lists the messages.

    Args:
        test: a loader of other data; `report.test` compares them with the class means of `loader`.
        classifier: the name of a module, a function model -> (W, b) or the pair, instead of
            finding it; None to measure features alone.
        pool: "mean" or "flatten" for feature maps and tokens, see `nclab.features.pooling`.
        labels: "next" if each token is to predict the next token and the model does not shift
            labels itself; batches may then be tokens alone. "given" uses labels unchanged.
        ignore_index: label of padded tokens to skip.
        min_count: leave out classes with fewer samples than this, with a warning; 1 leaves out
            classes without samples.
        second_pass: False for the metrics of one pass only.
        reference: an earlier report whose class means these data are compared with.
        class_names: names in the order of the class numbers, for tables and pictures. Labels may
            then be names as well.
        metrics: "all" or names of `nclab.metrics.catalogue.EXTRAS`, as for `measure_features`.
        intervals: 95 % intervals by a jackknife over groups of samples, as for `measure_features`.
        process_group: processes of torch.distributed that share the data, by default all;
            "local" for this process alone.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(60, 4, generator=generator)
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> report = measure(net, [(x, torch.arange(60) % 3)])
    >>> report.classifier, report.last.layer, report.last.dim
    ('2', '1', 8)
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected a torch.nn.Module, got a {type(model).__name__}.")
    check_loader(loader)
    if test is not None:
        check_loader(test)
    if pool not in get_args(Pool):
        raise ModelError(f"Expected pool='mean' or 'flatten', got {pool!r}.")
    options = MeasureOptions.checked(
        ignore_index=ignore_index,
        min_count=min_count,
        second_pass=second_pass,
        cache_bytes=cache_bytes,
        reference=reference,
        class_names=class_names,
        metrics=metrics,
        intervals=intervals,
    )
    measurement = Measurement(
        ModelLayers(unwrap(model), layers, classifier=classifier, pool=pool, labels=labels),
        options,
        distributed=DistributedData.over(process_group, options),
        split=None if test is None else "train",
    )
    report = measurement.run(loader)
    if test is None:
        return report
    return replace(report, test=measurement.for_test(report).run(test))


class Measurement:
    """A measurement of a model that is in progress, with one `LayerStream` per layer.

    The first batch decides which layers are measured.

    Args:
        distributed: the processes that share the data, if this process reads only a part.
        split: name of the data: train, test, ...
        points: number of features of the last layer to keep for its 3-D picture.
    """

    def __init__(
        self,
        layers: ModelLayers,
        options: MeasureOptions,
        *,
        distributed: DistributedData | None = None,
        split: str | None = None,
        points: int = 0,
    ) -> None:
        self.layers, self.options, self.model = layers, options, layers.model
        self.split = split
        self._distributed = distributed
        self._points = points
        self._streams: dict[Point, LayerStream] = {}
        self._cache = Cache(options.cache_bytes) if options.second_pass else None
        self._known_labels: Tensor | None = None
        self._label_parameter: str | None = None  # of the model, if batches do not fill it
        self._passes_labels = False

    def for_test(self, reference: Report) -> "Measurement":
        """Return a measurement of test data, compared with the class means of `reference`."""
        options = replace(self.options, reference=reference)
        test = Measurement(self.layers, options, distributed=self._distributed, split="test")
        test._label_parameter, test._passes_labels = self._label_parameter, self._passes_labels
        return test

    def run(self, loader: Iterable[Any]) -> Report:
        """Read the loader once, or twice if the second pass needs it."""
        options, distributed = self.options, self._distributed
        # Not iter(loader) is loader: a DataLoader draws a random number and starts workers for it.
        repeatable = not isinstance(loader, Iterator)
        if not options.missing_allowed and distributed is None:
            self._known_labels = known_labels(loader, options.class_names)
        if distributed is not None:
            distributed.begin()
        with evaluating(self.model, loader):
            with self._failure_reported():
                for batch in track(loader, "measuring"):
                    self._run_first_pass(batch)
            streams = list(self._streams.values())
            if distributed is not None:
                distributed.join_first(streams)
            self._require_data()
            for stream in streams:
                stream.leave_out_rare()
            complete = not options.second_pass or self._second_pass(loader, streams, repeatable)
        reasons = {
            "second pass": f"the features exceed cache_bytes={options.cache_bytes} and the loader "
            "can be read only once"
        }
        return self._report({} if complete else reasons)

    def _second_pass(
        self, loader: Iterable[Any], streams: Sequence[LayerStream], repeatable: bool
    ) -> bool:
        """Make the second pass; return False if the loader cannot be read a second time."""
        distributed = self._distributed
        again = [stream for stream in streams if not stream.cached]
        with self._failure_reported():
            for stream in streams:
                if stream.cached:
                    stream.second_pass_from_cache()
            for batch in track(loader, "second pass") if again and repeatable else ():
                self._run_second_pass(batch, again)
        complete = repeatable or not again
        if distributed is not None:
            complete = distributed.join_second(streams, complete=complete)
        # With other processes check all streams: an error of one process is an error of all.
        for stream in (streams if distributed else again) if complete else []:
            stream.finish_second_pass()
        return complete

    @contextmanager
    def _failure_reported(self) -> Iterator[None]:
        """Tell the other processes if a pass fails here, so that they do not wait forever."""
        try:
            yield
        except Exception:
            if self._distributed is not None:
                self._distributed.report_failure()
            raise

    def _run_first_pass(self, raw: Any) -> None:
        """Run one batch; the first batch also decides which layers are measured."""
        batch = self._split(raw)
        loss: float | None = None
        if not self.layers.found:
            recorder, output = self._find_layers(batch)
            loss = self._model_loss(raw, batch, output)
        else:
            recorder, output = self._run(batch, [layer.point for layer in self.layers.measured])
        if not self._streams:
            self._open_streams()
            labels, classes = self._known_labels, self.layers.num_classes
            if labels is not None and classes is not None:
                ignore_index = self.options.ignore_index
                self._with_hint(partial(require_known_classes, labels, classes, ignore_index))
        labels = self._row_labels(batch)
        for layer, stream in self._layer_streams():
            rows, dtype = self._rows(recorder, layer, output), recorder.dtypes.get(layer.point)
            stream.update(rows, labels, dtype=dtype)
        if loss is not None:
            self._compare_loss(loss)

    def _find_layers(self, batch: Batch) -> tuple[Recorder, Any]:
        """Trace the first batch and find classifier and layers."""
        self._label_parameter, self._passes_labels = label_parameter(self.model, batch)
        recorder, output = self._run(batch, None)
        if self._wants_labels(batch, output):
            self._passes_labels = True
            recorder, output = self._run(batch, None)
        if needs_tensors(recorder.calls, Outputs.of(output), self.layers.chosen):
            recorder, output = self._run(batch, None, keep=True)
        try:
            self.layers.find(recorder, batch, output)
        except ModelError as error:
            reject_one_hot(batch.labels, error)
            raise
        return recorder, output

    def _run_second_pass(self, raw: Any, streams: Sequence[LayerStream]) -> None:
        """Run one batch again for the layers that were not cached."""
        batch = self._split(raw)
        again = [(layer, stream) for layer, stream in self._layer_streams() if stream in streams]
        recorder, output = self._run(batch, [layer.point for layer, _ in again])
        labels = self._row_labels(batch)
        for layer, stream in again:
            stream.update_second(self._rows(recorder, layer, output), labels)

    def _require_data(self) -> None:
        """Raise for an empty loader and for absent classes, after the first pass."""
        if not self._streams:
            name = "loader" if self.split is None else f"{self.split} loader"
            raise DataError(f"Expected at least one batch, the {name} gave none.")
        for stream in self._streams.values():
            allow_missing = self.options.missing_allowed
            self._with_hint(partial(stream.require_classes, allow_missing=allow_missing))

    def _with_hint(self, check: Callable[[], None]) -> None:
        """Run a check; add to its error the hint that nclab may have found the wrong classifier."""
        try:
            check()
        except DataError as error:
            name = self.layers.classifier_name
            hint = f" Or is {name!r} not the classifier?" if name else ""
            raise DataError(f"{error}{hint}") from error

    def _report(self, reasons: dict[str, str]) -> Report:
        measured = []
        no_weight = NOT_THE_LAST if self.layers.classifier else NO_CLASSIFIER
        for stream in self._streams.values():
            why = reasons if stream.head else {"weight": no_weight, **reasons}
            measured.append(replace(stream.collapse(why), split=self.split))
        return Report(
            layers=tuple(measured),
            classifier=self.layers.classifier_name,
            samples=measured[-1].samples,
            skipped=self.layers.skipped,
            remarks=self.layers.remarks,
            split=self.split,
        )

    def picture(self) -> dict[str, Any] | None:
        """Return the 3-D picture of the last layer; None if no points were kept."""
        return list(self._streams.values())[-1].picture()

    def _layer_streams(self) -> Iterator[tuple[MeasuredLayer, LayerStream]]:
        for layer in self.layers.measured:
            yield layer, self._streams[layer.point]

    def _split(self, raw: Any) -> Batch:
        """Split a batch into inputs and labels, and return both, with class numbers as labels."""
        tokens = self.layers.labels == "next"
        names = self.options.class_names
        batch = split_batch(raw, self.layers.device, names=names, tokens=tokens)
        if batch.labels.is_complex():
            raise DataError("Expected integer labels, got complex numbers.")
        if batch.labels.is_floating_point():
            reject_one_hot(batch.labels)
            batch = batch._replace(labels=binary_labels(batch.labels))
        elif batch.labels.ndim == 2 and batch.labels.shape[1] == 1 and not tokens:
            batch = batch._replace(labels=batch.labels[:, 0])
        if tokens and not self.layers.found:
            require_unshifted(batch.labels, _first_input(batch), self.options.ignore_index)
        integer = not batch.labels.is_floating_point()
        return batch._replace(labels=batch.labels.long()) if integer else batch

    def _row_labels(self, batch: Batch) -> Tensor:
        """Return one class number for each row of features."""
        ignore_index = self.options.ignore_index
        labels = self.layers.row_labels(batch.labels, batch.mask, ignore_index)
        if not labels.is_floating_point():
            self.layers.check_labels(labels, ignore_index)
        return labels

    def _model_loss(self, raw: Any, batch: Batch, output: Any) -> float | None:
        """Return the model's own loss on the first batch; None if it is unknown.

        Apply the model's label shift and padding rule from then on.
        """
        layers = self.layers
        if layers.classifier is None or layers.labels != "auto":
            return None
        key = self._label_parameter
        arguments = {"input_ids": _first_input(batch), **batch.kwargs}
        if self._passes_labels and key is not None:
            arguments[key] = batch.labels
        elif isinstance(raw, Mapping) and key is not None and key in raw:
            arguments[key] = batch.labels
            # The model may be unable to use the labels; then its own loss stays unknown.
            with suppress(Exception):
                output = self.model(*batch.args, **batch.kwargs, **{key: batch.labels})
        loss = model_loss(
            *(self.model, output, batch.labels),
            called_with=arguments,
            ignore_index=self.options.ignore_index,
            mask=batch.mask,
        )
        layers.use_label_rule(loss, batch, self.options.ignore_index)
        return loss.loss

    def _wants_labels(self, batch: Batch, output: Any) -> bool:
        """Whether the model must be called with labels: without them, its logits did not belong to
        the labelled positions."""
        labels = batch.labels
        if self._passes_labels or self._label_parameter is None or labels.ndim < 2:
            return False
        logits = [z for z in Outputs.of(output).likely if z.ndim == labels.ndim + 1]
        fits = (labels.shape in (z.shape[:-1], z.movedim(1, -1).shape[:-1]) for z in logits)
        return bool(logits) and not any(fits)

    def _compare_loss(self, expected: float) -> None:
        """Warn if the loss measured on the first batch differs from the model's own loss."""
        for layer, stream in self._layer_streams():
            if layer.is_last and stream.logits is not None and stream.logits.counts.any():
                logits = stream.logits
                measured = float(logits.loss_sums.sum()) / int(logits.counts.sum())
                self.layers.compare_loss(expected, measured)

    def _run(
        self, batch: Batch, points: Sequence[Point] | None, *, keep: bool = False
    ) -> tuple[Recorder, Any]:
        reader = partial(self.layers.rows, labels=batch.labels, mask=batch.mask)
        kwargs = batch.kwargs
        if self._passes_labels and self._label_parameter is not None:
            kwargs = {**kwargs, self._label_parameter: batch.labels}
        with self.layers.recorder(reader, points, keep=keep) as recorder:
            output = self.model(*batch.args, **kwargs)
        return recorder, output

    def _rows(self, recorder: Recorder, layer: MeasuredLayer, output: Any) -> Tensor:
        rows = self.layers.features(layer, recorder, output)
        if isinstance(rows, NoRows):
            raise ModelError(f"Cannot measure {layer.name} on every batch: {rows}.")
        return rows

    def _open_streams(self) -> None:
        head, options = self.layers.head(), self.options
        outputs = None if head is None else len(head.weight)
        check_count(options.class_names, outputs, f"outputs of {self.layers.classifier_name}")
        options = replace(options, num_classes=outputs)
        for layer in self.layers.measured:
            is_pictured = layer is self.layers.measured[-1]
            self._streams[layer.point] = LayerStream(
                options,
                head=head if layer.is_last else None,
                layer=layer.name,
                cache=self._cache,
                points=self._points if is_pictured else 0,
            )


def _first_input(batch: Batch) -> Any:
    """Return the first input of the model, which may be tokens."""
    return batch.kwargs.get(TOKENS, batch.args[0] if batch.args else None)


def label_parameter(model: nn.Module, batch: Batch) -> tuple[str | None, bool]:
    """Return the name of the model's parameter for labels, and whether it is required.

    The name is None if the forward pass has no such parameter or the batch already contains it.
    """
    try:
        form = signature(model.forward)
        filled = form.bind_partial(*batch.args, **batch.kwargs).arguments
    except (TypeError, ValueError):  # the signature is unknown or does not fit
        return None, False
    free = [key for key in LABEL_KEYS if key in form.parameters and key not in filled]
    return (free[0], form.parameters[free[0]].default is Parameter.empty) if free else (None, False)

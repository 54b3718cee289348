"""measure: the door for any nn.Module and the loader that feeds it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any, get_args

from torch import Tensor, nn

from nclab.errors import DataError, ModelError
from nclab.features.batches import Batch, known_labels, split_batch
from nclab.features.classifier import AUTO, ClassifierChoice
from nclab.features.evaluation import evaluating, unwrap
from nclab.features.labels import (
    LABEL_KEYS,
    TOKENS,
    LabelChoice,
    binary_labels,
    model_loss,
    require_unshifted,
)
from nclab.features.pooling import NoRows, Pool
from nclab.features.recorder import Outputs, Point, Recorder
from nclab.measurement.asked import NOTHING_MORE, Asked, check_min_count
from nclab.measurement.class_names import ClassNames, as_class_names, check_count, named
from nclab.measurement.held_out import Reference, look_against
from nclab.measurement.kept_points import KeptPoints
from nclab.measurement.layer_stream import CACHE_BYTES, Cache, LayerStream, check_cache
from nclab.measurement.memory import Budget, Memory, as_bytes
from nclab.measurement.model_layers import MeasuredLayer, ModelLayers
from nclab.measurement.ranks import GroupChoice, SharedData
from nclab.measurement.report import Report
from nclab.measurement.soft_labels import refuse_one_hot, split_soft
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX, check_ignore_index
from nclab.statistics.sums import require_samples

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
    allow_missing: bool = False,
    min_count: int | None = None,
    second_pass: bool = True,
    cache_bytes: int = CACHE_BYTES,
    reference: Report | Reference | None = None,
    class_names: ClassNames = None,
    soft: bool = False,
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    null: bool = False,
    group: GroupChoice = None,
    memory: Memory = None,
) -> Report:
    """Measure the neural collapse of a model over the batches of a loader.

    Finds the classifier, the last linear map that produces the logits, and measures the features
    it reads; with `layers="all"` what every weight layer reads; with names the outputs of those
    modules (`"name.input"` for an input, `"name#2"` for what the second call returns). All layers
    come from one forward pass per batch, in evaluation mode and without gradients; mode, hooks,
    gradients and random states are afterwards as before. Batches are (inputs, labels) or mappings
    with `labels`; causal language models get the labels of the next tokens, as they themselves do.

    Costs the forward passes and, per layer, what `measure_features` costs. The second pass reads
    features kept in `cache_bytes` of memory, shared by all layers; layers that do not fit need a
    second round of forward passes.

    Inside torch.distributed every process of `group` calls it with its own part of the data, and
    all get the measurement of the whole; see docs/clusters.md for the messages that this takes.

    Args:
        test: a loader of other data; `report.test` compares them with the class means of `loader`.
        classifier: instead of finding it: the name of a module, a function model -> (W, b) or the
            pair; None to measure features alone.
        pool: "mean" or "flatten" for feature maps and tokens, see `nclab.features.pooling`.
        labels: "next" where each token is to predict the next one and the model does not shift
            labels itself; batches may then be tokens alone. "given" takes labels as they stand.
        ignore_index: label of padded tokens to skip.
        allow_missing: leave out classes without samples instead of refusing.
        min_count: leave out classes with fewer samples than this, and say so; 1 for those with
            none.
        second_pass: False for the one-pass metrics alone.
        reference: an earlier report whose class means these data are compared with.
        class_names: in the order of the class numbers, for tables and pictures; with them labels
            may be names, too.
        soft: the labels are distributions over the classes; the loss is that of these.
        metrics: "all" or names of `nclab.metrics.catalogue.EXTRAS`, as for `measure_features`.
        intervals: 95 % intervals by a jackknife over groups of samples, as for `measure_features`.
        null: also the scalars with shuffled labels; batches must mix the classes.
        group: processes of torch.distributed that share the data, by default all there are;
            "own" for this process alone.
        memory: what this may use beside the model, such as "8GB", as for `measure_features`; of
            all layers together.

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
    check_ignore_index(ignore_index)
    check_cache(cache_bytes)
    check_min_count(min_count, intervals=intervals, null=null)
    asked = Asked.checked(metrics, intervals=intervals, null=null, soft=soft)
    measurement = Measurement(
        ModelLayers(unwrap(model), layers, classifier=classifier, pool=pool, labels=labels),
        ignore_index=ignore_index,
        allow_missing=allow_missing,
        min_count=min_count,
        second_pass=second_pass,
        cache_bytes=cache_bytes,
        asked=asked,
        sharing=SharedData.over(group, asked),
        reference=reference,
        split=None if test is None else "train",
        class_names=as_class_names(class_names),
        soft=soft,
        memory=as_bytes(memory),
    )
    report = measurement.run(loader)
    if test is None:
        return report
    held_out = replace(measurement, reference=report, split="test", streams={})
    return replace(report, test=held_out.run(test))


def check_loader(loader: Any) -> None:
    """Refuse what cannot be iterated over."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise DataError(f"Expected a loader of batches, got a {type(loader).__name__}.")


@dataclass
class Measurement:
    """One measurement under way: the plan made from the first batch, and a stream per layer."""

    layers: ModelLayers
    ignore_index: int | None = IGNORE_INDEX
    allow_missing: bool = False
    min_count: int | None = None
    """Classes with fewer samples are left out, also those with none."""
    second_pass: bool = True
    cache_bytes: int = CACHE_BYTES
    asked: Asked = NOTHING_MORE
    sharing: SharedData | None = None
    """With others, if this process reads only a part of the data."""
    reference: Report | Reference | None = None
    """Other data, whose class means these are compared with; classes may then be missing."""
    split: str | None = None
    """What the data are called: train, test, ..."""
    class_names: tuple[str, ...] | None = None
    soft: bool = False
    memory: int | None = None
    """Bytes that all layers together may use."""
    points: int = 0
    """Features of the last layer that are kept for its picture in 3-D."""
    streams: dict[Point, LayerStream] = field(default_factory=dict)
    expected: Tensor | None = None
    """All labels, where they are known before the pass."""

    def __post_init__(self) -> None:
        self.model = self.layers.model
        self.cache = Cache(self.cache_bytes) if self.second_pass else None
        self.device = self.layers.device
        self.allow_missing |= self.reference is not None or self.min_count is not None
        self.label_key: str | None = None
        """The parameter of the model for the labels, if it has one that the batches leave free."""
        self._passes_labels = False

    def run(self, loader: Iterable[Any]) -> Report:
        """Read the loader once, or twice if the second pass needs it."""
        # Not iter(loader) is loader: a DataLoader draws a random number and starts workers for it.
        repeatable = not isinstance(loader, Iterator)
        if not self.allow_missing and self.sharing is None and not self.soft:
            self.expected = known_labels(loader, self.class_names)
        if self.sharing is not None:
            self.sharing.begin()
        with evaluating(self.model, loader):
            with self._given_up():
                for batch in track(loader, "measuring"):
                    self.run_first_pass(batch)
            streams = list(self.streams.values())
            if self.sharing is not None:
                self.sharing.moments(streams)
            self.require_data()
            self._leave_out()
            reasons: dict[str, str] = {}
            again = [stream for stream in streams if not stream.cached]
            if self.second_pass:
                with self._given_up():
                    for stream in streams:
                        if stream.cached:
                            stream.look_at_cache()
                    for batch in track(loader, "second pass") if again and repeatable else ():
                        self.run_second_pass(batch, again)
                complete = repeatable or not again
                if self.sharing is not None:
                    complete = self.sharing.looks(streams, complete=complete)
                if not complete:
                    reasons["second pass"] = (
                        f"the features exceed cache_bytes={self.cache_bytes} and the loader can "
                        "be read only once"
                    )
                # With others all streams: what one process refuses, all refuse.
                for stream in (streams if self.sharing else again) if complete else []:
                    stream.finish_second_pass()
        return self.report(reasons)

    @contextmanager
    def _given_up(self) -> Iterator[None]:
        """A pass that fails here fails for the others too, instead of leaving them to wait."""
        try:
            yield
        except Exception:
            if self.sharing is not None:
                self.sharing.give_up()
            raise

    def run_first_pass(self, raw: Any) -> None:
        """Run one batch; the first one also decides what is measured."""
        batch, targets = self._batch(raw)
        own: float | None = None
        if not self.layers.found:
            self.label_key, self._passes_labels = label_parameter(self.model, batch)
            recorder, output = self._run(batch, None)
            if self._wants_labels(batch, output):
                self._passes_labels = True
                recorder, output = self._run(batch, None)
            if self.layers.needs_tensors(recorder, output):
                recorder, output = self._run(batch, None, keep=True)
            try:
                self.layers.find(recorder, batch, output)
            except ModelError as error:
                refuse_one_hot(batch.labels, error)
                raise
            if targets is not None:  # the number of classes is known only now
                split_soft(targets, self.layers.num_classes)
            own = self._model_loss(raw, batch, output)
        else:
            recorder, output = self._run(batch, [layer.point for layer in self.layers.measured])
        if not self.streams:
            self._open_streams()
            self._require_classes()
        labels = self._labels(batch)
        for layer, stream in self._pairs():
            rows, dtype = self._rows(recorder, layer, output), recorder.dtypes.get(layer.point)
            stream.update(rows, labels, targets, dtype=dtype)
        if own is not None:
            self._compare(own)

    def run_second_pass(self, raw: Any, streams: Sequence[LayerStream]) -> None:
        """Run one batch again for the layers that were not kept."""
        batch, _ = self._batch(raw)
        again = [(layer, stream) for layer, stream in self._pairs() if stream in streams]
        recorder, output = self._run(batch, [layer.point for layer, _ in again])
        labels = self._labels(batch)
        for layer, stream in again:
            stream.look_again(self._rows(recorder, layer, output), labels)

    def _require_classes(self) -> None:
        """Refuse absent classes before the pass, where its labels are known."""
        labels, classes = self.expected, self.layers.num_classes
        if labels is None or classes is None or labels.dtype.is_floating_point:
            return
        used = labels[labels != self.ignore_index] if self.ignore_index is not None else labels
        if used.numel() and int(used.min()) >= 0 and int(used.max()) < classes:
            counts = used.long().bincount(minlength=classes)
            self._refused(lambda: require_samples(counts))

    def require_data(self) -> None:
        """After the first pass: refuse an empty loader and absent classes."""
        if not self.streams:
            what = "loader" if self.split is None else f"{self.split} loader"
            raise DataError(f"Expected at least one batch, the {what} gave none.")
        for stream in self.streams.values():
            self._refused(partial(stream.require_classes, allow_missing=self.allow_missing))

    def _refused(self, check: Callable[[], None]) -> None:
        try:
            check()
        except DataError as error:
            name = self.layers.classifier_name
            hint = f" Or is {name!r} not the classifier?" if name else ""
            raise DataError(f"{error}{hint}") from error

    def report(self, reasons: dict[str, str]) -> Report:
        """The finished measurement."""
        measured = []
        nothing = NOT_THE_LAST if self.layers.classifier else NO_CLASSIFIER
        for stream in self.streams.values():
            own = reasons if stream.head else {"weight": nothing, **reasons}
            measured.append(named(stream.collapse(own), self.class_names, self.split))
        return Report(
            layers=tuple(measured),
            classifier=self.layers.classifier_name,
            samples=measured[-1].samples,
            skipped=self.layers.skipped,
            remarks=self.layers.remarks,
            split=self.split,
        )

    def picture(self) -> dict[str, Any] | None:
        """The last layer in 3-D, where points were kept."""
        return list(self.streams.values())[-1].picture()

    def _pairs(self) -> Iterator[tuple[MeasuredLayer, LayerStream]]:
        for layer in self.layers.measured:
            yield layer, self.streams[layer.point]

    def _batch(self, raw: Any) -> tuple[Batch, Tensor | None]:
        """A batch with class numbers as labels and, where these are soft, the labels as given."""
        tokens = self.layers.labels == "next"
        batch = split_batch(raw, self.device, names=self.class_names, tokens=tokens)
        if self.soft:
            classes, targets = split_soft(batch.labels, self.layers.num_classes)
            return batch._replace(labels=classes), targets
        if batch.labels.is_floating_point():
            refuse_one_hot(batch.labels)
            batch = batch._replace(labels=binary_labels(batch.labels))
        elif batch.labels.ndim == 2 and batch.labels.shape[1] == 1 and not tokens:
            batch = batch._replace(labels=batch.labels[:, 0])
        if tokens and not self.layers.found:
            require_unshifted(batch.labels, _first(batch), self.ignore_index)
        integer = not batch.labels.is_floating_point()
        return batch._replace(labels=batch.labels.long()) if integer else batch, None

    def _labels(self, batch: Batch) -> Tensor:
        """One class number for each row of features."""
        labels = self.layers.row_labels(batch.labels, batch.mask, self.ignore_index)
        if not labels.is_floating_point():
            self.layers.check_labels(labels, self.ignore_index)
        return labels

    def _model_loss(self, raw: Any, batch: Batch, output: Any) -> float | None:
        """What the model itself says of the first batch, if it takes labels; and how it does."""
        layers = self.layers
        if layers.classifier is None or self.soft or layers.labels != "auto":
            return None
        called = {"input_ids": _first(batch), **batch.kwargs}
        if self._passes_labels and self.label_key is not None:
            called[self.label_key] = batch.labels
        elif isinstance(raw, Mapping) and self.label_key is not None and self.label_key in raw:
            called[self.label_key] = batch.labels
            # A model that cannot make use of them only tells nothing.
            with suppress(Exception):
                output = self.model(*batch.args, **batch.kwargs, **{self.label_key: batch.labels})
        found = model_loss(
            *(self.model, output, batch.labels),
            called_with=called,
            ignore_index=self.ignore_index,
            mask=batch.mask,
        )
        layers.take(found, batch, self.ignore_index)
        return found.loss

    def _wants_labels(self, batch: Batch, output: Any) -> bool:
        """Whether a model that can be given labels shows the logits of all tokens only then."""
        labels = batch.labels
        if self._passes_labels or self.label_key is None or labels.ndim < 2:
            return False
        logits = [z for z in Outputs.of(output).likely if z.ndim == labels.ndim + 1]
        fits = (labels.shape in (z.shape[:-1], z.movedim(1, -1).shape[:-1]) for z in logits)
        return bool(logits) and not any(fits)

    def _compare(self, own: float) -> None:
        """Say where the first batch has another loss than the model finds itself."""
        for layer, stream in self._pairs():
            if layer.is_last and stream.logits is not None and stream.logits.counts.any():
                logits = stream.logits
                ours = float(logits.loss_sums.sum()) / int(logits.counts.sum())
                self.layers.agree(own, ours)

    def _run(
        self, batch: Batch, points: Sequence[Point] | None, *, keep: bool = False
    ) -> tuple[Recorder, Any]:
        reader = partial(self.layers.rows, labels=batch.labels, mask=batch.mask)
        kwargs = batch.kwargs
        if self._passes_labels and self.label_key is not None:
            kwargs = {**kwargs, self.label_key: batch.labels}
        with self.layers.recorder(reader, points, keep=keep) as recorder:
            try:
                output = self.model(*batch.args, **kwargs)
            except IndexError as error:
                refuse_tokens(self.model, batch, error)
                raise
        return recorder, output

    def _rows(self, recorder: Recorder, layer: MeasuredLayer, output: Any) -> Tensor:
        rows = self.layers.features(layer, recorder, output)
        if isinstance(rows, NoRows):
            raise ModelError(f"Cannot measure {layer.name} on every batch: {rows}.")
        return rows

    def _open_streams(self) -> None:
        head = self.layers.head()
        names = self.class_names
        told = None if names is None else len(names)
        outputs = None if head is None else len(head.weight)
        check_count(names, outputs, f"outputs of {self.layers.classifier_name}")
        budget = Budget(self.memory, self.second_pass, self.allow_missing)
        for layer in self.layers.measured:
            stream = LayerStream(
                num_classes=told if head is None else len(head.weight),
                head=head if layer.is_last else None,
                ignore_index=self.ignore_index,
                cache=self.cache,
                layer=layer.name,
                asked=self.asked,
            )
            stream.budget = budget
            if self.points and layer is self.layers.measured[-1]:
                stream.points = KeptPoints(self.points)
            if self.reference is not None:
                reference = reference_of(self.reference, layer.name)
                stream.against = look_against(reference, names)
                stream.only_known = self.min_count is not None
            self.streams[layer.point] = stream

    def _leave_out(self) -> None:
        """Forget the classes that are too rare; other data follow those they are compared with."""
        if self.min_count is None or self.reference is not None:
            return
        for stream in self.streams.values():
            stream.leave_out(self.min_count)


def _first(batch: Batch) -> Any:
    """What a model reads first, perhaps tokens."""
    return batch.kwargs.get(TOKENS, batch.args[0] if batch.args else None)


def label_parameter(model: nn.Module, batch: Batch) -> tuple[str | None, bool]:
    """The parameter of a forward pass that is left for the labels, and whether it must be given."""
    try:
        form = signature(model.forward)
        given = form.bind_partial(*batch.args, **batch.kwargs).arguments
    except (TypeError, ValueError):  # a forward pass that does not tell, or takes something else
        return None, False
    free = [key for key in LABEL_KEYS if key in form.parameters and key not in given]
    return (free[0], form.parameters[free[0]].default is Parameter.empty) if free else (None, False)


def refuse_tokens(model: nn.Module, batch: Batch, error: Exception) -> None:
    """Say which embedding lacks a token, if that is why the forward pass has failed."""
    given = [one for one in batch.tensors() if one.numel() and not one.is_floating_point()]
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            for tokens in given[:1]:
                if int(tokens.max()) >= module.num_embeddings or int(tokens.min()) < 0:
                    worst = tokens.min() if int(tokens.min()) < 0 else tokens.max()
                    raise DataError(
                        f"Expected tokens in [0, {module.num_embeddings}) for the embedding "
                        f"{name!r}, got {int(worst)}. Does the tokenizer belong to the model?"
                    ) from error
            return  # the first one reads the tokens


def reference_of(reference: Any, layer: str) -> Any:
    """What a layer is compared with: in a report, the layer of the same name."""
    return reference[layer] if isinstance(reference, Report) else reference

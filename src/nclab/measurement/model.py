"""measure: the door for any nn.Module and the loader that feeds it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, get_args

from torch import Tensor, nn

from nclab.errors import DataError, ModelError
from nclab.features.batches import Batch, known_labels, split_batch
from nclab.features.evaluation import evaluating, unwrap
from nclab.features.pooling import NoRows, Pool
from nclab.features.recorder import Point, Recorder
from nclab.measurement.asked import NOTHING_MORE, Asked
from nclab.measurement.layer_stream import CACHE_BYTES, Cache, LayerStream
from nclab.measurement.model_layers import ModelLayers
from nclab.measurement.report import Report
from nclab.progress import track
from nclab.statistics.checks import IGNORE_INDEX
from nclab.statistics.sums import require_samples

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
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    null: bool = False,
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
        metrics: "all" or names of `nclab.metrics.catalogue.EXTRAS`, as for `measure_features`.
        intervals: 95 % intervals by a jackknife over groups of samples, as for `measure_features`.
        null: also the scalars with shuffled labels; batches must mix the classes.

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
    if pool not in get_args(Pool):
        raise ModelError(f"Expected pool='mean' or 'flatten', got {pool!r}.")
    return Measurement(
        ModelLayers(unwrap(model), layers, classifier=classifier, pool=pool),
        ignore_index=ignore_index,
        allow_missing=allow_missing,
        second_look=second_look,
        cache_bytes=cache_bytes,
        asked=Asked.checked(metrics, intervals=intervals, null=null),
    ).run(loader)


def check_loader(loader: Any) -> None:
    """Refuse what cannot be iterated over."""
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        raise DataError(f"Expected a loader of batches, got a {type(loader).__name__}.")


class Sharing(Protocol):
    """Joins what several processes have seen of their parts of the data."""

    def moments(self, streams: Sequence[LayerStream]) -> None:
        """After the first pass."""

    def looks(self, streams: Sequence[LayerStream], *, complete: bool) -> None:
        """After the second, which may have been impossible here."""


@dataclass
class Measurement:
    """One measurement under way: the plan made from the first batch, and a stream per layer."""

    layers: ModelLayers
    ignore_index: int | None = IGNORE_INDEX
    allow_missing: bool = False
    second_look: bool = True
    cache_bytes: int = CACHE_BYTES
    asked: Asked = NOTHING_MORE
    sharing: Sharing | None = None
    """With others, if this process reads only a part of the data."""
    streams: dict[Point, LayerStream] = field(default_factory=dict)
    expected: Tensor | None = None
    """All labels, where they are known before the pass."""

    def __post_init__(self) -> None:
        self.model = self.layers.model
        self.cache = Cache(self.cache_bytes) if self.second_look else None
        self.device = self.layers.device

    def run(self, loader: Iterable[Any]) -> Report:
        """Read the loader once, or twice if the second look needs it."""
        # Not iter(loader) is loader: a DataLoader draws a random number and starts workers for it.
        repeatable = not isinstance(loader, Iterator)
        if not self.allow_missing and self.sharing is None:
            self.expected = known_labels(loader)
        with evaluating(self.model, loader):
            for batch in track(loader, "measuring"):
                self.first_pass(batch)
            streams = list(self.streams.values())
            if self.sharing is not None:
                self.sharing.moments(streams)
            self.require_data()
            reasons: dict[str, str] = {}
            again = [stream for stream in streams if not stream.cached]
            if self.second_look:
                for stream in streams:
                    if stream.cached:
                        stream.look_at_cache()
                if again and repeatable:
                    for batch in track(loader, "second look"):
                        self.second_pass(batch, again)
                elif again:
                    reasons["second look"] = (
                        f"the features exceed cache_bytes={self.cache_bytes} and the loader can "
                        "be read only once"
                    )
                if self.sharing is not None:
                    self.sharing.looks(streams, complete=repeatable or not again)
                for stream in again if repeatable else []:
                    stream.finish_second_look()
        return self.report(reasons)

    def first_pass(self, raw: Any) -> None:
        """Run one batch; the first one also decides what is measured."""
        batch = split_batch(raw, self.device)
        if not self.layers.found:
            recorder, output = self._run(batch, None)
            self.layers.find(recorder, batch, output)
            self._open_streams()
            self._require_classes()
        else:
            recorder, _ = self._run(batch, list(self.streams))
        self._check_labels(batch.labels)
        for point, stream in self.streams.items():
            rows, dtype = _rows(recorder, point, stream), recorder.dtypes.get(point)
            stream.update(rows, batch.labels.reshape(-1), dtype=dtype)

    def second_pass(self, raw: Any, streams: Sequence[LayerStream]) -> None:
        """Run one batch again for the layers that were not kept."""
        batch = split_batch(raw, self.device)
        points = [point for point, stream in self.streams.items() if stream in streams]
        recorder, _ = self._run(batch, points)
        for point in points:
            stream = self.streams[point]
            stream.look_again(_rows(recorder, point, stream), batch.labels.reshape(-1))

    def _require_classes(self) -> None:
        """Refuse absent classes before the pass, where its labels are known."""
        labels = self.expected
        if labels is None or labels.dtype.is_floating_point:
            return
        used = labels[labels != self.ignore_index] if self.ignore_index is not None else labels
        if used.numel() and int(used.min()) >= 0 and int(used.max()) < self.layers.num_classes:
            counts = used.long().bincount(minlength=self.layers.num_classes)
            self._refused(lambda: require_samples(counts))

    def require_data(self) -> None:
        """After the first pass: refuse an empty loader and absent classes."""
        if not self.layers.found:
            raise DataError("Expected at least one batch, the loader gave none.")
        for stream in self.streams.values():
            self._refused(partial(stream.require_classes, allow_missing=self.allow_missing))

    def _refused(self, check: Callable[[], None]) -> None:
        try:
            check()
        except DataError as error:
            name = self.layers.classifier.call.name
            raise DataError(f"{error} Or is {name!r} not the classifier?") from error

    def report(self, reasons: dict[str, str]) -> Report:
        """The finished measurement."""
        measured = []
        for stream in self.streams.values():
            own = reasons if stream.head else {"weight": NOT_THE_LAST, **reasons}
            measured.append(stream.collapse(own))
        return Report(
            layers=tuple(measured),
            classifier=self.layers.classifier_name,
            samples=measured[-1].samples,
            skipped=self.layers.skipped,
            remarks=self.layers.remarks,
        )

    def _run(self, batch: Batch, points: Sequence[Point] | None) -> tuple[Recorder, Any]:
        reader = partial(self.layers.rows, labels=batch.labels, mask=batch.mask)
        with self.layers.recorder(reader, points) as recorder:
            output = self.model(*batch.args, **batch.kwargs)
        return recorder, output

    def _open_streams(self) -> None:
        head = self.layers.head()
        for layer in self.layers.measured:
            self.streams[layer.point] = LayerStream(
                num_classes=len(head.weight),
                head=head if layer.is_last else None,
                ignore_index=self.ignore_index,
                cache=self.cache,
                layer=layer.name,
                asked=self.asked,
            )

    def _check_labels(self, labels: Tensor) -> None:
        outputs, name = self.layers.num_classes, self.layers.classifier_name
        used = labels if self.ignore_index is None else labels[labels != self.ignore_index]
        if used.numel() and used.max() >= outputs:
            raise DataError(
                f"Expected labels in [0, {outputs}) for the {outputs} outputs of {name}, "
                f"got {int(used.max())}. Check the labels, or pass classifier= another module."
            )


def _rows(recorder: Recorder, point: Point, stream: LayerStream) -> Tensor:
    rows = recorder.rows.get(point, NoRows("it was not called for this batch"))
    if isinstance(rows, NoRows):
        raise ModelError(f"Cannot measure {stream.layer} on every batch: {rows}.")
    return rows

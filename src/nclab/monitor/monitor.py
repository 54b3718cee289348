"""Monitor: watches the collapse of a model while anyone's loop trains it."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar, get_args

from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError, NclabWarning
from nclab.features.classifier import AUTO, ClassifierChoice
from nclab.features.evaluation import THREADS, unwrap
from nclab.features.labels import LabelChoice
from nclab.features.pooling import Pool
from nclab.measurement.asked import check_min_count
from nclab.measurement.class_names import ClassNames, as_class_names
from nclab.measurement.held_out import Reference
from nclab.measurement.model import Measurement, check_loader
from nclab.measurement.model_layers import ModelLayers
from nclab.measurement.ranks import SharedData
from nclab.measurement.report import Report
from nclab.monitor.alarms import DEFAULT_ALARMS, AlarmRule, raised
from nclab.monitor.event import Alarm, Event, History, Source, thin_history
from nclab.monitor.loaders import WatchedLoader, labels_of, length_of
from nclab.monitor.running_estimate import RunningEstimate, is_first_process, join_processes
from nclab.monitor.schedule import Schedule, as_schedule, choose, in_window
from nclab.monitor.sinks import Sink, SinkCalls, as_sinks
from nclab.monitor.state import VERSION, parse_state
from nclab.monitor.training_hooks import BatchFeatures, Labels, TrainingHooks, check_hookable
from nclab.records.schema import TRAIN
from nclab.statistics.checks import IGNORE_INDEX
from nclab.text import counted

Item = TypeVar("Item")
log = logging.getLogger("nclab.monitor")


class Monitor:
    """Watches every layer's collapse during training, and never changes the training.

    On the batches as they are trained on: hooks read the features in the forward pass, and at the
    end of each due epoch there is a running estimate, without any extra forward pass. Exactly, at
    moments of your choice: `monitor.measure(loader)`, which is `nclab.measure`.

    `monitor.last` is the latest `Event`, `monitor.history` the scalars of all, `monitor.alarms`
    what was raised; sinks are called with each event. Under torch.distributed the moments of all
    processes are merged exactly; only the first process calls sinks and logs alarms.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule.
        layers: "last", "all" or names as for `nclab.measure`; by default what the preset says.
        preset: "economy", "standard" or "full", ordered by cost.
        alarms: callables Event -> Alarm, several or None; by default `DEFAULT_ALARMS`.
        sinks: callables that take each Event, or their names, as "console" or "record:runs/mine".
            One that fails is warned of once; the training and the others go on.
        classifier, pool, labels, ignore_index, min_count, class_names: as for `nclab.measure`;
            classes may be missing here.
        rows: at most so many rows of each batch, drawn at random; of tokens there are many.
        points: keep about so many features, such as 300, of the last layer for the picture in
            3-D that `RecordSink` writes with every measurement of the training data; 0 for none.
        total_epochs: of the whole training; `nclab runs`, pages and console show progress then.

    >>> import torch
    >>> inputs, labels = torch.randn(60, 4), torch.arange(60) % 3
    >>> loader = [(inputs[i::6], labels[i::6]) for i in range(6)]
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with Monitor(net) as monitor:
    ...     for epoch in range(2):
    ...         for x, y in monitor.watch(loader):  # the one line that changes
    ...             nn.functional.cross_entropy(net(x), y).backward()
    >>> monitor.last.epoch, monitor.last.report.last.samples, len(monitor.history.rows)
    (2.0, 60, 2)
    """

    def __init__(
        self,
        model: nn.Module,
        every: int | str | Schedule = 1,
        *,
        layers: str | Sequence[str] | None = None,
        preset: str = "standard",
        alarms: AlarmRule | Iterable[AlarmRule] | None = None,
        sinks: str | Sink | Iterable[str | Sink] = (),
        classifier: ClassifierChoice = AUTO,
        pool: Pool = "mean",
        labels: LabelChoice = "auto",
        ignore_index: int | None = IGNORE_INDEX,
        min_count: int | None = None,
        rows: int | None = None,
        class_names: ClassNames = None,
        points: int = 0,
        total_epochs: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"Expected a torch.nn.Module, got a {type(model).__name__}.")
        if pool not in get_args(Pool):
            raise ModelError(f"Expected pool='mean' or 'flatten', got {pool!r}.")
        check_min_count(min_count)
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
            raise NclabError(f"Expected rows=1 or more of each batch, got {rows!r}.")
        if not isinstance(points, int) or isinstance(points, bool) or points < 0:
            raise NclabError(
                f"Expected points= how many features to keep, such as 300, got {points!r}."
            )
        if total_epochs is not None and (isinstance(total_epochs, bool) or total_epochs < 1):
            raise NclabError(f"Expected total_epochs=1 or more, got {total_epochs!r}.")
        self.model = model
        self.schedule = as_schedule(every)
        self.preset = choose(preset, layers)
        self.rules = _rules(DEFAULT_ALARMS if alarms is None else alarms)
        self._sinks = SinkCalls(as_sinks(sinks))
        self.total_epochs = total_epochs
        """Of the whole training; None where nobody said it."""
        self.total_steps: int | None = None
        """The same in batches; known once the length of an epoch is."""
        self.history = History()
        self.alarms: list[Alarm] = []
        self.last: Event | None = None
        self.steps = 0
        """Batches done, or the number the loop gave to `step`."""
        self.epochs = 0
        """Epochs done."""
        self._classifier = classifier
        self._pool: Pool = pool
        self._labels: LabelChoice = labels
        self._ignore_index, self._min_count = ignore_index, min_count
        self._points = points
        self.class_names = as_class_names(class_names)
        self._layers = self._new_layers()
        names = self.class_names
        self._running = RunningEstimate(
            self._layers,
            scatter=self.preset.scatter,
            names=names,
            ignore_index=ignore_index,
            min_count=min_count,
            points=points,
        )
        self._hooks = TrainingHooks(
            self._layers, self._take, names, ignore_index=ignore_index, most=rows
        )
        self._unread: Mapping[str, Any] | None = None  # sums to go on from, once layers are found
        self._begun = False
        self._open = False
        self._batches = 0
        self._length: int | None = None
        self._read_before = 0
        self._last_step = 0
        self._warned = False
        self._resumed = False

    def __repr__(self) -> str:
        done = f"{counted(self.epochs, 'epoch')} and {counted(self.steps, 'step')} done"
        rows = counted(len(self.history.rows), "row")
        counts = f"{rows} of history, {counted(len(self.alarms), 'alarm')}"
        return f"<Monitor of {type(unwrap(self.model)).__name__}: {done}, {counts}>"

    def __enter__(self) -> Self:
        self._hooks.listen()
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if error is None and (self._open or self._batches):
            self.epoch_end()  # the loop was left early
        if error is None and self._hooks.unclaimed and not self._begun and self.last is None:
            words = (
                "The monitor measured nothing: the model was trained on batches that it was not "
                "shown. Iterate over monitor.watch(loader), or call monitor.observe(labels) before "
                "each forward pass."
            )
            warnings.warn(words, NclabWarning, stacklevel=2)
        self.close(error)

    @property
    def sinks(self) -> list[Sink]:
        """What is called with each event."""
        return self._sinks.sinks

    def close(self, error: BaseException | None = None) -> None:
        """Take the hooks off and close the sinks that can be closed."""
        THREADS.end_training(self)
        self._hooks.remove()
        self._sinks.close(error)

    @property
    def next_tokens(self) -> bool:
        """Whether the labels are those of the next tokens, so that batches may be tokens alone."""
        return self._labels == "next"

    @property
    def watching(self) -> bool:
        """Whether the coming batch enters a measurement."""
        done = self.epochs if self.schedule.unit == "epochs" else self.steps
        return in_window(self.schedule, done + 1)

    def watch(
        self, loader: Iterable[Item], *, labels: Callable[[Item], Any] | None = None
    ) -> WatchedLoader[Item]:
        """The loader's batches, unchanged, for one epoch of training.

        Batches are (inputs, labels) or mappings with `labels`; `labels=` takes them from others.
        """
        check_loader(loader)
        return WatchedLoader(loader, partial(self._epoch, loader, labels))

    def observe(self, labels: Any, *, mask: Tensor | None = None) -> None:
        """Say, before the forward pass of a batch, which labels it has.

        `mask` (B, T) is 1 for real tokens, 0 for padding. Called by `watch`; with it you need not.
        Where the loop shows no batches, a function takes their place that finds labels and mask
        in what the model is called with: `observe(lambda args, kwargs: (kwargs["labels"], None))`.
        """
        if self._open:
            self.step()
        THREADS.begin_training(self, unwrap(self.model))
        begun, self._begun = self._begun, True
        if not begun and self._hooks.unclaimed:
            raise DataError(
                "Expected observe(labels) before the forward pass of its batch, got it after "
                "one. Call it first, or iterate over monitor.watch(loader)."
            )
        if self.watching:
            if self._hooks.passes == 0:
                check_hookable(self.model)
            self._read_before = self._hooks.passes
            self._hooks.batch = self.steps
            own = labels if callable(labels) else Labels.checked(labels, mask, self.class_names)
            self._hooks.expect(own)
        self._open = True

    def step(self, number: int | None = None) -> None:
        """A batch is done; `number` if the loop counts steps in its own way."""
        observed, self._open, self._begun = self._open, False, True
        self._hooks.expect(None)
        if observed and self.watching:
            self._require_reading()
        self._batches += 1
        self.steps = self.steps + 1 if number is None else number
        begun = self.steps > 0  # with accumulated gradients the first batches make no step
        due = begun and self.schedule.unit == "steps" and self.schedule.due(self.steps)
        if due and self.steps != self._last_step:
            self._last_step = self.steps
            self._emit_estimate()
        self._rest()

    def epoch_begin(self, *, batches: int | None = None) -> None:
        """An epoch begins, of so many batches if that is known. Called by `watch`."""
        if (self._open or self._batches) and not self._resumed:
            self.epoch_end()  # the loop before was left early
        self._resumed = False
        self._begun = True
        self._length = batches
        THREADS.begin_training(self, unwrap(self.model))
        if batches and self.total_epochs is not None:
            self.total_steps = batches * self.total_epochs

    def epoch_end(self, number: int | None = None) -> None:
        """An epoch is done; `number` if the loop counts epochs in its own way."""
        if self._open:
            self.step()
        THREADS.end_training(self)
        self._batches = 0
        self.epochs = self.epochs + 1 if number is None else number
        if self.schedule.unit == "epochs" and self.schedule.due(self.epochs):
            self._emit_estimate()
        self._rest()

    def measure(
        self,
        loader: Iterable[Any],
        *,
        epoch: int | None = None,
        step: int | None = None,
        layers: str | Sequence[str] | None = None,
        split: str = TRAIN,
        reference: Report | Reference | None = None,
        allow_missing: bool = False,
        second_pass: bool = True,
    ) -> Report:
        """Measure now, exactly as `nclab.measure`, and tell alarms and sinks.

        `epoch` and `step` say when that is, epochs and steps done, in a loop that the monitor does
        not watch; `monitor.epochs` and `monitor.steps` become them.

        `split` names the data: history, records and charts keep a curve for each. With
        `reference`, the report of a measurement of the training data, the class means of these are
        compared with: `monitor.measure(test, split="test", reference=monitor.measure(train))`.

        Under torch.distributed every process calls it with its own part of the data, and all get
        the measurement of the whole.
        """
        check_loader(loader)
        if not (isinstance(split, str) and split and "/" not in split):
            raise NclabError(f"Expected split= a name such as 'test', without '/', got {split!r}.")
        expected = self._hooks.remove()
        measurement = Measurement(
            self._new_layers(layers),
            ignore_index=self._ignore_index,
            allow_missing=allow_missing,
            min_count=self._min_count,
            second_pass=second_pass,
            sharing=SharedData.over(None),
            reference=reference,
            split=None if split == TRAIN else split,
            class_names=self.class_names,
            points=self._points if split == TRAIN else 0,
        )
        report = measurement.run(loader)
        if expected is not None:
            self._hooks.expect(expected)
        self.steps = self.steps if step is None else step
        if epoch is not None:
            self.epochs, self._batches = epoch, 0
        self._emit("loader", report, split=split, picture=measurement.picture())
        return report

    def state_dict(self) -> dict[str, Any]:
        """Counts, alarms, history and the sums of an unfinished epoch, as plain values."""
        running = self._running.state_dict() if self._unread is None else dict(self._unread)
        return {
            "version": VERSION,
            "steps": self.steps,
            "epochs": self.epochs,
            "batches": self._batches,
            "last_step": self._last_step,
            "alarms": [
                {**alarm._asdict(), "classes": list(alarm.classes), "names": list(alarm.names)}
                for alarm in self.alarms
            ],
            "history": [dict(row) for row in self.history.rows],
            "running": running,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another monitor of the same model stood; a damaged state changes nothing."""
        found = parse_state(state)
        if self._layers.found:
            self._running.load_state_dict(found.running)
            self._unread = None
        else:
            self._running.clear()
            self._unread = found.running
        self.steps, self.epochs = found.steps, found.epochs
        self._batches, self._last_step = found.batches, found.last_step
        self.alarms, self.history.rows = found.alarms, found.history
        self._resumed = True  # in the middle of an epoch, perhaps

    def _new_layers(self, layers: str | Sequence[str] | None = None) -> ModelLayers:
        wanted = self.preset.layers if layers is None else layers
        return ModelLayers(
            *(unwrap(self.model), wanted),
            classifier=self._classifier,
            pool=self._pool,
            labels=self._labels,
        )

    def _epoch(
        self, loader: Iterable[Item], labels: Callable[[Item], Any] | None
    ) -> Iterator[Item]:
        self.epoch_begin(batches=length_of(loader))
        try:
            for batch in loader:
                if self.watching:
                    own, mask = labels_of(batch, labels, self.class_names, tokens=self.next_tokens)
                    self.observe(own, mask=mask)
                yield batch
                self.step()
            self.epoch_end()
        finally:
            THREADS.end_training(self)

    def _take(self, reading: BatchFeatures) -> None:
        self._go_on()
        self._running.add(reading)

    def _go_on(self) -> None:
        if self._unread is not None:
            unread, self._unread = self._unread, None
            self._running.load_state_dict(unread)

    def _require_reading(self) -> None:
        """Say when a batch could not be read: the first time as an error, later as a warning.

        A pass that began and was given up, as one out of memory, says nothing about the next.
        """
        if self._hooks.passes > self._read_before:
            return
        lost, self._hooks.lost = self._hooks.lost, False
        why = self._hooks.refused or (
            "its forward pass began and did not end"
            if lost
            else "no forward pass of the model in training mode was seen. Call model(inputs) with "
            "model.train(), after the labels are known"
        )
        if self._hooks.passes == 0 and not lost:
            raise ModelError(f"Cannot read the features of the batch: {why}.")
        if not self._warned:
            self._warned = True
            warnings.warn(f"A batch was left out of the monitor: {why}.", NclabWarning, 3)

    def _rest(self) -> None:
        """Between measurements there are no hooks, and what is left over is forgotten."""
        if not self.watching:
            self._hooks.remove()
            self._running.clear()

    def _emit_estimate(self) -> None:
        self._running.flush()
        join_processes(self._running)
        if self._running.streams:
            report = self._running.report()
            lost, picture = self._running.nonfinite(), self._running.picture()
            self._emit("training", report, lost, picture=picture)
        self._running.clear()

    def _emit(
        self,
        source: Source,
        report: Report,
        nonfinite: Mapping[str, Mapping[int, int]] | None = None,
        *,
        split: str = TRAIN,
        picture: Mapping[str, Any] | None = None,
    ) -> None:
        part = self._batches / self._length if self._length else 0.0
        fired = frozenset(alarm.key for alarm in self.alarms if alarm.split == split)
        epoch = self.epochs + min(part, 1.0)
        event = Event(
            *(self.steps, epoch, source, report, nonfinite or {}, fired),
            split=split,
            total_steps=self.total_steps,
            total_epochs=self.total_epochs,
        )
        found = {a.key: a for rule in self.rules for a in raised(rule, event)}
        new = tuple(self._named(a, event) for key, a in found.items() if key not in fired)
        event = replace(event, alarms=new, picture=picture)
        self.alarms.extend(event.alarms)
        self.last = event
        self.history(event)
        thin_history(self.history.rows)
        if not is_first_process():
            return
        for alarm in event.alarms:
            log.log(logging.WARNING if alarm.severe else logging.INFO, "%s", alarm)
        self._sinks(event)

    def _named(self, alarm: Alarm, event: Event) -> Alarm:
        """An alarm with its moment, the split it is about, and the names of its classes."""
        names = self.class_names or ()
        known = all(own < len(names) for own in alarm.classes)
        own = tuple(names[number] for number in alarm.classes) if known else ()
        return alarm._replace(split=event.split, names=own, epoch=event.epoch, step=event.step)


def _rules(given: Any) -> list[Any]:
    """One rule or several as a list; refused here, not after an epoch of training."""
    several = [given] if callable(given) or not isinstance(given, Iterable) else list(given)
    wrong = [given] if isinstance(given, str) else [own for own in several if not callable(own)]
    if wrong:
        raise NclabError(f"Expected alarms= callables that take an Event, got {wrong[0]!r}.")
    return several


def measure_splits(monitor: Monitor, loaders: Mapping[str, Iterable[Any]]) -> list[Event]:
    """Measure every split; those after training's against its class means."""
    reference: Report | None = None
    events = []
    for split, loader in loaders.items():
        report = monitor.measure(loader, split=split, reference=reference)
        reference = report if split == TRAIN else reference
        assert monitor.last is not None
        events.append(monitor.last)
    return events

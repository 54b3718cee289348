"""Monitor: measures the collapse of a model during any training loop, on a schedule."""

import logging
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, get_args

from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError, NclabWarning
from nclab.features.batches import LabelChoice, check_loader, labels_of
from nclab.features.classifier import AUTO, ClassifierChoice
from nclab.features.pooling import Pool
from nclab.features.recorder import unwrap
from nclab.measurement.collapse import Report
from nclab.measurement.layer_stream import DistributedData
from nclab.measurement.model import Measurement
from nclab.measurement.model_layers import ModelLayers
from nclab.measurement.options import (
    ClassNames,
    MeasureOptions,
    Reference,
    as_class_names,
    check_min_count,
)
from nclab.monitor.event import (
    DEFAULT_ALARMS,
    Alarm,
    AlarmRule,
    Event,
    History,
    Sink,
    SinkCalls,
    Source,
    as_callables,
    raised,
)
from nclab.monitor.running_estimate import (
    BatchFeatures,
    BatchLabels,
    RunningEstimate,
    TrainingHooks,
    check_hookable,
    read_moments,
)
from nclab.records.schema import TRAIN
from nclab.statistics.checks import IGNORE_INDEX
from nclab.statistics.process_group import ProcessGroup
from nclab.text import counted

Item = TypeVar("Item")
Unit = Literal["epochs", "steps"]


@dataclass(frozen=True)
class Every:
    """Measurements every n epochs or steps.

    >>> [step for step in range(1, 9) if Every(3, "steps").due(step)]
    [3, 6]
    """

    n: int
    unit: Unit = "epochs"
    window: int | None = None
    """Number of steps whose batches a measurement uses; None for all since the last measurement."""

    def __post_init__(self) -> None:
        _check(self.unit, self.window)
        if self.n < 1:
            raise NclabError(f"Expected every=1 or more, got {self.n}.")

    def due(self, count: int) -> bool:
        """Whether `count` is a multiple of n."""
        return count % self.n == 0


@dataclass(frozen=True)
class Logarithmic:
    """Measurements at logarithmically spaced epochs or steps: `per_decade` in a factor of 10.

    >>> [epoch for epoch in range(1, 101) if Logarithmic(per_decade=3).due(epoch)]
    [1, 2, 5, 10, 22, 46, 100]
    """

    per_decade: int = 10
    unit: Unit = "epochs"
    window: int | None = None

    def __post_init__(self) -> None:
        _check(self.unit, self.window)
        if self.per_decade < 1:
            raise NclabError(f"Expected per_decade=1 or more, got {self.per_decade}.")

    def due(self, count: int) -> bool:
        """Whether `count` is a power of 10^(1/per_decade), rounded."""
        nearest = round(self.per_decade * math.log10(count))
        powers = range(max(0, nearest - 1), nearest + 2)
        return any(round(10 ** (power / self.per_decade)) == count for power in powers)


Schedule = Every | Logarithmic
"""Rule for the epochs or steps after which the monitor measures."""


def _check(unit: str, window: int | None) -> None:
    if unit not in get_args(Unit):
        raise NclabError(f"Expected unit='epochs' or 'steps', got {unit!r}.")
    if window is not None and (window < 1 or unit == "epochs"):
        raise NclabError(
            f"Expected window=1 or more together with unit='steps', got window={window} and "
            f"unit={unit!r}."
        )


def in_window(schedule: Schedule, count: int) -> bool:
    """Whether a measurement uses the batches of this epoch or step.

    >>> [step for step in range(1, 11) if in_window(Every(5, "steps", window=2), step)]
    [4, 5, 9, 10]
    """
    if schedule.unit == "epochs":
        return schedule.due(count)
    if schedule.window is None:
        return True
    return any(schedule.due(later) for later in range(count, count + schedule.window))


def as_schedule(every: int | str | Schedule) -> Schedule:
    """Return the schedule for a number of epochs, "500 steps", "log epochs", or a schedule itself.

    >>> as_schedule("500 steps"), as_schedule(2)
    (Every(n=500, unit='steps', window=None), Every(n=2, unit='epochs', window=None))
    """
    if isinstance(every, int) and not isinstance(every, bool):
        return Every(every)
    if isinstance(every, str):
        match = re.fullmatch(r"(log|\d+) (epoch|step)s?", every.strip())
        if match:
            unit: Unit = "epochs" if match[2] == "epoch" else "steps"
            return Logarithmic(unit=unit) if match[1] == "log" else Every(int(match[1]), unit)
    elif isinstance(every, Schedule):
        return every
    raise NclabError(
        f"Expected every= a number of epochs, '500 steps', 'log epochs' or a schedule, "
        f"got {every!r}."
    )


PRESETS: dict[str, tuple[str, bool | None]] = {
    "economy": ("last", False),
    "standard": ("last", None),
    "full": ("all", None),
}
"""Presets by increasing cost: the layers, and whether to keep the d x d scatter matrix of features.

False never keeps the scatter, None keeps it for d up to 4096. For each batch, economy copies the
features; standard also adds their products to the scatter; full does both for every layer."""

VERSION = 1
"""Version of the format of a monitor's saved state."""
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""Errors that a state with missing or wrong parts causes."""
log = logging.getLogger("nclab.monitor")


class WatchedLoader(Generic[Item]):
    """A loader whose batches pass unchanged while the monitor reads their labels.

    Iterate over it once in each epoch. All other attributes are those of the loader.
    """

    def __init__(self, loader: Iterable[Item], epoch: Callable[[], Iterator[Item]]) -> None:
        self._loader = loader
        self._epoch = epoch

    def __iter__(self) -> Iterator[Item]:
        return self._epoch()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Monitor:
    """Measures the collapse of every layer during training, and never changes the training.

    There are two ways to measure. On the training batches, hooks read the features in the forward
    pass; the end of each due epoch gives a running estimate without an extra forward pass. At
    moments of your choice, `monitor.measure(loader)` measures exactly, as `nclab.measure` does.

    `monitor.last` is the latest `Event`, `monitor.history` holds the scalars of all events, and
    `monitor.alarms` the alarms raised. Sinks are called with each event. Under torch.distributed
    the sums of all processes are merged exactly; only the first process calls sinks and logs
    alarms.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule.
        layers: "last", "all" or names as for `nclab.measure`; by default those of the preset.
        preset: "economy", "standard" or "full", ordered by cost.
        alarms: callables Event -> Alarm, several or None; by default `DEFAULT_ALARMS`.
        sinks: callables that take each Event, such as `ConsoleSink()` or `RecordSink(folder)`. A
            sink that fails causes one warning; the training and the other sinks go on.
        classifier, pool, labels, ignore_index, min_count, class_names: as for `nclab.measure`, but
            classes may be missing from the data.
        rows: largest number of rows (samples or tokens) to read from each batch, drawn at random;
            None for all. It saves time with batches of many tokens.
        points: number of features, such as 300, of the last layer to keep for the 3-D picture that
            `RecordSink` writes with every measurement of the training data; 0 for no picture.
        total_epochs: length of the whole training, for progress in `nclab runs`, pages and console.

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
        sinks: Sink | Iterable[Sink] = (),
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
        _check_count("rows", rows, "1 or more of each batch", least=1)
        _check_count("points", points, "the number of features to keep, such as 300", least=0)
        _check_count("total_epochs", total_epochs, "1 or more", least=1)
        self.model = model
        self.schedule = as_schedule(every)
        if preset not in PRESETS:
            raise NclabError(f"Expected preset={' or '.join(map(repr, PRESETS))}, got {preset!r}.")
        self.rules = as_callables("alarms", DEFAULT_ALARMS if alarms is None else alarms)
        self._sinks = SinkCalls(as_callables("sinks", sinks))
        self.total_epochs = total_epochs
        """Epochs of the whole training; None if unknown."""
        self.total_steps: int | None = None
        """Steps of the whole training; known once the length of an epoch is."""
        self.history = History()
        self.alarms: list[Alarm] = []
        self.last: Event | None = None
        self.steps = 0
        """Finished batches, or the number that the loop passed to `step`."""
        self.epochs = 0
        """Finished epochs."""
        self.class_names = as_class_names(class_names)
        self._classifier, self._pool, self._labels = classifier, pool, labels
        self._ignore_index, self._min_count = ignore_index, min_count
        self._points = points
        preset_layers, scatter = PRESETS[preset]
        self._layer_choice = preset_layers if layers is None else layers
        self._layers = self._new_layers(self._layer_choice)
        options = MeasureOptions(
            scatter=scatter,
            ignore_index=ignore_index,
            min_count=min_count,
            class_names=self.class_names,
        )
        self._running = RunningEstimate(self._layers, options, points=points)
        self._hooks = TrainingHooks(
            *(self._layers, self._take, self.class_names), ignore_index=ignore_index, most=rows
        )
        self._sums: Mapping[str, Any] | None = None  # from a loaded state, until the first pass
        self._started = False
        self._batch_open = False
        self._batches = 0
        self._length: int | None = None
        self._passes_before = 0
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and (self._batch_open or self._batches):
            self.epoch_end()  # the loop over batches ended early
        if error is None and self._hooks.unclaimed and not self._started and self.last is None:
            warnings.warn(
                "The monitor measured nothing: the model was trained on batches that the monitor "
                "did not receive. Iterate over monitor.watch(loader), or call "
                "monitor.observe(labels) before each forward pass.",
                NclabWarning,
                stacklevel=2,
            )
        self.close(error)

    @property
    def sinks(self) -> list[Sink]:
        """Callables that receive each event."""
        return self._sinks.sinks

    def close(self, error: BaseException | None = None) -> None:
        """Remove the hooks and close the sinks that have `close`."""
        self._hooks.remove()
        self._sinks.close(error)

    @property
    def next_tokens(self) -> bool:
        """Whether labels are the next tokens, so that a batch needs only its tokens."""
        return self._labels == "next"

    @property
    def watching(self) -> bool:
        """Whether a measurement uses the next batch."""
        done = self.epochs if self.schedule.unit == "epochs" else self.steps
        return in_window(self.schedule, done + 1)

    def watch(
        self, loader: Iterable[Item], *, labels: Callable[[Item], Any] | None = None
    ) -> WatchedLoader[Item]:
        """Return a loader that yields the same batches, for one epoch of training.

        Batches are (inputs, labels) or mappings with `labels`; for other batches pass a function
        `labels=` that returns the labels.
        """
        check_loader(loader)
        return WatchedLoader(loader, partial(self._epoch, loader, labels))

    def observe(self, labels: Any, *, mask: Tensor | None = None) -> None:
        """Set the labels of a batch, before its forward pass. `watch` calls this for you.

        `mask` (B, T) is 1 for real tokens, 0 for padding. If the loop has no access to the batches,
        pass a function that returns labels and mask from the arguments of the model, such as
        `observe(lambda args, kwargs: (kwargs["labels"], None))`.
        """
        if self._batch_open:
            self.step()
        started, self._started = self._started, True
        if not started and self._hooks.unclaimed:
            raise DataError(
                "Expected observe(labels) before the forward pass of its batch, but a forward pass "
                "has already run. Call it first, or iterate over monitor.watch(loader)."
            )
        if self.watching:
            if self._hooks.passes == 0:
                check_hookable(self.model)
            self._passes_before = self._hooks.passes
            if not callable(labels):
                labels = BatchLabels.checked(labels, mask, self.class_names)
            self._hooks.expect(labels, batch=self.steps)
        self._batch_open = True

    def step(self, number: int | None = None) -> None:
        """Count a finished batch; `number` replaces the count of finished steps."""
        observed, self._batch_open, self._started = self._batch_open, False, True
        self._hooks.expect(None)
        if observed and self.watching:
            self._require_features()
        self._batches += 1
        self.steps = self.steps + 1 if number is None else number
        counts = self.steps > 0  # 0 if the first gradients are only accumulated
        due = counts and self.schedule.unit == "steps" and self.schedule.due(self.steps)
        if due and self.steps != self._last_step:
            self._last_step = self.steps
            self._emit_estimate()
        self._pause()

    def epoch_begin(self, *, batches: int | None = None) -> None:
        """Start an epoch of `batches` batches (None: unknown). `watch` calls this for you."""
        if (self._batch_open or self._batches) and not self._resumed:
            self.epoch_end()  # the last loop over batches ended early
        self._resumed = False
        self._started = True
        self._length = batches
        if batches and self.total_epochs is not None:
            self.total_steps = batches * self.total_epochs

    def epoch_end(self, number: int | None = None) -> None:
        """Finish an epoch; `number` replaces the count of finished epochs."""
        if self._batch_open:
            self.step()
        self._batches = 0
        self.epochs = self.epochs + 1 if number is None else number
        if self.schedule.unit == "epochs" and self.schedule.due(self.epochs):
            self._emit_estimate()
        self._pause()

    def set_progress(self, *, epochs: int | None = None, steps: int | None = None) -> None:
        """Set the number of finished epochs and steps; None leaves a number unchanged."""
        self.epochs = self.epochs if epochs is None else epochs
        self.steps = self.steps if steps is None else steps

    def set_length(self, *, epochs: int | None, steps: int | None) -> None:
        """Set the epochs and steps of the whole training; None if unknown."""
        self.total_epochs, self.total_steps = epochs, steps

    def measure(
        self,
        loader: Iterable[Any],
        *,
        epoch: int | None = None,
        step: int | None = None,
        layers: str | Sequence[str] | None = None,
        split: str = TRAIN,
        reference: Report | Reference | None = None,
        second_pass: bool = True,
    ) -> Report:
        """Measure now, exactly as `nclab.measure`, and pass the event to alarms and sinks.

        Under torch.distributed every process calls this with its own part of the data, and all
        processes get the measurement of all data.

        Args:
            epoch, step: finished epochs and steps, in a loop that the monitor does not watch;
                `monitor.epochs` and `monitor.steps` are set to them.
            split: name of the data; history, records and charts keep a curve for each split.
            reference: report on the training data, with whose class means these data are compared:
                `monitor.measure(test, split="test", reference=monitor.measure(train))`.
        """
        check_loader(loader)
        if not (isinstance(split, str) and split and "/" not in split):
            raise NclabError(f"Expected split= a name such as 'test', without '/', got {split!r}.")
        expected = self._hooks.remove()
        options = MeasureOptions.checked(
            ignore_index=self._ignore_index,
            min_count=self._min_count,
            second_pass=second_pass,
            reference=reference,
            class_names=self.class_names,
        )
        measurement = Measurement(
            self._new_layers(self._layer_choice if layers is None else layers),
            options,
            distributed=DistributedData.over(None),
            split=None if split == TRAIN else split,
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
        """Return counts, alarms, history and the sums of an unfinished epoch, as plain values."""
        return {
            "version": VERSION,
            "steps": self.steps,
            "epochs": self.epochs,
            "batches": self._batches,
            "last_step": self._last_step,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "history": [dict(row) for row in self.history.rows],
            "running": self._running.state_dict() if self._sums is None else dict(self._sums),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a monitor of the same model; raise on a damaged state."""
        try:
            if state["version"] != VERSION:
                raise ValueError(f"version {state['version']}, not {VERSION}")
            counts = [int(state[name]) for name in ("steps", "epochs", "batches", "last_step")]
            if min(counts) < 0:
                raise ValueError(f"a negative number among {counts}")
            alarms = [Alarm.from_dict(fields) for fields in state["alarms"]]
            history = [dict(row) for row in state["history"]]
            running = dict(state["running"])
            if self._layers.found:
                self._running.load_state_dict(running)
            else:
                for layer in running["layers"].values():
                    read_moments(layer)  # the layers of the model are not known yet
                self._running.clear()
        except NclabError:
            raise
        except DAMAGED as error:
            raise DataError(
                f"Expected the state of a monitor of the same model, got another one "
                f"({type(error).__name__}: {error}). Pass the result of state_dict()."
            ) from error
        self._sums = None if self._layers.found else running
        self.steps, self.epochs, self._batches, self._last_step = counts
        self.alarms, self.history.rows[:] = alarms, history
        self._resumed = True  # the state may be from the middle of an epoch

    def _new_layers(self, layers: str | Sequence[str]) -> ModelLayers:
        return ModelLayers(
            *(unwrap(self.model), layers),
            classifier=self._classifier,
            pool=self._pool,
            labels=self._labels,
        )

    def _epoch(
        self, loader: Iterable[Item], function: Callable[[Item], Any] | None
    ) -> Iterator[Item]:
        self.epoch_begin(batches=length_of(loader))
        for batch in loader:
            if self.watching:
                labels, mask = labels_of(
                    *(batch, function, self.class_names), tokens=self.next_tokens
                )
                self.observe(labels, mask=mask)
            yield batch
            self.step()
        self.epoch_end()

    def _take(self, features: BatchFeatures) -> None:
        if self._sums is not None:
            sums, self._sums = self._sums, None
            self._running.load_state_dict(sums)
        self._running.add(features)

    def _require_features(self) -> None:
        """Raise if the first batch could not be read; warn once about later batches."""
        if self._hooks.passes > self._passes_before:
            return
        reason = self._hooks.refused or (
            "the model made no complete forward pass in training mode. Call model(inputs) with "
            "model.train(), after the labels are known"
        )
        if self._hooks.passes == 0:
            raise ModelError(f"Cannot read the features of the batch: {reason}.")
        if not self._warned:
            self._warned = True
            warnings.warn(f"The monitor skipped a batch: {reason}.", NclabWarning, 3)

    def _pause(self) -> None:
        """Remove the hooks and clear the sums if no measurement uses the next batch."""
        if not self.watching:
            self._hooks.remove()
            self._running.clear()

    def _emit_estimate(self) -> None:
        self._running.flush()
        self._running.join_processes()
        if self._running.streams:
            report = self._running.report()
            nonfinite, picture = self._running.nonfinite(), self._running.picture()
            self._emit("training", report, nonfinite, picture=picture)
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
        """Create an event, let the rules raise alarms, and pass the event to history and sinks."""
        share = self._batches / self._length if self._length else 0.0
        fired = frozenset(alarm.key for alarm in self.alarms if alarm.split == split)
        epoch = self.epochs + min(share, 1.0)
        event = Event(
            *(self.steps, epoch, source, report, nonfinite or {}, fired),
            split=split,
            total_steps=self.total_steps,
            total_epochs=self.total_epochs,
        )
        alarms = {alarm.key: alarm for rule in self.rules for alarm in raised(rule, event)}
        new = tuple(self._complete(a, event) for key, a in alarms.items() if key not in fired)
        event = replace(event, alarms=new, picture=picture)
        self.alarms.extend(event.alarms)
        self.last = event
        self.history(event)
        if ProcessGroup().rank != 0:
            return
        for alarm in event.alarms:
            log.log(logging.WARNING if alarm.severe else logging.INFO, "%s", alarm)
        self._sinks(event)

    def _complete(self, alarm: Alarm, event: Event) -> Alarm:
        """Add the moment, the split and the names of the classes to an alarm."""
        names = self.class_names or ()
        known = all(number < len(names) for number in alarm.classes)
        class_names = tuple(names[number] for number in alarm.classes) if known else ()
        return alarm._replace(
            split=event.split, names=class_names, epoch=event.epoch, step=event.step
        )


def length_of(loader: Any) -> int | None:
    """Return the number of batches in a loader; None if the loader does not know."""
    try:
        return len(loader)
    except TypeError:  # an iterable data set has no length
        return None


def _check_count(name: str, value: Any, expected: str, *, least: int) -> None:
    """Raise unless an option is an integer of at least `least`; most options may be None."""
    if value is None and name != "points":
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise NclabError(f"Expected {name}= {expected}, got {value!r}.")

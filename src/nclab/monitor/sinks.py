"""Sinks: where events go. A sink is any callable that takes an `Event`."""

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabWarning
from nclab.monitor.event import Event
from nclab.records.schema import TRAIN

if TYPE_CHECKING:
    pass

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, Protocol, TextIO, get_args

from nclab import plugins
from nclab.errors import NclabError, RecordError
from nclab.measurement.collapse import Collapse
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import chosen_metrics
from nclab.monitor.loggers import MlflowSink, TensorBoardSink, WandbSink
from nclab.records import Run, open_run
from nclab.records.encoding import require_json
from nclab.records.run import claim_folder, delete_run, refuse_folder_of_runs, require_resumable
from nclab.records.schema import ALARM
from nclab.text import number

Sink = Callable[[Event], object]
"""May have a method `close(error)`, called at the end; error is None if all went well."""


class SinkCalls:
    """Calls every sink; one that fails is warned of once, and the training and the others go on.

    >>> def broken(event):
    ...     raise OSError("no connection")
    >>> seen = []
    >>> calls = SinkCalls([broken, seen.append])
    >>> with warnings.catch_warnings(record=True, action="always") as told:
    ...     calls("first"), calls("second")
    (None, None)
    >>> [str(one.message) for one in told], seen
    (['The sink broken failed and misses events (OSError: no connection); the training goes on.'],
    ['first', 'second'])
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self._told: set[int] = set()

    def __call__(self, event: Event) -> None:
        for sink in self.sinks:
            self._call(sink, sink, event)

    def close(self, error: BaseException | None = None) -> None:
        """Close what can be closed; what fails there never hides the error of the training."""
        for sink in self.sinks:
            close = getattr(sink, "close", None)
            if callable(close):
                self._call(sink, close, error)

    def _call(self, sink: Sink, function: Callable[[Any], object], given: Any) -> None:
        try:
            function(given)
        except Exception as error:  # noqa: BLE001 - a sink may be anyone's, a logger or a network
            if id(sink) in self._told:
                return
            self._told.add(id(sink))
            why = " ".join(f"{type(error).__name__}: {error}".split())
            warnings.warn(
                f"The sink {_called(sink)} failed and misses events ({why}); the training goes on.",
                NclabWarning,
                stacklevel=4,
            )


def _called(sink: Sink) -> str:
    return getattr(sink, "__name__", None) or type(sink).__name__


SHOWN = ("loss", "accuracy", "nc1_trace_ratio", "nc2_equiangularity_means", "nc3_self_duality")
"""What a line shows by default: what is trained, and one number of each kind."""


class ConsoleSink:
    """Prints a line for each measurement and one for each alarm.

    Args:
        metrics: what the line shows, in this order.
        layers: "last", what the classifier reads, or "all", a line for each.
        stream: where to; standard output by default.

    >>> import torch, nclab
    >>> loader = [(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3))]
    >>> monitor = nclab.Monitor(torch.nn.Linear(2, 2), alarms=[], sinks=ConsoleSink("cdnv"))
    >>> _ = monitor.measure(loader, epoch=3, step=12)
    epoch 3, step 12 | input | cdnv 0
    """

    def __init__(
        self,
        metrics: str | Collection[str] | None = None,
        *,
        layers: str = "last",
        stream: TextIO | None = None,
    ) -> None:
        self.metrics = chosen_metrics(SHOWN if metrics is None else metrics) or ()
        self.every_layer = layers == "all"
        self.stream = stream

    def __call__(self, event: Event) -> None:
        stream = self.stream or sys.stdout
        shown = event.layers if self.every_layer else event.layers[-1:]
        lines = [f"{_when(event)} | {self._line(event, layer)}" for layer in shown]
        if not shown:
            lines = [f"{_when(event)} | nothing could be measured"]
        lines += [f"  {'!' if alarm.severe else '*'} {alarm}" for alarm in event.alarms]
        stream.write("\n".join(lines) + "\n")
        stream.flush()

    def _line(self, event: Event, layer: Collapse) -> str:
        known, row = every_metric(), layer.to_row()
        parts = [str(layer.layer)] + ([] if event.split == TRAIN else [event.split])
        for name in self.metrics:
            ideal = known[name].ideal if name in known else None
            if row.get(name) is not None:
                near = None if ideal is None else ideal(layer.num_classes)
                parts.append(f"{name} {number(row[name], near=near)}")
        return " | ".join(parts)


def _when(event: Event) -> str:
    """The moment, and how many there will be where that is known."""
    epochs = "" if event.total_epochs is None else f"/{event.total_epochs}"
    steps = "" if event.total_steps is None else f"/{event.total_steps}"
    return f"epoch {event.epoch:g}{epochs}, step {event.step}{steps}"


KIND = "monitor"
"""Of the runs that a sink opens."""
Exist = Literal["new", "resume", "replace"]
"""What to do where the folder holds a run."""
log = logging.getLogger("nclab.monitor")


class RecordWriter(Protocol):
    """What can append a record, such as a `nclab.records.Run`."""

    def append(self, record: dict[str, Any], /) -> object:
        """Add one record."""


class RecordSink:
    """Writes every event, and every alarm after it, to the journal of a run.

    Given a folder it opens a run there at the first event, so that under torch.distributed only
    the first process does, and ends it with the monitor. `sink.place` is the run's folder then.

    Args:
        target: a folder; or a run, or whatever appends records, that is open and the caller's to
            end.
        config: what the run was told, as plain values: a dictionary, a dataclass or what argparse
            gives. It stands in the manifest; `nclab runs`, reports and pages compare runs by it.
        exist: where the folder holds a run already, "new" begins another beside it, `mine-2`;
            "resume" goes on with it if it was stopped or failed, and takes back what it holds from
            the first event's step on; "replace" deletes it. One that has finished, or that had
            another config, is not resumed but refused at once.

    >>> import tempfile
    >>> RecordSink(tempfile.mkdtemp() + "/mine", config={"rate": 0.1}).run is None
    True
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | RecordWriter,
        *,
        config: Mapping[str, Any] | argparse.Namespace | Any = None,
        exist: Exist = "new",
    ) -> None:
        if exist not in get_args(Exist):
            raise RecordError(f"Expected exist='new', 'resume' or 'replace', got {exist!r}.")
        self.folder = target if isinstance(target, (str, os.PathLike)) else None
        self.journal = None if isinstance(target, (str, os.PathLike)) else target
        self.config: dict[str, Any] = require_json(_as_config(config), name="the config of a run")
        self.exist = exist
        self.run: Run | None = None
        self.place: Path | None = None
        if self.folder is not None:
            self._refuse(Path(self.folder))

    def __call__(self, event: Event) -> None:
        journal = self._journal(event.step)
        journal.append(event.to_record())
        if (picture := event.picture_record()) is not None:
            journal.append(picture)
        for alarm in event.alarms:
            about = {**alarm._asdict(), "classes": list(alarm.classes), "names": list(alarm.names)}
            when = {"step": event.step, "epoch": event.epoch}
            journal.append({"kind": ALARM, **when, **about, **when})
        if self.run is not None:
            self.run.beat(step=event.step, total=event.total_steps)

    def close(self, error: BaseException | None = None) -> None:
        """End the run that was opened here; after an error it is marked as failed."""
        if self.run is None:
            return
        run, self.run = self.run, None
        try:
            if error is None:
                run.finish()
            elif isinstance(error, Exception):
                run.fail(str(error))
        finally:
            run.close()

    def _refuse(self, folder: Path) -> None:
        """Before the training, not after hours of it."""
        if folder.exists() and not folder.is_dir():
            raise RecordError(f"Expected a folder for the run, but {folder} is a file.")
        if self.exist != "new":
            refuse_folder_of_runs(folder)
        if self.exist == "resume":
            require_resumable(folder, kind=KIND, config=self.config)

    def _journal(self, step: int) -> RecordWriter:
        if self.journal is not None:
            return self.journal
        if self.run is None:
            assert self.folder is not None
            # A second training of the same sink goes on in the folder of its first.
            folder = self.place or Path(self.folder)
            if self.exist == "new" and self.place is None:
                folder = claim_folder(folder)
                if folder != Path(self.folder):
                    log.info("%s holds runs already; this one is %s", self.folder, folder)
            elif self.exist == "replace" and self.place is None:
                delete_run(folder)
            self.run = open_run(folder, kind=KIND, config=self.config)
            self.place = folder
            if self.run.rewind(step):
                warnings.warn(
                    f"{folder} holds a training that was stopped; its records "
                    f"from step {step} on are taken back.",
                    NclabWarning,
                    stacklevel=2,
                )
        return self.run


def _as_config(given: Any) -> dict[str, Any]:
    """Plain values by name; paths become texts.

    >>> _as_config(argparse.Namespace(rate=0.1, data=Path("mine.npz")))
    {'rate': 0.1, 'data': 'mine.npz'}
    """
    if given is None:
        return {}
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        given = dataclasses.asdict(given)
    elif isinstance(given, argparse.Namespace):
        given = vars(given)
    if not isinstance(given, Mapping):
        raise RecordError(
            f"Expected config= a dictionary, a dataclass or a Namespace, got "
            f"{type(given).__name__}."
        )
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value


Maker = Callable[..., Sink]
"""Makes a sink of what follows the colon in its name, or of nothing."""


def _console(*metrics: str) -> Sink:
    return ConsoleSink(metrics[0].split(",") if metrics else None)


def _wandb(*project: str) -> Sink:
    return WandbSink(**({"project": project[0]} if project else {}))


def _mlflow(*uri: str) -> Sink:
    return MlflowSink(tracking_uri=uri[0] if uri else None)


def _record(folder: str = "runs/monitor") -> Sink:
    return RecordSink(folder)


def _tensorboard(folder: str = "runs/tensorboard") -> Sink:
    return TensorBoardSink(folder)


OURS: Mapping[str, Maker] = {
    "console": _console,
    "record": _record,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def named_sink(words: str) -> Sink:
    """The sink that `name` or `name:target` means.

    >>> type(named_sink("console:loss,cdnv")).__name__
    'ConsoleSink'
    >>> named_sink("runs/mine")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected a sink among console, record, ...; got 'runs/mine'. For a...
    """
    name, colon, target = words.partition(":")
    known = {**plugins.plugins("sinks"), **OURS}
    if name not in known:
        raise NclabError(
            f"Expected a sink among {', '.join([*OURS, *plugins.names('sinks')])}; got {words!r}. "
            "For a folder of records pass 'record:FOLDER', or RecordSink(folder)."
        )
    if name in OURS:
        made: Any = OURS[name](*([target] if colon else []))
    else:
        try:
            made = known[name](*([target] if colon else []))
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise NclabError(f"The plugin of the sink {words!r} cannot make it ({why}).") from error
    if not callable(made):
        raise NclabError(
            f"Expected the plugin {name!r} to give a callable that takes an Event, got "
            f"a {type(made).__name__}. Mend or uninstall it."
        )
    return made


def as_sinks(given: Any) -> list[Sink]:
    """One sink or several, callables or names, as a list; refused here, not after an epoch."""
    single = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    several = [given] if single else list(given)
    found = [named_sink(one) if isinstance(one, str) else one for one in several]
    for own in found:
        if not callable(own):
            raise NclabError(
                f"Expected sinks= callables that take an Event, or their names, got {own!r}."
            )
    return found

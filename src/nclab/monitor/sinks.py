"""Sinks: receivers of events. A sink is any callable that takes an `Event`."""

import argparse
import dataclasses
import logging
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from nclab.errors import NclabError, NclabWarning, RecordError
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import Event, chosen_metrics
from nclab.records import Run, open_run
from nclab.records.encoding import require_json
from nclab.records.run import claim_folder, refuse_folder_of_runs, require_resumable
from nclab.records.schema import ALARM, TRAIN
from nclab.text import number

Sink = Callable[[Event], object]
"""May have a method `close(error)`, called at the end; `error` is None after a success."""
SHOWN = ("loss", "accuracy", "nc1_trace_ratio", "nc2_equiangularity_means", "nc3_self_duality")
"""Metrics in a line of `ConsoleSink` by default: the training, and one metric of each kind."""
KIND = "monitor"
"""Kind of the runs that `RecordSink` opens."""
Exist = Literal["new", "resume"]
"""Choice for a folder that holds a run already."""
log = logging.getLogger("nclab.monitor")


class SinkCalls:
    """Calls every sink; a sink that fails causes one warning, and training goes on."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self._failed: set[int] = set()

    def __call__(self, event: Event) -> None:
        for sink in self.sinks:
            self._call(sink, sink, event)

    def close(self, error: BaseException | None = None) -> None:
        """Close the sinks that have `close`; their errors never hide the error of the training."""
        for sink in self.sinks:
            close = getattr(sink, "close", None)
            if callable(close):
                self._call(sink, close, error)

    def _call(self, sink: Sink, function: Callable[[Any], object], argument: Any) -> None:
        try:
            function(argument)
        except Exception as error:  # noqa: BLE001 - a sink may be anyone's, a logger or a network
            if id(sink) in self._failed:
                return
            self._failed.add(id(sink))
            name = getattr(sink, "__name__", None) or type(sink).__name__
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            warnings.warn(
                f"The sink {name} failed and misses events ({reason}); the training goes on.",
                NclabWarning,
                stacklevel=4,
            )


class ConsoleSink:
    """Prints a line for each measurement and one for each alarm.

    Args:
        metrics: metrics in the line, in this order.

    >>> import torch, nclab
    >>> loader = [(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3))]
    >>> monitor = nclab.Monitor(torch.nn.Linear(2, 2), alarms=[], sinks=ConsoleSink("cdnv"))
    >>> _ = monitor.measure(loader, epoch=3, step=12)
    epoch 3, step 12 | input | cdnv 0
    """

    def __init__(self, metrics: str | Collection[str] | None = None) -> None:
        self.metrics = chosen_metrics(SHOWN if metrics is None else metrics) or ()

    def __call__(self, event: Event) -> None:
        epochs = "" if event.total_epochs is None else f"/{event.total_epochs}"
        steps = "" if event.total_steps is None else f"/{event.total_steps}"
        moment = f"epoch {event.epoch:g}{epochs}, step {event.step}{steps}"
        line = self._line(event) if event.layers else "nothing could be measured"
        lines = [f"{moment} | {line}"]
        lines += [f"  {'!' if alarm.severe else '*'} {alarm}" for alarm in event.alarms]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def _line(self, event: Event) -> str:
        layer = event.layers[-1]
        known, row = every_metric(), layer.to_row()
        parts = [str(layer.layer)] + ([] if event.split == TRAIN else [event.split])
        for name in self.metrics:
            ideal = known[name].ideal if name in known else None
            if row.get(name) is not None:
                near = None if ideal is None else ideal(layer.num_classes)
                parts.append(f"{name} {number(row[name], near=near)}")
        return " | ".join(parts)


class RecordSink:
    """Writes every event and every alarm to the journal of a run.

    Given a folder, the sink opens a run at the first event, so that under torch.distributed only
    the first process writes, and ends the run with the monitor. `sink.run_folder` is then the
    folder of the run.

    Args:
        target: a folder; or an open run, or another object with its method `append`, which the
            caller closes.
        config: settings of the run as plain values: a dictionary, a dataclass or the result of
            argparse. The manifest stores them; `nclab runs`, reports and pages compare runs by
            them.
        exist: what to do if the folder holds a run. "new" starts another run next to it, `mine-2`.
            "resume" continues a run that was stopped or failed, and removes its records from the
            first event's step on; a run that has finished, or that has another config, raises at
            once.

    >>> import tempfile
    >>> RecordSink(tempfile.mkdtemp() + "/mine", config={"rate": 0.1}).run is None
    True
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | Any,
        *,
        config: Mapping[str, Any] | argparse.Namespace | Any = None,
        exist: Exist = "new",
    ) -> None:
        if exist not in get_args(Exist):
            raise RecordError(f"Expected exist='new' or 'resume', got {exist!r}.")
        self.folder = Path(target) if isinstance(target, (str, os.PathLike)) else None
        self.journal = None if isinstance(target, (str, os.PathLike)) else target
        self.config: dict[str, Any] = require_json(_as_config(config), name="the config of a run")
        self.exist = exist
        self.run: Run | None = None
        self.run_folder: Path | None = None
        if self.folder is not None:
            self._check_folder(self.folder)

    def __call__(self, event: Event) -> None:
        journal = self._journal(event.step)
        journal.append(event.to_record())
        if (picture := event.picture_record()) is not None:
            journal.append(picture)
        for alarm in event.alarms:
            moment = {"step": event.step, "epoch": event.epoch}
            journal.append({"kind": ALARM, **moment, **alarm.to_dict(), **moment})
        if self.run is not None:
            self.run.beat(step=event.step, total=event.total_steps)

    def close(self, error: BaseException | None = None) -> None:
        """End the run that this sink opened; mark the run as failed after an error."""
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

    def _check_folder(self, folder: Path) -> None:
        """Raise before training, not hours later, if the folder cannot be used."""
        if folder.exists() and not folder.is_dir():
            raise RecordError(f"Expected a folder for the run, but {folder} is a file.")
        if self.exist == "resume":
            refuse_folder_of_runs(folder)
            require_resumable(folder, kind=KIND, config=self.config)

    def _journal(self, step: int) -> Any:
        if self.journal is not None:
            return self.journal
        if self.run is None:
            assert self.folder is not None
            # A second training with the same sink continues in the folder of the first.
            folder = self.run_folder or self.folder
            if self.exist == "new" and self.run_folder is None:
                folder = claim_folder(folder)
                if folder != self.folder:
                    log.info("%s holds runs already; this run is in %s", self.folder, folder)
            self.run = open_run(folder, kind=KIND, config=self.config)
            self.run_folder = folder
            if self.run.rewind(step):
                warnings.warn(
                    f"{folder} holds a training that was stopped; its records from step {step} on "
                    "are removed.",
                    NclabWarning,
                    stacklevel=2,
                )
        return self.run


def _as_config(config: Any) -> dict[str, Any]:
    """Return settings as plain values by name; paths become text."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    elif isinstance(config, argparse.Namespace):
        config = vars(config)
    if not isinstance(config, Mapping):
        raise RecordError(
            f"Expected config= a dictionary, a dataclass or a Namespace, got "
            f"{type(config).__name__}."
        )
    return {name: _plain(value) for name, value in config.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def as_callables(option: str, given: Any) -> list[Any]:
    """Return one callable or several as a list; raise if one cannot be called."""
    single = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    items = [given] if single else list(given)
    for item in items:
        if not callable(item):
            raise NclabError(f"Expected {option}= callables that take an Event, got {item!r}.")
    return items

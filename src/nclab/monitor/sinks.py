"""Sinks: the console, the journal of a run, TensorBoard, Weights & Biases and MLflow.

The sinks for TensorBoard, Weights & Biases and MLflow write scalars named `nc/<layer>/<metric>`:
those of the metrics in `metrics=`, all by default. Each of these sinks opens its log at the first
event, so that under torch.distributed only the first process logs. When the monitor closes, the
sink closes the log if it opened it. If a package is missing, creating the sink raises an error.
"""

import argparse
import dataclasses
import importlib.util
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from nclab.errors import MissingExtra, NclabWarning, RecordError
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import Event, chosen_metrics
from nclab.records import Run, open_run
from nclab.records.encoding import require_json
from nclab.records.run import claim_folder, refuse_folder_of_runs, require_resumable
from nclab.records.schema import ALARM, TRAIN
from nclab.text import number

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Metrics = str | Collection[str] | None
"""Names of the metrics to write; None for all."""
SHOWN = ("loss", "accuracy", "nc1_trace_ratio", "nc2_equiangularity_means", "nc3_self_duality")
"""Default metrics of `ConsoleSink`: loss and accuracy, and one metric of NC1, NC2 and NC3 each."""
KIND = "monitor"
"""Kind of the runs that `RecordSink` opens."""
Exist = Literal["new", "resume"]
"""Choice for a folder that holds a run already."""
MLFLOW_BATCH = 500
"""Number of metrics in one request; MLflow accepts at most 1000."""
log = logging.getLogger("nclab.monitor")


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

    def __init__(self, metrics: Metrics = None) -> None:
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
        target: a folder, an open run, or any object with a method `append(record)`. The sink closes
            only a run that it has opened itself.
        config: settings of the run as plain values: a dictionary, a dataclass or the result of
            argparse. The manifest stores them; `nclab runs`, reports and pages compare runs by
            them.
        exist: what to do if the folder holds a run. "new" starts another run next to it, `mine-2`.
            "resume" continues a run that was stopped or failed; the first event removes all records
            of its step and of later steps. A run that has finished, or that has another config,
            raises an error at once.

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


def _require(module: str, sink: str, *, package: str | None = None) -> None:
    """Raise `MissingExtra` if a package is not installed, without importing the package."""
    try:
        installed = importlib.util.find_spec(module) is not None
    except ValueError:  # the module was blocked
        installed = False
    if not installed:
        raise MissingExtra(sink, package=package or module, extra="log")


class TensorBoardSink:
    """Writes scalars, and alarms as text under `nc/alarms`, to TensorBoard's event files.

    >>> TensorBoardSink("runs/mine").writer is None  # opened at the first event
    True
    """

    def __init__(
        self, target: "str | os.PathLike[str] | SummaryWriter", *, metrics: Metrics = None
    ) -> None:
        """Write to a folder, or to an open SummaryWriter, which the sink does not close."""
        self.metrics = chosen_metrics(metrics)
        self.folder = Path(target) if isinstance(target, (str, os.PathLike)) else None
        self.writer: Any = None if isinstance(target, (str, os.PathLike)) else target
        if self.folder is not None:
            _require("tensorboard", "TensorBoardSink")

    def __call__(self, event: Event) -> None:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder))
        for name, value in event.scalars(self.metrics).items():
            self.writer.add_scalar(name, value, event.step)
        for alarm in event.alarms:
            self.writer.add_text("nc/alarms", str(alarm), event.step)
        self.writer.flush()

    def close(self, error: BaseException | None = None) -> None:
        """Close the writer that this sink opened."""
        if self.folder is not None and self.writer is not None:
            self.writer.close()
            self.writer = None


class WandbSink:
    """Logs scalars against `nc/step` to a Weights & Biases run, and alarms as alerts.

    Without `run`, the sink uses the active run of `wandb.init`; if no run is active, it opens one
    with the options `init` and finishes it at the end. Scalars have their own axis `nc/step`,
    because W&B drops values that are logged for an earlier step.

    >>> WandbSink(project="collapse", mode="offline").run is None
    True
    """

    def __init__(self, run: Any = None, *, metrics: Metrics = None, **init: Any) -> None:
        if run is None:
            _require("wandb", "WandbSink")
        self.run = run
        self.metrics = chosen_metrics(metrics)
        self.init = init
        self._opened_here = False
        self._has_axis = False

    def __call__(self, event: Event) -> None:
        if not self._has_axis:
            self._open()
        moment = {"nc/step": event.step, "nc/epoch": event.epoch}
        self.run.log({**moment, **event.scalars(self.metrics)})
        for alarm in event.alarms:
            level = "WARN" if alarm.severe else "INFO"
            self.run.alert(title=f"nclab: {alarm.name}", text=str(alarm), level=level)

    def close(self, error: BaseException | None = None) -> None:
        """Finish the run that this sink opened; mark the run as failed after an error."""
        if self._opened_here:
            self.run.finish(exit_code=0 if error is None else 1)
            self.run = None
        self._opened_here = self._has_axis = False

    def _open(self) -> None:
        if self.run is None:
            import wandb

            self._opened_here = wandb.run is None
            self.run = wandb.init(**self.init) if self._opened_here else wandb.run
        self.run.define_metric("nc/step", hidden=True)
        self.run.define_metric("nc/*", step_metric="nc/step")
        self._has_axis = True


class MlflowSink:
    """Logs scalars to an MLflow run at the event's step, and alarms as tags `nc.alarm.<name>`.

    Without `run_id`, the sink uses the active run of `mlflow.start_run`; if no run is active, it
    creates one in `experiment` and ends it with the monitor. MLflow allows no `#` in names: `fc#2`,
    the second call of a layer, becomes `fc:2`.

    >>> MlflowSink(tracking_uri="sqlite:///mlflow.db").run_id is None
    True
    """

    def __init__(
        self,
        run_id: str | None = None,
        *,
        tracking_uri: str | None = None,
        experiment: str = "nclab",
        metrics: Metrics = None,
    ) -> None:
        _require("mlflow", "MlflowSink", package="mlflow-skinny")
        self.metrics = chosen_metrics(metrics)
        self.run_id = run_id
        self.tracking_uri = tracking_uri
        self.experiment = experiment
        self._client: Any = None
        self._opened_here = False

    def __call__(self, event: Event) -> None:
        if self._client is None:
            self._open()
        from mlflow.entities import Metric, RunTag

        now = int(1000 * time.time())
        metrics = [
            Metric(_allowed(name), value, now, event.step)
            for name, value in {**event.scalars(self.metrics), "nc/epoch": event.epoch}.items()
        ]
        tags = [RunTag(_allowed(f"nc.alarm.{alarm.name}"), str(alarm)) for alarm in event.alarms]
        for start in range(0, len(metrics), MLFLOW_BATCH):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + MLFLOW_BATCH])
        if tags:
            self._client.log_batch(self.run_id, tags=tags)

    def close(self, error: BaseException | None = None) -> None:
        """End the run that this sink created; mark the run as failed after an error."""
        if self._opened_here:
            self._client.set_terminated(self.run_id, "FINISHED" if error is None else "FAILED")
            self.run_id, self._opened_here = None, False
        self._client = None

    def _open(self) -> None:
        import mlflow
        from mlflow import MlflowClient

        client = self._client = MlflowClient(self.tracking_uri)
        active = mlflow.active_run()
        if self.run_id is None and active is not None:
            self.run_id = active.info.run_id
        elif self.run_id is None:
            known = client.get_experiment_by_name(self.experiment)
            experiment = known.experiment_id if known else client.create_experiment(self.experiment)
            self.run_id, self._opened_here = client.create_run(experiment).info.run_id, True


def _allowed(name: str) -> str:
    """Return the name with characters that MLflow forbids replaced.

    >>> _allowed("nc/fc#2/cdnv")
    'nc/fc:2/cdnv'
    """
    return re.sub(r"[^\w/:. -]", "_", name.replace("#", ":"))

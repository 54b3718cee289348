"""Sinks for TensorBoard, Weights & Biases and MLflow: scalars as `nc/<layer>/<metric>`.

Each opens its log at the first event, so that under torch.distributed only the first process
does, and ends with the monitor what it has opened itself. A package that is missing is named when
the sink is made. `metrics=` names the scalars to write; all by default.
"""

import importlib.util
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import MissingExtra
from nclab.monitor.event import Event, chosen_metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


Metrics = str | Collection[str] | None
"""Which scalars to write; None for all."""


def _require(module: str, what: str, *, package: str | None = None) -> None:
    """Say what is missing now, not after an epoch of training; nothing is imported yet."""
    try:
        there = importlib.util.find_spec(module) is not None
    except ValueError:  # a module that was blocked
        there = False
    if not there:
        raise MissingExtra(what, package=package or module, extra="log")


class TensorBoardSink:
    """Writes scalars, and alarms as text under `nc/alarms`, to TensorBoard's event files.

    >>> TensorBoardSink("runs/mine").writer is None  # opened at the first event
    True
    """

    def __init__(
        self,
        target: "str | os.PathLike[str] | SummaryWriter",
        *,
        metrics: Metrics = None,
    ) -> None:
        """A folder, or a SummaryWriter that is open and stays open."""
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
        """Close the writer that was opened here."""
        if self.folder is not None and self.writer is not None:
            self.writer.close()
            self.writer = None


class WandbSink:
    """Logs scalars to a Weights & Biases run, over the axis `nc/step`; alarms as alerts.

    Selection an open run, by default the one of `wandb.init`; if there is none it opens one with
    `init` and finishes it at the end. The axis of its own is there because W&B drops what comes
    for a step of the run that has passed.

    >>> WandbSink(project="collapse", mode="offline").run is None
    True
    """

    def __init__(self, run: Any = None, *, metrics: Metrics = None, **init: Any) -> None:
        if run is None:
            _require("wandb", "WandbSink")
        self.run = run
        self.metrics = chosen_metrics(metrics)
        self.init = init
        self._own = False
        self._known = False

    def __call__(self, event: Event) -> None:
        if not self._known:
            self._open()
        where = {"nc/step": event.step, "nc/epoch": event.epoch}
        self.run.log({**where, **event.scalars(self.metrics)})
        for alarm in event.alarms:
            level = "WARN" if alarm.severe else "INFO"
            self.run.alert(title=f"nclab: {alarm.name}", text=str(alarm), level=level)

    def close(self, error: BaseException | None = None) -> None:
        """Finish the run that was opened here; after an error it is marked as failed."""
        if self._own:
            self.run.finish(exit_code=0 if error is None else 1)
            self.run = None
        self._own = self._known = False

    def _open(self) -> None:
        if self.run is None:
            import wandb

            self._own = wandb.run is None
            self.run = wandb.init(**self.init) if self._own else wandb.run
        self.run.define_metric("nc/step", hidden=True)
        self.run.define_metric("nc/*", step_metric="nc/step")
        self._known = True


class MlflowSink:
    """Logs scalars to an MLflow run at the event's step; alarms as tags `nc.alarm.<name>`.

    Takes the id of a run, by default that of `mlflow.start_run`; if there is none it creates one
    in `experiment` and ends it with the monitor. MLflow allows no `#` in names: `fc#2`, the
    second call of a layer, becomes `fc:2`.

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
        self._own = False

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
        """End the run that was created here; after an error it is marked as failed."""
        if self._own:
            self._client.set_terminated(self.run_id, "FINISHED" if error is None else "FAILED")
            self.run_id, self._own = None, False
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
            where = known.experiment_id if known else client.create_experiment(self.experiment)
            self.run_id, self._own = client.create_run(where).info.run_id, True


MLFLOW_BATCH = 500
"""Metrics in one request; MLflow takes at most 1000."""


def _allowed(name: str) -> str:
    """The name with what MLflow forbids replaced.

    >>> _allowed("nc/fc#2/cdnv")
    'nc/fc:2/cdnv'
    """
    return re.sub(r"[^\w/:. -]", "_", name.replace("#", ":"))

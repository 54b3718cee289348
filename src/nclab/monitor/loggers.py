"""Sinks for TensorBoard, Weights & Biases and MLflow: scalars named `nc/<layer>/<metric>`.

Each sink opens its log at the first event, so that under torch.distributed only the first process
logs, and closes with the monitor the log that it opened. A missing package raises when the sink is
made. `metrics=` names the scalars to write; all by default.
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
"""Names of the scalars to write; None for all."""
MLFLOW_BATCH = 500
"""Metrics in one request; MLflow accepts at most 1000."""


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
        self,
        target: "str | os.PathLike[str] | SummaryWriter",
        *,
        metrics: Metrics = None,
    ) -> None:
        """Take a folder, or an open SummaryWriter, which stays open."""
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
    """Logs scalars to a Weights & Biases run over the axis `nc/step`, and alarms as alerts.

    Without `run`, the sink uses the active run of `wandb.init`; if no run is active, it opens one
    with `init` and finishes it at the end. The separate axis is needed because W&B drops values of
    a step that has passed.

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

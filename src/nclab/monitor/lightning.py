"""CollapseCallback: the monitor inside a Lightning trainer."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nclab.errors import MissingExtra, ModelError, NclabError
from nclab.features.labels import LabelChoice
from nclab.monitor.event import Event, chosen_metrics
from nclab.monitor.loaders import Exact, as_splits, labels_of
from nclab.monitor.monitor import Monitor, measure_splits
from nclab.monitor.schedule import Schedule, as_schedule

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtra("The callback", package="lightning") from error


from torch import Tensor

from nclab.errors import DataError, MissingExtra
from nclab.measurement.collapse import Collapse
from nclab.monitor.online_probe import OnlineProbe

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtra("The probe", package="lightning") from error

LOADERS = ("train", "val")


class CollapseCallback(Callback):
    """Watches collapse during `Trainer.fit` and never changes the training.

    What is watched are the training batches; sanity checks and validation do not count. Values
    appear as `nc/<layer>/<metric>` in `trainer.callback_metrics`, where early stopping and
    checkpoints can follow them, and in the trainer's loggers. `callback.monitor` has the history
    and the alarms. The state is part of the trainer's checkpoints.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule. Steps are
            those of the optimiser.
        layers, preset: as for `nclab.Monitor`.
        model: name of the module that is trained as a classifier, such as "net", if that is not
            the LightningModule; found by itself where `forward` is not defined.
        labels: takes the labels from a batch that is neither (inputs, labels) nor a mapping; or
            "next" and "given" as for `nclab.Monitor`.
        exact: measure exactly at the end of due epochs, instead of watching: over the "train" or
            "val" loader, a loader of your own, or several of them, as in ("train", "val") or
            {"train": "train", "test": loader}; the others are compared with the class means of
            "train".
        metrics: names of those that appear in the trainer; all by default.
        options: those of `nclab.Monitor`: `alarms`, `sinks`, `classifier`, `pool`,
            `ignore_index`, `min_count`, `rows`, `class_names`.
    """

    def __init__(
        self,
        every: int | str | Schedule = 1,
        *,
        layers: str | Sequence[str] | None = None,
        preset: str = "standard",
        model: str | None = None,
        labels: Callable[[Any], Any] | LabelChoice | None = None,
        exact: Exact = None,
        metrics: str | Collection[str] | None = None,
        **options: Any,
    ) -> None:
        self.metrics = chosen_metrics(metrics)
        self.schedule = as_schedule(every)
        if exact is not None and self.schedule.unit != "epochs":
            raise NclabError("Expected epochs in every= together with exact=, got steps.")
        self._monitor: Monitor | None = None
        self._options = {"layers": layers, "preset": preset, **options}
        if isinstance(labels, str):
            self._options["labels"] = labels
        self._model = model
        self._labels = labels if callable(labels) else None
        self._exact = as_splits(exact, LOADERS)
        self._state: Mapping[str, Any] | None = None
        self._unlogged: list[Event] = []
        # Refuse wrong options now; a module without parameters draws no random numbers.
        Monitor(nn.Identity(), self.schedule, **self._options)

    @property
    def monitor(self) -> Monitor:
        """What watches the training, or has watched the last one."""
        if self._monitor is None:
            raise NclabError("Expected a training first, got none. Train with this callback.")
        return self._monitor

    @property
    def state_key(self) -> str:
        """Under which checkpoints keep the state; two callbacks of one trainer have two."""
        if not self._exact and self._model is None:
            return super().state_key
        return self._generate_state_key(exact=sorted(self._exact), model=self._model)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch, or go on where a checkpoint stood."""
        if getattr(pl_module, "_compiler_ctx", None) is not None and not self._exact:
            raise ModelError(
                "Expected a LightningModule that is not compiled, since compiled code runs around "
                "hooks. Fit the plain module, or pass exact='train'."
            )
        model = _trained(pl_module, self._model)
        self._monitor = Monitor(model, self.schedule, **self._options)
        if self._monitor.total_epochs is None and (trainer.max_epochs or 0) > 0:
            self._monitor.total_epochs = trainer.max_epochs
        if self._state is not None:
            state, self._state = self._state, None
            if trainer.global_rank > 0:  # the sums in a checkpoint are those of the first process
                state = {**state, "running": {"layers": {}}}
            self.monitor.load_state_dict(state)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch begins."""
        length = trainer.num_training_batches
        self.monitor.epoch_begin(batches=length if isinstance(length, int) else None)
        steps = trainer.estimated_stepping_batches  # of the optimiser, as the monitor counts here
        self.monitor.total_steps = int(steps) if 0 < steps < math.inf else None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Hand the labels over."""
        if not self._exact and self.monitor.watching:
            monitor = self.monitor
            labels, mask = labels_of(
                *(batch, self._labels, monitor.class_names), tokens=monitor.next_tokens
            )
            self.monitor.observe(labels, mask=mask)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step; the last batch of an epoch also ends it, before any validation."""
        monitor = self.monitor
        if self._exact:
            monitor.steps = trainer.global_step
            return
        before = monitor.last
        try:
            monitor.step(trainer.global_step)
        except ModelError as error:
            raise ModelError(
                f"{error} If training_step calls a module of its own, pass its name, as in "
                f"model={self._model or 'net'!r}."
            ) from error
        if monitor.last is not before and monitor.last is not None:
            publish(trainer, monitor.last, self.metrics)
            for logger in trainer.loggers:
                logger.log_metrics(monitor.last.scalars(self.metrics), step=monitor.last.step)
        if trainer.is_last_batch:
            self._end_epoch(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what the epoch has shown."""
        self._end_epoch(trainer)
        events, self._unlogged = self._unlogged, []
        for event in events:
            several = trainer.world_size > 1  # all have the same number, but Lightning asks
            pl_module.log_dict(event.scalars(self.metrics), batch_size=1, sync_dist=several)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the hooks off and close the sinks."""
        self.monitor.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """The same after an error."""
        if self._monitor is not None:
            self._monitor.close(exception)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain values and tensors."""
        return {} if self._monitor is None else self._monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there, once training starts."""
        self._state = state_dict

    def _end_epoch(self, trainer: Trainer) -> None:
        monitor, epoch = self.monitor, trainer.current_epoch + 1
        if monitor.epochs >= epoch:  # ended with its last batch
            return
        before = monitor.last
        events: list[Event | None] = []
        if not self._exact:
            monitor.epoch_end(epoch)
            events += [] if monitor.last is before else [monitor.last]
        else:
            monitor.epochs = epoch
            due = self.schedule.due(epoch)
            loaders = {s: _loader(trainer, one) for s, one in self._exact.items()} if due else {}
            events += measure_splits(monitor, loaders)
        for event in filter(None, events):
            self._unlogged.append(event)
            publish(trainer, event, self.metrics)


def publish(trainer: Trainer, event: Event, metrics: Collection[str] | None = None) -> None:
    """Put the scalars where other callbacks look for them."""
    device, scalars = trainer.strategy.root_device, event.scalars(metrics)
    trainer.callback_metrics.update(
        {name: torch.tensor(value, device=device) for name, value in scalars.items()}
    )


def _trained(module: LightningModule, name: str | None) -> nn.Module:
    """The module whose forward pass is that of a training step."""
    if name is not None:
        try:
            return module.get_submodule(name)
        except AttributeError as error:
            known = ", ".join(child for child, _ in module.named_children())
            raise ModelError(
                f"Expected model= the name of a module, such as {known}; got {name!r}."
            ) from error
    if type(module).forward is not LightningModule.forward:
        return module
    children = {
        child: own for child, own in module.named_children() if any(True for _ in own.parameters())
    }
    if len(children) == 1:
        return next(iter(children.values()))
    raise ModelError(
        f"Expected a LightningModule with forward() or with one network inside, got "
        f"{', '.join(children) or 'none'}. Pass model= the name of the network."
    )


def _loader(trainer: Trainer, exact: str | Iterable[Any]) -> Iterable[Any]:
    if not isinstance(exact, str):
        return exact
    loader: Any = trainer.train_dataloader if exact == "train" else trainer.val_dataloaders
    if isinstance(loader, (list, tuple)) and len(loader) == 1:
        loader = loader[0]
    if loader is None or isinstance(loader, (list, tuple, dict)):
        what = "none" if loader is None else f"{len(loader)} of them"
        raise NclabError(f"Expected one {exact} loader, got {what}. Pass exact= a loader.")
    return loader


class CollapseProbe(Callback):
    """Trains a linear probe on features of the training step and logs their collapse each epoch.

    `training_step` and `validation_step` return a mapping; `input` and `target` are the names of
    features (B, d) and labels (B,) in it, or in the batch. The training itself is not changed.
    Values are logged as `nc/<name>/<metric>`, of validation data as `nc/val/<name>/<metric>`.

    Args:
        name: of the features, and of this probe among others.
        input, target: where features and labels are.
        num_classes: of the labels.
        metrics: names of those that are logged; all by default.
        options: `rate` and `momentum` of `nclab.monitor.online_probe.OnlineProbe`.
    """

    def __init__(
        self,
        name: str,
        input: str = "embedding",
        target: str = "label",
        *,
        num_classes: int,
        metrics: str | Collection[str] | None = None,
        **options: Any,
    ) -> None:
        self.probe = OnlineProbe(num_classes, name=name, **options)
        self.validation = OnlineProbe(num_classes, name=name, **options)
        self.input, self.target = input, target
        self.metrics = chosen_metrics(metrics)
        self.last: Collapse | None = None
        """Of the last epoch of training."""

    @property
    def state_key(self) -> str:
        """Two probes of one trainer have two states."""
        return self._generate_state_key(name=self.probe.name, input=self.input)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A step of the probe."""
        self.probe.update(*self._found(outputs, batch))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the epoch, and begin the next."""
        self.last = self._log(self.probe, pl_module, "nc")

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Look at held-out data with the probe as it is."""
        if not trainer.sanity_checking and self.probe.weight is not None:
            self.validation.weight, self.validation.bias = self.probe.weight, self.probe.bias
            self.validation.watch(*self._found(outputs, batch))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log what was seen of them."""
        if self.validation.seen:
            self._log(self.validation, pl_module, "nc/val")

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return self.probe.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.probe.load_state_dict(state_dict)

    def _log(self, probe: OnlineProbe, module: LightningModule, prefix: str) -> Collapse:
        collapse = probe.compute()
        probe.reset()
        scalars = {
            f"{prefix}/{probe.name}/{name}": value
            for name, value in collapse.scalars().items()
            if value is not None and (self.metrics is None or name in self.metrics)
        }
        module.log_dict(scalars, batch_size=1)
        return collapse

    def _found(self, outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
        places = [one for one in (outputs, batch) if isinstance(one, Mapping)]
        found = []
        for name in (self.input, self.target):
            value = next((one[name] for one in places if name in one), None)
            if not isinstance(value, Tensor):
                known = ", ".join(str(key) for one in places for key in one) or "no mapping"
                raise DataError(
                    f"Expected {name!r} in what training_step returns or in the batch, got {known}."
                )
            found.append(value)
        return found[0], found[1]

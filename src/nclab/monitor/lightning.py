"""CollapseCallback: the monitor in a Lightning trainer."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from nclab.errors import MissingExtra, ModelError, NclabError
from nclab.features.batches import LabelChoice, labels_of
from nclab.monitor.callbacks import Exact, MonitorCallback
from nclab.monitor.event import Event
from nclab.monitor.monitor import Monitor, Schedule

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtra("The Lightning callback", package="lightning") from error

LOADERS = ("train", "val")
"""Names of a trainer's loaders that `exact` accepts."""


class CollapseCallback(MonitorCallback, Callback):
    """Measures collapse during `Trainer.fit` and never changes the training.

    The callback reads the training batches, not sanity checks or validation. Values appear as
    `nc/<layer>/<metric>` in `trainer.callback_metrics`, where early stopping and checkpoints can
    monitor them, and in the trainer's loggers. `callback.monitor` has the history and the alarms.
    The state is part of the trainer's checkpoints.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule. Steps are
            optimiser steps.
        layers, preset: as for `nclab.Monitor`.
        model: name of the module that is trained as a classifier, such as "net", if that is not
            the LightningModule; found automatically if `forward` is not defined.
        labels: function that returns the labels of a batch that is neither (inputs, labels) nor a
            mapping; or "next" or "given", which `nclab.measure` explains.
        exact: data to measure exactly at the end of due epochs, instead of reading training
            batches: the "train" or "val" loader, another loader, or several of them, as in
            ("train", "val") or {"train": "train", "test": loader}. The other data are compared
            with the class means of "train".
        metrics: names of the metrics that appear in the trainer; all by default.
        options: other options of `nclab.Monitor`: `alarms`, `sinks`, `classifier`, `pool`,
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
        options |= {"layers": layers, "preset": preset}
        if isinstance(labels, str):
            options["labels"] = labels
        super().__init__(every, exact=exact, known=LOADERS, metrics=metrics, options=options)
        self._model = model
        self._labels = labels if callable(labels) else None
        self._state: Mapping[str, Any] | None = None
        self._unlogged: list[Event] = []

    @property
    def state_key(self) -> str:
        """Key of the state in checkpoints; it differs between two callbacks of one trainer."""
        if not self._exact and self._model is None:
            return super().state_key
        return self._generate_state_key(exact=sorted(self._exact), model=self._model)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Create the monitor; continue from the state of a checkpoint if there is one."""
        if getattr(pl_module, "_compiler_ctx", None) is not None and not self._exact:
            raise ModelError(
                "Expected a LightningModule that is not compiled, got a compiled one, which does "
                "not run hooks. Fit the plain module, or pass exact='train'."
            )
        model = _trained(pl_module, self._model)
        self._monitor = Monitor(model, self.schedule, **self._options)
        if self._monitor.total_epochs is None and (trainer.max_epochs or 0) > 0:
            self._monitor.set_length(epochs=trainer.max_epochs, steps=None)
        if self._state is not None:
            state, self._state = self._state, None
            if trainer.global_rank > 0:  # a checkpoint has the sums of the first process only
                state = {**state, "running": {"layers": {}}}
            self.monitor.load_state_dict(state)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start an epoch of the monitor."""
        length = trainer.num_training_batches
        self.monitor.epoch_begin(batches=length if isinstance(length, int) else None)
        steps = trainer.estimated_stepping_batches  # optimiser steps, which the monitor counts
        total = int(steps) if 0 < steps < math.inf else None
        self.monitor.set_length(epochs=self.monitor.total_epochs, steps=total)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Pass the labels of the batch to the monitor."""
        if not self._exact and self.monitor.watching:
            monitor = self.monitor
            labels, mask = labels_of(
                *(batch, self._labels, monitor.class_names), tokens=monitor.next_tokens
            )
            self.monitor.observe(labels, mask=mask)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step; after the last batch of an epoch, end the epoch before validation."""
        monitor = self.monitor
        if self._exact:
            monitor.set_progress(steps=trainer.global_step)
            return
        before = monitor.last
        try:
            monitor.step(trainer.global_step)
        except ModelError as error:
            raise ModelError(
                f"{error} If training_step calls a submodule instead, pass its name, as in "
                f"model={self._model or 'net'!r}."
            ) from error
        if monitor.last is not before and monitor.last is not None:
            publish(trainer, monitor.last, self.metrics)
            for logger in trainer.loggers:
                logger.log_metrics(monitor.last.scalars(self.metrics), step=monitor.last.step)
        if trainer.is_last_batch:
            self._end_epoch(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the values of the epoch."""
        self._end_epoch(trainer)
        events, self._unlogged = self._unlogged, []
        for event in events:
            several = trainer.world_size > 1  # without sync_dist=True Lightning would warn
            pl_module.log_dict(event.scalars(self.metrics), batch_size=1, sync_dist=several)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remove the hooks and close the sinks."""
        self.monitor.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Remove the hooks and close the sinks after an error."""
        if self._monitor is not None:
            self._monitor.close(exception)

    def state_dict(self) -> dict[str, Any]:
        """Return the monitor's state for a checkpoint: plain values and tensors."""
        return {} if self._monitor is None else self._monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a checkpoint until training starts."""
        self._state = state_dict

    def _end_epoch(self, trainer: Trainer) -> None:
        for event in self._finish_epoch(trainer.current_epoch + 1, partial(_loader, trainer)):
            self._unlogged.append(event)
            publish(trainer, event, self.metrics)


def publish(trainer: Trainer, event: Event, metrics: Collection[str] | None = None) -> None:
    """Add the scalars to `trainer.callback_metrics`, which other callbacks read."""
    device, scalars = trainer.strategy.root_device, event.scalars(metrics)
    trainer.callback_metrics.update(
        {name: torch.tensor(value, device=device) for name, value in scalars.items()}
    )


def _trained(module: LightningModule, name: str | None) -> nn.Module:
    """Return the module with this name or, without a name, the module that training calls."""
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
        name: child
        for name, child in module.named_children()
        if next(child.parameters(), None) is not None
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
        count = "none" if loader is None else f"{len(loader)} loaders"
        raise NclabError(f"Expected one {exact} loader, got {count}. Pass exact= a loader.")
    return loader

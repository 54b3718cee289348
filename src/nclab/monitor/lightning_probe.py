"""CollapseProbe: an online probe inside a Lightning trainer, in the style of stable-pretraining."""

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from nclab.errors import DataError, MissingExtra
from nclab.measurement.collapse import Collapse
from nclab.monitor.event import chosen_metrics
from nclab.monitor.online_probe import OnlineProbe

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtra("The probe", package="lightning") from error


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

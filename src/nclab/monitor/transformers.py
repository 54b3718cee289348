"""CollapseCallback: the monitor inside a Hugging Face Trainer of a classifier."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from nclab.errors import DataError, MissingExtra, NclabError
from nclab.features.batches import LABEL_KEYS
from nclab.monitor.event import Event
from nclab.monitor.monitor import Monitor
from nclab.monitor.schedule import Schedule, as_schedule
from nclab.monitor.state_file import read_state, write_state
from nclab.monitor.watched_loader import length_of

try:
    from transformers import TrainerCallback
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Args
except ImportError as error:
    raise MissingExtra("The callback", package="transformers") from error

STATE_FILE = "nclab_monitor.safetensors"
"""In each checkpoint folder, beside the trainer's own files."""


class CollapseCallback(TrainerCallback):
    """Watches collapse during `Trainer.train()` and never changes the training.

    The trainer shows its callbacks no batches: the labels are found in what the model is called
    with. Values appear as `nc/<layer>/<metric>` in `trainer.state.log_history`, and with
    `attach(trainer)` also in the loggers of `report_to`. `callback.monitor` has the history and
    the alarms. Checkpoints carry its state in a file of their own.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule.
        layers, preset: as for `nclab.Monitor`.
        options: `alarms`, `sinks`, `classifier`, `pool` of `nclab.Monitor`.
    """

    def __init__(
        self,
        every: int | str | Schedule = 1,
        *,
        layers: str | Sequence[str] | None = None,
        preset: str = "standard",
        **options: Any,
    ) -> None:
        self.schedule = as_schedule(every)
        self._monitor: Monitor | None = None
        self._options = {"layers": layers, "preset": preset, **options}
        self._trainer: Any = None
        # Refuse wrong options now; a module without parameters draws no random numbers.
        Monitor(nn.Identity(), self.schedule, **self._options)

    @property
    def monitor(self) -> Monitor:
        """What watches the training, or has watched the last one."""
        if self._monitor is None:
            raise NclabError("Expected a training first, got none. Train with this callback.")
        return self._monitor

    def attach(self, trainer: Any) -> Self:
        """Add this callback to a trainer, and log through it."""
        trainer.add_callback(self)
        self._trainer = trainer
        return self

    def on_train_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Begin to watch, or go on where the checkpoint stood."""
        if self._monitor is not None:
            self._monitor.close()  # of a training that ended in an error
        _refuse(args)
        self._monitor = Monitor(kwargs["model"], self.schedule, **self._options)
        if state.global_step:
            self._go_on(args, state)

    def on_epoch_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """An epoch begins."""
        self.monitor.epoch_begin(batches=length_of(kwargs.get("train_dataloader")))

    def on_step_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """A forward pass follows."""
        if self.monitor.watching:
            self.monitor.observe(labels_among)

    def on_substep_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """A batch of an accumulated gradient is done, and the next one follows."""
        self.monitor.step(state.global_step)
        self.on_step_begin(args, state, control)

    def on_step_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """A step of the optimiser is done; the last one of an epoch also ends it, before a save."""
        before = self.monitor.last
        self.monitor.step(state.global_step)
        if state.epoch == round(state.epoch):
            self._end_epoch(state)
        self._log(before, state, control)

    def on_epoch_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """An epoch is done, perhaps before its last step."""
        before = self.monitor.last
        self._end_epoch(state)
        self._log(before, state, control)

    def on_save(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Put the state beside the trainer's."""
        folder = _checkpoint(args, state)
        if self._monitor is not None and state.is_world_process_zero and folder.is_dir():
            write_state(folder / STATE_FILE, self.monitor.state_dict())

    def on_train_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Take the hooks off and close the sinks."""
        self.monitor.close()

    def _end_epoch(self, state: State) -> None:
        epoch = max(1, math.ceil(state.epoch - 1e-6))
        if self.monitor.epochs < epoch:  # it has not ended with its last step
            self.monitor.epoch_end(epoch)

    def _go_on(self, args: Args, state: State) -> None:
        file = _checkpoint(args, state) / STATE_FILE
        if not file.is_file():  # a checkpoint of a training that was not watched
            self.monitor.steps, self.monitor.epochs = state.global_step, math.floor(state.epoch)
            return
        found: Mapping[str, Any] = read_state(file)
        if not state.is_world_process_zero:  # the sums in the file are those of the first process
            found = {**found, "running": {"layers": {}}}
        self.monitor.load_state_dict(found)

    def _log(self, before: Event | None, state: State, control: Control) -> None:
        event = self.monitor.last
        if event is before or event is None:
            return
        if self._trainer is None:
            entry = {**event.scalars(), "epoch": state.epoch, "step": state.global_step}
            state.log_history.append(entry)
            return
        wanted = control.should_log  # logging takes the trainer's own wish to log away
        self._trainer.log(event.scalars())
        control.should_log = wanted


def labels_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Tensor | None]:
    """The labels, and the mask of real tokens, in what a model is called with."""
    key = next((key for key in LABEL_KEYS if kwargs.get(key) is not None), None)
    if key is None:
        raise DataError(
            f"Expected labels among the inputs of the model, got {', '.join(kwargs) or 'none'}. "
            "With compute_loss_func the trainer keeps them: compute the loss in the model instead."
        )
    mask = kwargs.get("attention_mask")
    return kwargs[key], mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _refuse(args: Args) -> None:
    """Say before training what hooks cannot read."""
    reasons = {
        "torch_compile": "compiled code runs around hooks",
        "label_smoothing_factor": "the trainer then keeps the labels from the model",
    }
    for name, why in reasons.items():
        if value := getattr(args, name, None):
            raise NclabError(f"Expected training without {name}, got {value}: {why}.")
    if args.n_gpu > 1:
        raise NclabError(
            f"Expected one GPU in a process, got {args.n_gpu}. Start the training with torchrun."
        )


def _checkpoint(args: Args, state: State) -> Path:
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

    return Path(args.output_dir or ".") / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"

"""CollapseCallback: the monitor in a Hugging Face Trainer."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from nclab.array_files import read_tree, write_tree
from nclab.errors import DataError, MissingExtra, NclabError
from nclab.features.batches import LABEL_KEYS, TOKENS
from nclab.monitor.callbacks import Exact, MonitorCallback
from nclab.monitor.event import Event
from nclab.monitor.monitor import Monitor, Schedule, length_of

try:
    from transformers import TrainerCallback
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Args
except ImportError as error:
    raise MissingExtra("The Transformers callback", package="transformers") from error

DATA = ("train", "eval")
"""Names of a trainer's data that `exact` accepts."""
STATE_FILE = "nclab_monitor.safetensors"
"""File with the monitor's state in each checkpoint folder."""


class CollapseCallback(MonitorCallback, TrainerCallback):
    """Measures collapse during `Trainer.train()` and never changes the training.

    The trainer passes no batches to callbacks, so the labels are read from the arguments of the
    model. Values appear as `nc/<layer>/<metric>` in `trainer.state.log_history`, and with
    `attach(trainer)` also in the loggers of `report_to`. `callback.monitor` has the history and
    the alarms. Each checkpoint stores the state in a separate file.

    Args:
        every: epochs between measurements; "500 steps", "log epochs"; or a schedule.
        layers, preset: as for `nclab.Monitor`.
        exact: data to measure exactly at the end of due epochs, instead of reading training
            batches: the "train" or "eval" data of the trainer, a loader, or several of them, as in
            ("train", "eval"). The other data are compared with the class means of "train". "eval"
            needs `attach`.
        metrics: names of the metrics that are logged; all by default.
        options: other options of `nclab.Monitor`: `alarms`, `sinks`, `classifier`, `pool`,
            `labels`, `ignore_index`, `min_count`, `rows`, `class_names`.
    """

    def __init__(
        self,
        every: int | str | Schedule = 1,
        *,
        layers: str | Sequence[str] | None = None,
        preset: str = "standard",
        exact: Exact = None,
        metrics: str | Collection[str] | None = None,
        **options: Any,
    ) -> None:
        options |= {"layers": layers, "preset": preset}
        super().__init__(every, exact=exact, known=DATA, metrics=metrics, options=options)
        self._trainer: Any = None

    def attach(self, trainer: Any) -> Self:
        """Add this callback to a trainer and log through the trainer."""
        trainer.add_callback(self)
        self._trainer = trainer
        return self

    def on_train_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Create the monitor; continue from the state of the checkpoint if there is one."""
        if self._monitor is not None:
            self._monitor.close()  # the last training ended in an error
        if not self._exact:
            _check_arguments(args)
        elif "eval" in self._exact.values() and self._trainer is None:
            raise NclabError(
                'Expected an attached trainer for exact="eval". Use attach(trainer), or pass '
                "exact= a loader."
            )
        self._monitor = Monitor(kwargs["model"], self.schedule, **self._options)
        if state.global_step:
            self._load_checkpoint(args, state)

    def on_epoch_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Start an epoch of the monitor."""
        self.monitor.epoch_begin(batches=length_of(kwargs.get("train_dataloader")))
        self.monitor.set_length(
            epochs=math.ceil(state.num_train_epochs or 0) or None,
            steps=state.max_steps if state.max_steps > 0 else None,
        )

    def on_step_begin(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Let the monitor read the labels in the next forward pass."""
        if self.monitor.watching and not self._exact:
            self.monitor.observe(partial(labels_among, tokens=self.monitor.next_tokens))

    def on_substep_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Count a batch whose gradient is accumulated, and prepare the next batch."""
        if not self._exact:
            self.monitor.step(state.global_step)
        self.on_step_begin(args, state, control)

    def on_step_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Count an optimiser step; the last one ends the epoch, before a checkpoint is saved."""
        before = self.monitor.last
        if self._exact:
            self.monitor.set_progress(steps=state.global_step)
        else:
            self.monitor.step(state.global_step)
        last = self.monitor.last
        events = [] if last is None or last is before else [last]
        if state.epoch == round(state.epoch):
            events += self._end_epoch(args, state, kwargs)
        self._log(events, state, control)

    def on_epoch_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """End an epoch that stopped before its last step; other epochs have ended already."""
        self._log(self._end_epoch(args, state, kwargs), state, control)

    def on_save(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Write the monitor's state into the checkpoint folder."""
        folder = _checkpoint(args, state)
        if self._monitor is not None and state.is_world_process_zero and folder.is_dir():
            write_tree(folder / STATE_FILE, self.monitor.state_dict())

    def on_train_end(self, args: Args, state: State, control: Control, **kwargs: Any) -> None:
        """Remove the hooks and close the sinks."""
        self.monitor.close()

    def _end_epoch(self, args: Args, state: State, known: Mapping[str, Any]) -> list[Event]:
        """Finish the current epoch, measure if a measurement is due, and return the new events."""
        epoch = max(1, math.ceil(state.epoch - 1e-6))
        return self._finish_epoch(epoch, partial(self._loader, args, known))

    def _loader(self, args: Args, known: Mapping[str, Any], data: Any) -> Iterable[Any]:
        """Return the loader of an item of `exact`; "train" and "eval" data are not shuffled."""
        if not isinstance(data, str):
            loader: Iterable[Any] = data
            return loader
        if data == "eval":
            known_loader = self._trainer.get_eval_dataloader()
        else:
            known_loader = known.get("train_dataloader")
        dataset = getattr(known_loader, "dataset", None)
        if dataset is None or isinstance(dataset, IterableDataset):
            raise NclabError(
                f"Expected {data} data that can be read twice, but the trainer has none. "
                "Pass exact= a loader."
            )
        return DataLoader(
            dataset,
            batch_size=args.eval_batch_size,
            sampler=range(args.process_index, len(dataset), args.world_size),
            collate_fn=known_loader.collate_fn,
        )

    def _load_checkpoint(self, args: Args, state: State) -> None:
        file = _checkpoint(args, state) / STATE_FILE
        if not file.is_file():  # a checkpoint of a training without this callback
            self.monitor.set_progress(epochs=math.floor(state.epoch), steps=state.global_step)
            return
        saved: Mapping[str, Any] = read_tree(file)
        if not state.is_world_process_zero:  # the file has the sums of the first process only
            saved = {**saved, "running": {"layers": {}}}
        self.monitor.load_state_dict(saved)

    def _log(self, events: Sequence[Event], state: State, control: Control) -> None:
        scalars: dict[str, float] = {}
        for event in events:
            scalars |= event.scalars(self.metrics)
        if not scalars:
            return
        if self._trainer is None:
            entry = {**scalars, "epoch": state.epoch, "step": state.global_step}
            state.log_history.append(entry)
            return
        should_log = control.should_log  # the trainer resets this flag when it logs
        self._trainer.log(scalars)
        control.should_log = should_log


def labels_among(
    args: tuple[Any, ...], kwargs: dict[str, Any], *, tokens: bool = False
) -> tuple[Any, Tensor | None]:
    """Return labels and mask of real tokens from the arguments of a model.

    With `tokens`, the input tokens are the labels if the arguments contain no labels.
    """
    keys = (*LABEL_KEYS, TOKENS) if tokens else LABEL_KEYS
    key = next((key for key in keys if kwargs.get(key) is not None), None)
    if key is None:
        raise DataError(
            f"Expected labels among the inputs of the model, got {', '.join(kwargs) or 'none'}. "
            "compute_loss_func makes the trainer remove them: let the model compute the loss."
        )
    mask = kwargs.get("attention_mask")
    return kwargs[key], mask if isinstance(mask, Tensor) and mask.ndim == 2 else None


def _check_arguments(args: Args) -> None:
    """Raise before training if the trainer's arguments prevent hooks from reading features."""
    reasons = {
        "torch_compile": "compiled code does not run hooks",
        "label_smoothing_factor": "the trainer then removes the labels from the model's inputs",
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

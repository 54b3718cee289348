"""Base of the trainer callbacks: their options, their monitor, and exact measurements."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from nclab.errors import NclabError
from nclab.measurement.collapse import Report
from nclab.monitor.event import Event, chosen_metrics
from nclab.monitor.monitor import Monitor, Schedule, as_schedule
from nclab.records.schema import TRAIN

Exact = str | Iterable[Any] | Mapping[str, Any] | Sequence[str] | None
"""Data that a callback measures exactly.

One or several names of the trainer's data, such as "train"; a loader; or a dictionary with names of
splits as keys.
"""


class MonitorCallback:
    """Base of the trainer callbacks: checks the options at once and holds the monitor."""

    def __init__(
        self,
        every: int | str | Schedule,
        *,
        exact: Exact,
        known: Sequence[str],
        metrics: str | Collection[str] | None,
        options: Mapping[str, Any],
    ) -> None:
        """Check the options; `known` are the names of data that `exact` may contain."""
        self.metrics = chosen_metrics(metrics)
        self.schedule = as_schedule(every)
        if exact is not None and self.schedule.unit != "epochs":
            raise NclabError("Expected epochs in every= together with exact=, got steps.")
        self._exact = as_splits(exact, known)
        self._options = dict(options)
        self._monitor: Monitor | None = None
        # Raise on wrong options now; a module without parameters draws no random numbers.
        Monitor(nn.Identity(), self.schedule, **self._options)

    @property
    def monitor(self) -> Monitor:
        """Monitor of the current training, or of the last one."""
        if self._monitor is None:
            raise NclabError(
                "Expected a monitor, but no training with this callback has started. Train first."
            )
        return self._monitor

    def _finish_epoch(self, epoch: int, load: Callable[[Any], Iterable[Any]]) -> list[Event]:
        """Finish an epoch, measure if a measurement is due, and return the new events.

        If the epoch was finished before, do nothing. `load` returns the loader of an item of
        `exact`, such as "train".
        """
        monitor, before = self.monitor, self.monitor.last
        if monitor.epochs >= epoch:
            return []
        if self._exact:
            monitor.set_progress(epochs=epoch)
            if not self.schedule.due(epoch):
                return []
            return measure_splits(monitor, {name: load(x) for name, x in self._exact.items()})
        monitor.epoch_end(epoch)
        return [] if monitor.last is None or monitor.last is before else [monitor.last]


def measure_splits(monitor: Monitor, loaders: Mapping[str, Iterable[Any]]) -> list[Event]:
    """Measure every split and return the events.

    Splits after the training data are compared with the class means of the training data.
    """
    reference: Report | None = None
    events = []
    for split, loader in loaders.items():
        report = monitor.measure(loader, split=split, reference=reference)
        reference = report if split == TRAIN else reference
        assert monitor.last is not None
        events.append(monitor.last)
    return events


def as_splits(exact: Exact, known: Sequence[str]) -> dict[str, Any]:
    """Return the data to measure exactly as {name of split: data}, the training data first.

    `exact` is the user's option; None gives an empty dictionary. `known` are the names of the
    trainer's data that it may contain.

    >>> as_splits({"test": "val"}, ("train", "val"))
    {'test': 'val'}
    >>> as_splits(("val", "train"), ("train", "val"))
    {'train': 'train', 'val': 'val'}
    """
    if exact is None:
        return {}
    names = (exact,) if isinstance(exact, str) else exact
    if isinstance(exact, Mapping):
        splits = dict(exact)
    elif isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        splits = {name: name for name in names}
    else:
        splits = {TRAIN: exact}
    unknown = [data for data in splits.values() if isinstance(data, str) and data not in known]
    if unknown or not splits:
        raise NclabError(
            f"Expected exact={' or '.join(map(repr, known))}, a loader, a tuple of names or a "
            f"dictionary of splits, got {unknown[0] if unknown else exact!r}."
        )
    return dict(sorted(splits.items(), key=lambda item: item[0] != TRAIN))

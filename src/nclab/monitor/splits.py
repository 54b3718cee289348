"""Several sets of data measured at one moment: training first, the others against its means."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nclab.errors import NclabError
from nclab.measurement.report import Report
from nclab.monitor.event import Event
from nclab.monitor.monitor import Monitor
from nclab.records.schema import TRAIN

Exact = str | Iterable[Any] | Mapping[str, Any] | Sequence[str] | None
"""What a callback measures exactly: data that its trainer knows by name, a loader, or several."""


def as_splits(exact: Exact, known: Sequence[str]) -> dict[str, Any]:
    """The data by the name of their split, those of training first; empty for none.

    >>> as_splits(("val", "train"), ("train", "val"))
    {'train': 'train', 'val': 'val'}
    """
    if exact is None:
        return {}
    if isinstance(exact, Mapping):
        found = dict(exact)
    elif isinstance(exact, str):
        found = {exact: exact}
    elif isinstance(exact, (list, tuple)) and exact and all(isinstance(s, str) for s in exact):
        found = {split: split for split in exact}
    else:
        found = {TRAIN: exact}
    named = [data for data in found.values() if isinstance(data, str) and data not in known]
    if named or not found or not all(isinstance(split, str) and split for split in found):
        names = ", ".join(map(repr, known))
        raise NclabError(
            f"Expected exact={names} or a loader, or several as a tuple or by name, got "
            f"{named[0] if named else exact!r}."
        )
    return dict(sorted(found.items(), key=lambda item: item[0] != TRAIN))


def measure_splits(monitor: Monitor, loaders: Mapping[str, Iterable[Any]]) -> list[Event]:
    """Measure every split; those after training's against its class means."""
    reference: Report | None = None
    events = []
    for split, loader in loaders.items():
        report = monitor.measure(loader, split=split, reference=reference)
        reference = report if split == TRAIN else reference
        assert monitor.last is not None
        events.append(monitor.last)
    return events

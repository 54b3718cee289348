"""Event: one measurement of the monitor, as alarms and sinks receive it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from nclab.errors import NclabError
from nclab.measurement.collapse import Collapse
from nclab.measurement.report import Report
from nclab.metrics.catalogue import every_metric
from nclab.metrics.toward import MEANINGS
from nclab.records.schema import GEOMETRY, MEASUREMENT, TRAIN, MeasurementRecord

Source = Literal["training", "loader"]
Key = tuple[str, str, tuple[int, ...]]
"""What an alarm is about: its name, the layer, the classes."""


class Alarm(NamedTuple):
    """Something worth knowing about a layer, raised once.

    >>> alarm = Alarm("nan", "fc", (3,), 12.0, "12 features are not finite")
    >>> print(alarm)
    fc: 12 features are not finite (class 3)
    >>> alarm._replace(epoch=2.0, step=40)
    <Alarm nan: epoch 2, fc: 12 features are not finite (class 3)>
    """

    name: str
    layer: str
    classes: tuple[int, ...]
    value: float
    message: str
    severe: bool = True
    """False for good news."""
    split: str = TRAIN
    """Of the data that were measured."""
    names: tuple[str, ...] = ()
    """Of the classes, if they have any."""
    epoch: float | None = None
    """When it was raised; the monitor says it."""
    step: int | None = None

    @property
    def key(self) -> Key:
        """An alarm of the same key is raised only once."""
        return self.name, self.layer, self.classes

    def __str__(self) -> str:
        called = self.names or tuple(map(str, self.classes))
        of = {0: "", 1: f" (class {called[0]})" if called else ""}
        where = of.get(len(called), f" (classes {', '.join(called)})")
        data = "" if self.split == TRAIN else f", {self.split}"
        when = "" if self.epoch is None else f"epoch {self.epoch:g}, "
        return f"{when}{self.layer}{data}: {self.message}{where}"

    def __repr__(self) -> str:
        return f"<Alarm {self.name}: {self}>"


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """A measurement at a moment of training."""

    step: int
    epoch: float
    """Epochs done; with a fraction where the length of an epoch is known."""
    source: Source
    """"training": a running estimate from the batches as they were trained on, while the weights
    moved and layers were in training mode. "loader": an exact measurement."""
    report: Report
    nonfinite: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Layer -> class -> features left out because they held nan or infinity."""
    fired: frozenset[Key] = frozenset()
    """The alarms raised before, on the same split."""
    alarms: tuple[Alarm, ...] = ()
    """The alarms raised by this event."""
    split: str = TRAIN
    """Of the data that were measured: train, test, val, ..."""
    picture: Mapping[str, Any] | None = None
    """The last layer in 3-D, where the monitor keeps features for it, see `geometry`."""
    total_steps: int | None = None
    """Of the whole training, where the monitor knows it."""
    total_epochs: int | None = None

    def __repr__(self) -> str:
        layers = ", ".join(str(collapse.layer) for collapse in self.layers) or "nothing"
        alarms = f", {len(self.alarms)} alarms" if self.alarms else ""
        when = f"step {self.step}, epoch {self.epoch:g}"
        return f"<Event: {when}, {self.source} on {self.split}, measured {layers}{alarms}>"

    @property
    def layers(self) -> tuple[Collapse, ...]:
        """The layers that could be measured, in order."""
        return self.report.layers

    def scalars(self, metrics: Collection[str] | None = None) -> dict[str, float]:
        """What was measured, by the names loggers use: `nc/<layer>/<metric>`.

        Of other data than those of training `nc/<split>/<layer>/<metric>`. All metrics, or those
        that are named.
        """
        data = "" if self.split == TRAIN else f"{self.split}/"
        return {
            f"nc/{data}{collapse.layer}/{name}": value
            for collapse in self.layers
            for name, value in (collapse.scalars() | _toward(collapse)).items()
            if value is not None and (metrics is None or name in metrics)
        }

    @property
    def own_target(self) -> str:
        """Of the layer that the classifier reads: how far its own optimum is, in words."""
        found = next((one.toward for one in reversed(self.layers) if one.toward), None)
        return "" if found is None else found.in_words()

    def to_record(self) -> dict[str, Any]:
        """One line of a journal: plain JSON values."""
        record: MeasurementRecord = {
            "kind": MEASUREMENT,
            "step": self.step,
            "epoch": self.epoch,
            "source": self.source,
            "split": self.split,
            "layers": [collapse.to_dict() for collapse in self.layers],
            "train": self.train(),
        }
        return dict(record)

    def picture_record(self) -> dict[str, Any] | None:
        """The picture as a line of a journal, None where there is none."""
        if self.picture is None:
            return None
        return {"kind": GEOMETRY, "step": self.step, "epoch": self.epoch, **self.picture}

    def train(self) -> dict[str, float | None]:
        """Loss and accuracy of the classifier on the data of this event."""
        read = [collapse for collapse in self.layers if collapse.loss is not None]
        if not read:
            return {}
        return {"loss": read[-1].loss, "accuracy": read[-1].accuracy}


def chosen_metrics(names: str | Collection[str] | None) -> tuple[str, ...] | None:
    """The metrics that a logger is to write; None for all, a wrong name is refused at once.

    >>> chosen_metrics(["cdnv", "loss"]), chosen_metrics(None)
    (('cdnv', 'loss'), None)
    >>> chosen_metrics("cdvn")
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected metrics= names of metrics, got 'cdvn'. Did you mean cdnv?
    """
    if names is None:
        return None
    wanted = (names,) if isinstance(names, str) else tuple(names)
    known = {**every_metric(), **MEANINGS}
    for name in wanted:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "docs/metrics.md lists them."
            raise NclabError(f"Expected metrics= names of metrics, got {name!r}. {hint}")
    return wanted


def _toward(collapse: Collapse) -> dict[str, float | None]:
    return {} if collapse.toward is None else collapse.toward.values()

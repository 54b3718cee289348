"""Event: one measurement of the monitor, as alarms and sinks receive it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from nclab.measurement.collapse import Collapse
from nclab.measurement.report import Report
from nclab.records.schema import GEOMETRY, MEASUREMENT, TRAIN, MeasurementRecord

Source = Literal["training", "loader"]
Key = tuple[str, str, tuple[int, ...]]
"""What an alarm is about: its name, the layer, the classes."""


class Alarm(NamedTuple):
    """Something worth knowing about a layer, raised once.

    >>> print(Alarm("nan", "fc", (3,), 12.0, "12 features are not finite"))
    fc: 12 features are not finite (class 3)
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

    @property
    def key(self) -> Key:
        """An alarm of the same key is raised only once."""
        return self.name, self.layer, self.classes

    def __str__(self) -> str:
        called = self.names or tuple(map(str, self.classes))
        of = {0: "", 1: f" (class {called[0]})" if called else ""}
        where = of.get(len(called), f" (classes {', '.join(called)})")
        data = "" if self.split == TRAIN else f", {self.split}"
        return f"{self.layer}{data}: {self.message}{where}"


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

    def __repr__(self) -> str:
        layers = ", ".join(str(collapse.layer) for collapse in self.layers) or "nothing"
        alarms = f", {len(self.alarms)} alarms" if self.alarms else ""
        when = f"step {self.step}, epoch {self.epoch:g}"
        return f"<Event: {when}, {self.source} on {self.split}, measured {layers}{alarms}>"

    @property
    def layers(self) -> tuple[Collapse, ...]:
        """The layers that could be measured, in order."""
        return self.report.layers

    def scalars(self) -> dict[str, float]:
        """What was measured, by the names loggers use: `nc/<layer>/<metric>`.

        Of other data than those of training `nc/<split>/<layer>/<metric>`.
        """
        data = "" if self.split == TRAIN else f"{self.split}/"
        return {
            f"nc/{data}{collapse.layer}/{name}": value
            for collapse in self.layers
            for name, value in (collapse.scalars() | _toward(collapse)).items()
            if value is not None
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


def _toward(collapse: Collapse) -> dict[str, float | None]:
    return {} if collapse.toward is None else collapse.toward.values()

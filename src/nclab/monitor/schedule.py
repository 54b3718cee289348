"""Schedules: when the monitor measures; presets: what it measures, and at what cost."""

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from nclab.errors import NclabError

Unit = Literal["epochs", "steps"]


@dataclass(frozen=True)
class Every:
    """Measurements every n epochs or steps.

    >>> [step for step in range(1, 9) if Every(3, "steps").due(step)]
    [3, 6]
    """

    n: int
    unit: Unit = "epochs"
    window: int | None = None
    """Number of last steps that enter a measurement; None for all since the last one."""

    def __post_init__(self) -> None:
        _check(self.unit, self.window)
        if self.n < 1:
            raise NclabError(f"Expected every=1 or more, got {self.n}.")

    def due(self, count: int) -> bool:
        """Whether `count` is a multiple of n."""
        return count % self.n == 0


@dataclass(frozen=True)
class Logarithmic:
    """Measurements at equal steps of the logarithm: `per_decade` from each power of 10 to the next.

    >>> [epoch for epoch in range(1, 101) if Logarithmic(per_decade=3).due(epoch)]
    [1, 2, 5, 10, 22, 46, 100]
    """

    per_decade: int = 10
    unit: Unit = "epochs"
    window: int | None = None

    def __post_init__(self) -> None:
        _check(self.unit, self.window)
        if self.per_decade < 1:
            raise NclabError(f"Expected per_decade=1 or more, got {self.per_decade}.")

    def due(self, count: int) -> bool:
        """Whether `count` is a power of 10^(1/per_decade), rounded."""
        nearest = round(self.per_decade * math.log10(count))
        powers = range(max(0, nearest - 1), nearest + 2)
        return any(round(10 ** (power / self.per_decade)) == count for power in powers)


Schedule = Every | Logarithmic
"""Rule for the epochs or steps after which the monitor measures."""


def _check(unit: str, window: int | None) -> None:
    if unit not in get_args(Unit):
        raise NclabError(f"Expected unit='epochs' or 'steps', got {unit!r}.")
    if window is not None and (window < 1 or unit == "epochs"):
        raise NclabError(
            f"Expected window=1 or more together with unit='steps', got window={window} and "
            f"unit={unit!r}."
        )


def in_window(schedule: Schedule, count: int) -> bool:
    """Whether the batches of this epoch or step enter a measurement.

    >>> [step for step in range(1, 11) if in_window(Every(5, "steps", window=2), step)]
    [4, 5, 9, 10]
    """
    if schedule.unit == "epochs":
        return schedule.due(count)
    if schedule.window is None:
        return True
    return any(schedule.due(later) for later in range(count, count + schedule.window))


def as_schedule(every: int | str | Schedule) -> Schedule:
    """Return the schedule for a number of epochs, "500 steps", "log epochs", or a schedule itself.

    >>> as_schedule("500 steps"), as_schedule(2)
    (Every(n=500, unit='steps', window=None), Every(n=2, unit='epochs', window=None))
    """
    if isinstance(every, int) and not isinstance(every, bool):
        return Every(every)
    if isinstance(every, str):
        words = re.fullmatch(r"(log|\d+) (epoch|step)s?", every.strip())
        if words:
            unit: Unit = "epochs" if words[2] == "epoch" else "steps"
            return Logarithmic(unit=unit) if words[1] == "log" else Every(int(words[1]), unit)
    elif isinstance(every, Schedule):
        return every
    raise NclabError(
        f"Expected every= a number of epochs, '500 steps', 'log epochs' or a schedule, "
        f"got {every!r}."
    )


class MonitorPreset(NamedTuple):
    """Layers and statistics that are measured on the training batches."""

    layers: str
    scatter: bool | None
    """Whether to keep the d x d scatter matrix: False never, None for d up to 4096."""


PRESETS = {
    "economy": MonitorPreset("last", False),
    "standard": MonitorPreset("last", None),
    "full": MonitorPreset("all", None),
}
"""Presets by increasing cost: a copy of the features; half a B x d x d product for each batch; this
product for each layer, and the pooling of its feature maps."""

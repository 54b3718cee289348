"""Asked: what a caller wants beyond the metrics of every measurement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import NO_EXTRAS, Extras
from nclab.measurement.intervals import GROUPS, Groups
from nclab.measurement.null import Shuffled
from nclab.metrics.catalogue import selected_extras
from nclab.statistics import ClassMoments
from nclab.statistics.checks import as_labels

if TYPE_CHECKING:
    from nclab.measurement.layer_stream import Head

FEWEST_GROUPS, MOST_GROUPS = 5, 1000


def check_min_count(min_count: Any, *, intervals: Any = False, null: bool = False) -> None:
    """Refuse a smallest size of a class that is none, or beside what sees every class."""
    if min_count is None:
        return
    if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 1:
        raise DataError(f"Expected min_count=1 or more samples a class, got {min_count!r}.")
    if intervals or null:
        what = "intervals" if intervals else "null"
        raise DataError(
            f"Expected min_count without intervals and null, got {what}={intervals or null}. "
            "Leave one of them out."
        )


class Beside(Protocol):
    """Sees every row of a stream that counts, in the same batches in both passes."""

    def add(self, rows: Tensor, classes: Tensor) -> None:
        """First pass."""

    def look(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Second pass, if there is one."""

    def attached(self, collapse: Collapse) -> Collapse:
        """The measurement with what this has found."""


@dataclass(frozen=True)
class Asked:
    """Dearer metrics, error bars, a null."""

    extras: Extras = NO_EXTRAS
    groups: int = 0
    """Of the jackknife; 0 for no intervals."""
    null: bool = False
    residuals: bool = False
    """Of the classifier's probabilities, also where there are many classes."""
    labels: Tensor | None = None
    """All labels where they are known before the first pass, to be shuffled as a whole."""

    @classmethod
    def checked(
        cls,
        metrics: str | Sequence[str],
        *,
        intervals: bool | int,
        null: bool,
        soft: bool = False,
        labels: Tensor | None = None,
    ) -> "Asked":
        """What the options of the public doors mean, or what is wrong with them."""
        if soft and (intervals or null):
            raise DataError(
                "Expected class numbers as labels for intervals and null, got soft=True. Pass "
                "labels.argmax(-1), or leave these two out."
            )
        groups = GROUPS if intervals is True else intervals
        whole = isinstance(groups, int) and FEWEST_GROUPS <= groups <= MOST_GROUPS
        if groups is not False and not whole:
            raise DataError(
                f"Expected intervals=True or from {FEWEST_GROUPS} to {MOST_GROUPS} groups, "
                f"got {intervals!r}."
            )
        if labels is not None and groups > len(labels):
            raise DataError(
                f"Expected at least as many samples as groups of intervals, got {len(labels)} for "
                f"{groups}. Pass fewer groups."
            )
        return cls(
            Extras(selected_extras(metrics)),
            int(groups),
            null,
            metrics == "all",
            labels if null else None,
        )

    def beside(
        self, moments: ClassMoments, head: "Head | None", num_classes: int | None
    ) -> list[Beside]:
        """What runs beside the stream that has just opened its moments."""
        labels, ignore = self.labels, moments.ignore_index
        if labels is not None:
            labels = as_labels(
                labels, rows=len(labels), ignore_index=ignore, num_classes=num_classes
            )
        found: list[Beside] = []
        if self.groups:
            found.append(Groups(moments, head, self.extras, count=self.groups))
        if self.null:
            found.append(Shuffled(moments, head, self.extras, labels=labels))
        return found


NOTHING_MORE = Asked()

"""Watched: a loader whose batches pass unchanged while the monitor learns their labels."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nclab.features.batches import split_watched
from nclab.measurement.model import check_loader

if TYPE_CHECKING:
    from nclab.monitor.monitor import Monitor

Item = TypeVar("Item")


class Watched(Generic[Item]):
    """Iterate once for each epoch; what is not iteration is left to the loader itself."""

    def __init__(
        self, monitor: "Monitor", loader: Iterable[Item], labels: Callable[[Item], Any] | None
    ) -> None:
        check_loader(loader)
        self._monitor = monitor
        self._loader = loader
        self._labels = labels

    def __iter__(self) -> Iterator[Item]:
        monitor = self._monitor
        monitor.epoch_begin(batches=_length(self._loader))
        for batch in self._loader:
            if monitor.watching:
                if self._labels is None:
                    parts = split_watched(batch)
                    monitor.observe(parts.labels, mask=parts.mask)
                else:
                    monitor.observe(self._labels(batch))
            yield batch
            monitor.step()
        monitor.epoch_end()

    def __len__(self) -> int:
        length = _length(self._loader)
        if length is None:
            raise TypeError(f"{type(self._loader).__name__} has no length")
        return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # an iterable data set has none
        return None

"""WatchedLoader: a loader whose batches pass unchanged while the monitor learns their labels."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor

from nclab.features.batches import split_strictly

Item = TypeVar("Item")


class WatchedLoader(Generic[Item]):
    """Iterate once for each epoch; what is not iteration is left to the loader itself."""

    def __init__(self, loader: Iterable[Item], epoch: Callable[[], Iterator[Item]]) -> None:
        self._loader = loader
        self._epoch = epoch

    def __iter__(self) -> Iterator[Item]:
        return self._epoch()

    def __len__(self) -> int:
        length = length_of(self._loader)
        if length is None:
            raise TypeError(f"{type(self._loader).__name__} has no length")
        return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def labels_of(
    batch: Any,
    find: Callable[[Any], Any] | None,
    names: tuple[str, ...] | None = None,
    *,
    tokens: bool = False,
) -> tuple[Any, Tensor | None]:
    """The labels in a batch, and the mask of real tokens; `find` for batches of another kind.

    With `tokens` a batch may have no labels: they are the tokens.
    """
    if find is not None:
        return find(batch), None
    parts = split_strictly(batch, names, tokens=tokens)
    return parts.labels, parts.mask


def length_of(loader: Any) -> int | None:
    """Batches in a loader, if it knows."""
    try:
        return len(loader)
    except TypeError:  # an iterable data set has none
        return None

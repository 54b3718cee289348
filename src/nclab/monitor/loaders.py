"""WatchedLoader: a loader whose batches pass unchanged while the monitor learns their labels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

from nclab.errors import NclabError
from nclab.features.batches import split_strictly
from nclab.records.schema import TRAIN

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

"""Loaders of a training loop: batches and labels to watch, and splits to measure exactly."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

from nclab.errors import NclabError
from nclab.features.batches import split_strictly
from nclab.records.schema import TRAIN

Item = TypeVar("Item")
Exact = str | Iterable[Any] | Mapping[str, Any] | Sequence[str] | None
"""Data that a callback measures exactly: names of the trainer's data, a loader, or several."""


class WatchedLoader(Generic[Item]):
    """A loader whose batches pass unchanged while the monitor reads their labels.

    Iterate once for each epoch. Attributes other than iteration are those of the loader.
    """

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
    function: Callable[[Any], Any] | None,
    names: tuple[str, ...] | None = None,
    *,
    tokens: bool = False,
) -> tuple[Any, Tensor | None]:
    """Return the labels in a batch, and the mask of real tokens.

    A `function` takes the labels from batches of other kinds. If `tokens` is true, the labels of a
    batch without labels are its tokens.
    """
    if function is not None:
        return function(batch), None
    parts = split_strictly(batch, names, tokens=tokens)
    return parts.labels, parts.mask


def length_of(loader: Any) -> int | None:
    """Return the number of batches in a loader; None if the loader does not know."""
    try:
        return len(loader)
    except TypeError:  # an iterable data set has no length
        return None


def as_splits(exact: Exact, known: Sequence[str]) -> dict[str, Any]:
    """Return the data by the name of their split, the training data first; empty without data.

    >>> as_splits(("val", "train"), ("train", "val"))
    {'train': 'train', 'val': 'val'}
    """
    if exact is None:
        return {}
    if isinstance(exact, Mapping):
        splits = dict(exact)
    elif isinstance(exact, str):
        splits = {exact: exact}
    elif isinstance(exact, (list, tuple)) and exact and all(isinstance(s, str) for s in exact):
        splits = {split: split for split in exact}
    else:
        splits = {TRAIN: exact}
    unknown = [data for data in splits.values() if isinstance(data, str) and data not in known]
    if unknown or not splits or not all(isinstance(split, str) and split for split in splits):
        names = ", ".join(map(repr, known))
        raise NclabError(
            f"Expected exact={names} or a loader, or several as a tuple or by name, got "
            f"{unknown[0] if unknown else exact!r}."
        )
    return dict(sorted(splits.items(), key=lambda item: item[0] != TRAIN))

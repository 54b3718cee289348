"""One experiment per file; `find` gives them by name."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from nclab.errors import NclabError


class Result(Protocol):
    """What an experiment returns."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""

    def show(self) -> list[Any]:
        """The tables a person reads, as rich renderables."""

    def figures(self) -> dict[str, Any]:
        """matplotlib figures by name; made when asked for, as they need the extra `plot`."""


class Experiment(NamedTuple):
    """An experiment by name."""

    name: str
    run: Callable[..., Result]


def find(names: Sequence[str]) -> list[Experiment]:
    """The named experiments, or all of them.

    >>> [experiment.name for experiment in find([])]
    ['tour', 'pan2023_guarantees', 'ji2022_fig2']
    """
    from nclab.experiments import ji2022_fig2, pan2023_guarantees, tour

    known = {
        "tour": Experiment("tour", tour.run),
        "pan2023_guarantees": Experiment("pan2023_guarantees", pan2023_guarantees.run),
        "ji2022_fig2": Experiment("ji2022_fig2", ji2022_fig2.run),
    }
    for name in names:
        if name not in known:
            raise NclabError(f"Expected an experiment, one of {', '.join(known)}; got {name!r}.")
    return [known[name] for name in (names or known)]

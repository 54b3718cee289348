"""One experiment per file; `find` gives them by name.

Numbers come first: `run` returns plain JSON values, and tables and pictures are made from them
alone, so that every page can be rebuilt from what is on disk.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from nclab.engine import LOCAL, Engine
from nclab.errors import NclabError
from nclab.figures.picture import Picture

NAMES = (
    "tour",
    "pan2023_guarantees",
    "pan2023_fig31",
    "pan2023_fig33",
    "pan2023_complexity",
    "pan2023_norms",
    "pan2023_conjectures",
    "ji2022_fig2",
    "ji2022_saddle",
    "ji2022_fig3",
)
"""In the order in which they run: later ones reuse the networks of earlier ones."""


class Experiment(Protocol):
    """What the module of an experiment offers."""

    @property
    def PRESETS(self) -> Mapping[str, Any]:
        """Configurations by name: quick and paper."""

    def run(
        self,
        *,
        preset: str = "quick",
        seeds: Sequence[int] = (0,),
        out: Path,
        engine: Engine = LOCAL,
    ) -> dict[str, Any]:
        """The numbers, with `config`; the networks of a training experiment are trained by the
        engine and kept below `out`."""

    def show(self, numbers: Mapping[str, Any]) -> list[Any]:
        """The tables a person reads, as rich renderables."""

    def pictures(self, numbers: Mapping[str, Any]) -> list[Picture]:
        """The figures as plain data."""


def find(names: Sequence[str]) -> dict[str, Experiment]:
    """The named experiments, or all of them, by name.

    >>> list(find(["tour", "ji2022_fig2"]))
    ['tour', 'ji2022_fig2']
    """
    for name in names:
        if name not in NAMES:
            raise NclabError(f"Expected an experiment, one of {', '.join(NAMES)}; got {name!r}.")
    return {
        name: cast(Experiment, import_module(f"nclab.experiments.{name}"))
        for name in (names or NAMES)
    }

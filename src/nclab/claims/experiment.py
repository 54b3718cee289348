"""What the module of an experiment offers.

Numbers come first: `run` returns plain JSON values; tables and pictures are made from them alone,
so that every page can be rebuilt from what is on disk, and the claims judge them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nclab.engine import LOCAL, Engine
from nclab.errors import NclabError
from nclab.figures.picture import Picture


class Experiment(Protocol):
    """A module with `PRESETS` in the folder of a paper; its name is `<paper>_<module>`, or `NAME`
    where it has one."""

    @property
    def PRESETS(self) -> Mapping[str, Any]:
        """Configurations, frozen dataclasses, by name: quick and paper."""

    def run(
        self, config: Any, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
    ) -> dict[str, Any]:
        """The numbers of a configuration; networks are trained by the engine, kept below `out`."""

    def tables(self, numbers: Mapping[str, Any]) -> list[Any]:
        """What a person reads: a `Table`, a line, or whatever rich prints."""

    def pictures(self, numbers: Mapping[str, Any]) -> list[Picture]:
        """The figures as plain data."""


def preset_of(experiment: Experiment, name: str) -> Any:
    """A configuration by name; an experiment may have more than `quick` and `paper`."""
    if name not in experiment.PRESETS:
        known = ", ".join(experiment.PRESETS)
        raise NclabError(f"Expected a preset, one of {known}; got {name!r}.")
    return experiment.PRESETS[name]

"""What a sweep would train: its fleets with their data drawn, and which networks are missing."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nclab.records import glance
from nclab.training.data.plugged import draw_samples
from nclab.training.data.samples import Samples
from nclab.training.fleet.fleet_checks import check_batches
from nclab.training.sweep.axes import Axes
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.rows import Row, differing, settings_of


@dataclass(frozen=True)
class FleetPlan:
    """The networks of one data, shape and recipe."""

    config: SweepConfig
    samples: Samples
    test: Samples | None
    runs: tuple[RunPlan, ...]
    missing: tuple[RunPlan, ...]
    """Those that have not ended in the folder."""


@dataclass(frozen=True)
class SweepPlan:
    """The fleets of a sweep, none of which has been written to."""

    fleets: tuple[FleetPlan, ...]
    out: Path

    @property
    def runs(self) -> list[RunPlan]:
        """All networks."""
        return [run for fleet in self.fleets for run in fleet.runs]

    @property
    def missing(self) -> list[RunPlan]:
        """The networks that have not ended."""
        return [run for fleet in self.fleets for run in fleet.missing]

    @property
    def settings(self) -> dict[str, Row]:
        """By the name of a run, the settings in which fleets differ: its place on every axis."""
        whole = {run.name: settings_of(run.config) for run in self.runs}
        firsts = [whole[fleet.runs[0].name] for fleet in self.fleets]
        names = differing(firsts)
        return {run: {name: one.get(name) for name in names} for run, one in whole.items()}

    @property
    def axes(self) -> dict[str, list[object]]:
        """Every setting that differs, norm, weight decay and seed included, with its values."""
        members = {run.name: dataclasses.asdict(run.member) for run in self.runs}
        rows = [{**own, **members[name]} for name, own in self.settings.items()]
        return {
            name: list({repr(row[name]): row[name] for row in rows}.values())
            for name in differing(rows)
        }


def plan_sweep(sweep: SweepConfig | Axes | Sequence[SweepConfig], out: Path) -> SweepPlan:
    """Draw the data, check every fleet and find what the folder holds already; writes nothing.

    A network that two configs have in common is planned once.
    """
    drawn: dict[str, Samples] = {}
    known: set[str] = set()
    fleets = []
    for config in configs_of(sweep):
        source = repr(config.data)
        if source not in drawn:
            drawn[source] = draw_samples(config.data)
        samples, test = config.selection.split(drawn[source])
        check_batches(len(samples), config.recipe, config.members)
        runs = tuple(run for run in config.plan(samples, test) if run.name not in known)
        known |= {run.name for run in runs}
        missing = tuple(run for run in runs if not has_ended(out / run.name))
        if runs:
            fleets.append(FleetPlan(config, samples, test, runs, missing))
    return SweepPlan(tuple(fleets), out)


def configs_of(sweep: SweepConfig | Axes | Sequence[SweepConfig]) -> Sequence[SweepConfig]:
    """One for every fleet."""
    if isinstance(sweep, SweepConfig):
        return [sweep]
    return sweep.configs if isinstance(sweep, Axes) else sweep


def has_ended(folder: Path) -> bool:
    """Whether a run is there and came to its end, good or bad."""
    return (folder / "manifest.json").exists() and glance(folder).end is not None

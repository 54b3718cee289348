"""Training of very many small networks of which only one row of numbers is kept.

An ordinary sweep keeps a folder with journal and checkpoints for every network. For networks that
train in half a second, writing these files would make a sweep 50 % longer. Here a group of
networks, some seconds of work, writes one file when all its members have ended. If the process is
killed, only unfinished groups are lost, and the same call continues with them.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine, ReportStep
from nclab.errors import DataError, NclabWarning
from nclab.files import remove_leftovers, write_whole
from nclab.training.data.samples import Samples
from nclab.training.data.selection import Split
from nclab.training.fleet import Fleet
from nclab.training.fleet.fleet import check_batches
from nclab.training.models.mlp import MLP
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.group import Group
from nclab.training.sweep.rows import Row
from nclab.training.sweep.train import deal, run_groups

FOLDER = "rows"


@dataclass(frozen=True)
class TrainedNetwork:
    """A network at the end of its training."""

    model: MLP
    """The model in evaluation mode."""
    train: Samples
    test: Samples | None
    config: SweepConfig
    weight_decay: float


MeasureRow = Callable[[TrainedNetwork], Row]
"""A top-level function that returns the numbers to keep, as plain JSON values. It raises
`DataError` if a network has no such numbers."""


def train_rows(
    configs: Sequence[SweepConfig],
    out: Path,
    measure: MeasureRow,
    *,
    workers: int | None = None,
    engine: Engine = LOCAL,
) -> list[list[Row]]:
    """Train the networks that are missing in `out/rows`; return the rows of every config.

    A row has `weight_decay` and `seed` of the member, the values of `measure`, and `why`: None, or
    the reason for missing values. Options of a config that concern measurements or checkpoints
    have no effect.
    """
    folder = (out / FOLDER).absolute()
    known = _read_rows(folder, _name(measure))
    drawn: dict[str, Split] = {}
    planned: list[list[RunPlan]] = []
    missing: list[tuple[SweepConfig, Split, list[RunPlan]]] = []
    for config in configs:
        source = repr((config.data, config.selection))
        split = drawn[source] = drawn.get(source) or config.draw()
        check_batches(len(split.train), config.recipe, config.members)
        plans = config.plan(*split)
        planned.append(plans)
        new_plans = [plan for plan in plans if plan.name not in known]
        if new_plans:
            missing.append((config, split, new_plans))
    if missing:
        slots = max(1, workers) if workers is not None else engine.slots()
        groups = [
            Group(config, dealt, split.train, folder, test=split.test)
            for config, split, new_plans in missing
            for dealt in deal(new_plans, -(-slots // len(missing)))
        ]
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, ("*.json",))
        run_groups(train_rows_group, groups, engine, workers, measure)
        known = _read_rows(folder, _name(measure))
    return [
        [
            {"weight_decay": plan.member.weight_decay, "seed": plan.member.seed, **known[plan.name]}
            for plan in plans
        ]
        for plans in planned
    ]


def train_rows_group(report: ReportStep, group: Group, measure: MeasureRow) -> None:
    """Train and measure the members of a group; write the file with their rows."""
    config = group.config
    with one_thread():
        fleet = Fleet(
            config.shape_for(group.samples),
            [plan.member for plan in group.plans],
            config.recipe,
            *group.samples,
            device=group.device,
        )
        failures = [""] * len(group.plans)
        for epoch in range(1, config.recipe.epochs + 1):
            failures = [stats.why for stats in fleet.train_epoch()]
            report(epoch * group.steps * len(group.plans), group.total)
        rows = {
            plan.name: {"why": why} if why else _measured(fleet, index, group, measure)
            for index, (plan, why) in enumerate(zip(group.plans, failures, strict=True))
        }
    content = json.dumps({"measure": _name(measure), "rows": rows}, allow_nan=False)
    names = "\n".join([_name(measure), *rows])
    file = group.out / f"{hashlib.sha256(names.encode()).hexdigest()[:16]}.json"
    write_whole(file, content.encode())


def _measured(fleet: Fleet, index: int, group: Group, measure: MeasureRow) -> Row:
    model = fleet.model(index, statistics=group.config.statistics)
    train = Samples(fleet.inputs, fleet.labels)
    weight_decay = group.plans[index].member.weight_decay
    network = TrainedNetwork(model, train, group.test, group.config, weight_decay)
    try:
        return {"why": None, **measure(network)}
    except DataError as error:  # features that overflow or vanish have no geometry
        return {"why": str(error)}


def _read_rows(folder: Path, measure: str) -> dict[str, Mapping[str, Any]]:
    """Return the rows of all files by the names of their networks; skip damaged files."""
    rows: dict[str, Mapping[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_text())
            if content["measure"] == measure:
                rows |= content["rows"]
        except (ValueError, LookupError, TypeError) as error:
            warnings.warn(
                f"{file} is skipped and its networks are trained again: {error}",
                NclabWarning,
                stacklevel=3,
            )
    return rows


def _name(measure: MeasureRow) -> str:
    return f"{measure.__module__}.{measure.__qualname__}"

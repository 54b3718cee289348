"""Trains very many small networks, of which one row of numbers stays and nothing else.

A sweep keeps a folder with journal and checkpoints for every network, which takes as long as half
of the training where that is half a second. Here the networks of a group, some seconds of work,
leave one file when all of them have ended: whoever is killed loses the groups under way, and the
same call goes on with what is missing.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine, Job
from nclab.errors import DataError, NclabWarning
from nclab.files import remove_leftovers, write_whole
from nclab.training.data.samples import Samples
from nclab.training.data.selection import Split
from nclab.training.fleet import Fleet
from nclab.training.fleet.fleet_checks import check_batches
from nclab.training.models.mlp import MLP
from nclab.training.sweep.config import RunPlan, SweepConfig
from nclab.training.sweep.group import Group, Tell
from nclab.training.sweep.rows import Row
from nclab.training.sweep.train import deal, run_groups

FOLDER = "rows"
Measured = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """A network at the end of its training."""

    model: MLP
    """In evaluation mode."""
    train: Samples
    test: Samples | None
    config: SweepConfig
    weight_decay: float


Measure = Callable[[Ended], Measured]
"""A top-level function: what stays of a network, as plain JSON values. A network whose numbers do
not exist raises a `DataError`."""


def train_lean(
    configs: Sequence[SweepConfig],
    out: Path,
    measure: Measure,
    *,
    workers: int | None = None,
    engine: Engine = LOCAL,
) -> list[list[Row]]:
    """Train what `out/rows` does not have; for every config the rows of its members, in order.

    A row has the member's `weight_decay` and `seed`, `why` there are no numbers or None, and what
    `measure` gave. Moments, layers and checkpoints of a config are not looked at.

    >>> import tempfile
    >>> from nclab.training.data.teacher import Teacher
    >>> from nclab.training.models.mlp import Shape
    >>> from nclab.training.fleet import Recipe
    >>> config = SweepConfig(
    ...     data=Teacher(samples=200, width=20), shape=Shape(layers=3, width=16), norms=("affine",),
    ...     weight_decays=(1e-3, 1e-2), recipe=Recipe(epochs=3, batch=50),
    ... )
    >>> rows = train_lean([config], Path(tempfile.mkdtemp()), trained_on, workers=0)
    >>> rows[0][1]
    {'weight_decay': 0.01, 'seed': 0, 'why': None, 'samples': 200}
    """
    folder = (out / FOLDER).absolute()
    known = _read(folder, _name(measure))
    drawn: dict[str, Split] = {}
    planned: list[list[RunPlan]] = []
    missing: list[tuple[SweepConfig, Split, list[RunPlan]]] = []
    for config in configs:
        source = repr((config.data, config.selection))
        split = drawn[source] = drawn.get(source) or config.draw()
        check_batches(len(split.train), config.recipe, config.members)
        plans = config.plan(*split)
        planned.append(plans)
        own = [plan for plan in plans if plan.name not in known]
        if own:
            missing.append((config, split, own))
    if missing:
        slots = max(1, workers) if workers is not None else engine.slots()
        hands = -(-slots // len(missing))
        groups = [
            Group(config, hand, split.train, folder, test=split.test)
            for config, split, own in missing
            for hand in deal(own, hands)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, ("*.json",))
        jobs = [
            Job(f"group {n} of {len(groups)}", _job, (group, measure))
            for n, group in enumerate(groups, start=1)
        ]
        run_groups(jobs, groups, engine, workers)
        known = _read(folder, _name(measure))
    return [[_row(plan, known[plan.name]) for plan in plans] for plans in planned]


def trained_on(ended: Ended) -> Measured:
    """The simplest measure: how many samples there were."""
    return {"samples": len(ended.train)}


def train_lean_group(group: Group, measure: Measure, tell: Tell = lambda steps: None) -> Path:
    """Train and measure the members of a group; the file that holds their rows."""
    config = group.config
    with one_thread():
        fleet = Fleet(
            config.shape_for(group.samples),
            [plan.member for plan in group.plans],
            config.recipe,
            *group.samples,
            device=group.device,
        )
        whys = [""] * len(group.plans)
        for _ in range(config.recipe.epochs):
            whys = [stats.why for stats in fleet.train_epoch()]
            tell(group.steps * len(group.plans))
        rows = {
            plan.name: {"why": why} if why else _measured(fleet, index, plan, group, measure)
            for index, (plan, why) in enumerate(zip(group.plans, whys, strict=True))
        }
    content = json.dumps({"measure": _name(measure), "rows": rows}, allow_nan=False)
    names = "\n".join([_name(measure), *rows])
    file = group.out / f"{hashlib.sha256(names.encode()).hexdigest()[:16]}.json"
    write_whole(file, content.encode())
    return file


def _measured(
    fleet: Fleet, index: int, plan: RunPlan, group: Group, measure: Measure
) -> Mapping[str, Any]:
    model = fleet.model(index, statistics=group.config.statistics)
    train = Samples(fleet.inputs, fleet.labels)
    ended = Ended(model, train, group.test, group.config, plan.member.weight_decay)
    try:
        return {"why": None, **measure(ended)}
    except DataError as error:  # features that overflow or vanish have no geometry
        return {"why": str(error)}


def _job(report: Any, group: Group, measure: Measure) -> None:
    done = 0

    def tell(steps: int) -> None:
        nonlocal done
        done += steps
        report(done, group.total)

    train_lean_group(group, measure, tell)


def _read(folder: Path, measure: str) -> dict[str, Mapping[str, Any]]:
    """The rows of all files, by the names of their networks."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            content = json.loads(file.read_text())
            if content["measure"] == measure:
                found |= content["rows"]
        except (ValueError, LookupError, TypeError) as error:
            words = f"{file} is left out, its networks are trained again: {error}"
            warnings.warn(words, NclabWarning, stacklevel=3)
    return found


def _row(plan: RunPlan, measured: Mapping[str, Any]) -> Row:
    member = plan.member
    return {"weight_decay": member.weight_decay, "seed": member.seed, **measured}


def _name(measure: Measure) -> str:
    return f"{measure.__module__}.{measure.__qualname__}"

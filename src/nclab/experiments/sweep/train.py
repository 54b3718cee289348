"""Trains a sweep: what is missing on disk, in groups, one process for each."""

from collections.abc import Sequence
from pathlib import Path

from nclab.experiments.sweep.config import RunPlan, SweepConfig
from nclab.experiments.sweep.group import Group, train_group
from nclab.experiments.sweep.rows import Row, rows_of
from nclab.records import glance
from nclab.training.checks import check_batches


def train_sweep(
    config: SweepConfig, out: Path, *, workers: int | None = None, device: str = "cpu"
) -> list[Row]:
    """Train every member of a sweep and give a row for each, in the order of `config.members`.

    Every member has a folder `out/<name>`. Ended runs are reused and stopped ones go on; the
    numbers do not depend on either, nor on `workers`.

    >>> import tempfile
    >>> from nclab.data.teacher import Teacher
    >>> from nclab.models.mlp import Shape
    >>> from nclab.training import Recipe
    >>> config = SweepConfig(
    ...     data=Teacher(samples=200, width=20), shape=Shape(layers=3, width=16), norms=("affine",),
    ...     weight_decays=(1e-3,), recipe=Recipe(epochs=3, batch=50),
    ... )
    >>> [row] = train_sweep(config, Path(tempfile.mkdtemp()), workers=1)
    >>> row["norm"], row["weight_decay"], row["seed"], row["converged"]
    ('affine', 0.001, 0, False)
    """
    samples = config.data.draw()
    check_batches(len(samples), config.recipe, config.members)
    plans = config.plan(samples)
    missing = [plan for plan in plans if not has_ended(out / plan.name)]
    groups = deal(missing, workers or 1)
    for group in groups:
        train_group(Group(config, group, samples, out, device))
    return rows_of(out, [plan.name for plan in plans], threshold=config.converged)


def has_ended(folder: Path) -> bool:
    """Whether a run is there and came to its end, good or bad."""
    return (folder / "manifest.json").exists() and glance(folder).end is not None


def deal(plans: Sequence[RunPlan], hands: int) -> list[tuple[RunPlan, ...]]:
    """Groups of equal cost: the members differ little, and neighbours least.

    >>> config = SweepConfig(weight_decays=(1e-3, 1e-2), norms=("affine", "none"))
    >>> [len(hand) for hand in deal(config.plan(config.data.draw()), 3)]
    [2, 1, 1]
    """
    dealt = [tuple(plans[start::hands]) for start in range(hands)]
    return [hand for hand in dealt if hand]

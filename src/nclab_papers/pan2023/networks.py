"""Trained networks of chapter 3: their sizes, their results, and lines that several figures show.

Several experiments use the same networks; each network is trained once. Comparisons leave out
networks that did not converge, as the thesis does.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from nclab.claims.claim import Finding, Numbers
from nclab.claims.evidence import RecordedNetworks
from nclab.claims.judging import with_readings
from nclab.claims.pictures import SEED_CAPTION, Line, failure_crosses, line_panel
from nclab.claims.tables import Column, Row
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import BLACK, Panel, Series
from nclab.records import read_run
from nclab.records.schema import MEASUREMENT, layers_of
from nclab.text import counted
from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Norm, Shape
from nclab.training.sweep import SweepConfig
from nclab.training.sweep.plan import plan_sweep
from nclab.training.sweep.rows import rows_of
from nclab.training.sweep.train import train_plan

Data = Literal["teacher", "conic"]
BySeed = dict[int, float]

DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
"""Weight decays of the thesis's networks with 6 layers."""
DEEP_DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 5e-3, 1e-2)
"""Weight decays of the thesis's networks with 15 layers."""
COSINE_MARGIN = 0.01
"""Smallest difference of cosines that is of interest: one hundredth of the thesis's axes."""


@dataclass(frozen=True)
class Networks:
    """Settings that all networks of an experiment share; the defaults are the thesis's.

    Source: pan2023, Sec. 3.1.1
    """

    inputs: int = 16
    """Dimension of the samples. The thesis does not state it; the author's published code does."""
    classes: int = 4
    """Number of classes, from the author's published code."""
    samples: int = 10_000
    width: int = 300
    """Width of the hidden layers, from the author's published code."""
    epochs: int = 300
    batch: int = 128
    moments: int = 6
    """Approximate number of measured epochs, including the last."""
    workers: int | None = None
    """Number of processes; by default one per core, 0 trains in this process. The numbers do not
    depend on it."""

    def sweeps(
        self,
        *,
        seeds: Sequence[int],
        layers: int,
        norms: tuple[Norm, ...] = ("affine",),
        weight_decays: tuple[float, ...] = DECAYS,
        data: Data = "teacher",
        teacher_depth: int = 3,
    ) -> list[SweepConfig]:
        """Return one sweep per seed; a seed fixes data, initial weights and order of batches."""
        shape = Shape(inputs=self.inputs, classes=self.classes, layers=layers, width=self.width)
        source: Callable[..., Teacher | ConicHull] = ConicHull
        if data == "teacher":
            source = partial(Teacher, depth=teacher_depth)
        return [
            SweepConfig(
                data=source(
                    inputs=self.inputs, classes=self.classes, samples=self.samples, seed=seed
                ),
                shape=shape,
                norms=norms,
                weight_decays=weight_decays,
                seeds=(seed,),
                recipe=Recipe(epochs=self.epochs, batch=self.batch),
                moments=self.moments,
                layers="all",
            )
            for seed in seeds
        ]

    def train(
        self, out: Path, sweeps: Sequence[SweepConfig], *, engine: Engine = LOCAL
    ) -> list[list[dict[str, Any]]]:
        """Train the networks that `out/fleet` lacks; return for every sweep one row per network.

        All sweeps are trained together, so no core waits for the last network of a sweep.
        """
        plan = plan_sweep(sweeps, out / RECORDED.folder)
        train_plan(plan, workers=self.workers, engine=engine)
        return [
            rows_of(plan.out, [run.name for run in fleet.runs], threshold=fleet.config.converged)
            for fleet in plan.fleets
        ]

    def rows(
        self, out: Path, *, seeds: Sequence[int], engine: Engine, **settings: Any
    ) -> list[dict[str, Any]]:
        """Train the networks that `out/fleet` lacks; return one row per network.

        Args:
            settings: further arguments of `sweeps`.
        """
        trained = self.train(out, self.sweeps(seeds=seeds, **settings), engine=engine)
        return [row for members in trained for row in members]


QUICK = Networks(samples=2448, width=75, epochs=150, moments=10)
"""Smaller networks: about a quarter of the width and samples of the thesis, and half of its epochs.
With this number of samples, batches have the sizes of the thesis: 128, and 16 at the end of an
epoch. These sizes determine the noise in the running averages of batch norm."""
PAPER = Networks()
"""The thesis's networks."""
RECORDED = RecordedNetworks("fleet", ("min_intra", "max_inter", "nc4_ncc_accuracy"))
"""Folder of the runs, and the metrics that the experiments need for every layer. Other metrics are
needed only for the last layer, and are taken from the record of the end of a run."""


def last_layers(out: Path, row: Row) -> list[dict[str, Any]]:
    """Return the metrics of every layer in the last measurement of a run; empty if it has none."""
    return list(layers_of(read_run(out / RECORDED.folder / row["run"]).last(MEASUREMENT)))


def describe_config(config: Any, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of an experiment on these networks, with seeds, as plain values."""
    return {**asdict(config.networks), **asdict(config), "seeds": list(seeds)}


def degree(row: Row) -> float:
    """Return the degree of collapse: smallest intra-class minus largest inter-class cosine.

    >>> round(degree({"min_intra": 0.95, "max_inter": -0.3}), 12)
    1.25
    """
    return float(row["min_intra"]) - float(row["max_inter"])


def centred(numbers: Numbers) -> Numbers:
    """Return results with the cosines of centred features; rows without them are left out.

    The thesis does not centre features, so centred ones are another reading of its claims.
    """
    names = {"min_intra": "centred_min_intra", "max_inter": "centred_max_inter"}
    rows = [
        {**row, **{name: row[other] for name, other in names.items()}}
        for row in numbers["rows"]
        if all(row.get(other) is not None for other in names.values())
    ]
    return {**numbers, "rows": rows}


def with_centred(
    judge: Callable[[Numbers], Finding],
    numbers: Numbers,
    others: Mapping[str, Finding] = MappingProxyType({}),
) -> Finding:
    """Judge results; add the readings `others` and, if recorded, one with centred features."""
    recorded = centred(numbers)
    readings = {"features are centred": judge(recorded)} if recorded["rows"] else {}
    return with_readings(judge(numbers), {**readings, **others})


def degree_or_none(row: Row) -> float | None:
    """Return the degree of collapse; None if a cosine of the network is undefined."""
    return None if row["min_intra"] is None or row["max_inter"] is None else degree(row)


def seeds_of(rows: Iterable[Row]) -> list[int]:
    """Return the seeds of the rows in ascending order."""
    return sorted({int(row["seed"]) for row in rows})


def select(rows: Iterable[Row], **match: Any) -> list[Row]:
    """Return the converged rows with the given values of fields, sorted by weight decay."""
    selected = [
        row
        for row in rows
        if row["converged"] and all(row[name] == value for name, value in match.items())
    ]
    return sorted(selected, key=lambda row: float(row["weight_decay"]))


def by_seed(rows: Iterable[Row], value: Callable[[Row], float], **match: Any) -> BySeed:
    """Return a value of the selected rows by seed.

    >>> rows = [{"seed": 0, "norm": "none", "v": 1.0, "weight_decay": 0.1, "converged": True}]
    >>> by_seed(rows, lambda row: row["v"], norm="none"), by_seed(rows, degree, norm="affine")
    ({0: 1.0}, {})
    """
    return {int(row["seed"]): value(row) for row in select(rows, **match)}


def paired_differences(larger: Mapping[int, float], smaller: Mapping[int, float]) -> BySeed:
    """Return the differences for the seeds that have both values.

    >>> paired_differences({0: 3.0, 1: 4.0}, {1: 1.0})
    {1: 3.0}
    """
    return {seed: larger[seed] - smaller[seed] for seed in larger if seed in smaller}


def decade_slopes(rows: Sequence[Row], value: Callable[[Row], float], **match: Any) -> BySeed:
    """Return by seed the least-squares slope of a value per decade of weight decay.

    >>> rows = [{"seed": 0, "weight_decay": decay, "v": v, "converged": True}
    ...         for decay, v in ((1e-4, 0.2), (1e-2, 0.6))]
    >>> {seed: round(slope, 6) for seed, slope in decade_slopes(rows, lambda row: row["v"]).items()}
    {0: 0.2}
    """
    slopes = {}
    for seed in seeds_of(rows):
        selected = select(rows, seed=seed, **match)
        if len(selected) > 1:
            decades = [math.log10(row["weight_decay"]) for row in selected]
            slope = np.polyfit(decades, [value(row) for row in selected], 1)[0]
            slopes[seed] = float(slope)
    return slopes


def note_skipped(finding: Finding, skipped: int) -> Finding:
    """Add the number of converged networks with undefined metrics to the evidence."""
    if not skipped:
        return finding
    evidence = (
        f"{finding.evidence}; left out because a metric of a layer is undefined: "
        f"{counted(skipped, 'converged network')}"
    )
    return replace(finding, evidence=evidence, numbers={**finding.numbers, "skipped": skipped})


INTRA_COLOUR, INTER_COLOUR, ACCURACY_COLOUR = 0, 4, 2
"""Palette indices of blue, yellow and green, the colours of the thesis's pictures of layers."""
NORM_NAMES = {"affine": "BN with affine", "plain": "BN without affine", "none": "no BN"}
COSINE_RANGE = (-0.45, 1.05)
DECAY_AXIS: dict[str, Any] = {
    "x": "weight_decay",
    "x_label": "weight decay",
    "x_scale": "log",
    "x_ticks": (1e-4, 1e-3, 1e-2),
}
"""Fields of a panel whose horizontal axis is the weight decay."""
COSINE_LINES = (
    Line("min intra", "min_intra", colour=INTRA_COLOUR),
    Line("max inter", "max_inter", colour=INTER_COLOUR),
)
DECAY_COLUMN = Column("weight decay", "weight_decay", "g")
COSINE_COLUMNS = (
    Column("min intra", "min_intra"),
    Column("max inter", "max_inter"),
    Column("difference", degree_or_none),
)
ACCURACY_COLUMN = Column("accuracy", "accuracy", ".4f")


def simplex_line(num_classes: int, x: Iterable[float]) -> Series:
    """Return the inter-class cosine of a simplex ETF as a horizontal line over the given range."""
    values = list(x)
    height = -1 / (num_classes - 1)
    ends = [min(values), max(values)]
    return Series("simplex ETF, −1/(C−1)", ends, [height] * 2, colour=BLACK, style="dotted")


def cosine_panel(title: str, rows: Sequence[Row], classes: int, *, x: str, **axis: Any) -> Panel:
    """Return the cosines of the last layer against a setting, with crosses for failed networks.

    Args:
        x: field of the setting.
        axis: further fields of the panel.
    """
    simplex = simplex_line(classes, [float(row[x]) for row in rows])
    crosses = failure_crosses(rows, x, COSINE_LINES)
    more = [simplex, *crosses]
    shown = [row for row in rows if row["converged"]]
    return line_panel(title, shown, x, COSINE_LINES, more=more, y_range=COSINE_RANGE, **axis)


def line_caption(rows: Iterable[Row]) -> str:
    """Return a caption that says what the lines show, and which networks did not converge.

    >>> row = {"norm": "none", "weight_decay": 0.01, "seed": 0, "converged": False}
    >>> line_caption([row]).removeprefix(SEED_CAPTION)
    ' Not converged and left out of the lines: no BN at 0.01 (1 seed).'
    """
    counts = Counter(
        (NORM_NAMES[row["norm"]], float(row["weight_decay"]))
        for row in rows
        if not row["converged"]
    )
    parts = [
        f"{norm} at {decay:g} ({counted(count, 'seed')})"
        for (norm, decay), count in sorted(counts.items())
    ]
    failures = f" Not converged and left out of the lines: {', '.join(parts)}." if parts else ""
    return SEED_CAPTION + failures

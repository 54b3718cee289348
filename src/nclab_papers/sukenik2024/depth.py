"""Deep unconstrained models: the rank that descent finds, by depth, width, start and weight decay.

Claim: gradient descent on deep unconstrained models finds solutions of lower rank than collapse.
Source: sukenik2024, Sec. Abstract

The model is the source's own: free features and several linear maps, with ReLU between them or
without, one sample a class.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from nclab.claims.claim import Finding, Numbers, claim
from nclab.claims.claim import Kind as ClaimKind
from nclab.claims.judging import Part, judge_choices, judge_effects
from nclab.claims.paper import run_in_one_step, run_jobs
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine, Job
from nclab.figures.picture import Panel, Picture
from nclab.files import write_whole
from nclab.theory.targets.deep_linear import shape_value, shapes
from nclab.theory.targets.setting import check_setting
from nclab_papers.shared.rows import (
    as_columns,
    as_rows,
    averaged,
    by_cell,
    counts,
    differences,
    having,
    plain,
    signed,
)
from nclab_papers.shared.study import band
from nclab_papers.sukenik2024.descent import REST, DeepLoss, Kind, Model, descend

BELOW = 1e-6
"""An objective is below another if it is so by more than this share."""
DEEP = 4
"""Maps from which on rank is judged, and one more than from which on the orthoplex is."""


@dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    layers: tuple[int, ...] = (2, 3, 4, 5, 6)
    """Linear maps."""
    classes: tuple[int, ...] = (6, 10)
    weight_decays: tuple[float, ...] = (5e-4, 1e-3, 2e-3)
    widths: tuple[int, ...] = (1, 2, 8)
    """In units of the number of classes."""
    starts: tuple[float, ...] = (0.1, 1.0)
    """Standard deviation of the first factors, times the root of the width."""
    steps: int = 5000
    """At most, with momentum 0.9."""
    workers: int | None = None
    """Processes, one a core by default; 0 descends in this one."""


PRESETS = {
    "quick": Config(
        layers=(3, 4),
        classes=(6,),
        weight_decays=(1e-3,),
        widths=(1, 8),
        starts=(1.0,),
        steps=400,
        workers=0,
    ),
    "paper": Config(),
}
"""paper: 5,760 runs with 8 seeds; quick: two depths and widths, one number of classes, one
weight decay and one start, fewer steps, for the cost."""


@dataclass(frozen=True)
class Cell:
    """Runs that differ in seed, start and weight decay: one batch."""

    model: Model
    seeds: tuple[int, ...]
    starts: tuple[float, ...]
    weight_decays: tuple[float, ...]
    steps: int

    @property
    def name(self) -> str:
        """Unique by a hash of everything."""
        content = json.dumps(asdict(self), sort_keys=True)
        return f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"


def descend_cell(cell: Cell) -> list[Row]:
    """A row for every run of a cell."""
    runs = [
        (seed, start, decay)
        for seed in cell.seeds
        for start in cell.starts
        for decay in cell.weight_decays
    ]
    drawn = {seed: cell.model.start(seed) for seed in cell.seeds}
    with one_thread():
        found = descend(
            cell.model,
            [[start * part for part in drawn[seed]] for seed, start, _ in runs],
            [decay for _, _, decay in runs],
            cell.steps,
        )
        etf = {decay: etf_value(cell.model, decay) for decay in cell.weight_decays}
    model = cell.model
    return [
        {
            "kind": model.kind,
            "loss": model.loss,
            "classes": model.classes,
            "width": model.width // model.classes,
            "layers": model.layers,
            "weight_decay": decay,
            "start": start,
            "seed": seed,
            "accuracy": round(rest.accuracy, 6),
            "rank": rest.rank,
            "objective": float(f"{rest.value:.9g}"),
            "etf": None if etf[decay] is None else float(f"{etf[decay]:.9g}"),
            "steps": rest.steps,
            "gradient": float(f"{rest.gradient:.2g}"),
        }
        for (seed, start, decay), rest in zip(runs, found, strict=True)
    ]


def etf_value(model: Model, decay: float) -> float | None:
    """The objective of the best simplex ETF of linear maps; None where it is not compared.

    >>> round(etf_value(Model("linear", "cross_entropy", 6, 6, 2), 0.001), 8)
    0.03149014
    """
    if model.kind != "linear" or model.loss != "cross_entropy":
        return None
    setting = check_setting(
        model.classes, None, loss=model.loss, weight_decay=(decay, decay), depth=model.layers
    )
    return shape_value(setting, shapes(model.classes)[0], decay)[1]


def cells(config: Config, seeds: Sequence[int]) -> list[Cell]:
    """All batches, the largest first, so that cores end together."""
    found = [
        Cell(
            Model(kind, loss, classes, width * classes, layers),
            tuple(seeds),
            config.starts,
            config.weight_decays,
            config.steps,
        )
        for kind in get_args(Kind)
        for loss in get_args(DeepLoss)
        for classes in config.classes
        for width in config.widths
        for layers in config.layers
    ]
    return sorted(found, key=lambda one: -(one.model.width**2) * one.model.layers)


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Descend in the cells that are not below `out` yet; a row for every run, as columns."""
    folder = (out / "depth").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = cells(config, seeds)
    missing = [cell for cell in wanted if not (folder / cell.name).exists()]
    if missing:
        _descend(missing, folder, engine, config.workers)
    rows = [row for cell in wanted for row in json.loads((folder / cell.name).read_text())]
    return {
        "config": {**asdict(config), "seeds": list(seeds)},
        "seeds": list(seeds),
        "size": f"{len(rows):,} runs; C = {', '.join(map(str, config.classes))}, "
        f"up to {max(config.layers)} maps and {config.steps:,} steps",
        "networks": as_columns(rows),
    }


def _descend(missing: Sequence[Cell], folder: Path, engine: Engine, workers: int | None) -> None:
    jobs = [
        Job(
            f"batch {n} of {len(missing)}", run_in_one_step, (_write_cell, cell, folder / cell.name)
        )
        for n, cell in enumerate(missing, start=1)
    ]
    run_jobs(jobs, "descending", engine=engine, folder=folder, workers=workers)


def _write_cell(cell: Cell, file: Path) -> None:
    write_whole(file, json.dumps(descend_cell(cell), allow_nan=False).encode())


def below_etf(row: Row) -> float:
    """1 for a run that ended below the objective of the simplex ETF, else 0."""
    return float(float(row["objective"]) < float(row["etf"]) * (1 - BELOW))


def low_rank(row: Row) -> float:
    """1 for a run whose rank is below that of every collapse, else 0.

    Before its ReLU a simplex, of rank C − 1, is collapse, too: its features are orthogonal.
    """
    return float(int(row["rank"]) < int(row["classes"]) - 1)


def tables(numbers: Numbers) -> list[Table]:
    """How many runs count, their ranks, and how many have low rank or end below the ETF."""
    rows = as_rows(numbers)
    shown = []
    for kind, loss in ((kind, loss) for kind in get_args(Kind) for loss in get_args(DeepLoss)):
        for layers in numbers["config"]["layers"]:
            for width in numbers["config"]["widths"]:
                own = having(rows, kind=kind, loss=loss, layers=layers, width=width)
                good = [row for row in own if counts(row)]
                below = [row for row in good if row["etf"] is not None]
                shown.append(
                    (
                        f"{NAMES[kind]}, {NAMES[loss]}",
                        str(layers),
                        f"{width} C",
                        f"{len(good)} of {len(own)}",
                        mean_and_deviation((row["rank"] / row["classes"] for row in good), ".2f"),
                        _share([low_rank(row) for row in good]),
                        _share([below_etf(row) for row in below]),
                    )
                )
    columns = ("model", "maps", "width", "count", "rank / C", "rank below C − 1", "below the ETF")
    title = "Where descent ends; a run counts if it classifies every class correctly"
    return [Table(title, columns, shown)]


NAMES: Mapping[str, str] = {
    "linear": "linear",
    "relu": "ReLU",
    "mse": "squared error",
    "cross_entropy": "cross-entropy",
}


def _share(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" if values else "–"


def pictures(numbers: Numbers) -> list[Picture]:
    """Rank over classes against depth, a panel for each model."""
    rows = as_rows(numbers)
    panels = tuple(
        Panel(
            f"{NAMES[kind]}, {NAMES[loss]}",
            "linear maps",
            "rank of the last hidden layer / C",
            tuple(
                band(
                    having(rows, kind=kind, loss=loss, width=width),
                    _rank_share,
                    "layers",
                    CELL,
                    f"width {width} C",
                    place,
                )
                for place, width in enumerate(numbers["config"]["widths"])
            ),
        )
        for kind in get_args(Kind)
        for loss in get_args(DeepLoss)
    )
    if not any(line.x for panel in panels for line in panel.series):
        return []
    return [
        Picture(
            "sukenik2024_depth",
            "Rank that descent finds in deep unconstrained models",
            panels,
            2,
            "Means over the runs that classify every class correctly, over all starts and weight "
            "decays; bands reach from the smallest to the largest mean of a seed. Collapse has "
            "rank 1 in these units, or (C − 1)/C.",
        )
    ]


def _rank_share(row: Row) -> float:
    return int(row["rank"]) / int(row["classes"])


CELL = ("kind", "loss", "classes", "layers", "weight_decay", "start", "width")
claimed = partial(claim, needs="sukenik2024_depth", figure="sukenik2024_depth")


def deep(numbers: Numbers, least: int, **match: Any) -> list[Row]:
    """The runs with at least so many maps."""
    layers = tuple(one for one in numbers["config"]["layers"] if one >= least)
    return having(as_rows(numbers), layers=layers, **match)


def beyond_half(what: str, rows: Sequence[Row], happened: Any) -> Part:
    """By seed, the share of runs in which something happens, minus one half."""
    cells = by_cell(rows, happened, *CELL)
    shares = signed(averaged(cells), 1, -0.5)
    return Part(f"share {what}, − ½", shares, trials=len(cells), share_range=(-0.5, 0.5))


@claimed(
    "sukenik2024/descent-finds-low-rank",
    ClaimKind.RESULT,
    "Gradient descent on models of four and more maps with ReLU finds solutions of lower rank than "
    "collapse.",
    "sukenik2024, Sec. Abstract “the emergence of the low-rank structure in the solution found”",
    code="nclab_papers.sukenik2024.depth.low_rank",
)
def descent_finds_low_rank(numbers: Numbers) -> Finding:
    """In more than half of the runs the last hidden rank is below C − 1.

    What we have read of the source states neither loss nor width, on which it depends: both are
    choices, of which every one must say so.
    """
    rows = deep(numbers, DEEP, kind="relu")
    choices = {
        f"{NAMES[loss]}, width {width} C": [
            beyond_half("of rank below C − 1", having(rows, loss=loss, width=width), low_rank)
        ]
        for loss in get_args(DeepLoss)
        for width in numbers["config"]["widths"]
    }
    return _with_counts(judge_choices(choices, margin=0.0), rows)


def _with_counts(found: Finding, rows: Sequence[Row]) -> Finding:
    """What is said of the runs that count, with how many these are and how many rest at the end."""
    good = [row for row in rows if counts(row)]
    rest = sum(float(row["gradient"]) <= REST for row in good)
    evidence = f"{found.evidence}; {len(good)} of {len(rows)} runs count, {rest} of them at rest"
    return Finding(found.verdict, evidence, found.numbers)


@claimed(
    "findings/depth-width",
    ClaimKind.RESULT,
    "Width favours collapse: in models of four and more maps with ReLU the rank is higher at width "
    "8 C than at width C.",
    "sukenik2024, Sec. Abstract “a low-rank bias of multi-layer regularization schemes”",
    code="nclab_papers.shared.rows.differences",
)
def width_favours_collapse(numbers: Numbers) -> Finding:
    """Rank at the largest width − at the smallest."""
    widths = sorted(numbers["config"]["widths"])
    keys = tuple(key for key in CELL if key != "width")
    wide, narrow = (
        by_cell(deep(numbers, DEEP, kind="relu", width=width), plain("rank"), *keys)
        for width in (widths[-1], widths[0])
    )
    part = Part(f"rank at width {widths[-1]} C − at {widths[0]} C", differences(wide, narrow))
    rows = deep(numbers, DEEP, kind="relu", width=(widths[0], widths[-1]))
    return _with_counts(judge_effects([part], margin=0.5), rows)


@claimed(
    "findings/depth-orthoplex",
    ClaimKind.RESULT,
    "With three and more linear maps and cross-entropy, descent ends below the objective of the "
    "simplex ETF.",
    "sukenik2024, Sec. Abstract “optimal solutions of even lower rank than the neural collapse”",
    code="nclab_papers.sukenik2024.depth.below_etf",
)
def below_the_etf(numbers: Numbers) -> Finding:
    """In more than half of the runs."""
    rows = deep(numbers, DEEP - 1, kind="linear", loss="cross_entropy")
    return judge_effects([beyond_half("below the ETF", rows, below_etf)], margin=0.0)

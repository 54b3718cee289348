"""The rank that descent finds in deep unconstrained models, by depth, width and weight decay.

Claim: gradient descent on deep unconstrained models finds solutions of lower rank than collapse.
Source: sukenik2024, Sec. Abstract

The model is the paper's: free features and several linear maps, with or without ReLU between them,
and one sample per class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from nclab.claims.claim import Finding, Numbers
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects, judge_settings
from nclab.claims.paper import run_in_one_step, run_jobs
from nclab.claims.tables import Column, Row, Table
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine, Job
from nclab.figures.picture import Picture
from nclab.theory.targets.deep_heads import shape_value, shapes
from nclab.theory.targets.setting import check_setting
from nclab_papers.shared import study
from nclab_papers.sukenik2024.descent import CONVERGED, DeepLoss, Kind, Model, descend

NAMES: Mapping[str, str] = {
    "linear": "linear",
    "relu": "ReLU",
    "mse": "squared error",
    "cross_entropy": "cross-entropy",
}
"""Names of models and losses in tables and pictures."""
MODELS = {
    (kind, loss): f"{NAMES[kind]}, {NAMES[loss]}"
    for kind, loss in product(get_args(Kind), get_args(DeepLoss))
}
BELOW = 1e-6
"""An objective counts as below that of the simplex ETF if it is smaller by this relative amount."""
DEEP = 4
"""Smallest number of linear maps in the claims on rank. The claim on the ETF also includes models
with DEEP - 1 maps."""


@dataclass(frozen=True)
class Config:
    """Depths, widths, starts and weight decays of the study."""

    layers: tuple[int, ...] = (2, 3, 4, 5, 6)
    """Numbers of linear maps."""
    classes: tuple[int, ...] = (6, 10)
    weight_decays: tuple[float, ...] = (5e-4, 1e-3, 2e-3)
    widths: tuple[int, ...] = (1, 2, 8)
    """Widths, divided by the number of classes."""
    starts: tuple[float, ...] = (0.1, 1.0)
    """Standard deviations of all entries at the start, times the square root of the width."""
    steps: int = 5000
    """Largest number of steps of a run."""
    workers: int | None = None
    """Number of processes, by default one per core; 0 uses the current process."""


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
"""Configurations. "paper" has 5,760 runs with 8 seeds. "quick" has two depths, two widths, one
number of classes, one weight decay, one start and fewer steps."""


@dataclass(frozen=True)
class Batch:
    """Runs that differ only in seed, start and weight decay."""

    model: Model
    seeds: tuple[int, ...]
    starts: tuple[float, ...]
    weight_decays: tuple[float, ...]
    steps: int


def descend_batch(batch: Batch) -> list[Row]:
    """Run descent for a batch, and return a row for every run."""
    runs = list(product(batch.seeds, batch.starts, batch.weight_decays))
    starts = {seed: batch.model.start(seed) for seed in batch.seeds}
    with one_thread():
        ends = descend(
            batch.model,
            [[start * part for part in starts[seed]] for seed, start, _ in runs],
            [decay for _, _, decay in runs],
            batch.steps,
        )
        etf = {decay: etf_value(batch.model, decay) for decay in batch.weight_decays}
    model = batch.model
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
            "accuracy": round(end.accuracy, 6),
            "rank": end.rank,
            "objective": float(f"{end.value:.9g}"),
            "etf": None if etf[decay] is None else float(f"{etf[decay]:.9g}"),
            "steps": end.steps,
            "gradient": float(f"{end.gradient:.2g}"),
        }
        for (seed, start, decay), end in zip(runs, ends, strict=True)
    ]


def etf_value(model: Model, decay: float) -> float | None:
    """Return the objective of the best simplex ETF in a model of linear maps with cross-entropy.

    Return None for other models.

    >>> round(etf_value(Model("linear", "cross_entropy", 6, 6, 2), 0.001), 8)
    0.03149014
    """
    if model.kind != "linear" or model.loss != "cross_entropy":
        return None
    setting = check_setting(
        model.classes, None, loss=model.loss, weight_decay=(decay, decay), depth=model.layers
    )
    return shape_value(setting, shapes(model.classes)[0], decay)[1]


def batches(config: Config, seeds: Sequence[int]) -> list[Batch]:
    """Return all batches, the most expensive first, so that all cores finish at similar times."""
    unsorted = [
        Batch(
            Model(kind, loss, classes, width * classes, layers),
            tuple(seeds),
            config.starts,
            config.weight_decays,
            config.steps,
        )
        for kind, loss, classes, width, layers in product(
            get_args(Kind), get_args(DeepLoss), config.classes, config.widths, config.layers
        )
    ]
    return sorted(unsorted, key=lambda batch: -(batch.model.width**2) * batch.model.layers)


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run all batches, and return a row for every run."""
    planned = batches(config, seeds)
    jobs = [
        Job(f"batch {n} of {len(planned)}", run_in_one_step, (descend_batch, batch))
        for n, batch in enumerate(planned, start=1)
    ]
    results = run_jobs(jobs, "descending", engine=engine, workers=config.workers)
    rows = [row for batch_rows in results for row in batch_rows]
    return {
        "config": {**asdict(config), "seeds": list(seeds)},
        "seeds": list(seeds),
        "size": f"{len(rows):,} runs; C = {', '.join(map(str, config.classes))}, "
        f"up to {max(config.layers)} maps and {config.steps:,} steps",
        "networks": study.as_columns(rows),
    }


def below_etf(row: Row) -> float:
    """Return 1 if a run ended below the objective of the simplex ETF, else 0."""
    return float(float(row["objective"]) < float(row["etf"]) * (1 - BELOW))


def low_rank(row: Row) -> float:
    """Return 1 if the rank of a run is too low for collapse, else 0.

    Collapsed features before the ReLU have rank C − 1 (a simplex) or C (orthogonal).
    """
    return float(int(row["rank"]) < int(row["classes"]) - 1)


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the ranks, and of the shares of runs of low rank and below the ETF."""
    keys = [
        Column("model", lambda row: (row["kind"], row["loss"]), names=MODELS),
        Column("maps", "layers", "d"),
        Column("width", lambda row: f"{row['width']} C"),
    ]
    columns = [
        Column("rank / C", _rank_share, ".2f"),
        Column("rank below C − 1", low_rank, ".2f", spread=False),
        Column(
            "below the ETF",
            lambda row: None if row["etf"] is None else below_etf(row),
            ".2f",
            spread=False,
        ),
    ]
    title = "Where descent ends; a run counts if it classifies every class correctly"
    return study.table(title, numbers, keys, columns)


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of rank / number of classes against depth, one panel for each model."""
    widths = {width: f"width {width} C" for width in numbers["config"]["widths"]}
    return study.picture(
        "sukenik2024_depth",
        "Rank that descent finds in deep unconstrained models",
        study.as_rows(numbers),
        "layers",
        [
            (
                label,
                "rank of the last hidden layer / C",
                study.arms(_rank_share, "width", widths, kind=kind, loss=loss),
            )
            for (kind, loss), label in MODELS.items()
        ],
        caption="A network is a run here. The mean is over all starts and weight decays. Collapse "
        "has rank 1 or (C − 1)/C in these units.",
        x_label="linear maps",
    )


def _rank_share(row: Row) -> float:
    """Return the rank of a run relative to its number of classes."""
    return int(row["rank"]) / int(row["classes"])


CELL = ("kind", "loss", "classes", "layers", "weight_decay", "start", "width")
study_claim = study.claims_about("sukenik2024_depth")


def deep(numbers: Numbers, least: int, **match: Any) -> list[Row]:
    """Return the runs with `least` linear maps or more."""
    layers = tuple(n for n in numbers["config"]["layers"] if n >= least)
    return study.as_rows(numbers, layers=layers, **match)


def above_half(event: str, rows: Sequence[Row], happened: Any) -> Part:
    """Return a part of a claim: that an event happens in more than half of the runs.

    Args:
        event: the event as a clause, such as "runs end below the simplex ETF".
        rows: runs of all seeds.
        happened: function from a run to whether the event happened.
    """
    shares = study.averaged(study.by_cell(rows, happened, *CELL))
    return Part(event, shares, above=0.5, unit="%")


@study_claim(
    "sukenik2024/descent-finds-low-rank",
    "Gradient descent on models of four and more maps with ReLU finds solutions of lower rank than "
    "collapse.",
    "sukenik2024, Sec. Abstract “the emergence of the low-rank structure in the solution found”",
    code="nclab_papers.sukenik2024.depth.low_rank",
)
def descent_finds_low_rank(numbers: Numbers) -> Finding:
    """Require that in more than half of the runs the last hidden rank is below C − 1.

    The abstract states neither loss nor width. Every setting of both is judged.
    """
    rows = deep(numbers, DEEP, kind="relu")
    settings = {}
    for loss, width in product(get_args(DeepLoss), numbers["config"]["widths"]):
        runs = study.having(rows, loss=loss, width=width)
        part = above_half("runs have a rank below C − 1", runs, low_rank)
        settings[f"{NAMES[loss]}, width {width} C"] = judge_effects([part])
    answer = "rank below that of collapse in more than half of the runs"
    return _with_counts(judge_settings(settings, answer), rows)


def _with_counts(finding: Finding, rows: Sequence[Row]) -> Finding:
    """Add the number of runs that count, and how many of them converged, to the evidence."""
    good = [row for row in rows if study.counts(row)]
    converged = sum(float(row["gradient"]) <= CONVERGED for row in good)
    evidence = (
        f"{finding.evidence}; {len(good)} of {len(rows)} runs classify every class correctly, and "
        f"{converged} of these converged"
    )
    return replace(finding, evidence=evidence)


@study_claim(
    "findings/depth-width",
    "Width favours collapse: in models of four and more maps with ReLU the rank is higher at width "
    "8 C than at width C.",
    "sukenik2024, Sec. Abstract “a low-rank bias of multi-layer regularization schemes”",
    code="nclab_papers.shared.study.differences",
)
def width_favours_collapse(numbers: Numbers) -> Finding:
    """Require that the rank at the largest width exceeds the rank at the smallest width."""
    widths = sorted(numbers["config"]["widths"])
    keys = tuple(key for key in CELL if key != "width")
    wide, narrow = (
        study.by_cell(deep(numbers, DEEP, kind="relu", width=width), study.column("rank"), *keys)
        for width in (widths[-1], widths[0])
    )
    part = Part(
        f"difference of rank, width {widths[-1]} C − {widths[0]} C", study.differences(wide, narrow)
    )
    rows = deep(numbers, DEEP, kind="relu", width=(widths[0], widths[-1]))
    return _with_counts(judge_effects([part], margin=0.5), rows)


@study_claim(
    "findings/depth-orthoplex",
    "With three and more linear maps and cross-entropy, descent ends below the objective of the "
    "simplex ETF.",
    "sukenik2024, Sec. Abstract “optimal solutions of even lower rank than the neural collapse”",
    code="nclab_papers.sukenik2024.depth.below_etf",
)
def below_the_etf(numbers: Numbers) -> Finding:
    """Require an objective below that of the simplex ETF in more than half of the runs."""
    rows = deep(numbers, DEEP - 1, kind="linear", loss="cross_entropy")
    return judge_effects([above_half("runs end below the simplex ETF", rows, below_etf)])

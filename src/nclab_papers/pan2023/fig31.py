"""Collapse against weight decay, for three kinds of batch norm.

Claim: significant collapse emerges only with affine batch norm and enough weight decay.
Source: pan2023, Fig. 3.1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, Share, judge_choices, judge_effects, judge_shares
from nclab.claims.tables import Column, Row, Table, group, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.training.models.mlp import Norm
from nclab_papers.pan2023 import networks as trained

SIGNIFICANT = 0.75
"""Degree of collapse called significant, as a share of that of a simplex, 1 + 1/(C-1)."""
FAILING_DECAY = 5e-3
"""Weight decay above which the thesis's networks without batch norm fail to converge."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: trained.Networks
    layers: int = 6
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    weight_decays: tuple[float, ...] = trained.DECAYS


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks and return one row per network."""
    rows = config.networks.rows(
        out,
        seeds=seeds,
        engine=engine,
        layers=config.layers,
        norms=config.norms,
        weight_decays=config.weight_decays,
    )
    return {"config": trained.describe_config(config, seeds), "rows": rows}


def tables(numbers: Numbers) -> list[Table]:
    """Return cosines and norms by kind of batch norm and weight decay."""
    keys = (Column("norm", "norm", names=trained.NORM_NAMES), trained.DECAY_COLUMN)
    columns = (
        trained.ACCURACY_COLUMN,
        *trained.COSINE_COLUMNS,
        Column("α", "alpha", ".2f"),
        Column("β", "beta", ".2f"),
    )
    return [
        summarise("Cosines and norms of the last-layer features", numbers["rows"], keys, columns)
    ]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return cosines against weight decay for each kind of batch norm."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    panels = [
        trained.cosine_panel(
            name, [row for row in rows if row["norm"] == norm], classes, **trained.DECAY_AXIS
        )
        for norm, name in trained.NORM_NAMES.items()
    ]
    return [
        Picture(
            "pan2023_fig31",
            "Cosines of last-layer features against weight decay",
            (panels[0]._replace(y_label="cosine similarity"), *panels[1:]),
            3,
            "Figure 3.1 of the thesis, with weight decay on a logarithmic axis. "
            f"{trained.line_caption(rows)}",
        )
    ]


claimed = partial(claim, needs="pan2023_fig31", figure="pan2023_fig31")


@claimed(
    "pan2023/sec-3.1-converges",
    Kind.RESULT,
    "Every network reaches perfect training accuracy, but for no batch norm at 7e-3 and 1e-2.",
    "pan2023, Sec. 3.1.1 “achieved perfect training accuracy, except for weight decay 0.007”",
)
def converges(numbers: Numbers) -> Finding:
    """Count the seeds in which every network converges, except without batch norm above 5e-3.

    The thesis does not define "perfect"; two readings are judged: an accuracy of at least 0.99 and
    every sample correct.
    """
    others = [row for row in numbers["rows"] if not _is_expected_to_fail(row)]
    exact = [{**row, "converged": row["converged"] and row["accuracy"] == 1} for row in others]
    readings = {"0.99 or more": others, "every sample": exact}
    return judge_choices(
        {
            reading: [_in_every("every network", rows, converged=True)]
            for reading, rows in readings.items()
        },
        margin=0.0,
    )


@claimed(
    "pan2023/sec-3.1-fails-without-norm",
    Kind.RESULT,
    "Without batch norm training fails for weight decay above 0.005.",
    "pan2023, Sec. 3.1.2 “fails to converge when”",
)
def fails_without_norm(numbers: Numbers) -> Finding:
    """Count the seeds in which none of these networks converges."""
    rows = [row for row in numbers["rows"] if _is_expected_to_fail(row)]
    return judge_shares([_in_every("no network converges", rows, converged=False)])


@claimed(
    "pan2023/sec-3.1-only-affine",
    Kind.RESULT,
    "Significant collapse emerges only with affine batch norm and enough weight decay.",
    "pan2023, Sec. 3.1.2 “only emerges in models with affine-BN with sufficiently large weight”",
    code="nclab_papers.pan2023.networks.degree",
)
def only_affine(numbers: Numbers) -> Finding:
    """Judge that affine batch norm reaches 3/4 of a simplex, but not at the smallest weight decay,
    and that the other kinds do not reach it at any weight decay.
    """
    full = 1 + 1 / (int(numbers["config"]["classes"]) - 1)
    rows = numbers["rows"]
    reached, without, at_smallest = {}, {}, {}
    for seed in trained.seeds_of(rows):
        affine = trained.select(rows, seed=seed, norm="affine")
        others = [
            row for norm in ("plain", "none") for row in trained.select(rows, seed=seed, norm=norm)
        ]
        if affine:
            reached[seed] = max(map(trained.degree, affine)) / full - SIGNIFICANT
        if others:
            without[seed] = SIGNIFICANT - max(map(trained.degree, others)) / full
        if affine and affine[0]["weight_decay"] == min(row["weight_decay"] for row in rows):
            at_smallest[seed] = SIGNIFICANT - trained.degree(affine[0]) / full
    parts = [
        Part("largest collapse with affine batch norm − 3/4", reached),
        Part("3/4 − largest collapse without affine batch norm", without),
        Part("3/4 − collapse with affine batch norm at the smallest weight decay", at_smallest),
    ]
    return judge_effects(parts, margin=trained.COSINE_MARGIN, unit="of a simplex")


@claimed(
    "pan2023/sec-3.1-grows",
    Kind.RESULT,
    "With affine batch norm, collapse grows with weight decay wherever training converges.",
    "pan2023, Sec. 3.1.2 “Within the range of convergence, the degree of neural collapse”",
    code="nclab_papers.pan2023.networks.degree",
)
def grows(numbers: Numbers) -> Finding:
    """Compare neighbouring weight decays.

    The thesis restricts the claim to the range of convergence, so steps with an end that did not
    converge are left out.
    """
    rows = numbers["rows"]
    affine = {
        decay: trained.by_seed(rows, trained.degree, norm="affine", weight_decay=decay)
        for decay in _decays(rows)
    }
    parts = [
        Part(
            f"rise from weight decay {before:g} to {after:g}",
            trained.paired_differences(affine[after], affine[before]),
        )
        for before, after in pairwise(affine)
    ]
    return judge_effects(parts, margin=trained.COSINE_MARGIN, where_converged=True)


@claimed(
    "pan2023/sec-3.1-affine-above-plain",
    Kind.RESULT,
    "Without the affine transformation there is significantly less collapse at every weight decay.",
    "pan2023, Sec. 3.1.2 “significantly less degree of neural collapse under all decay values”",
    code="nclab_papers.pan2023.networks.degree",
)
def affine_above_plain(numbers: Numbers) -> Finding:
    """Compare affine and plain batch norm at every weight decay."""
    rows = numbers["rows"]
    parts = []
    for decay in _decays(rows):
        affine, plain = (
            trained.by_seed(rows, trained.degree, norm=norm, weight_decay=decay)
            for norm in ("affine", "plain")
        )
        name = f"affine − plain at weight decay {decay:g}"
        parts.append(Part(name, trained.paired_differences(affine, plain)))
    return judge_effects(parts, margin=trained.COSINE_MARGIN)


@claimed(
    "pan2023/sec-3.1-falls-without-norm",
    Kind.RESULT,
    "Without batch norm, weight decay makes collapse weaker.",
    "pan2023, Sec. 3.1.2 “weight decay negatively impacts the emergence of Neural Collapse”",
    code="nclab_papers.pan2023.networks.degree",
)
def falls_without_norm(numbers: Numbers) -> Finding:
    """Judge the negative slope of collapse over the logarithm of weight decay."""
    falls = trained.decade_slopes(numbers["rows"], trained.degree, norm="none", sign=-1)
    return judge_effects(
        [Part("fall of collapse without batch norm", falls)],
        margin=trained.COSINE_MARGIN,
        unit="a decade",
    )


@claimed(
    "pan2023/sec-3.1-norm-helps-decay",
    Kind.RESULT,
    "With batch norm a network gains from larger weight decay.",
    "pan2023, Sec. 3.1.2 “BN allows the model to benefit positively from larger weight decay”",
    code="nclab_papers.pan2023.networks.degree",
)
def norm_helps_decay(numbers: Numbers) -> Finding:
    """Judge the slopes of collapse over the logarithm of weight decay for both batch norms."""
    parts = [
        Part(
            f"rise of collapse, {trained.NORM_NAMES[norm]}",
            trained.decade_slopes(numbers["rows"], trained.degree, norm=norm),
        )
        for norm in ("affine", "plain")
    ]
    return judge_effects(parts, margin=trained.COSINE_MARGIN, unit="a decade")


def _is_expected_to_fail(row: Row) -> bool:
    """Whether the thesis reports that such a network fails to converge."""
    return bool(row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY)


def _in_every(name: str, rows: Sequence[Row], *, converged: bool) -> Share:
    """Return whether all networks of a seed converge (or all fail, if not `converged`), by seed."""
    happened = {
        int(seed): all(row["converged"] is converged for row in members)
        for (seed,), members in group(rows, "seed").items()
    }
    return Share(name, happened)


def _decays(rows: Sequence[Row]) -> list[float]:
    return sorted({float(row["weight_decay"]) for row in rows})

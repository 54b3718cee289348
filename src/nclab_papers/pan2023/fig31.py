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
from nclab.claims.effects import Part, Share
from nclab.claims.judging import judge_effects, with_readings
from nclab.claims.tables import Column, Row, Table, group, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.training.models.mlp import Norm
from nclab_papers.pan2023 import networks as trained

SIGNIFICANT = 0.75
"""Smallest degree of collapse that counts as significant, if full collapse has degree 1.

Full collapse is a simplex, where min intra − max inter is 1 + 1/(C-1). The thesis gives no
number."""
IN_WORDS: dict[Norm, str] = {
    "affine": "with affine batch norm",
    "plain": "with plain batch norm",
    "none": "without batch norm",
}
"""Kind of batch norm -> its words in the names of quantities."""
OTHER_BARS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of a simplex's degree of collapse that count as significant in other readings."""
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
    """Return a table of cosines and norms by kind of batch norm and weight decay."""
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
    """Return a picture of cosines against weight decay for each kind of batch norm."""
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
    """Count the seeds in which all networks converge, except those that are expected to fail.

    Networks without batch norm are expected to fail at weight decays above 5e-3. The thesis does
    not define "perfect": a network counts as converged if its accuracy is at least 0.99. Another
    reading requires that every sample is correct.
    """
    others = [row for row in numbers["rows"] if not _is_expected_to_fail(row)]
    exact = [{**row, "converged": row["converged"] and row["accuracy"] == 1} for row in others]
    nearly, exactly = (
        judge_effects([_in_every(f"every network reaches accuracy {bar}", rows, converged=True)])
        for bar, rows in (("0.99", others), ("1", exact))
    )
    return with_readings(nearly, {"perfect means that every sample is correct": exactly})


@claimed(
    "pan2023/sec-3.1-fails-without-norm",
    Kind.RESULT,
    "Without batch norm training fails for weight decay above 0.005.",
    "pan2023, Sec. 3.1.2 “fails to converge when”",
)
def fails_without_norm(numbers: Numbers) -> Finding:
    """Count the seeds in which all networks without batch norm fail above weight decay 5e-3."""
    rows = [row for row in numbers["rows"] if _is_expected_to_fail(row)]
    share = _in_every("no such network converges", rows, converged=False)
    return judge_effects([share])


@claimed(
    "pan2023/sec-3.1-only-affine",
    Kind.RESULT,
    "Significant collapse emerges only with affine batch norm and enough weight decay.",
    "pan2023, Sec. 3.1.2 “only emerges in models with affine-BN with sufficiently large weight”",
    code="nclab_papers.pan2023.networks.degree",
)
def only_affine(numbers: Numbers) -> Finding:
    """Require significant collapse with affine batch norm, and nowhere else.

    Collapse must exceed `SIGNIFICANT` at some weight decay with affine batch norm. It must stay
    below at the smallest weight decay, and at every weight decay with other kinds of batch norm.
    """
    bars = {f"the bar is {bar:g}": _reaches(numbers, bar=bar) for bar in OTHER_BARS}
    return trained.with_centred(_reaches, numbers, bars)


def _reaches(numbers: Numbers, *, bar: float = SIGNIFICANT) -> Finding:
    """Require that only affine batch norm reaches the share `bar` of the collapse of a simplex.

    It must not reach this share at the smallest weight decay.
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
            reached[seed] = max(map(trained.degree, affine)) / full
        if others:
            without[seed] = max(map(trained.degree, others)) / full
        if affine and affine[0]["weight_decay"] == min(row["weight_decay"] for row in rows):
            at_smallest[seed] = trained.degree(affine[0]) / full
    unit = "of a simplex"
    parts = [
        Part("largest collapse with affine batch norm", reached, above=bar, unit=unit),
        Part("largest collapse without affine batch norm", without, below=bar, unit=unit),
        Part(
            "collapse with affine batch norm at the smallest weight decay",
            at_smallest,
            below=bar,
            unit=unit,
        ),
    ]
    return judge_effects(parts, margin=trained.COSINE_MARGIN)


@claimed(
    "pan2023/sec-3.1-grows",
    Kind.RESULT,
    "With affine batch norm, collapse grows with weight decay wherever training converges.",
    "pan2023, Sec. 3.1.2 “Within the range of convergence, the degree of neural collapse”",
    code="nclab_papers.pan2023.networks.degree",
)
def grows(numbers: Numbers) -> Finding:
    """Judge how much collapse grows per decade of weight decay, in converged networks.

    Another reading requires growth from each weight decay to the next larger one.
    """
    rows = numbers["rows"]
    affine = {
        decay: trained.by_seed(rows, trained.degree, norm="affine", weight_decay=decay)
        for decay in _decays(rows)
    }
    steps = [
        Part(
            f"rise of collapse from weight decay {before:g} to {after:g}",
            trained.paired_differences(affine[after], affine[before]),
        )
        for before, after in pairwise(decay for decay in affine if affine[decay])
    ]
    every_step = judge_effects(steps, margin=trained.COSINE_MARGIN)
    judge = partial(_slopes, norms=("affine",))
    return trained.with_centred(judge, numbers, {"collapse must grow at every step": every_step})


def _slopes(numbers: Numbers, *, norms: Sequence[Norm], falls: bool = False) -> Finding:
    """Judge the slopes of collapse per decade of weight decay, for the given batch norms."""
    parts = [
        Part(
            f"slope of collapse {IN_WORDS[norm]}",
            trained.decade_slopes(numbers["rows"], trained.degree, norm=norm),
            below=0.0 if falls else None,
            unit="per decade of weight decay",
        )
        for norm in norms
    ]
    return judge_effects(parts, margin=trained.COSINE_MARGIN)


@claimed(
    "pan2023/sec-3.1-affine-above-plain",
    Kind.RESULT,
    "Without the affine transformation there is significantly less collapse at every weight decay.",
    "pan2023, Sec. 3.1.2 “significantly less degree of neural collapse under all decay values”",
    code="nclab_papers.pan2023.networks.degree",
)
def affine_above_plain(numbers: Numbers) -> Finding:
    """Compare affine and plain batch norm at every weight decay, as the thesis says "all"."""
    return trained.with_centred(_affine_minus_plain, numbers)


def _affine_minus_plain(numbers: Numbers) -> Finding:
    rows = numbers["rows"]
    parts = []
    for decay in _decays(rows):
        affine, plain = (
            trained.by_seed(rows, trained.degree, norm=norm, weight_decay=decay)
            for norm in ("affine", "plain")
        )
        name = f"difference of collapse, affine − plain batch norm, at weight decay {decay:g}"
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
    """Judge how much collapse falls per decade of weight decay, without batch norm."""
    return trained.with_centred(partial(_slopes, norms=("none",), falls=True), numbers)


@claimed(
    "pan2023/sec-3.1-norm-helps-decay",
    Kind.RESULT,
    "With batch norm a network gains from larger weight decay.",
    "pan2023, Sec. 3.1.2 “BN allows the model to benefit positively from larger weight decay”",
    code="nclab_papers.pan2023.networks.degree",
)
def norm_helps_decay(numbers: Numbers) -> Finding:
    """Require that collapse grows with weight decay, with affine and with plain batch norm."""
    return trained.with_centred(partial(_slopes, norms=("affine", "plain")), numbers)


def _is_expected_to_fail(row: Row) -> bool:
    """Whether the thesis reports that such a network fails to converge."""
    return bool(row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY)


def _in_every(name: str, rows: Sequence[Row], *, converged: bool) -> Share:
    """Return by seed whether all its networks converge (or all fail, if not `converged`)."""
    happened = {
        int(seed): all(row["converged"] is converged for row in members)
        for (seed,), members in group(rows, "seed").items()
    }
    return Share(name, happened)


def _decays(rows: Sequence[Row]) -> list[float]:
    return sorted({float(row["weight_decay"]) for row in rows})

"""Collapse against weight decay, for three kinds of batch norm.

Claim: significant collapse emerges only with affine batch norm and enough weight decay.
Source: pan2023, Fig. 3.1
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, Share, judge_choices, judge_effects, judge_shares
from nclab.claims.tables import Row, Table, cell, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.seeds import (
    SEED_CAPTION,
    LineStyle,
    column,
    converged,
    failure_crosses,
    mean_over_seeds,
)
from nclab.training.models.mlp import Norm
from nclab_papers.pan2023.lines import COSINES, DECAY, NORMS, TICKS, cosines, failed_note, simplex
from nclab_papers.pan2023.networks import DECAYS, PAPER, QUICK, Networks
from nclab_papers.pan2023.rows import (
    COSINE,
    by_seed,
    decade_slopes,
    degree,
    gap,
    paired,
    seeds,
    series,
)

SIGNIFICANT = 0.75
"""Degree of collapse called significant: three quarters of the way from classes that point the
same way, where min intra - max inter is 0, to a simplex, where it is 1 + 1/(C-1)."""
FAILING_DECAY = 5e-3
"""Above it networks without batch norm fail to converge in the thesis."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 6
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    weight_decays: tuple[float, ...] = DECAYS


PRESETS = {"quick": Config(QUICK), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Rows of networks."""
    sweeps = config.networks.sweeps(
        seeds=seeds,
        layers=config.layers,
        norms=config.norms,
        weight_decays=config.weight_decays,
    )
    rows = [*chain.from_iterable(config.networks.train(out, sweeps, engine=engine))]
    return {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
    }


def tables(numbers: Numbers) -> list[Table]:
    """Cosines by norm and weight decay."""
    rows = [
        (NORMS[norm], f"{decay:g}", *_cells(own))
        for (norm, decay), own in group(numbers["rows"], "norm", "weight_decay").items()
    ]
    columns = ("norm", "weight decay", "accuracy", "min intra", "max inter", "difference", "α", "β")
    return [Table("Last-layer features", columns, rows)]


def _cells(rows: list[Row]) -> tuple[str, ...]:
    if not any(row["converged"] for row in rows):
        reached = max(row["accuracy"] or 0.0 for row in rows)
        return (f"{reached:.3f}, not converged", "–", "–", "–", "–", "–")
    return (
        cell(rows, column("accuracy"), ".4f"),
        cell(rows, column("min_intra")),
        cell(rows, column("max_inter")),
        cell(rows, gap),
        cell(rows, column("alpha"), ".2f"),
        cell(rows, column("beta"), ".2f"),
    )


def pictures(numbers: Numbers) -> list[Picture]:
    """Cosines against weight decay, one panel a norm, as in the thesis; and their difference."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    etf = simplex(classes, [float(row["weight_decay"]) for row in rows])
    panels = tuple(
        Panel(
            title,
            DECAY,
            "" if number else "cosine similarity",
            cosines([row for row in rows if row["norm"] == norm], "weight_decay", etf),
            x_scale="log",
            y_range=COSINES,
            x_ticks=TICKS,
        )
        for number, (norm, title) in enumerate(NORMS.items())
    )
    lines = [
        mean_over_seeds(
            [row for row in converged(rows) if row["norm"] == norm],
            "weight_decay",
            gap,
            LineStyle(title, colour),
        )
        for colour, (norm, title) in enumerate(NORMS.items())
    ]
    difference = Panel(
        "min intra − max inter",
        DECAY,
        "difference of cosines",
        (*lines, *failure_crosses(rows, "weight_decay", [gap])),
        x_scale="log",
        references=(Reference("simplex ETF, 1 + 1/(C−1)", y=1 + 1 / (classes - 1)),),
        y_range=(-0.06, 1.14 * (1 + 1 / (classes - 1))),
        x_ticks=TICKS,
    )
    note = SEED_CAPTION + failed_note(rows)
    return [
        Picture(
            "pan2023_fig31",
            "Cosines of last-layer features against weight decay",
            panels,
            3,
            f"Figure 3.1 of the thesis, with weight decay on a logarithmic axis. {note}",
        ),
        Picture(
            "pan2023_fig31_gap",
            "Degree of collapse, three kinds of batch norm",
            (difference,),
            1,
            f"The difference that the claims are about. {note}",
            (4.6, 3.2),
        ),
    ]


claimed = partial(claim, needs="pan2023_fig31", figure="pan2023_fig31")


@claimed(
    "pan2023/sec-3.1-converges",
    Kind.RESULT,
    "Every network reaches perfect training accuracy, but for no batch norm at 7e-3 and 1e-2.",
    "pan2023, Sec. 3.1.1 “achieved perfect training accuracy, except for weight decay 0.007”",
)
def converges(numbers: Numbers) -> Finding:
    """In how many seeds every network does, but for no batch norm above 5e-3.

    How near to 1 an accuracy is that a person calls perfect is a matter of reading.
    """
    others = [row for row in numbers["rows"] if not _too_much(row)]
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
    """In how many seeds none of these networks converges."""
    own = [row for row in numbers["rows"] if _too_much(row)]
    return judge_shares([_in_every("no network converges", own, converged=False)])


@claimed(
    "pan2023/sec-3.1-only-affine",
    Kind.RESULT,
    "Significant collapse emerges only with affine batch norm and enough weight decay.",
    "pan2023, Sec. 3.1.2 “only emerges in models with affine-BN with sufficiently large weight”",
    code="nclab_papers.pan2023.rows.degree",
)
def only_affine(numbers: Numbers) -> Finding:
    """Affine batch norm gets there, nothing else does, nor does it at the least weight decay."""
    full = 1 + 1 / (int(numbers["config"]["classes"]) - 1)
    rows = numbers["rows"]
    reached, others, least = {}, {}, {}
    for seed in seeds(rows):
        affine = series(rows, seed=seed, norm="affine")
        rest = [row for norm in ("plain", "none") for row in series(rows, seed=seed, norm=norm)]
        if affine:
            reached[seed] = max(map(degree, affine)) / full - SIGNIFICANT
        if rest:
            others[seed] = SIGNIFICANT - max(map(degree, rest)) / full
        if affine and affine[0]["weight_decay"] == min(row["weight_decay"] for row in rows):
            least[seed] = SIGNIFICANT - degree(affine[0]) / full
    parts = [
        Part("most with affine batch norm, above 3/4", reached),
        Part("most without, below 3/4", others),
        Part("affine at the least weight decay, below 3/4", least),
    ]
    return judge_effects(parts, margin=COSINE, unit="of a simplex")


@claimed(
    "pan2023/sec-3.1-grows",
    Kind.RESULT,
    "With affine batch norm, collapse grows with weight decay wherever training converges.",
    "pan2023, Sec. 3.1.2 “Within the range of convergence, the degree of neural collapse”",
    code="nclab_papers.pan2023.rows.degree",
)
def grows(numbers: Numbers) -> Finding:
    """At every step of weight decay; one whose ends did not both converge is outside of the range
    of convergence, of which alone the thesis speaks."""
    rows = numbers["rows"]
    parts = [
        Part(f"weight decay {before:g} to {after:g}", paired(_affine(rows, after), earlier))
        for before, after in pairwise(_decays(rows))
        for earlier in [_affine(rows, before)]
    ]
    return judge_effects(parts, margin=COSINE, where_converged=True)


@claimed(
    "pan2023/sec-3.1-affine-above-plain",
    Kind.RESULT,
    "Without the affine transformation there is significantly less collapse at every weight decay.",
    "pan2023, Sec. 3.1.2 “significantly less degree of neural collapse under all decay values”",
    code="nclab_papers.pan2023.rows.degree",
)
def affine_above_plain(numbers: Numbers) -> Finding:
    """At every weight decay."""
    rows = numbers["rows"]
    parts = [
        Part(f"weight decay {decay:g}", paired(_affine(rows, decay), plain))
        for decay in _decays(rows)
        for plain in [by_seed(rows, degree, norm="plain", weight_decay=decay)]
    ]
    return judge_effects(parts, margin=COSINE)


@claimed(
    "pan2023/sec-3.1-falls-without-norm",
    Kind.RESULT,
    "Without batch norm, weight decay makes collapse weaker.",
    "pan2023, Sec. 3.1.2 “weight decay negatively impacts the emergence of Neural Collapse”",
    code="nclab_papers.pan2023.rows.degree",
)
def falls_without_norm(numbers: Numbers) -> Finding:
    """The slope of collapse over weight decay, turned round."""
    falls = decade_slopes(numbers["rows"], degree, norm="none", sign=-1)
    return judge_effects([Part("fall without batch norm", falls)], margin=COSINE, unit="a decade")


@claimed(
    "pan2023/sec-3.1-norm-helps-decay",
    Kind.RESULT,
    "With batch norm a network gains from larger weight decay.",
    "pan2023, Sec. 3.1.2 “BN allows the model to benefit positively from larger weight decay”",
    code="nclab_papers.pan2023.rows.degree",
)
def norm_helps_decay(numbers: Numbers) -> Finding:
    """The slopes of collapse over weight decay, with either kind of batch norm."""
    parts = [
        Part(f"slope, {norm}", decade_slopes(numbers["rows"], degree, norm=norm))
        for norm in ("affine", "plain")
    ]
    return judge_effects(parts, margin=COSINE, unit="a decade")


def _too_much(row: Row) -> bool:
    return bool(row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY)


def _in_every(what: str, rows: Sequence[Row], *, converged: bool) -> Share:
    """Whether all networks of a seed converge, or all fail."""
    by = group(rows, "seed")
    return Share(
        what, {int(seed): all(row["converged"] is converged for row in by[seed,]) for (seed,) in by}
    )


def _decays(rows: Sequence[Row]) -> list[float]:
    return sorted({float(row["weight_decay"]) for row in rows})


def _affine(rows: Sequence[Row], decay: float) -> dict[int, float]:
    return by_seed(rows, degree, norm="affine", weight_decay=decay)

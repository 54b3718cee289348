"""Collapse against weight decay, for three kinds of batch norm.

Claim: significant collapse emerges only with affine batch norm and enough weight decay.
Source: pan2023, Fig. 3.1
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.spread import SPREAD, Look, column, converged, failures, spread
from nclab.models.mlp import Norm
from nclab.papers.claim import Kind, Numbers, claim
from nclab.papers.comparisons import Comparison, Line, weigh, weigh_lines
from nclab.papers.pan2023.lines import COSINES, DECAY, NORMS, TICKS, cosines, failed_note, simplex
from nclab.papers.pan2023.networks import DECAYS, PAPER, QUICK, QUICK_DECAYS, Networks
from nclab.papers.pan2023.rows import VISIBLE, degree, failing, gap, line, place, seeds, series
from nclab.papers.tables import Row, Table, cell, group
from nclab.papers.verdict import Finding

SIGNIFICANT = 0.75
"""Degree of collapse called significant: three quarters of the way from classes that point the
same way, where min intra - max inter is 0, to a simplex, where it is 1 + 1/(C-1)."""
LARGE_DECAY = 1e-3
"""From here on weight decay is large enough to tell the norms apart."""
MODERATE_DECAY = 3e-3
"""Up to here collapse has room to grow: beyond it the cosines are within a few hundredths of the
simplex, and steps are as small as the spread over seeds."""
FAILING_DECAY = 5e-3
"""Above it networks without batch norm fail to converge in the thesis."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 6
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    weight_decays: tuple[float, ...] = DECAYS


PRESETS = {"quick": Config(QUICK, weight_decays=QUICK_DECAYS), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Rows of networks."""
    rows = config.networks.train(
        out,
        seeds=seeds,
        layers=config.layers,
        norms=config.norms,
        weight_decays=config.weight_decays,
        engine=engine,
    )
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
        spread(
            [row for row in converged(rows) if row["norm"] == norm],
            "weight_decay",
            gap,
            Look(title, colour),
        )
        for colour, (norm, title) in enumerate(NORMS.items())
    ]
    difference = Panel(
        "min intra − max inter",
        DECAY,
        "difference of cosines",
        (*lines, *failures(rows, "weight_decay", [gap])),
        x_scale="log",
        references=(Reference("simplex ETF, 1 + 1/(C−1)", y=1 + 1 / (classes - 1)),),
        y_range=(-0.06, 1.14 * (1 + 1 / (classes - 1))),
        x_ticks=TICKS,
    )
    note = SPREAD + failed_note(rows)
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
    "Every network reaches perfect training accuracy (0.99 or more), but for no batch norm "
    "at 7e-3 and 1e-2.",
    "pan2023, Sec. 3.1.1",
)
def converges(numbers: Numbers) -> Finding:
    """Every network converges, but for no batch norm above 5e-3.

    One that did not fails by its missing accuracy, or entirely if only its accuracy is perfect.
    """
    return weigh(
        Comparison(place(row), 0.0 if row["converged"] else _missing(row))
        for row in numbers["rows"]
        if not (row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY)
    )


@claimed(
    "pan2023/sec-3.1-fails-without-norm",
    Kind.RESULT,
    "Without batch norm training fails for weight decay above 0.005.",
    "pan2023, Sec. 3.1.2",
)
def fails_without_norm(numbers: Numbers) -> Finding:
    """None of these networks converges."""
    return weigh(
        Comparison(place(row), failing(row))
        for row in numbers["rows"]
        if row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY
    )


@claimed(
    "pan2023/sec-3.1-only-affine",
    Kind.RESULT,
    "Significant collapse emerges only with affine batch norm and enough weight decay.",
    "pan2023, Fig. 3.1",
)
def only_affine(numbers: Numbers) -> Finding:
    """Significant collapse appears with affine batch norm and nowhere else, seed by seed.

    At the smallest weight decay affine batch norm must not be enough.
    """
    full = 1 + 1 / (int(numbers["config"]["classes"]) - 1)
    rows = numbers["rows"]
    found = []
    for seed in seeds(rows):
        affine = [degree(row) / full for row in series(rows, seed=seed, norm="affine")]
        others = [
            degree(row) / full
            for norm in ("plain", "none")
            for row in series(rows, seed=seed, norm=norm)
        ]
        if len(affine) > 1 and others:
            margin = min(max(affine) - SIGNIFICANT, SIGNIFICANT - max(affine[0], *others))
            found.append(Comparison(f"seed {seed}", margin))
    return weigh(found)


@claimed(
    "pan2023/sec-3.1-grows",
    Kind.RESULT,
    "With affine batch norm, collapse grows with weight decay wherever training converges.",
    "pan2023, Fig. 3.1",
)
def grows(numbers: Numbers) -> Finding:
    """Collapse grows at every step of weight decay, and visibly from the first to the last."""
    return weigh_lines(_lines(numbers["rows"], "affine"), visible=VISIBLE)


@claimed(
    "pan2023/sec-3.1-grows-to-3e-3",
    Kind.RESULT,
    "With affine batch norm, collapse grows with weight decay up to 3e-3.",
    "pan2023, Fig. 3.1",
)
def grows_to_moderate(numbers: Numbers) -> Finding:
    """Collapse grows at every step of weight decay up to 3e-3."""
    return weigh_lines(_lines(numbers["rows"], "affine", up_to=MODERATE_DECAY), visible=VISIBLE)


@claimed(
    "pan2023/sec-3.1-affine-above-plain",
    Kind.RESULT,
    "Without the affine transformation there is less collapse at every weight decay.",
    "pan2023, Fig. 3.1",
)
def affine_above_plain(numbers: Numbers) -> Finding:
    """Affine above plain at every weight decay."""
    return _affine_above("plain", numbers)


@claimed(
    "pan2023/sec-3.1-affine-above-plain-from-1e-3",
    Kind.RESULT,
    "From weight decay 1e-3 on there is less collapse without the affine transformation.",
    "pan2023, Fig. 3.1",
)
def affine_above_plain_large(numbers: Numbers) -> Finding:
    """Affine above plain from weight decay 1e-3 on."""
    return _affine_above("plain", numbers, least=LARGE_DECAY)


@claimed(
    "pan2023/sec-3.1-affine-above-none",
    Kind.RESULT,
    "Without batch norm there is less collapse at every weight decay.",
    "pan2023, Fig. 3.1",
)
def affine_above_none(numbers: Numbers) -> Finding:
    """Affine above no batch norm at every weight decay."""
    return _affine_above("none", numbers)


@claimed(
    "pan2023/sec-3.1-falls-without-norm",
    Kind.RESULT,
    "Without batch norm, weight decay makes collapse weaker.",
    "pan2023, Fig. 3.1",
)
def falls_without_norm(numbers: Numbers) -> Finding:
    """Without batch norm, weight decay makes collapse weaker at every step."""
    return weigh_lines(_lines(numbers["rows"], "none", sign=-1), visible=VISIBLE)


@claimed(
    "pan2023/sec-3.1-norm-helps-decay",
    Kind.RESULT,
    "With batch norm a network gains from larger weight decay.",
    "pan2023, Sec. 3.1.2",
)
def norm_helps_decay(numbers: Numbers) -> Finding:
    """With batch norm of either kind, the largest weight decay beats the smallest."""
    rows = numbers["rows"]
    found = []
    for seed in seeds(rows):
        for norm in ("affine", "plain"):
            own = series(rows, seed=seed, norm=norm)
            if len(own) > 1:
                margin = degree(own[-1]) - degree(own[0]) - VISIBLE
                found.append(Comparison(f"seed {seed}, {norm}", margin))
    return weigh(found)


def _missing(row: Row) -> float:
    accuracy = float(row["accuracy"] or 0.0)
    return accuracy - 1 if accuracy < 1 else -1.0


def _lines(rows: Sequence[Row], norm: str, *, sign: int = 1, up_to: float = 1.0) -> list[Line]:
    """The degree of collapse along weight decay, seed by seed."""
    found = []
    for seed in seeds(rows):
        own = [row for row in series(rows, seed=seed, norm=norm) if row["weight_decay"] <= up_to]
        found.append(line(f"seed {seed}, weight decay", own, degree, sign=sign))
    return found


def _affine_above(other: str, numbers: Numbers, *, least: float = 0.0) -> Finding:
    """Affine batch norm collapses visibly further than another norm at the same weight decay."""
    rows = numbers["rows"]
    found = []
    for row in series(rows, norm="affine"):
        same = series(rows, norm=other, seed=row["seed"], weight_decay=row["weight_decay"])
        if same and row["weight_decay"] >= least:
            found.append(Comparison(place(row), degree(row) - degree(same[0]) - VISIBLE))
    return weigh(found)

"""Collapse against the complexity of the data: teachers of 1, 3, 6 and 9 layers.

Claim: a data set of lower complexity can achieve more significant collapse.
Source: pan2023, Sec. 1.4
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.tables import Table, cell, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference
from nclab.figures.seeds import SEED_CAPTION, LineStyle, column, converged, mean_over_seeds
from nclab_papers.pan2023.lines import COSINES, DECAY, cosines, failed_note, simplex
from nclab_papers.pan2023.networks import PAPER, QUICK, Networks
from nclab_papers.pan2023.rows import COSINE, by_seed, degree, gap, paired


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: Networks
    layers: int = 6
    teacher_depths: tuple[int, ...] = (1, 3, 6, 9)
    weight_decays: tuple[float, ...] = (1e-3, 3e-3)
    """Where collapse is under way, and where it is nearly complete."""


PRESETS = {"quick": Config(QUICK), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Rows of networks by the depth of their teacher."""
    planned = [
        (depth, sweep)
        for depth in config.teacher_depths
        for sweep in config.networks.sweeps(
            seeds=seeds,
            layers=config.layers,
            weight_decays=config.weight_decays,
            teacher_depth=depth,
        )
    ]
    found = config.networks.train(out, [sweep for _, sweep in planned], engine=engine)
    rows = [
        {**row, "teacher_depth": depth}
        for (depth, _), own in zip(planned, found, strict=True)
        for row in own
    ]
    return {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
    }


def tables(numbers: Numbers) -> list[Table]:
    """Cosines by weight decay and depth of the teacher."""
    ordered = sorted(numbers["rows"], key=lambda row: (row["weight_decay"], row["teacher_depth"]))
    rows = [
        (
            f"{decay:g}",
            str(depth),
            cell(own, column("accuracy"), ".4f"),
            cell(own, column("min_intra")),
            cell(own, column("max_inter")),
            cell(own, gap),
        )
        for (decay, depth), own in group(ordered, "weight_decay", "teacher_depth").items()
    ]
    columns = ("weight decay", "teacher depth", "accuracy", "min intra", "max inter", "difference")
    return [Table("Last-layer features", columns, rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Cosines against the depth of the teacher, one panel a weight decay; and the difference."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    decays = sorted({row["weight_decay"] for row in rows})
    depths = tuple(float(depth) for depth in sorted({row["teacher_depth"] for row in rows}))
    panels: list[Panel] = []
    difference = []
    for decay in decays:
        own = [row for row in rows if row["weight_decay"] == decay]
        look = LineStyle(f"difference, {DECAY} {decay:g}", len(panels) + 1)
        difference.append(mean_over_seeds(converged(own), "teacher_depth", gap, look))
        panels.append(
            Panel(
                f"{DECAY} {decay:g}",
                "depth of the teacher",
                "cosine similarity",
                cosines(own, "teacher_depth", simplex(classes, depths)),
                x_ticks=depths,
                y_range=COSINES,
            )
        )
    panels.append(
        Panel(
            "min intra − max inter",
            "depth of the teacher",
            "difference of cosines",
            tuple(difference),
            references=(Reference("simplex ETF", y=1 + 1 / (classes - 1)),),
            x_ticks=depths,
            y_range=(0.0, 1.14 * (1 + 1 / (classes - 1))),
        )
    )
    return [
        Picture(
            "pan2023_complexity",
            "Complexity of the data and collapse",
            tuple(panels),
            len(panels),
            "Affine batch norm; the labels come from random networks of this many layers. "
            f"{SEED_CAPTION}{failed_note(rows)}",
        )
    ]


@claim(
    "pan2023/sec-1.4-simpler-data",
    Kind.RESULT,
    "Data of lower complexity give stronger collapse.",
    "pan2023, Sec. 1.4 “relatively lower distribution complexity can achieve more significant”",
    needs="pan2023_complexity",
    figure="pan2023_complexity",
    code="nclab_papers.pan2023.rows.degree",
)
def simpler_data(numbers: Numbers) -> Finding:
    """Collapse for the simplest teacher above that for the deepest, averaged over weight decays.

    A seed counts where networks of both teachers converged at every weight decay.
    """
    rows = numbers["rows"]
    depths = [int(row["teacher_depth"]) for row in rows]
    by_decay: dict[int, list[float]] = {}
    decays = {row["weight_decay"] for row in rows}
    for decay in decays:
        simple, complicated = (
            by_seed(rows, degree, teacher_depth=depth, weight_decay=decay)
            for depth in (min(depths), max(depths))
        )
        for seed, rise in paired(simple, complicated).items():
            by_decay.setdefault(seed, []).append(rise)
    means = {seed: fmean(rises) for seed, rises in by_decay.items() if len(rises) == len(decays)}
    what = f"teacher of {min(depths)} against {max(depths)} layers" if depths else ""
    return judge_effects([Part(what, means)], margin=COSINE)

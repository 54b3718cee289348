"""Collapse against the complexity of the data: teachers of 1, 3, 6 and 9 layers.

Claim: a data set of lower complexity can achieve more significant collapse.
Source: pan2023, Sec. 1.4
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.tables import Column, Table, group, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab_papers.pan2023 import networks as trained


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: trained.Networks
    layers: int = 6
    teacher_depths: tuple[int, ...] = (1, 3, 6, 9)
    weight_decays: tuple[float, ...] = (1e-3, 3e-3)
    """A weight decay at which collapse is partial, and one at which it is nearly complete."""


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train networks on teachers of every depth and return one row per network."""
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
    members = config.networks.train(out, [sweep for _, sweep in planned], engine=engine)
    rows = [
        {**row, "teacher_depth": depth}
        for (depth, _), networks in zip(planned, members, strict=True)
        for row in networks
    ]
    return {"config": trained.describe_config(config, seeds), "rows": rows}


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the cosines by weight decay and depth of the teacher."""
    ordered = sorted(numbers["rows"], key=lambda row: (row["weight_decay"], row["teacher_depth"]))
    keys = (trained.DECAY_COLUMN, Column("teacher depth", "teacher_depth", "d"))
    columns = (trained.ACCURACY_COLUMN, *trained.COSINE_COLUMNS)
    return [summarise("Cosines of the last-layer features", ordered, keys, columns)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of cosines against the depth of the teacher for each weight decay."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    depths = tuple(float(depth) for depth in sorted({row["teacher_depth"] for row in rows}))
    axis: dict[str, Any] = {
        "x": "teacher_depth",
        "x_label": "depth of the teacher",
        "x_ticks": depths,
        "y_label": "cosine similarity",
    }
    panels = [
        trained.cosine_panel(f"weight decay {decay:g}", members, classes, **axis)
        for (decay,), members in group(rows, "weight_decay").items()
    ]
    return [
        Picture(
            "pan2023_complexity",
            "Complexity of the data and collapse",
            tuple(panels),
            len(panels),
            "Networks with affine batch norm. The labels come from random networks with this many "
            f"layers. {trained.line_caption(rows)}",
        )
    ]


@claim(
    "pan2023/sec-1.4-simpler-data",
    Kind.RESULT,
    "Data of lower complexity give stronger collapse.",
    "pan2023, Sec. 1.4 “relatively lower distribution complexity can achieve more significant”",
    needs="pan2023_complexity",
    figure="pan2023_complexity",
    code="nclab_papers.pan2023.networks.degree",
)
def simpler_data(numbers: Numbers) -> Finding:
    """Compare collapse for the simplest and the deepest teacher, averaged over weight decays.

    The thesis says "can", so each weight decay alone is another reading.
    """
    alone = {
        f"only weight decay {decay:g} counts": _simple_minus_deep(
            {**numbers, "rows": [row for row in numbers["rows"] if row["weight_decay"] == decay]}
        )
        for decay in sorted({row["weight_decay"] for row in numbers["rows"]})
    }
    return trained.with_centred(_simple_minus_deep, numbers, alone)


def _simple_minus_deep(numbers: Numbers) -> Finding:
    """Judge how much more networks collapse for the simplest than for the deepest teacher.

    The difference is averaged over weight decays, for seeds that converged at all of them.
    """
    rows = numbers["rows"]
    depths = [int(row["teacher_depth"]) for row in rows]
    decays = {row["weight_decay"] for row in rows}
    rises: dict[int, list[float]] = {}
    for decay in decays:
        simple, complicated = (
            trained.by_seed(rows, trained.degree, teacher_depth=depth, weight_decay=decay)
            for depth in (min(depths), max(depths))
        )
        for seed, rise in trained.paired_differences(simple, complicated).items():
            rises.setdefault(seed, []).append(rise)
    means = {seed: fmean(values) for seed, values in rises.items() if len(values) == len(decays)}
    name = "" if not depths else f"{min(depths)} and {max(depths)}"
    part = Part(f"difference of collapse between teachers with {name} layers", means)
    return judge_effects([part], margin=trained.COSINE_MARGIN)

"""Figure 1 and Table 1 of ji2022: what neural collapse looks like, and who has shown what of it.

Claim: features gather at their class means, which become a simplex, dual to the classifiers.
Source: ji2022, Fig. 1

The figure is drawn from a run of ours, three classes in the plane; beside every row of the table
stands what our own checks say of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.claim import Claim
from nclab.claims.tables import Table
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Marker, Panel, Picture, Series
from nclab.ulpm.descent import descend
from nclab.ulpm.problem import Problem
from nclab_papers.ji2022.flow import thm_3_1
from nclab_papers.ji2022.landscape import sec_1_1_landscape
from nclab_papers.ji2022.setting import eq_1


class TableRow(NamedTuple):
    """A row of Table 1."""

    reference: str
    contribution: str
    constraint: bool
    """On the norms of features."""
    regularisation: bool
    """Of the norms of features."""
    loss: str
    claims: tuple[Claim, ...] = ()
    """Of this ledger, that check it; none where nothing here does."""
    why: str = ""
    """How they do, or why none does."""


TABLE_1 = (
    TableRow(
        "[28]",
        "Empirical Results",
        False,
        False,
        "Cross-Entropy Loss",
        why="Figure 3 and the ladder to its size tell how far it got",
    ),
    TableRow("[9]", "Global Optimum", True, False, "Cross-Entropy Loss", (eq_1,)),
    *(
        TableRow(
            reference,
            "Global Optimum",
            True,
            False,
            "Cross-Entropy Loss",
            (eq_1,),
            "bounds on every feature: the optimum under a bound on all together obeys them",
        )
        for reference in ("[39]", "[24]")
    ),
    TableRow(
        "[26]",
        "Training Dynamics",
        False,
        False,
        "ℓ2 Loss",
        why="networks are trained with it, but its dynamics are not judged here",
    ),
    TableRow(
        "[43]",
        "Landscape Analysis",
        False,
        True,
        "Cross-Entropy Loss",
        why="saddles of the regularised model are not searched here",
    ),
    TableRow(
        "This paper",
        "Training Dynamics + Landscape Analysis",
        False,
        False,
        "Cross-Entropy Loss",
        (thm_3_1, sec_1_1_landscape),
    ),
)
"""As printed: which work shows what, with which change to what is minimised."""


@dataclass(frozen=True)
class Config:
    """The run that is drawn; the paper has an illustration only."""

    classes: int = 3
    per_class: int = 15
    dim: int = 2
    scale: float = 0.3
    """Standard deviation of the start."""
    rate: float = 5.0
    """On the mean loss."""
    steps: tuple[int, ...] = (0, 2, 20, 10_000)
    """Where the run is looked at."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The run from the first seed, and the verdicts of the claims behind the table."""
    problem = Problem(config.classes, config.per_class, config.dim)
    theta = problem.initial(scale=config.scale, seed=seeds[0])
    moments = []
    with one_thread():
        done = 0
        for step in config.steps:
            if step > done:
                theta = descend(problem, theta, steps=step - done, rate=config.rate).theta
                done = step
            W, H = problem.split(theta)
            moments.append({"step": step, "weight": _unit(W), "features": _unit(H)})
        judged = {
            one.id: one.check().verdict.value
            for one in dict.fromkeys(claim for work in TABLE_1 for claim in work.claims)
        }
    return {"config": asdict(config), "seeds": list(seeds), "moments": moments, "judged": judged}


def _unit(rows: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[float]]:
    """Rows in units of their root mean square norm."""
    size = math.sqrt(float(np.square(rows).sum(1).mean()))
    found: list[list[float]] = (rows / size).round(5).tolist()
    return found


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Table 1 with our verdict beside each row."""
    tick = {True: "✓", False: "✗"}
    rows = []
    for work in TABLE_1:
        ours = "; ".join(f"{one.id}: {numbers['judged'][one.id]}" for one in work.claims) or "open"
        rows.append(
            (
                work.reference,
                work.contribution,
                tick[work.constraint],
                tick[work.regularisation],
                work.loss,
                f"{ours} ({work.why})" if work.why else ours,
            )
        )
    columns = (
        "reference",
        "contribution",
        "norm constraint",
        "norm regularisation",
        "loss",
        "our verdict",
    )
    return [Table("Table 1 of ji2022, with what our checks say", columns, rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Features, their class means and the classifiers at several moments."""
    classes = numbers["config"]["classes"]
    panels = tuple(_panel(moment, classes) for moment in numbers["moments"])
    return [
        Picture(
            "ji2022_fig1",
            "Neural collapse of three classes in the plane",
            panels,
            columns=len(panels),
            caption="Features of three classes (dots), their means (crosses) and the classifiers "
            "(circles), each in units of their root mean square norm, along gradient descent on "
            "the layer-peeled model: features gather at their means, these become a simplex, and "
            "the classifiers meet them.",
        )
    ]


def _panel(moment: Mapping[str, Any], classes: int) -> Panel:
    features = np.array(moment["features"]).reshape(classes, -1, 2)
    series = []
    for place in range(classes):
        kinds: tuple[tuple[str, Any, Marker], ...] = (
            ("features", features[place], "filled"),
            ("means", features[place].mean(0, keepdims=True), "cross"),
            ("classifiers", np.array(moment["weight"])[place : place + 1], "hollow"),
        )
        for label, points, marker in kinds:
            x, y = (points[:, axis].tolist() for axis in (0, 1))
            shown = label if place == 0 else ""
            series.append(Series(shown, x, y, colour=place, style="none", marker=marker))
    return Panel(f"step {moment['step']}", "", "", tuple(series))

"""Figure 1 and Table 1 of ji2022: an illustration of neural collapse, and a table of results.

Claim: features gather at their class means, which become a simplex, dual to the classifiers.
Source: ji2022, Fig. 1

The figure is drawn from a run of ours with three classes in the plane. Every row of the table also
shows the verdict of our checks.
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
    constraint: str
    """Tick if the norms of features are bounded."""
    regularisation: str
    """Tick if the norms of features are regularised."""
    loss: str
    claims: tuple[Claim, ...] = ()
    """Claims of nclab that check this row."""
    why: str = ""
    """Explanation of the check, or the reason why no claim checks the row."""


YES, NO = "✓", "✗"
CROSS_ENTROPY = "Cross-Entropy Loss"
EVERY_BOUND = "bounds on every feature; the optimum under a bound on their sum satisfies them"
SEE_TRAINING = "see Figure 3 and the ladder of smaller trainings"
NOT_JUDGED = "nclab trains networks with this loss, but does not judge its dynamics"
NOT_SEARCHED = "nclab does not search saddles of the regularised model"
TABLE_1 = (
    TableRow("[28]", "Empirical Results", NO, NO, CROSS_ENTROPY, why=SEE_TRAINING),
    TableRow("[9]", "Global Optimum", YES, NO, CROSS_ENTROPY, (eq_1,)),
    TableRow("[39]", "Global Optimum", YES, NO, CROSS_ENTROPY, (eq_1,), EVERY_BOUND),
    TableRow("[24]", "Global Optimum", YES, NO, CROSS_ENTROPY, (eq_1,), EVERY_BOUND),
    TableRow("[26]", "Training Dynamics", NO, NO, "ℓ2 Loss", why=NOT_JUDGED),
    TableRow("[43]", "Landscape Analysis", NO, YES, CROSS_ENTROPY, why=NOT_SEARCHED),
    TableRow(
        "This paper",
        "Training Dynamics + Landscape Analysis",
        NO,
        NO,
        CROSS_ENTROPY,
        (thm_3_1, sec_1_1_landscape),
    ),
)
"""Rows as printed: the reference, its contribution, and its changes to the objective."""


@dataclass(frozen=True)
class Config:
    """The run that is drawn; the figure of the paper is only an illustration."""

    classes: int = 3
    per_class: int = 15
    dim: int = 2
    scale: float = 0.3
    """Standard deviation of the start."""
    rate: float = 5.0
    """Learning rate on the mean loss."""
    steps: tuple[int, ...] = (0, 2, 20, 10_000)
    """Steps at which the run is drawn."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run descent from the first seed, and check the claims behind the table."""
    problem = Problem(config.classes, config.per_class, config.dim)
    theta = problem.initial(scale=config.scale, seed=seeds[0])
    moments = []
    with one_thread():
        for step, previous in zip(config.steps, (0, *config.steps), strict=False):
            if step > previous:
                theta = descend(problem, theta, steps=step - previous, rate=config.rate).theta
            W, H = problem.split(theta)
            moments.append({"step": step, "weight": _unit(W), "features": _unit(H)})
        judged = {
            claim.id: claim.check().verdict.value
            for claim in dict.fromkeys(claim for row in TABLE_1 for claim in row.claims)
        }
    return {"config": asdict(config), "seeds": list(seeds), "moments": moments, "judged": judged}


def _unit(rows: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[float]]:
    """Return rows in units of their root mean square norm."""
    size = math.sqrt(float(np.square(rows).sum(1).mean()))
    scaled: list[list[float]] = (rows / size).round(5).tolist()
    return scaled


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return Table 1 with our verdict for each row."""

    def verdicts(row: TableRow) -> str:
        judged = [f"{claim.id}: {numbers['judged'][claim.id]}" for claim in row.claims]
        text = "; ".join(judged) or "open"
        return f"{text} ({row.why})" if row.why else text

    columns = (
        "reference",
        "contribution",
        "norm constraint",
        "norm regularisation",
        "loss",
        "our verdict",
    )
    rows = [(*row[:5], verdicts(row)) for row in TABLE_1]
    return [Table("Table 1 of ji2022, with the verdicts of our checks", columns, rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return features, class means and classifiers at several steps."""
    classes = numbers["config"]["classes"]
    panels = tuple(_panel(moment, classes) for moment in numbers["moments"])
    return [
        Picture(
            "ji2022_fig1",
            "Neural collapse of three classes in the plane",
            panels,
            columns=len(panels),
            caption="Features of three classes (dots), class means (crosses) and classifiers "
            "(circles) during gradient descent on the layer-peeled model, each in units of its "
            "root mean square norm. Features converge to their class means, the class means to a "
            "simplex, and the classifiers to the class means.",
        )
    ]


def _panel(moment: Mapping[str, Any], classes: int) -> Panel:
    features = np.array(moment["features"]).reshape(classes, -1, 2)
    series = []
    for c in range(classes):
        kinds: tuple[tuple[str, Any, Marker], ...] = (
            ("features", features[c], "filled"),
            ("means", features[c].mean(0, keepdims=True), "cross"),
            ("classifiers", np.array(moment["weight"])[c : c + 1], "hollow"),
        )
        for label, points, marker in kinds:
            x, y = (points[:, axis].tolist() for axis in (0, 1))
            entry = label if c == 0 else ""
            series.append(Series(entry, x, y, colour=c, style="none", marker=marker))
    return Panel(f"step {moment['step']}", "", "", tuple(series))

"""Figure 1 and Table 1 of ji2022: an illustration of neural collapse, and a table of results.

Claim: features gather at their class means, which become a simplex, dual to the classifiers.
Source: ji2022, Fig. 1

Our figure shows a run of gradient descent with three classes in the plane; the paper's figure is
only an illustration. Every row of our table also shows the verdict of our checks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nclab.claims.claim import Claim
from nclab.claims.tables import Table
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Marker, Panel, Picture, Series
from nclab.ulpm.descent import descend
from nclab.ulpm.problem import Array, Problem
from nclab_papers.ji2022.flow import thm_3_1
from nclab_papers.ji2022.landscape import sec_1_1_landscape
from nclab_papers.ji2022.setting import eq_1

YES, NO = "✓", "✗"
CROSS_ENTROPY = "Cross-Entropy Loss"
EVERY_BOUND = "bounds on every feature; the optimum under a bound on their sum satisfies them"
SEE_TRAINING = "see Figure 3 and the ladder of smaller trainings"
NOT_JUDGED = "nclab trains networks with this loss, but does not judge its dynamics"
NOT_SEARCHED = "nclab does not search saddles of the regularised model"
OURS = (thm_3_1, sec_1_1_landscape)
TABLE_1: tuple[tuple[tuple[str, str, str, str, str], tuple[Claim, ...], str], ...] = (
    (("[28]", "Empirical Results", NO, NO, CROSS_ENTROPY), (), SEE_TRAINING),
    (("[9]", "Global Optimum", YES, NO, CROSS_ENTROPY), (eq_1,), ""),
    (("[39]", "Global Optimum", YES, NO, CROSS_ENTROPY), (eq_1,), EVERY_BOUND),
    (("[24]", "Global Optimum", YES, NO, CROSS_ENTROPY), (eq_1,), EVERY_BOUND),
    (("[26]", "Training Dynamics", NO, NO, "ℓ2 Loss"), (), NOT_JUDGED),
    (("[43]", "Landscape Analysis", NO, YES, CROSS_ENTROPY), (), NOT_SEARCHED),
    (("This paper", "Training Dynamics + Landscape Analysis", NO, NO, CROSS_ENTROPY), OURS, ""),
)
"""Rows of the table: the printed cells, the claims of nclab that check the row, and a remark. The
cells are the reference, its contribution, whether norms are bounded, whether they are regularised,
and the loss."""


@dataclass(frozen=True)
class Config:
    """Settings of the run in the figure; `per_class` is N, the samples of each class."""

    classes: int = 3
    per_class: int = 15
    dim: int = 2
    scale: float = 0.3
    """Standard deviation of the entries of W and H at the start."""
    rate: float = 5.0
    """Learning rate; the loss is the mean over samples."""
    steps: tuple[int, ...] = (0, 2, 20, 10_000)
    """Steps that the figure shows."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run descent with the first seed, and check the claims that the table refers to."""
    problem = Problem(config.classes, config.per_class, config.dim)
    theta = problem.initial(scale=config.scale, seed=seeds[0])
    moments = []
    with one_thread():
        for step, previous in zip(config.steps, (0, *config.steps), strict=False):
            if step > previous:
                theta = descend(problem, theta, steps=step - previous, rate=config.rate).theta
            W, H = problem.split(theta)
            moments.append({"step": step, "weight": _unit(W), "features": _unit(H)})
        checked = dict.fromkeys(claim for _, claims, _ in TABLE_1 for claim in claims)
        judged = {claim.id: claim.check().verdict.value for claim in checked}
    return {"config": asdict(config), "seeds": list(seeds), "moments": moments, "judged": judged}


def _unit(rows: Array) -> list[list[float]]:
    """Return rows, divided by their root mean square norm, as rounded lists."""
    size = math.sqrt(float(np.square(rows).sum(1).mean()))
    scaled: list[list[float]] = (rows / size).round(5).tolist()
    return scaled


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return Table 1 with our verdict for each row."""
    rows = []
    for cells, claims, why in TABLE_1:
        judged = [f"{claim.id}: {numbers['judged'][claim.id]}" for claim in claims]
        verdict = "; ".join(judged) or "open"
        rows.append((*cells, f"{verdict} ({why})" if why else verdict))
    columns = ("reference", "contribution", "norm constraint", "norm regularisation", "loss")
    title = "Table 1 of ji2022, with the verdicts of our checks"
    return [Table(title, (*columns, "our verdict"), rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return a picture of features, class means and classifiers at several steps."""
    classes = numbers["config"]["classes"]
    panels = tuple(_panel(moment, classes) for moment in numbers["moments"])
    caption = (
        "Features of three classes (dots), class means (crosses) and classifiers "
        "(circles) during gradient descent on the layer-peeled model, each in units of its "
        "root mean square norm. Features converge to their class means, the class means to a "
        "simplex, and the classifiers to the class means."
    )
    title = "Neural collapse of three classes in the plane"
    return [Picture("ji2022_fig1", title, panels, len(panels), caption)]


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

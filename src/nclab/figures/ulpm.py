"""Pictures of the unconstrained layer-peeled model (ULPM), from measurements of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nclab.errors import NclabError
from nclab.figures.picture import (
    BLACK,
    HeatMap,
    Panel,
    Picture,
    Reference,
    Series,
    Style,
    finite,
    positive,
)

Array = NDArray[np.float64]
Samples = Sequence[Mapping[str, Any]]

PANELS = (
    ("(1) variation of norms", ("nc2_norm_variation_means", "nc2_norm_variation_weights")),
    ("(2) within-class variation", ("nc1_within_variation",)),
    (
        "(3) deviation from equal angles",
        ("nc2_equiangularity_means", "nc2_equiangularity_weights"),
    ),
    ("(4) distance from self-duality", ("nc3_self_duality",)),
)
"""Title and metrics of each panel of ji2022, Figure 2."""
ESCAPE_RUNS = {
    "stuck": "plain descent",
    "stochastic": "stochastic descent",
    "noisy": "noise in the gradient",
    "settled": "… then normalised descent",
}
"""Labels of the runs that start at the saddle point in ji2022, Example 3.1."""
TOO_SHORT = "Expected samples with t > e and a {}, got none. Run for longer."
_ESCAPE_STYLES: tuple[tuple[int, Style], ...] = (
    (BLACK, "solid"),
    (3, "dashed"),
    (4, "solid"),
    (0, "solid"),
)
"""Colours and line styles of the runs in `ESCAPE_RUNS`, in the same order."""


def quantities_picture(samples: Samples, *, title: str = "", name: str = "quantities") -> Picture:
    """Return a picture of the quantities in `PANELS` against log t, with the paper's rate 1/log t.

    Source: ji2022, Fig. 2
    """
    panels = []
    for index, (heading, metrics) in enumerate(PANELS):
        curves = [_curve(samples, metric) for metric in metrics]
        series = []
        for colour, (metric, (x, y)) in enumerate(zip(metrics, curves, strict=True)):
            kind = "classifiers" if metric.endswith("weights") else "means"
            words = [kind] if len(metrics) > 1 else []
            slope = tail_slope(x, y)
            if np.isfinite(slope):
                words.append(f"slope {slope:.2f}".replace("-", "−"))
            style: Style = "dashed" if colour else "solid"
            label = ", ".join(words)
            series.append(Series(label, finite(x), finite(y), colour=colour, style=style))
        log_times, values = curves[0]
        late = log_times[log_times >= log_times[-1] ** (1 / 2)]
        rate = finite(values[-1] * log_times[-1] / late)  # ji2022, Thm 3.1: O(1/log t)
        series.append(Series("1/log t", finite(late), rate, colour=BLACK, style="dotted"))
        y_label = "quantity" if index == 0 else ""
        panels.append(Panel(heading, "", y_label, tuple(series), "loglog", "log"))
    caption = (
        "Each quantity against log t on logarithmic axes, with the slope of its last third. "
        "Dotted: the paper's rate 1/log t, drawn through the last point."
    )
    return Picture(name, title, tuple(panels), 4, caption, (2.75, 2.5))


def tail_slope(log_times: Array, values: Array) -> float:
    """Return the slope of log value against log log t, fitted to the last third of log log t.

    The result is nan if this third has fewer than three points.
    """
    tail = log_times >= log_times[-1] ** (2 / 3)
    if tail.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(log_times[tail]), np.log(values[tail]), 1)[0])


def _curve(samples: Samples, metric: str) -> Array:
    """Return an array (2, k): log t and a metric, where log t > 1 and the metric is positive."""
    pairs = [(row["log_time"], row[metric]) for row in samples]
    points = [(x, y) for x, y in pairs if x is not None and y is not None and x > 1 and y > 0]
    if not points:
        raise NclabError(TOO_SHORT.format(f"positive {metric}"))
    return np.array(points, dtype=np.float64).T


def margins_picture(samples: Samples, *, title: str = "", name: str = "margins") -> Picture:
    """Return a picture of margin, 1 − normalised margin and KKT residuals against log t.

    The residuals show how far the Karush-Kuhn-Tucker conditions of a maximal margin are violated.
    These are the quantities in ji2022, Lemmas 3.1 and 3.2. The curves start when the classes
    are linearly separated.
    """
    rows = [row for row in samples if row["log_time"] is not None and row["log_time"] > 1]
    rows = [row for row in rows if row["kkt_epsilon"] is not None]
    if not rows:
        raise NclabError(TOO_SHORT.format("positive margin"))
    columns = {key: np.array([row[key] for row in rows], dtype=np.float64) for key in rows[0]}
    time = finite(columns["log_time"])

    def line(label: str, values: Array, colour: int, style: Style = "solid") -> Series:
        return Series(label, time, positive(values), colour=colour, style=style)

    margin = (
        line("margin", columns["margin"], 0),
        Series("log t", time, time, colour=BLACK, style="dotted"),
    )
    shortfall = (line("1 − normalised margin", 1 - columns["normalised_margin"], 1),)
    residuals = (
        line("ε", columns["kkt_epsilon"], 5),
        line("δ", columns["kkt_delta"], 3, "dashed"),
        line("1 − β", 1 - columns["alignment"], 2, "dashed"),
    )
    panels = (
        Panel("margin", "", "", margin, "loglog", "log"),
        Panel("1 − normalised margin", "", "", shortfall, "loglog", "log"),
        Panel("KKT residuals of problem (5)", "", "", residuals, "loglog", "log"),
    )
    caption = "The margin grows like log t, and the direction converges to a KKT point."
    return Picture(name, title, panels, 3, caption, (3.3, 2.5))


def escape_picture(runs: Mapping[str, Samples], *, name: str = "escape") -> Picture:
    """Return a picture of runs from ji2022, Example 3.1: margin, and angles between class means."""
    margins, angles = [], []
    for (run, samples), (colour, style) in zip(runs.items(), _ESCAPE_STYLES, strict=False):
        rows = [row for row in samples if row["log_time"] is not None and row["log_time"] >= 1]
        time = finite(row["log_time"] for row in rows)
        line = Series(ESCAPE_RUNS.get(run, run), time, [], colour=colour, style=style)
        margins.append(line._replace(y=finite(row["normalised_margin"] for row in rows)))
        angles.append(line._replace(y=positive(row["nc2_equiangularity_means"] for row in rows)))
    ideal = (Reference("simplex ETF", y=1.0),)
    panels = (
        Panel("normalised margin", "", "", tuple(margins), "loglog", "linear", ideal, (0.45, 1.04)),
        Panel("deviation from equal angles (class means)", "", "", tuple(angles), "loglog", "log"),
    )
    caption = (
        "Plain descent stays on the ray of the saddle, where the normalised margin is 0.75. "
        "Stochastic descent with one sample per step returns to the ray. Noise in every "
        "coordinate leaves it, and normalised descent from there reaches the simplex ETF."
    )
    return Picture(name, "Escape from the saddle of Example 3.1", panels, 2, caption, (4.0, 2.6))


def slice_picture(
    angles: Array, log_losses: Array, *, title: str = "The loss around the point"
) -> Picture:
    """Return a map of the loss around a point: log L minus the value of log L at the point.

    Larger losses are red, smaller losses blue; a line marks equal losses.
    """
    middle = len(angles) // 2
    change = log_losses - log_losses[middle, middle]
    # Values above and below the centre have separate colour scales, so that small dips are visible.
    low, high = min(float(change.min()), -1e-9), max(float(change.max()), 1e-9)
    panel = HeatMap(
        "",
        "angle along the smallest eigenvalue",
        "angle along a larger eigenvalue",
        [finite(row) for row in change],
        value_range=(low, high),
        x=finite(angles),
        y=finite(angles),
        centre=0.0,
        value_label="log L − log L(point)",
    )
    caption = (
        "The loss on a part of the sphere around the point in the middle. Blue: below the loss of "
        "the point. Red: above it. Line: equal to it."
    )
    return Picture("slice", title, (panel,), 1, caption, (4.2, 3.4))

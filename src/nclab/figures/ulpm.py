"""Figures of the layer-peeled model, from the samples of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nclab.errors import NclabError
from nclab.figures.palette import BLACK
from nclab.figures.picture import HeatMap, Panel, Picture, Reference, Series, Style, finite

Array = NDArray[np.float64]
Samples = Sequence[Mapping[str, Any]]

PANELS = (
    ("(1) norms vary by", ("nc2_norm_variation_means", "nc2_norm_variation_weights")),
    ("(2) within-class variation", ("nc1_within_variation",)),
    ("(3) cosines off −1/(C−1) by", ("nc2_equiangularity_means", "nc2_equiangularity_weights")),
    ("(4) distance from self-duality", ("nc3_self_duality",)),
)


def quantities_picture(samples: Samples, *, title: str = "", name: str = "quantities") -> Picture:
    """Four panels, the log of a quantity over log log t, with the rate that is claimed.

    Source: ji2022, Fig. 2

    >>> rows = [{"log_time": x, **{n: 1 / x for _, names in PANELS for n in names}}
    ...         for x in (100.0, 300.0, 1000.0)]
    >>> [line.label for line in quantities_picture(rows).panels[0].series]
    ['means, slope −1.00', 'classifiers, slope −1.00', '1/log t']
    """
    panels = []
    for place, (heading, keys) in enumerate(PANELS):
        curves = [_curve(samples, key) for key in keys]
        series = []
        for number, (key, (x, y)) in enumerate(zip(keys, curves, strict=True)):
            kind = "classifiers" if key.endswith("weights") else "means"
            words = [kind] if len(keys) > 1 else []
            slope = tail_slope(x, y)
            if np.isfinite(slope):
                words.append(f"slope {slope:.2f}".replace("-", "−"))
            style: Style = "dashed" if number else "solid"
            series.append(
                Series(", ".join(words), finite(x), finite(y), colour=number, style=style)
            )
        series.append(_claimed_rate(*curves[0]))
        y_label = "quantity" if place == 0 else ""
        panels.append(Panel(heading, "", y_label, tuple(series), "loglog", "log"))
    caption = (
        "Every quantity over log t, both axes logarithmic, with the slope of its tail; dotted, "
        "the rate 1/log t that the paper claims, through the last point."
    )
    return Picture(name, title, tuple(panels), 4, caption, (2.75, 2.5))


def tail_slope(log_times: Array, values: Array) -> float:
    """d log value / d log log t over the last third of log log t; nan if it cannot be fitted.

    >>> round(tail_slope(*2 * [np.array([100.0, 300.0, 1000.0])]), 6)
    1.0
    """
    tail = log_times >= log_times[-1] ** (2 / 3)
    if tail.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(log_times[tail]), np.log(values[tail]), 1)[0])


def _curve(samples: Samples, name: str) -> Array:
    """(2, k) log t and a quantity where it is positive and log t is above 1, as the axes need."""
    pairs = [(row["log_time"], row[name]) for row in samples]
    kept = [(x, y) for x, y in pairs if x is not None and y is not None and x > 1 and y > 0]
    if not kept:
        raise NclabError(
            f"Expected samples with t > e and a positive {name}, got none. Run for longer."
        )
    return np.array(kept, dtype=np.float64).T


def _claimed_rate(log_times: Array, values: Array) -> Series:
    """The O(1/log t) of ji2022, Thm 3.1, through the end of a curve."""
    x = log_times[log_times >= log_times[-1] ** (1 / 2)]
    rate = values[-1] * log_times[-1] / x
    return Series("1/log t", finite(x), finite(rate), colour=BLACK, style="dotted")


def margins_picture(samples: Samples, *, title: str = "", name: str = "margins") -> Picture:
    """What ji2022, Lemma 3.1 and 3.2 speak of, from the first separating sample on.

    Three panels: the margin, what it lacks, and the KKT residuals.

    >>> row = {"log_time": 9.0, "margin": 8.0, "normalised_margin": 0.75, "kkt_epsilon": 0.1,
    ...        "kkt_delta": 0.01, "alignment": 0.99}
    >>> margins_picture([row]).panels[1].series[0].y
    [0.25]
    """
    kept = [
        row for row in _later(samples) if row["log_time"] > 1 and row["kkt_epsilon"] is not None
    ]
    if not kept:
        raise NclabError("Expected samples with t > e and a positive margin. Run for longer.")
    time = finite(_column(kept, "log_time"))

    def line(label: str, values: Array, colour: int, style: Style = "solid") -> Series:
        return Series(label, time, _positive(values), colour=colour, style=style)

    margin = (
        line("margin", _column(kept, "margin"), 0),
        Series("log t", time, time, colour=BLACK, style="dotted"),
    )
    shortfall = (line("1 − normalised margin", 1 - _column(kept, "normalised_margin"), 1),)
    residuals = (
        line("ε", _column(kept, "kkt_epsilon"), 5),
        line("δ", _column(kept, "kkt_delta"), 3, "dashed"),
        line("1 − β", 1 - _column(kept, "alignment"), 2, "dashed"),
    )
    panels = (
        Panel("margin", "", "", margin, "loglog", "log"),
        Panel("1 − normalised margin", "", "", shortfall, "loglog", "log"),
        Panel("KKT residuals of problem (5)", "", "", residuals, "loglog", "log"),
    )
    caption = "The margin grows like log t and the direction becomes a KKT point."
    return Picture(name, title, panels, 3, caption, (3.3, 2.5))


ESCAPES = {
    "stuck": "plain descent",
    "stochastic": "stochastic descent",
    "noisy": "noise in the gradient",
    "settled": "… then normalised descent",
}
"""What the runs around Example 3.1 are called in a figure."""
LOOKS: tuple[tuple[int, Style], ...] = ((BLACK, "solid"), (3, "dashed"), (4, "solid"), (0, "solid"))
"""Colour and style of each."""


def escape_picture(runs: Mapping[str, Samples], *, name: str = "escape") -> Picture:
    """Runs that start in one point: the normalised margin, and how far from a simplex they are.

    >>> row = {"log_time": 2.0, "normalised_margin": 0.75, "nc2_equiangularity_means": 0.4}
    >>> [panel.series[0].y for panel in escape_picture({"stuck": [row]}).panels]
    [[0.75], [0.4]]
    """
    margins, angles = [], []
    for (run, samples), (colour, style) in zip(runs.items(), LOOKS, strict=False):
        kept = [row for row in _later(samples) if row["log_time"] >= 1]
        label, time = ESCAPES.get(run, run), finite(_column(kept, "log_time"))
        margin = finite(_column(kept, "normalised_margin"))
        angle = _positive(_column(kept, "nc2_equiangularity_means"))
        margins.append(Series(label, time, margin, colour=colour, style=style))
        angles.append(Series(label, time, angle, colour=colour, style=style))
    simplex = (Reference("simplex ETF", y=1.0),)
    title = "cosines of the means off −1/(C−1) by"
    panels = (
        Panel(
            "normalised margin", "", "", tuple(margins), "loglog", "linear", simplex, (0.45, 1.04)
        ),
        Panel(title, "", "", tuple(angles), "loglog", "log"),
    )
    caption = (
        "Plain descent stays on the ray of the saddle, where the normalised margin is 0.75, and "
        "descent on one sample a step comes back to it; noise in every coordinate leaves it, and "
        "descent from there reaches the simplex."
    )
    return Picture(name, "Escape from the saddle of Example 3.1", panels, 2, caption, (4.0, 2.6))


def slice_picture(
    angles: Array,
    log_losses: Array,
    *,
    title: str = "The loss around the point",
    name: str = "slice",
) -> Picture:
    """log L around the point; red is above it, blue below, and the line is level with it.

    >>> picture = slice_picture(np.array([-1.0, 0.0, 1.0]), np.ones((3, 3)))
    >>> picture.panels[0].values[0]
    [0.0, 0.0, 0.0]
    """
    middle = len(angles) // 2
    change = log_losses - log_losses[middle, middle]
    # Each side has its own scale: the wells are shallow and are what is to be seen.
    low, high = min(float(change.min()), -1e-9), max(float(change.max()), 1e-9)
    panel = HeatMap(
        "",
        "angle along the smallest eigenvalue",
        "angle along a larger one",
        [finite(row) for row in change],
        value_range=(low, high),
        x=finite(angles),
        y=finite(angles),
        centre=0.0,
        value_label="log L − log L(point)",
    )
    caption = (
        "The loss on a piece of the sphere around the point, in the middle: blue below it, red "
        "above it, and the line where the loss is that of the point."
    )
    return Picture(name, title, (panel,), 1, caption, (4.2, 3.4))


def _later(samples: Samples) -> Samples:
    """All but the start, where log t is not finite."""
    return [row for row in samples if row["log_time"] is not None]


def _column(rows: Samples, name: str) -> Array:
    return np.array([row[name] for row in rows], dtype=np.float64)


def _positive(values: Array) -> list[float | None]:
    """For a log axis: nothing where the value is zero or less."""
    return [value if value is not None and value > 0 else None for value in finite(values)]

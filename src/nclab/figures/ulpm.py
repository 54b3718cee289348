"""Figures of the layer-peeled model, from the samples of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.errors import NclabError
from nclab.figures.palette import BLACK
from nclab.figures.picture import HeatMap, Panel, Picture, Reference, Series, Style

Array = NDArray[np.float64]
Samples = Sequence[Mapping[str, Any]]

PANELS = (
    ("(1) norms vary by", ("nc2_norm_variation_means", "nc2_norm_variation_weights")),
    ("(2) within-class variation", ("nc1_within_variation",)),
    ("(3) cosines off −1/(C−1) by", ("nc2_equiangularity_means", "nc2_equiangularity_weights")),
    ("(4) distance from self-duality", ("nc3_self_duality",)),
)


class Curve(NamedTuple):
    """One quantity over log t, with the power law fitted to its tail."""

    name: str
    log_time: Array
    value: Array
    slope: float
    """d log value / d log log t over the last third of log log t; nan if it cannot be fitted."""
    fitted: Array
    """(k,) the fitted line at `fitted_log_time`."""
    fitted_log_time: Array


class QuantityPanels(NamedTuple):
    """The four panels of ji2022, Fig. 2."""

    title: str
    panels: tuple[tuple[Curve, ...], ...]


def quantity_panels(samples: Samples, *, title: str = "") -> QuantityPanels:
    """The four quantities over time, and the rates at which they fall in the end.

    Source: ji2022, Fig. 2

    >>> rows = [{"log_time": x, **{n: 1 / x for _, names in PANELS for n in names}}
    ...         for x in (100.0, 300.0, 1000.0)]
    >>> round(quantity_panels(rows).panels[0][0].slope, 6)
    -1.0
    """
    return QuantityPanels(
        title, tuple(tuple(curve(samples, name) for name in names) for _, names in PANELS)
    )


def curve(samples: Samples, name: str) -> Curve:
    """One quantity where it is positive and log t is above 1, as the axes need."""
    pairs = [(row["log_time"], row[name]) for row in samples]
    kept = np.array(
        [(x, y) for x, y in pairs if x is not None and y is not None and x > 1 and y > 0]
    ).reshape(-1, 2)
    if len(kept) == 0:
        raise NclabError(
            f"Expected samples with t > e and a positive {name}, got none. Run for longer."
        )
    x, y = kept.T
    tail = x >= x[-1] ** (2 / 3)
    if tail.sum() < 3:
        return Curve(name, x, y, float("nan"), y[:0], x[:0])
    slope, level = np.polyfit(np.log(x[tail]), np.log(y[tail]), 1)
    return Curve(name, x, y, float(slope), np.exp(level) * x[tail] ** slope, x[tail])


def quantities_picture(data: QuantityPanels, *, name: str = "quantities") -> Picture:
    """Four panels, the log of a quantity over log log t, with the rate that is claimed."""
    panels = []
    for place, ((title, _), curves) in enumerate(zip(PANELS, data.panels, strict=True)):
        series = []
        for number, one in enumerate(curves):
            kind = "classifiers" if one.name.endswith("weights") else "means"
            words = [kind] if len(curves) > 1 else []
            if np.isfinite(one.slope):
                words.append(f"slope {one.slope:.2f}".replace("-", "−"))
            style: Style = "dashed" if number else "solid"
            label = ", ".join(words)
            series.append(
                Series(label, _list(one.log_time), _list(one.value), colour=number, style=style)
            )
        series.append(_claimed_rate(curves[0]))
        y_label = "quantity" if place == 0 else ""
        panels.append(Panel(title, "", y_label, tuple(series), "loglog", "log"))
    caption = (
        "Every quantity over log t, both axes logarithmic, with the slope of its tail; dotted, "
        "the rate 1/log t that the paper claims, through the last point."
    )
    return Picture(name, data.title, tuple(panels), 4, caption, (2.75, 2.5))


def _claimed_rate(curve: Curve) -> Series:
    """The O(1/log t) of ji2022, Thm 3.1, through the end of a curve."""
    x = curve.log_time[curve.log_time >= curve.log_time[-1] ** (1 / 2)]
    rate = curve.value[-1] * curve.log_time[-1] / x
    return Series("1/log t", _list(x), _list(rate), colour=BLACK, style="dotted")


class MarginPanels(NamedTuple):
    """Margin, normalised margin and KKT residuals over time."""

    title: str
    log_time: Array
    margin: Array
    shortfall: Array
    """1 - normalised margin."""
    kkt_epsilon: Array
    kkt_delta: Array
    misalignment: Array
    """1 - beta."""


def margin_panels(samples: Samples, *, title: str = "") -> MarginPanels:
    """What ji2022, Lemma 3.1 and 3.2 speak of, from the first separating sample on.

    >>> row = {"log_time": 9.0, "margin": 8.0, "normalised_margin": 0.9, "kkt_epsilon": 0.1,
    ...        "kkt_delta": 0.01, "alignment": 0.99}
    >>> margin_panels([row]).shortfall.round(12).tolist()
    [0.1]
    """
    kept = [
        row
        for row in samples
        if row["log_time"] is not None and row["log_time"] > 1 and row["kkt_epsilon"] is not None
    ]
    if not kept:
        raise NclabError("Expected samples with t > e and a positive margin. Run for longer.")

    def column(name: str) -> Array:
        return np.array([row[name] for row in kept], dtype=np.float64)

    return MarginPanels(
        title,
        column("log_time"),
        column("margin"),
        1 - column("normalised_margin"),
        column("kkt_epsilon"),
        column("kkt_delta"),
        1 - column("alignment"),
    )


def margins_picture(data: MarginPanels, *, name: str = "margins") -> Picture:
    """Three panels: the margin, what it lacks, and the KKT residuals."""
    time = _list(data.log_time)
    margin = (
        Series("margin", time, _list(data.margin), colour=0),
        Series("log t", time, time, colour=BLACK, style="dotted"),
    )
    shortfall = (Series("1 − normalised margin", time, _positive(data.shortfall), colour=1),)
    residuals = (
        Series("ε", time, _positive(data.kkt_epsilon), colour=5),
        Series("δ", time, _positive(data.kkt_delta), colour=3, style="dashed"),
        Series("1 − β", time, _positive(data.misalignment), colour=2, style="dashed"),
    )
    panels = (
        Panel("margin", "", "", margin, "loglog", "log"),
        Panel("1 − normalised margin", "", "", shortfall, "loglog", "log"),
        Panel("KKT residuals of problem (5)", "", "", residuals, "loglog", "log"),
    )
    caption = "The margin grows like log t and the direction becomes a KKT point."
    return Picture(name, data.title, panels, 3, caption, (3.3, 2.5))


ESCAPES = {
    "stuck": "plain descent",
    "stochastic": "stochastic descent",
    "noisy": "noise in the gradient",
    "settled": "… then normalised descent",
}
"""What the runs around Example 3.1 are called in a figure."""


class EscapeCurve(NamedTuple):
    """One run that starts in a saddle."""

    name: str
    log_time: Array
    normalised_margin: Array
    equiangularity: Array
    """`nc2_equiangularity_means`."""


class EscapePanels(NamedTuple):
    """Runs around a saddle."""

    runs: tuple[EscapeCurve, ...]


def escape_panels(runs: Mapping[str, Samples]) -> EscapePanels:
    """Runs that start in one point, by name.

    >>> row = {"log_time": 2.0, "normalised_margin": 0.75, "nc2_equiangularity_means": 0.4}
    >>> escape_panels({"plain": [row]}).runs[0].normalised_margin.tolist()
    [0.75]
    """
    found = []
    for name, samples in runs.items():
        kept = [row for row in samples if row["log_time"] is not None and row["log_time"] >= 1]

        def column(key: str, rows: Samples = kept) -> Array:
            return np.array([row[key] for row in rows], dtype=np.float64)

        found.append(
            EscapeCurve(
                ESCAPES.get(name, name),
                column("log_time"),
                column("normalised_margin"),
                column("nc2_equiangularity_means"),
            )
        )
    return EscapePanels(tuple(found))


def escape_picture(data: EscapePanels, *, name: str = "escape") -> Picture:
    """Two panels over time: the normalised margin, and how far the angles are from a simplex."""
    looks: tuple[tuple[int, Style], ...] = (
        (BLACK, "solid"),
        (3, "dashed"),
        (4, "solid"),
        (0, "solid"),
    )
    margins, angles = [], []
    for run, (colour, style) in zip(data.runs, looks, strict=False):
        time = _list(run.log_time)
        look: dict[str, Any] = {"colour": colour, "style": style}
        margins.append(Series(run.name, time, _list(run.normalised_margin), **look))
        angles.append(Series(run.name, time, _positive(run.equiangularity), **look))
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


class SliceMap(NamedTuple):
    """The loss on a piece of the sphere, relative to the point in the middle."""

    angles: Array
    change: Array
    """(p, p) log L minus that of the point."""


def slice_map(angles: Array, log_losses: Array) -> SliceMap:
    """Centre a slice on its middle point.

    >>> slice_map(np.array([-1.0, 0.0, 1.0]), np.ones((3, 3))).change[0, 0]
    np.float64(0.0)
    """
    middle = len(angles) // 2
    return SliceMap(angles, log_losses - log_losses[middle, middle])


def slice_picture(
    data: SliceMap, *, title: str = "The loss around the point", name: str = "slice"
) -> Picture:
    """log L around the point; red is above it, blue below, and the line is level with it."""
    # Each side has its own scale: the wells are shallow and are what is to be seen.
    low, high = min(float(data.change.min()), -1e-9), max(float(data.change.max()), 1e-9)
    panel = HeatMap(
        "",
        "angle along the smallest eigenvalue",
        "angle along a larger one",
        [_list(row) for row in data.change],
        value_range=(low, high),
        x=_list(data.angles),
        y=_list(data.angles),
        centre=0.0,
        value_label="log L − log L(point)",
    )
    caption = (
        "The loss on a piece of the sphere around the point, in the middle: blue below it, red "
        "above it, and the line where the loss is that of the point."
    )
    return Picture(name, title, (panel,), 1, caption, (4.2, 3.4))


def _list(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _positive(values: Array) -> list[float | None]:
    """For a log axis: nothing where the value is zero or less."""
    return [value if value is not None and value > 0 else None for value in _list(values)]

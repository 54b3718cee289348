"""Figures of the layer-peeled model, from the samples of its runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.errors import NclabError
from nclab.figures.canvas import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Samples = Sequence[Mapping[str, Any]]

PANELS = (
    ("(1) norms vary by", ("nc2_norm_variation_means", "nc2_norm_variation_weights")),
    ("(2) within-class variation", ("nc1_within_variation",)),
    ("(3) cosines off −1/(C−1) by", ("nc2_equiangularity_means", "nc2_equiangularity_weights")),
    ("(4) distance from self-duality", ("nc3_self_duality",)),
)
LN10 = float(np.log(10.0))


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


def draw_quantities(data: QuantityPanels) -> "Figure":
    """Four panels on the paper's axes, log of the quantity over log log t; fits are dotted."""
    with drawing(figsize=(11.0, 3.3)) as figure:
        axes = figure.subplots(1, 4)
        for place, (axis, (title, _), curves) in enumerate(
            zip(axes, PANELS, data.panels, strict=True)
        ):
            for one, colour, style in zip(curves, (BLUE, VERMILION), ("-", "--"), strict=False):
                kind = "classifiers" if one.name.endswith("weights") else "means"
                label = f"{kind}, slope" if len(curves) > 1 else "slope"
                if np.isfinite(one.slope):
                    label = f"{label} {one.slope:.2f}".strip().replace("-", "−")
                axis.plot(one.log_time, one.value, color=colour, ls=style, label=label or None)
            tail = curves[0]
            axis.plot(tail.fitted_log_time, tail.fitted, color=BLACK, lw=0.9, ls=":")
            axis.set_yscale("log")
            _time_axis(axis)
            axis.set_title(title, loc="left")
            _legend_below(axis, columns=1)
            if place == 0:
                axis.set_ylabel("quantity")
        if data.title:
            figure.suptitle(data.title, fontsize=9)
        return figure


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


def draw_margins(data: MarginPanels) -> "Figure":
    """Three panels: the margin, what it lacks, and the KKT residuals."""
    with drawing(figsize=(10.0, 3.2)) as figure:
        left, middle, right = figure.subplots(1, 3)
        left.plot(data.log_time, data.margin, color=BLUE, label=r"$q_{\min}$")
        left.plot(data.log_time, data.log_time, color=BLACK, ls=":", lw=0.9, label=r"$\log t$")
        left.set_yscale("log")
        left.set_title("margin", loc="left")
        middle.plot(data.log_time, data.shortfall, color=VERMILION)
        middle.set_yscale("log")
        middle.set_title("1 − normalised margin", loc="left")
        for values, colour, style, label in (
            (data.kkt_epsilon, BLUE, "-", r"$\varepsilon$"),
            (data.kkt_delta, VERMILION, "--", r"$\delta$"),
            (data.misalignment, GREEN, "-.", r"$1-\beta$"),
        ):
            right.plot(data.log_time, np.where(values > 0, values, np.nan), color=colour, ls=style)
            right.lines[-1].set_label(label)
        right.set_yscale("log")
        right.set_title("KKT residuals of problem (5)", loc="left")
        for axis in (left, middle, right):
            _time_axis(axis)
        _legend_below(left)
        _legend_below(right, columns=3)
        if data.title:
            figure.suptitle(data.title, fontsize=9)
        return figure


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
                name,
                column("log_time"),
                column("normalised_margin"),
                column("nc2_equiangularity_means"),
            )
        )
    return EscapePanels(tuple(found))


def draw_escape(data: EscapePanels) -> "Figure":
    """Two panels over time: the normalised margin, and how far the angles are from a simplex."""
    looks = ((BLACK, "-"), (PURPLE, "--"), (ORANGE, "-"), (BLUE, "-"))
    with drawing(figsize=(8.0, 3.0)) as figure:
        left, right = figure.subplots(1, 2)
        for run, (colour, style) in zip(data.runs, looks, strict=False):
            left.plot(run.log_time, run.normalised_margin, color=colour, ls=style, label=run.name)
            right.plot(run.log_time, run.equiangularity, color=colour, ls=style)
        left.axhline(1.0, color=GREEN, lw=0.9, ls=":")
        left.text(1.0, 0.99, "simplex ETF", color=GREEN, fontsize=8, va="top")
        left.set_ylim(0.3, 1.04)
        left.set_title("normalised margin", loc="left")
        right.set_yscale("log")
        right.set_title("cosines of the means off −1/(C−1) by", loc="left")
        for axis in (left, right):
            _time_axis(axis)
        left.legend(loc="lower right")
        return figure


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


def draw_slice(data: SliceMap, *, directions: tuple[str, str]) -> "Figure":
    """Level lines of log L around the point; red is above it, blue below."""
    from matplotlib.colors import TwoSlopeNorm

    with drawing(figsize=(4.2, 3.5)) as figure:
        axis = figure.subplots()
        # Each side has its own scale: the wells are shallow and are what is to be seen.
        low, high = min(float(data.change.min()), -1e-9), max(float(data.change.max()), 1e-9)
        levels = np.concatenate([np.linspace(low, 0, 11)[:-1], np.linspace(0, high, 11)])
        filled = axis.contourf(
            data.angles,
            data.angles,
            data.change,
            levels,
            cmap="RdBu_r",
            norm=TwoSlopeNorm(0.0, low, high),
        )
        axis.contour(data.angles, data.angles, data.change, [0.0], colors=BLACK, linewidths=0.9)
        axis.plot(0, 0, marker="o", ms=4, color=BLACK)
        axis.set_aspect("equal")
        axis.grid(False)
        axis.set_xlabel(directions[0])
        axis.set_ylabel(directions[1])
        bar = figure.colorbar(filled, ax=axis, shrink=0.9, format="%.2f")
        bar.set_label(r"$\log L - \log L(\mathrm{saddle})$")
        return figure


def _legend_below(axis: "Axes", *, columns: int = 2) -> None:
    """A legend under the axis, where it hides nothing."""
    axis.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.22),
        ncols=columns,
        handlelength=1.6,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def _time_axis(axis: "Axes") -> None:
    """log t on a log scale, with t itself in decades on top where that says more."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.set_xlabel(r"$\log t$")
    low, high = axis.get_xlim()
    marks = (1.0,) if high / low > 50 else (1.0, 2.0, 5.0)
    axis.xaxis.set_major_locator(LogLocator(subs=marks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    if high > 100:
        top = axis.secondary_xaxis("top", functions=(_to_decades, _from_decades))
        top.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
        top.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"$t=10^{{{x:g}}}$"))
        top.xaxis.set_minor_formatter(NullFormatter())
        top.tick_params(labelsize=7)


def _to_decades(x: Any) -> Any:
    return np.asarray(x) / LN10


def _from_decades(x: Any) -> Any:
    return np.asarray(x) * LN10

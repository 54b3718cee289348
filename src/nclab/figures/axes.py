"""Axes on paper: linear, logarithmic, and the time axis of ji2022 with decades on top."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nclab.figures.palette import Colours
from nclab.figures.picture import Panel, turned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LN10 = float(np.log(10.0))


def scale(axis: "Axes", panel: Panel, colours: Colours) -> None:
    """Give both axes of a panel their scales, ticks and ranges."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    axis.margins(x=0.03)
    if panel.x_scale == "log":
        axis.set_xscale("log")
        _few_decades(axis)
    if panel.y_scale in ("log", "loglog"):
        axis.set_yscale("log")
    if panel.y_range is not None:
        axis.set_ylim(*panel.y_range)
    if panel.x_scale == "loglog":
        _time_axis(axis)
        if panel.x_label:
            axis.set_xlabel(panel.x_label)
    elif panel.x_ticks:
        axis.set_xticks(panel.x_ticks, panel.x_names or [f"{tick:g}" for tick in panel.x_ticks])
        turn(axis, panel.x_names)
        axis.xaxis.set_minor_locator(NullLocator())
    elif panel.x_scale == "linear" and _whole(panel):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.bare:
        _strip(axis, panel)
    for side in (axis, *axis.child_axes):
        side.tick_params(
            which="both", color=colours.grid, labelcolor=colours.ink, grid_color=colours.grid
        )


def _few_decades(axis: "Axes") -> None:
    """Over less than two decades every tick would have a number, one on top of the other."""
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

    low, high = axis.get_xlim()
    if high < 100 * low:
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.xaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
        axis.xaxis.set_minor_formatter(NullFormatter())


def turn(axis: "Axes", names: Sequence[str]) -> None:
    """Long names below an axis stand at an angle."""
    if turned(names):
        for label in axis.get_xticklabels():
            label.set(rotation=45, horizontalalignment="right", rotation_mode="anchor")


def _strip(axis: "Axes", panel: Panel) -> None:
    """A drawing has no axes; names below it stay."""
    axis.set_aspect("equal", adjustable="datalim")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_yticks([])
    if panel.x_names:
        axis.tick_params(axis="x", length=0)
    else:
        axis.set_xticks([])


def _whole(panel: Panel) -> bool:
    """Whether x counts something."""
    return all(x is None or float(x).is_integer() for one in panel.series for x in one.x)


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
        decades = (lambda x: np.asarray(x) / LN10, lambda x: np.asarray(x) * LN10)
        top = axis.secondary_xaxis("top", functions=decades)
        top.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
        top.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"$t=10^{{{x:g}}}$"))
        top.xaxis.set_minor_formatter(NullFormatter())
        top.tick_params(labelsize=7)
        top.spines["top"].set_visible(False)

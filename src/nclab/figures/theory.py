"""Figures of the theory desk: what the loss guarantees, and the norms that weight decay sets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.figures.canvas import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Rows = Sequence[Mapping[str, Any]]


class GuaranteeCurve(NamedTuple):
    """A deviation from collapse against the excess loss; nan where there is no bound."""

    name: str
    deviation: Array
    slope: float
    """d log deviation / d log excess over the smallest third of the excess; nan without one."""


class GuaranteePanels(NamedTuple):
    """Guarantees and the truth, for one number of classes and one product of norms."""

    num_classes: int
    product: float
    excess: Array
    intra: tuple[GuaranteeCurve, ...]
    """1 - intra."""
    inter: tuple[GuaranteeCurve, ...]
    """inter + 1/(C - 1)."""


INTRA = (
    ("thesis", "thesis_intra_lower"),
    ("nclab", "intra_lower"),
    ("true worst case", "true_intra"),
)
INTER = (
    ("thesis", "thesis_inter_upper"),
    ("nclab", "inter_upper"),
    ("true worst case", "true_inter"),
)


def guarantee_panels(rows: Rows, *, num_classes: int, product: float) -> GuaranteePanels:
    """Curves of deviation against excess, from rows with bounds and worst cases.

    >>> rows = [{"excess_loss": e, "intra_lower": 1 - 2 * e, "inter_upper": -0.5 + e**0.5}
    ...         for e in (1e-6, 1e-5, 1e-4)]
    >>> panels = guarantee_panels(rows, num_classes=3, product=2.0)
    >>> [round(curve.slope, 3) for curve in (panels.intra[1], panels.inter[1])]
    [1.0, 0.5]
    """
    excess = _column(rows, "excess_loss")

    def curve(name: str, deviation: Array) -> GuaranteeCurve:
        deviation = np.where(deviation > 0, deviation, np.nan)
        known = np.flatnonzero(np.isfinite(deviation))[: max(3, len(excess) // 3)]
        slope = float("nan")
        if len(known) >= 2:
            slope = float(np.polyfit(np.log(excess[known]), np.log(deviation[known]), 1)[0])
        return GuaranteeCurve(name, deviation, slope)

    vertex = 1 / (num_classes - 1)
    return GuaranteePanels(
        num_classes,
        product,
        excess,
        tuple(curve(name, 1 - _column(rows, key)) for name, key in INTRA),
        tuple(curve(name, _column(rows, key) + vertex) for name, key in INTER),
    )


def draw_guarantees(data: GuaranteePanels) -> "Figure":
    """Two panels, log-log: how far from collapse a class or a pair can be at a given excess."""
    looks = {"thesis": (ORANGE, "--"), "nclab": (BLUE, "-"), "true worst case": (BLACK, "o")}
    with drawing(figsize=(8.4, 3.4)) as figure:
        left, right = figure.subplots(1, 2)
        most = (1.0, 1 + 1 / (data.num_classes - 1))
        titles = ("1 − intra, worst class", "inter + 1/(C−1), worst pair")
        for axis, curves, top, title in zip(
            (left, right), (data.intra, data.inter), most, titles, strict=True
        ):
            for curve in curves:
                colour, style = looks[curve.name]
                label = _with_slope(curve.name, curve.slope)
                axis.plot(
                    data.excess,
                    np.minimum(curve.deviation, top),
                    style,
                    color=colour,
                    label=label,
                    markersize=4,
                    markerfacecolor="none",
                )
            axis.axhline(top, color=VERMILION, lw=0.8, ls=":")
            axis.text(
                data.excess[0], top, " says nothing", color=VERMILION, fontsize=7, va="bottom"
            )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel("excess loss ε")
            axis.set_title(title, loc="left")
            axis.legend(loc="lower right")
        figure.suptitle(f"C = {data.num_classes}, αβ = {data.product:g}", fontsize=9)
        return figure


class NetworkPanels(NamedTuple):
    """Trained networks against weight decay."""

    weight_decay: Array
    measured: dict[str, Array]
    """alpha, beta, product, loss."""
    predicted_decay: Array
    predicted: dict[str, Array]
    intra: Array
    """(networks, C) measured."""
    guaranteed: Array
    """(networks, C) from the per-class certificate."""


def network_panels(networks: Rows, optima: Rows) -> NetworkPanels:
    """Arrays from measured networks and from optima on a finer grid of weight decays.

    >>> row = {"weight_decay": 1e-3, "alpha": 2.0, "beta": 1.0, "product": 2.0, "loss": 0.1,
    ...        "intra_cosine": [0.9, 0.8], "class_intra_lower": [0.5, 0.4]}
    >>> network_panels([row], [{**row, "optimal_loss": 0.1}]).intra.tolist()
    [[0.9, 0.8]]
    """
    keys = ("alpha", "beta", "product", "loss")
    predicted = {key: _column(optima, "optimal_loss" if key == "loss" else key) for key in keys}
    return NetworkPanels(
        _column(networks, "weight_decay"),
        {key: _column(networks, key) for key in keys},
        _column(optima, "weight_decay"),
        predicted,
        np.array([row["intra_cosine"] for row in networks], dtype=np.float64),
        np.array([row["class_intra_lower"] for row in networks], dtype=np.float64),
    )


def draw_networks(data: NetworkPanels) -> "Figure":
    """Three panels: norms, loss, and the cosines guaranteed beside those measured."""
    with drawing(figsize=(10.5, 3.2)) as figure:
        norms, losses, cosines = figure.subplots(1, 3)
        for key, colour, label in (
            ("alpha", BLUE, "α, features"),
            ("beta", VERMILION, "β, classifier"),
            ("product", GREEN, "αβ"),
        ):
            norms.plot(data.predicted_decay, data.predicted[key], color=colour, label=label)
            norms.plot(data.weight_decay, data.measured[key], "o", color=colour, markersize=4)
        norms.set_title("norms: optimum (line), trained (dots)", loc="left")
        losses.plot(data.predicted_decay, data.predicted["loss"], color=PURPLE, label="optimum")
        losses.plot(
            data.weight_decay,
            data.measured["loss"],
            "o",
            color=PURPLE,
            markersize=4,
            label="trained",
        )
        losses.set_yscale("log")
        losses.set_title("cross-entropy", loc="left")
        _spread(cosines, data.weight_decay, data.intra, BLACK, "measured, every class")
        _spread(cosines, data.weight_decay, data.guaranteed, BLUE, "guaranteed, every class")
        cosines.set_ylim(-0.02, 1.02)
        cosines.set_title("intra-class cosine", loc="left")
        for axis in (norms, losses, cosines):
            axis.set_xscale("log")
            axis.set_xlim(data.predicted_decay[0], data.predicted_decay[-1])
            axis.set_xticks(data.weight_decay, [f"{decay:g}" for decay in data.weight_decay])
            axis.minorticks_off()
            axis.set_xlabel("weight decay")
            axis.legend(loc="best")
        return figure


def _spread(axis: "Axes", x: Array, values: Array, colour: str, label: str) -> None:
    axis.plot(x, values.mean(1), "-", color=colour, label=label)
    axis.plot(np.repeat(x, values.shape[1]), values.ravel(), "o", color=colour, markersize=3)


def _column(rows: Rows, name: str) -> Array:
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=float)


def _with_slope(name: str, slope: float) -> str:
    return f"{name}, slope {slope:.2f}" if np.isfinite(slope) else f"{name}, no bound"

"""Figures of the theory desk: what the loss guarantees, and the norms that weight decay sets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nclab.figures.palette import BLACK
from nclab.figures.picture import Numbers, Panel, Picture, Reference, Series

if TYPE_CHECKING:
    pass

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


def guarantees_picture(data: GuaranteePanels, *, name: str = "guarantees") -> Picture:
    """Two panels, log-log: how far from collapse a class or a pair can be at a given excess."""
    looks: dict[str, dict[str, Any]] = {
        "thesis": {"colour": 4, "style": "dashed"},
        "nclab": {"colour": 0},
        "true worst case": {"colour": BLACK, "style": "none", "marker": "hollow"},
    }
    most = (1.0, 1 + 1 / (data.num_classes - 1))
    titles = ("1 − intra, worst class", "inter + 1/(C−1), worst pair")
    panels = []
    for curves, top, title in zip((data.intra, data.inter), most, titles, strict=True):
        series = tuple(
            Series(
                _with_slope(curve.name, curve.slope),
                _list(data.excess),
                _list(np.minimum(curve.deviation, top)),
                **looks[curve.name],
            )
            for curve in curves
        )
        vacuous = (Reference("says nothing", y=top),)
        panels.append(Panel(title, "excess loss ε", "", series, "log", "log", vacuous))
    title = f"What the loss guarantees: C = {data.num_classes}, αβ = {data.product:g}"
    caption = (
        "How far from collapse a class or a pair of classes can be at a given excess loss: "
        "the thesis's bounds, nclab's, and the worst case found by search."
    )
    return Picture(name, title, tuple(panels), 2, caption, (4.2, 2.8))


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


def networks_picture(data: NetworkPanels, *, name: str = "networks") -> Picture:
    """Three panels: norms, loss, and the cosines guaranteed beside those measured."""
    trained, predicted = _list(data.weight_decay), _list(data.predicted_decay)
    norms = []
    for key, colour, label in (
        ("alpha", 0, "α, features"),
        ("beta", 1, "β, classifier"),
        ("product", 2, "αβ"),
    ):
        norms.append(Series(label, predicted, _list(data.predicted[key]), colour=colour))
        dots: dict[str, Any] = {"colour": colour, "style": "none", "marker": "filled"}
        norms.append(Series("", trained, _list(data.measured[key]), **dots))
    dots = {"colour": 3, "style": "none", "marker": "filled"}
    losses = (
        Series("loss at the optimum", predicted, _list(data.predicted["loss"]), colour=3),
        Series("trained", trained, _list(data.measured["loss"]), **dots),
    )
    cosines = (
        *_spread(trained, data.intra, BLACK, "measured, every class"),
        *_spread(trained, data.guaranteed, 5, "guaranteed, every class"),
    )
    decay: dict[str, Any] = {"x_scale": "log", "x_ticks": tuple(data.weight_decay.tolist())}
    label = "weight decay"
    panels = (
        Panel("norms", label, "", tuple(norms), **decay),
        Panel("cross-entropy", label, "", losses, y_scale="log", **decay),
        Panel("intra-class cosine", label, "", cosines, y_range=(-0.02, 1.04), **decay),
    )
    title = "Trained networks against weight decay"
    caption = (
        "Norms and loss of trained networks (dots) beside the optimum that weight decay sets "
        "(lines), and the cosines of every class beside what the loss guarantees."
    )
    return Picture(name, title, panels, 3, caption, (3.5, 2.7))


def _spread(x: Numbers, values: Array, colour: int, label: str) -> tuple[Series, Series]:
    """The average over classes as a line, every class as a dot."""
    every = [place for place in x for _ in range(values.shape[1])]
    return (
        Series(label, x, _list(values.mean(1)), colour=colour),
        Series("", every, _list(values.ravel()), colour=colour, style="none", marker="filled"),
    )


def _list(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _column(rows: Rows, name: str) -> Array:
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=float)


def _with_slope(name: str, slope: float) -> str:
    return f"{name}, slope {slope:.2f}" if np.isfinite(slope) else f"{name}, no bound"

"""What near-optimal loss guarantees: curves against the true worst case, and real networks.

Claim: a loss near its optimum forces neural collapse, the more so the larger the weight decay.
Source: pan2023, Thm 2.3.1
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.paper import run_in_one_step, run_jobs
from nclab.claims.tables import Row, Table, group
from nclab.engine import LOCAL, Engine, Job
from nclab.figures.palette import BLACK
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.measurement import measure
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.layer_peeled import g
from nclab.theory.worst_case import worst_inter, worst_intra
from nclab_papers.pan2023.rows import COSINE
from nclab_papers.shared.small_network import NetworkConfig, train

Array = NDArray[np.float64]

TELLING = 3e-3
"""Weight decay from which on the certificates of trained networks say a lot."""
PERFECT = 0.99
"""Training accuracy from which on a network counts, as in chapter 3."""
CURVE = {
    "excess_loss": "ε",
    "thesis_intra_lower": "thesis intra ≥",
    "intra_lower": "nclab intra ≥",
    "true_intra": "true min intra",
    "inter_upper": "nclab inter ≤",
    "true_inter": "true max inter",
}
NETWORKS = {
    "weight_decay": "weight decay",
    "seed": "seed",
    "accuracy": "accuracy",
    "alpha": "α",
    "predicted_alpha": "α*",
    "beta": "β",
    "predicted_beta": "β*",
    "loss": "loss",
    "min_intra": "min intra",
    "min_guaranteed": "guaranteed",
    "mean_guaranteed": "on average",
    "thesis_intra_lower": "thesis",
}
"""Columns of the tables."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    num_classes: int = 4
    """Classes of the guarantee curves."""
    product: float = 3.0
    """alpha * beta of the guarantee curves."""
    relative_excess: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
    """Excess losses of the curves, in units of the optimal loss."""
    starts: int = 4
    """Starts of every search for the worst case."""
    weight_decays: tuple[float, ...] = (5e-4, 1e-3, 3e-3, 5e-3)
    """Weight decays of the trained networks."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The networks but for their weight decay."""


PRESETS = {
    "quick": Config(),
    "paper": Config(
        num_classes=10,
        product=5.0,
        weight_decays=(3e-4, 5e-4, 1e-3, 3e-3, 5e-3),
        network=NetworkConfig(samples=10_000, width=300, depth=5),
    ),
}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The curves once, the networks for every seed."""
    curves = [
        Job(f"worst case at {relative:g}", run_in_one_step, (curve_row, config, relative, seeds[0]))
        for relative in config.relative_excess
    ]
    trainings = [
        Job(
            f"weight decay {decay:g}, seed {seed}",
            run_in_one_step,
            (network_row, config, decay, seed),
        )
        for seed in seeds
        for decay in config.weight_decays
    ]
    rows = run_jobs([*curves, *trainings], "worst cases and networks", engine=engine)
    curve, networks = rows[: len(curves)], rows[len(curves) :]
    low, high = min(config.weight_decays) / 2, max(config.weight_decays) * 2
    optima = [
        regularised_optimum(config.network.num_classes, float(decay)).to_dict()
        for decay in np.geomspace(low, high, 40)
    ]
    return {
        "config": asdict(config),
        "curve": curve,
        "networks": networks,
        "optima": optima,
    }


def curve_row(config: Config, relative: float, seed: int) -> dict[str, float | None]:
    """Guaranteed and true deviations at one excess loss."""
    root = math.sqrt(config.product)
    best = g(root * root, config.num_classes)
    excess = relative * best
    certificate = certify(config.num_classes, root, root, best + excess)
    sizes = (config.num_classes, config.product, excess)
    return {
        "excess_loss": excess,
        "intra_lower": certificate.intra_lower.value,
        "inter_upper": certificate.inter_upper.value,
        "thesis_intra_lower": certificate.thesis_intra_lower.value,
        "thesis_inter_upper": certificate.thesis_inter_upper.value,
        "true_intra": worst_intra(*sizes, starts=config.starts, seed=seed).value,
        "true_inter": worst_inter(*sizes, starts=config.starts, seed=seed).value,
    }


def network_row(config: Config, weight_decay: float, seed: int) -> dict[str, Any]:
    """A trained network: norms, loss, cosines measured and guaranteed."""
    generator = torch.Generator().manual_seed(seed)
    network, samples = train(replace(config.network, weight_decay=weight_decay), generator)
    collapse = measure(network, [tuple(samples)]).last
    certificate = collapse.certificate()
    optimum = regularised_optimum(config.network.num_classes, weight_decay)
    assert certificate.class_intra_lower is not None
    guaranteed = certificate.class_intra_lower
    return {
        "weight_decay": weight_decay,
        "seed": seed,
        "alpha": collapse.alpha,
        "beta": collapse.beta,
        "product": certificate.alpha * certificate.beta,
        "loss": collapse.balanced_loss,
        "excess_loss": certificate.excess_loss,
        "accuracy": collapse.accuracy,
        "predicted_alpha": optimum.alpha,
        "predicted_beta": optimum.beta,
        "predicted_loss": optimum.optimal_loss,
        "intra_cosine": collapse.intra_cosine.tolist(),
        "class_intra_lower": guaranteed.tolist(),
        "min_intra": collapse.min_intra,
        "min_guaranteed": float(guaranteed.min()),
        "mean_guaranteed": float(guaranteed.mean()),
        "thesis_intra_lower": certificate.thesis_printed_intra_lower.value,
    }


def tables(numbers: Numbers) -> list[Table]:
    """The curve and the networks."""
    config = numbers["config"]
    curve = f"What the loss guarantees, C = {config['num_classes']}, αβ = {config['product']:g}"
    networks = "Trained networks: norms beside the optimum (*), guaranteed beside measured"
    return [
        Table(
            title,
            tuple(columns.values()),
            [tuple(number(row[key]) for key in columns) for row in rows],
        )
        for title, columns, rows in (
            (curve, CURVE, numbers["curve"]),
            (networks, NETWORKS, numbers["networks"]),
        )
    ]


def pictures(numbers: Numbers) -> list[Picture]:
    """Guarantee curves, and the networks of the first seed against weight decay."""
    config = numbers["config"]
    sizes = {"num_classes": config["num_classes"], "product": config["product"]}
    first = [row for row in numbers["networks"] if row["seed"] == numbers["networks"][0]["seed"]]
    return [
        guarantees_picture(guarantee_panels(numbers["curve"], **sizes)),
        networks_picture(first, numbers["optima"]),
    ]


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


INTRA = {"thesis": "thesis_intra_lower", "nclab": "intra_lower", "true worst case": "true_intra"}
INTER = {"thesis": "thesis_inter_upper", "nclab": "inter_upper", "true worst case": "true_inter"}
LOOKS: dict[str, dict[str, Any]] = {
    "thesis": {"colour": 4, "style": "dashed"},
    "nclab": {"colour": 0},
    "true worst case": {"colour": BLACK, "style": "none", "marker": "hollow"},
}


def guarantee_panels(rows: Sequence[Row], *, num_classes: int, product: float) -> GuaranteePanels:
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
        tuple(curve(name, 1 - _column(rows, key)) for name, key in INTRA.items()),
        tuple(curve(name, _column(rows, key) + vertex) for name, key in INTER.items()),
    )


def guarantees_picture(data: GuaranteePanels) -> Picture:
    """Two panels, log-log: how far from collapse a class or a pair can be at a given excess."""
    most = (1.0, 1 + 1 / (data.num_classes - 1))
    titles = ("1 − intra, worst class", "inter + 1/(C−1), worst pair")
    panels = []
    for curves, top, title in zip((data.intra, data.inter), most, titles, strict=True):
        series = tuple(
            Series(
                _with_slope(curve.name, curve.slope),
                _list(data.excess),
                _list(np.minimum(curve.deviation, top)),
                **LOOKS[curve.name],
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
    return Picture("guarantees", title, tuple(panels), 2, caption, (4.2, 2.8))


def networks_picture(networks: Sequence[Row], optima: Sequence[Row]) -> Picture:
    """Three panels: norms, loss, and the cosines guaranteed beside those measured.

    Dots are trained networks, lines the optima on a finer grid of weight decays.
    """
    trained, predicted = ([row["weight_decay"] for row in rows] for rows in (networks, optima))
    dots: dict[str, Any] = {"style": "none", "marker": "filled"}

    def both(key: str, optimum: str, colour: int, *labels: str) -> tuple[Series, Series]:
        best, found = _list(_column(optima, optimum)), _list(_column(networks, key))
        return (
            Series(labels[0], predicted, best, colour=colour),
            Series(labels[1], trained, found, colour=colour, **dots),
        )

    def classes(key: str, colour: int, label: str) -> tuple[Series, Series]:
        """The average over classes as a line, every class as a dot."""
        every = [(row["weight_decay"], float(value)) for row in networks for value in row[key]]
        average = [float(np.mean(row[key])) for row in networks]
        return (
            Series(label, trained, average, colour=colour),
            Series("", [x for x, _ in every], [y for _, y in every], colour=colour, **dots),
        )

    norms = (
        *both("alpha", "alpha", 0, "α, features", ""),
        *both("beta", "beta", 1, "β, classifier", ""),
        *both("product", "product", 2, "αβ", ""),
    )
    losses = both("loss", "optimal_loss", 3, "loss at the optimum", "trained")
    cosines = (
        *classes("intra_cosine", BLACK, "measured, every class"),
        *classes("class_intra_lower", 5, "guaranteed, every class"),
    )
    decay: dict[str, Any] = {"x_scale": "log", "x_ticks": tuple(trained)}
    label = "weight decay"
    panels = (
        Panel("norms", label, "", norms, **decay),
        Panel("cross-entropy", label, "", losses, y_scale="log", **decay),
        Panel("intra-class cosine", label, "", cosines, y_range=(-0.02, 1.04), **decay),
    )
    caption = (
        "Norms and loss of trained networks (dots) beside the optimum that weight decay sets "
        "(lines), and the cosines of every class beside what the loss guarantees."
    )
    title = "Trained networks against weight decay"
    return Picture("networks", title, panels, 3, caption, (3.5, 2.7))


def _list(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _column(rows: Sequence[Row], name: str) -> Array:
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=float)


def _with_slope(name: str, slope: float) -> str:
    return f"{name}, slope {slope:.2f}" if np.isfinite(slope) else f"{name}, no bound"


@claim(
    "findings/guarantees-worst-case",
    Kind.REMARK,
    "No worst case that a search finds violates the certificates of nclab.",
    "pan2023, Thm 2.3.1",
    needs="pan2023_guarantees",
    figure="guarantees",
    code="nclab.theory.certificates.certification.certify",
)
def worst_case(numbers: Numbers) -> Finding:
    """At every excess, for classes and for pairs, where the bound says something."""
    slacks, ratios = [], []
    vertex = 1 / (int(numbers["config"]["num_classes"]) - 1)
    for row in numbers["curve"]:
        lower, upper = row["intra_lower"], row["inter_upper"]
        if lower is not None and lower > 0:
            slacks.append(row["true_intra"] - lower)
            ratios.append((1 - lower) / (1 - row["true_intra"]))
        if upper is not None and upper < 1:
            slacks.append(upper - row["true_inter"])
            ratios.append((upper + vertex) / (row["true_inter"] + vertex))
    if not slacks:
        return Finding(Verdict.OPEN, "no bound says anything", {"compared": 0})
    evidence = (
        f"{len(slacks)} worst cases, the nearest {number(min(slacks))} inside its bound; what is "
        f"allowed is {number(min(ratios))} to {number(max(ratios))} times what is attained"
    )
    known = {"compared": len(slacks), "smallest_slack": min(slacks), "loosest": max(ratios)}
    verdict = Verdict.HOLDS if min(slacks) >= -1e-9 else Verdict.REFUTED
    return Finding(verdict, evidence, known)


@claim(
    "findings/guarantees-telling",
    Kind.RESULT,
    f"From weight decay {TELLING:g} on small trained networks are guaranteed an average "
    "intra-class cosine of 0.5.",
    "pan2023, Thm 2.3.1",
    needs="pan2023_guarantees",
    figure="networks",
)
def telling(numbers: Numbers) -> Finding:
    """At every such weight decay, of the networks that converged."""
    parts = [
        Part(
            f"weight decay {decay:g}, beyond 0.5",
            {
                int(row["seed"]): row["mean_guaranteed"] - 0.5
                for row in rows
                if row["accuracy"] >= PERFECT
            },
        )
        for (decay,), rows in group(numbers["networks"], "weight_decay").items()
        if decay >= TELLING
    ]
    left_out = sum(row["accuracy"] < PERFECT for row in numbers["networks"])
    finding = judge_effects(parts, margin=COSINE)
    words = f"; left out, accuracy below {PERFECT:g}: {left_out} of {len(numbers['networks'])}"
    return replace(finding, evidence=finding.evidence + words) if left_out else finding

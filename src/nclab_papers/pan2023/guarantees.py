"""Guarantees of near-optimal loss, compared with the true worst case and with trained networks.

Claim: a loss near its optimum forces neural collapse, the more so the larger the weight decay.
Source: pan2023, Thm 2.3.1
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.paper import run_in_one_step, run_jobs
from nclab.claims.tables import Column, Row, Table, group, list_rows, summarise
from nclab.engine import LOCAL, Engine, Job
from nclab.figures.picture import BLACK, Panel, Picture, Reference, Series, finite
from nclab.measurement import measure
from nclab.text import number
from nclab.theory.certificates.certification import certify
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.worst_case import worst_inter, worst_intra
from nclab_papers.pan2023.networks import COSINE_MARGIN
from nclab_papers.shared.small_classifier import NetworkConfig, train

TELLING = 3e-3
"""Smallest weight decay for which we claim that a cosine of 0.5 is guaranteed."""
PERFECT = 0.99
"""Training accuracy that a network needs to be included, as in chapter 3 of the thesis."""
CURVE_COLUMNS = (
    Column("ε", "excess_loss", ""),
    Column("thesis intra ≥", "thesis_intra_lower", ""),
    Column("nclab intra ≥", "intra_lower", ""),
    Column("true min intra", "true_intra", ""),
    Column("nclab inter ≤", "inter_upper", ""),
    Column("true max inter", "true_inter", ""),
)
NETWORK_COLUMNS = (
    Column("α", "alpha", ".2f"),
    Column("β", "beta", ".2f"),
    Column("loss", "loss", ".2e"),
    Column("min intra", "min_intra"),
    Column("guaranteed", "min_guaranteed"),
    Column("guaranteed on average", "mean_guaranteed"),
    Column("guaranteed by the thesis", "thesis_intra_lower"),
)


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    num_classes: int = 4
    """Number of classes of the guarantee curves."""
    product: float = 3.0
    """Product alpha beta of the norms of the guarantee curves."""
    relative_excess: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
    """Excess losses of the curves, in units of the optimal loss."""
    starts: int = 4
    """Number of starts of every search for the worst case."""
    weight_decays: tuple[float, ...] = (5e-4, 1e-3, 3e-3, 5e-3)
    """Weight decays of the trained networks."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Settings of the networks; `weight_decays` replaces its weight decay."""


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
    """Return the guarantee curves, and a row for each trained network of every seed."""
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
    return {"config": asdict(config), "curve": curve, "networks": networks}


def curve_row(config: Config, relative: float, seed: int) -> dict[str, float | None]:
    """Return worst cosines at one excess loss: the guaranteed ones, and those a search finds."""
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
    """Train a network and return its norms, its loss, and measured and guaranteed cosines."""
    generator = torch.Generator().manual_seed(seed)
    network, samples = train(replace(config.network, weight_decay=weight_decay), generator)
    collapse = measure(network, [tuple(samples)]).last
    certificate = collapse.certificate()
    assert certificate.class_intra_lower is not None
    guaranteed = certificate.class_intra_lower
    return {
        "weight_decay": weight_decay,
        "seed": seed,
        "alpha": collapse.alpha,
        "beta": collapse.beta,
        "loss": collapse.balanced_loss,
        "accuracy": collapse.accuracy,
        "intra_cosine": collapse.intra_cosine.tolist(),
        "class_intra_lower": guaranteed.tolist(),
        "min_intra": collapse.min_intra,
        "min_guaranteed": float(guaranteed.min()),
        "mean_guaranteed": float(guaranteed.mean()),
        "thesis_intra_lower": certificate.thesis_printed_intra_lower.value,
    }


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the guarantee curves and a table of the trained networks."""
    config = numbers["config"]
    curve = f"What the loss guarantees, C = {config['num_classes']}, αβ = {config['product']:g}"
    networks = "Trained networks: norms, loss, and intra-class cosines, measured and guaranteed"
    key = Column("weight decay", "weight_decay", "g")
    rows = numbers["networks"]
    return [
        list_rows(curve, numbers["curve"], CURVE_COLUMNS),
        summarise(networks, rows, [key], NETWORK_COLUMNS, counts=_counts),
    ]


def _counts(row: Row) -> bool:
    """Whether the training accuracy of a network is at least `PERFECT`."""
    return bool(row["accuracy"] >= PERFECT)


STYLES: dict[str, dict[str, Any]] = {
    "thesis": {"colour": 4, "style": "dashed"},
    "nclab": {"colour": 0},
    "true worst case": {"colour": BLACK, "style": "none", "marker": "hollow"},
}
INTRA = ("thesis_intra_lower", "intra_lower", "true_intra")
INTER = ("thesis_inter_upper", "inter_upper", "true_inter")
"""Fields of `curve_row` with inter-class cosines (`INTRA`: intra-class), one for each style."""


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of the largest deviations from collapse against the excess loss.

    One panel is for a class, one for a pair of classes. All axes are logarithmic. The label of a
    curve contains its slope.
    """
    rows, config = numbers["curve"], numbers["config"]
    num_classes = int(config["num_classes"])
    vertex = 1 / (num_classes - 1)
    excess = _column(rows, "excess_loss")
    panels = []
    for title, keys, collapsed, sign, largest in (
        ("1 − intra, worst class", INTRA, 1.0, -1, 1.0),
        ("inter + 1/(C−1), worst pair", INTER, -vertex, 1, 1 + vertex),
    ):
        series = []
        for (name, style), key in zip(STYLES.items(), keys, strict=True):
            deviation = sign * (_column(rows, key) - collapsed)
            shown = np.minimum(np.where(deviation > 0, deviation, np.nan), largest)
            label = f"{name}, {describe_slope(excess, deviation)}"
            series.append(Series(label, finite(excess), finite(shown), **style))
        vacuous = (Reference("no guarantee", y=largest),)
        panels.append(Panel(title, "excess loss ε", "", tuple(series), "log", "log", vacuous))
    title = f"What the loss guarantees: C = {num_classes}, αβ = {config['product']:g}"
    caption = (
        "Largest deviation of a class or a pair of classes from collapse at a given excess loss: "
        "the thesis's bounds, nclab's bounds, and the worst case that a search found."
    )
    return [Picture("guarantees", title, tuple(panels), 2, caption, (4.2, 2.8))]


def describe_slope(excess: FloatArray, deviation: FloatArray) -> str:
    """Return the slope of log(deviation) against log(excess) as text for a label.

    It is fitted to the smallest third of the excess losses with a positive deviation, but at least
    to three.

    >>> excess = np.array([1e-6, 1e-5, 1e-4])
    >>> describe_slope(excess, excess**0.5), describe_slope(excess, 0 * excess)
    ('slope 0.50', 'no bound')
    """
    known = np.flatnonzero(deviation > 0)[: max(3, len(excess) // 3)]
    if len(known) < 2:
        return "no bound"
    return f"slope {np.polyfit(np.log(excess[known]), np.log(deviation[known]), 1)[0]:.2f}"


def _column(rows: Sequence[Row], name: str) -> FloatArray:
    """Return a field of all rows as an array, with nan for missing values."""
    return np.array([np.nan if row.get(name) is None else row[name] for row in rows], dtype=float)


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
    """Compare bounds with the worst cases found, at every excess loss that has a bound."""
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
        return Finding(Verdict.OPEN, "no bound applies", {"compared": 0})
    evidence = (
        f"{sum(slack >= -1e-9 for slack in slacks)} of {len(slacks)} worst cases that a search "
        f"found satisfy their bounds, the closest by {number(min(slacks))}; the largest deviation "
        f"that a bound allows is {number(min(ratios))} to {number(max(ratios))} times the largest "
        "that was found"
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
    figure="guarantees",
)
def telling(numbers: Numbers) -> Finding:
    """Judge the guaranteed average cosine of networks with accuracy `PERFECT`, by weight decay."""
    parts = [
        Part(
            f"guaranteed cosine at weight decay {decay:g}",
            {int(row["seed"]): row["mean_guaranteed"] for row in rows if _counts(row)},
            above=0.5,
        )
        for (decay,), rows in group(numbers["networks"], "weight_decay").items()
        if decay >= TELLING
    ]
    left_out = sum(not _counts(row) for row in numbers["networks"])
    finding = judge_effects(parts, margin=COSINE_MARGIN)
    note = (
        f"; left out because their accuracy is below {PERFECT:g}: {left_out} of "
        f"{len(numbers['networks'])} networks"
    )
    return replace(finding, evidence=finding.evidence + note) if left_out else finding

"""Norms, loss and guarantee of trained networks against weight decay, compared with the optimum.

Claim: larger weight decay makes norms smaller and thereby the guarantee of collapse stronger.
Source: pan2023, Sec. 3.1.2
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.pictures import Line, line_panel
from nclab.claims.tables import Column, Row, Table, summarise
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture, Series
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.regularised import regularised_optimum
from nclab_papers.pan2023 import networks as trained

LOG_NORM = 0.01
"""Smallest change of log10(norm) that matters when weight decay grows by a factor of ten."""
POINTS = 40
"""Number of weight decays at which the curves of the optimum are computed."""
OPTIMUM, GUARANTEED = 1, 2
"""Palette indices of the colours of the optimum and of the guarantees."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment; the networks are those of figure 3.1."""

    networks: trained.Networks
    layers: int = 6
    weight_decays: tuple[float, ...] = trained.DECAYS


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks; return each with the optimum for its weight decay and its guarantees."""
    networks = config.networks.rows(
        out, seeds=seeds, engine=engine, layers=config.layers, weight_decays=config.weight_decays
    )
    rows = []
    for row in networks:
        optimum = regularised_optimum(config.networks.classes, row["weight_decay"])
        layers = trained.last_layers(out, row)
        rows.append(
            {
                **row,
                "predicted_alpha": optimum.alpha,
                "predicted_beta": optimum.beta,
                "predicted_loss": optimum.optimal_loss,
                **guarantee(layers[-1] if layers else {}),
            }
        )
    low, high = min(config.weight_decays), max(config.weight_decays)
    optima = [
        regularised_optimum(config.networks.classes, float(decay)).to_dict()
        for decay in np.geomspace(low, high, POINTS)
    ]
    return {"config": trained.describe_config(config, seeds), "rows": rows, "optima": optima}


def guarantee(layer: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the cosines that the recorded loss and norms guarantee; None without a loss."""
    names = ("alpha", "beta", "balanced_loss", "class_loss", "class_alpha", "class_beta")
    if any(layer.get(name) is None for name in names):
        nothing = ("guaranteed_mean_intra", "guaranteed_min_intra", "guarantee_slack")
        return dict.fromkeys(nothing)
    guaranteed = certify(
        int(layer["num_classes"]),
        layer["alpha"],
        layer["beta"],
        layer["balanced_loss"],
        bias_norm=layer["bias_norm"],
        pairs=False,
        class_losses=layer["class_loss"],
        class_alphas=layer["class_alpha"],
        class_betas=layer["class_beta"],
    ).class_intra_lower
    assert guaranteed is not None, "the class arrays are there"
    return {
        "guaranteed_mean_intra": float(guaranteed.mean()),
        "guaranteed_min_intra": float(guaranteed.min()),
        "guarantee_slack": float((np.array(layer["intra_cosine"]) - guaranteed).min()),
    }


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of norms, losses and guarantees by weight decay."""
    columns = (
        Column("α", "alpha", ".2f"),
        Column("α*", "predicted_alpha", ".2f", spread=False),
        Column("β", "beta", ".2f"),
        Column("β*", "predicted_beta", ".2f", spread=False),
        Column("loss", "balanced_loss", ".2e"),
        Column("loss*", "predicted_loss", ".2e", spread=False),
        Column("ε", "excess_loss", ".2e"),
        Column("mean intra", "mean_intra"),
        Column("guaranteed, average", "guaranteed_mean_intra"),
        Column("guaranteed, worst class", "guaranteed_min_intra"),
    )
    title = "Affine batch norm; * is the optimum of Eq. (2.1)"
    return [summarise(title, numbers["rows"], (trained.DECAY_COLUMN,), columns)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of norms, loss and guarantee against weight decay, with the optimum."""
    rows = [row for row in numbers["rows"] if row["converged"]]
    optima = numbers["optima"]
    decays = [float(row["weight_decay"]) for row in optima]
    guaranteed = (
        Line("guaranteed by the class losses", "guaranteed_mean_intra", colour=GUARANTEED),
        Line("guaranteed, worst class", "guaranteed_min_intra", {}, GUARANTEED, "dashed", "hollow"),
    )
    panels = []
    for title, value, optimum, label, lines in (
        ("feature norm", "alpha", "alpha", "α", ()),
        ("classifier norm", "beta", "beta", "β", ()),
        ("loss, mean over classes", "balanced_loss", "optimal_loss", "nats", ()),
        ("intra-class cosine", "mean_intra", "", "cosine similarity", guaranteed),
    ):
        best = [float(row[optimum]) for row in optima] if optimum else []
        curve = Series("optimum of Eq. (2.1)", decays, best, colour=OPTIMUM, style="dashed")
        panels.append(
            line_panel(
                title,
                rows,
                lines=[Line("measured", value), *lines],
                more=[curve] if optimum else [],
                y_label=label,
                y_scale="log" if label == "nats" else "linear",
                **trained.DECAY_AXIS,
            )
        )
    return [
        Picture(
            "pan2023_norms",
            "Effect of weight decay on norms, loss and guarantee",
            tuple(panels),
            2,
            "Networks with affine batch norm. Dashed: the optimum of the regularised layer-peeled "
            f"objective. Intra-class cosines are averages over classes. "
            f"{trained.line_caption(numbers['rows'])}",
        )
    ]


claimed = partial(claim, needs="pan2023_norms", figure="pan2023_norms")


@claimed(
    "pan2023/sec-3.1-norms-fall",
    Kind.RESULT,
    "Larger weight decay makes feature norm and classifier norm smaller.",
    "pan2023, Sec. 3.1.2 “larger weight decay results in small feature and weight norms”",
    code="nclab_papers.pan2023.networks.decade_slopes",
)
def norms_fall(numbers: Numbers) -> Finding:
    """Judge how much log10 of each norm falls per decade of weight decay."""
    parts = []
    for name, label in (("alpha", "feature norm"), ("beta", "classifier norm")):
        known = [row for row in numbers["rows"] if row[name] is not None]
        slopes = trained.decade_slopes(known, partial(_log, name))
        unit = "per decade of weight decay"
        parts.append(Part(f"slope of log10 of the {label}", slopes, below=0.0, unit=unit))
    return judge_effects(parts, margin=LOG_NORM)


def _log(name: str, row: Row) -> float:
    return math.log10(row[name])

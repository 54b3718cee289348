"""Norms, loss and guarantee of trained networks against weight decay, beside the optimum.

Claim: larger weight decay makes norms smaller and thereby the guarantee of collapse stronger.
Source: pan2023, Sec. 3.1.2
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.figures.spread import column
from nclab.papers.pan2023 import pictures_theory as pan2023_theory
from nclab.papers.pan2023.networks import (
    DECAYS,
    PAPER,
    QUICK,
    QUICK_DECAYS,
    Networks,
    last_layers,
    preset_of,
)
from nclab.papers.pan2023.training_claims import findings
from nclab.papers.tables import Table, as_rich, cell, group, verdicts
from nclab.theory.certificates.certificate import certify
from nclab.theory.certificates.regularised import regularised_optimum

NAME = "pan2023_norms"
POINTS = 40
"""Of the curves of the optimum."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment; the networks are those of figure 3.1."""

    networks: Networks
    layers: int = 6
    weight_decays: tuple[float, ...] = DECAYS


PRESETS = {"quick": Config(QUICK, weight_decays=QUICK_DECAYS), "paper": Config(PAPER)}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return compare(preset_of(PRESETS, preset), seeds=seeds, out=out, engine=engine)


def compare(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """The experiment at any size: networks with their optimum and their certificate."""
    rows = []
    for row in config.networks.train(
        out,
        seeds=seeds,
        layers=config.layers,
        weight_decays=config.weight_decays,
        engine=engine,
    ):
        optimum = regularised_optimum(config.networks.classes, row["weight_decay"])
        layers = last_layers(out, row)
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
    numbers: dict[str, Any] = {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
        "optima": optima,
    }
    return {**numbers, "findings": findings(NAME, numbers)}


def guarantee(layer: Mapping[str, Any]) -> dict[str, float | None]:
    """What the losses and norms of the last layer guarantee, as recorded; None without a loss."""
    names = ("alpha", "beta", "balanced_loss", "class_loss", "class_alpha", "class_beta")
    if any(layer.get(name) is None for name in names):
        nothing = ("guaranteed_mean_intra", "guaranteed_min_intra", "guarantee_slack")
        return dict.fromkeys(nothing)
    promised = certify(
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
    assert promised is not None, "the class arrays are there"
    return {
        "guaranteed_mean_intra": float(promised.mean()),
        "guaranteed_min_intra": float(promised.min()),
        "guarantee_slack": float((np.array(layer["intra_cosine"]) - promised).min()),
    }


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Norms, losses and guarantees by weight decay, and the verdicts."""
    rows = []
    for (decay,), own in group(numbers["rows"], "weight_decay").items():
        first = own[0]
        rows.append(
            (
                f"{decay:g}",
                cell(own, column("alpha"), ".2f"),
                f"{first['predicted_alpha']:.2f}",
                cell(own, column("beta"), ".2f"),
                f"{first['predicted_beta']:.2f}",
                cell(own, column("balanced_loss"), ".2e"),
                f"{first['predicted_loss']:.2e}",
                cell(own, column("excess_loss"), ".2e"),
                cell(own, column("mean_intra")),
                cell(own, column("guaranteed_mean_intra")),
                cell(own, column("guaranteed_min_intra")),
            )
        )
    columns = ("weight decay", "α", "α*", "β", "β*", "loss", "loss*", "ε")
    promised = ("mean intra", "guaranteed, average", "guaranteed, worst class")
    title = "Affine batch norm; * is the optimum of Eq. (2.1)"
    return [Table(title, (*columns, *promised), rows), verdicts(numbers["findings"])]


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Norms, losses and guarantees against weight decay."""
    return pan2023_theory.norms(numbers)

"""Norms, loss and guarantee of trained networks against weight decay, beside the optimum.

Claim: larger weight decay makes norms smaller and thereby the guarantee of collapse stronger.
Source: pan2023, Sec. 3.1.2
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.tables import Row, Table, cell, group
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Scale, Series
from nclab.figures.seeds import SEED_CAPTION, LineStyle, Value, column, converged, mean_over_seeds
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.regularised import regularised_optimum
from nclab_papers.pan2023.lines import DECAY, TICKS, failed_note
from nclab_papers.pan2023.networks import DECAYS, PAPER, QUICK, Networks, last_layers
from nclab_papers.pan2023.rows import decade_slopes

LOG_NORM = 0.01
"""Slopes of log10 of a norm per decade smaller than this are none."""
POINTS = 40
"""Of the curves of the optimum."""
MEASURED, OPTIMUM, GUARANTEED, EXCESS = 0, 1, 2, 3
"""Colours."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment; the networks are those of figure 3.1."""

    networks: Networks
    layers: int = 6
    weight_decays: tuple[float, ...] = DECAYS


PRESETS = {"quick": Config(QUICK), "paper": Config(PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Networks with their optimum and their certificate."""
    rows = []
    sweeps = config.networks.sweeps(
        seeds=seeds, layers=config.layers, weight_decays=config.weight_decays
    )
    for row in chain.from_iterable(config.networks.train(out, sweeps, engine=engine)):
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
    return {
        "config": {**asdict(config.networks), **asdict(config), "seeds": list(seeds)},
        "rows": rows,
        "optima": optima,
    }


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


def tables(numbers: Numbers) -> list[Table]:
    """Norms, losses and guarantees by weight decay."""
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
    return [Table(title, (*columns, *promised), rows)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Norms, loss, excess loss and guarantee against weight decay, beside the optimum."""
    rows, optima = converged(numbers["rows"]), numbers["optima"]
    measured = LineStyle("measured", MEASURED)
    decays = [float(row["weight_decay"]) for row in optima]

    def panel(
        title: str, value: Value, optimum: str | None, label: str, scale: Scale = "linear"
    ) -> Panel:
        lines = [mean_over_seeds(rows, "weight_decay", value, measured)]
        if optimum is not None:
            best = [float(row[optimum]) for row in optima]
            lines.append(
                Series("optimum of Eq. (2.1)", decays, best, colour=OPTIMUM, style="dashed")
            )
        return Panel(title, DECAY, label, tuple(lines), "log", scale, x_ticks=TICKS)

    loss = panel("loss, mean over classes", column("balanced_loss"), "optimal_loss", "nats", "log")
    beyond = LineStyle("excess ε over the best for these norms", EXCESS, "dotted", "hollow")
    excess = mean_over_seeds(rows, "weight_decay", column("excess_loss"), beyond)
    looks = {
        "mean_intra": measured,
        "guaranteed_mean_intra": LineStyle("guaranteed by the class losses", GUARANTEED),
        "guaranteed_min_intra": LineStyle("the same, worst class", GUARANTEED, "dashed", "hollow"),
    }
    intra = Panel(
        "intra-class cosine",
        DECAY,
        "cosine similarity",
        tuple(
            mean_over_seeds(rows, "weight_decay", column(name), look)
            for name, look in looks.items()
        ),
        x_scale="log",
        x_ticks=TICKS,
        y_range=(-0.03, 1.03),
    )
    note = failed_note(numbers["rows"])
    return [
        Picture(
            "pan2023_norms",
            "What weight decay does to norms, loss and guarantee",
            (
                panel("feature norm α", column("alpha"), "alpha", "α"),
                panel("classifier norm β", column("beta"), "beta", "β"),
                panel("product αβ", product, "product", "αβ"),
                loss._replace(series=(*loss.series, excess)),
                panel("excess over the best, ε/m(αβ)", relative_excess, None, "ε/m", "log"),
                intra,
            ),
            3,
            "Affine batch norm. The optimum is that of the regularised layer-peeled objective; "
            f"intra-class cosines are averages over classes. {SEED_CAPTION}{note}",
        )
    ]


def product(row: Row) -> float | None:
    """αβ."""
    return None if row["alpha"] is None or row["beta"] is None else row["alpha"] * row["beta"]


def relative_excess(row: Row) -> float | None:
    """ε/m; None where either was not measured."""
    if row["excess_loss"] is None or not row["optimal_loss"]:
        return None
    return float(row["excess_loss"]) / float(row["optimal_loss"])


claimed = partial(claim, needs="pan2023_norms", figure="pan2023_norms")


@claimed(
    "pan2023/sec-3.1-norms-fall",
    Kind.RESULT,
    "Larger weight decay makes feature norm and classifier norm smaller.",
    "pan2023, Sec. 3.1.2 “larger weight decay results in small feature and weight norms”",
    code="nclab_papers.pan2023.rows.decade_slopes",
)
def norms_fall(numbers: Numbers) -> Finding:
    """The slopes of both logarithms over weight decay, turned round."""
    parts = [
        Part(f"fall of log10 {letter}", decade_slopes(_known(numbers, name), log, sign=-1))
        for name, letter in (("alpha", "α"), ("beta", "β"))
        for log in [partial(_log, name)]
    ]
    return judge_effects(parts, margin=LOG_NORM, unit="a decade")


def _log(name: str, row: Row) -> float:
    return math.log10(row[name])


def _known(numbers: Numbers, name: str) -> list[Row]:
    return [row for row in numbers["rows"] if row[name] is not None]

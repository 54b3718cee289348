"""Networks on imbalanced classes: minority collapse, SELI, and the target of their weight decay.

Claim: classifiers of minority classes turn into one direction as the imbalance grows.
Source: fang2021, Sec. Abstract

FashionMNIST with five large and five small classes. The networks are not the paper's, so that its
sentences about its own stay open with what is found here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Series
from nclab.theory.targets.dispatch import target
from nclab.theory.targets.distance import gram_distance
from nclab.theory.targets.limits import limit_grams
from nclab.theory.targets.result import cosines
from nclab.training.data.selection import SampleSelection
from nclab.training.sweep import SweepConfig, TrainedNetwork
from nclab_papers.shared.measures import LastLayer, rounded
from nclab_papers.shared.networks import FieldNetworks, fashion
from nclab_papers.shared.rows import (
    Value,
    as_rows,
    averaged,
    by_cell,
    counts,
    having,
    of_the_source,
    plain,
    slopes,
)
from nclab_papers.shared.study import numbers_of, trained

CLASSES = 10
LARGE = 10
"""Imbalances from this on are compared with targets."""


@dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    imbalances: tuple[int, ...] = (1, 3, 10, 30, 100)
    weight_decays: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    rate: float = 0.03

    def counts(self, imbalance: int) -> tuple[int, int]:
        """Samples of a large and of a small class, so that all together are `samples`.

        >>> [Config().counts(ratio) for ratio in (1, 3, 10, 30, 100)]
        [(200, 200), (300, 100), (364, 36), (387, 13), (396, 4)]
        """
        both = self.networks.samples // (CLASSES // 2)
        small = max(1, round(both / (1 + imbalance)))
        return both - small, small


PRESETS = {
    "quick": Config(
        FieldNetworks(layers=4, samples=500, epochs=40, workers=0),
        imbalances=(1, 10, 100),
        weight_decays=(3e-3,),
    ),
    "paper": Config(),
}
"""paper: 200 networks with 8 seeds; quick: samples divided by four, epochs by two, three
imbalances and one weight decay, for the cost."""


def fleet(config: Config, imbalance: int, seed: int) -> SweepConfig:
    """All weight decays of one imbalance and seed."""
    large, small = config.counts(imbalance)
    return config.networks.of(
        fashion(large * CLASSES, classes=CLASSES, seed=seed),
        SampleSelection(imbalance=large / small, selection_seed=seed),
        seed=seed,
        weight_decays=config.weight_decays,
        rate=config.rate,
    )


def measure(ended: TrainedNetwork) -> dict[str, Any]:
    """Cosines of minority classifiers, and distances of the classifier's Gram matrix.

    The target is that of the counts, the weight decay and the ratio of the norms of classifier and
    features, from which the weight decay of the features follows.
    """
    last = LastLayer(ended)
    W, many, decay = last.weight, last.moments.counts.double(), ended.weight_decay
    goal = target(
        counts=many,
        weight_decay=(decay * last.decays[0], decay * last.decays[1]),
        bias=decay,
    )
    gram = W @ W.T
    etf = torch.eye(len(W), dtype=torch.float64) - 1 / len(W)
    numbers = {
        "accuracy": last.accuracy,
        "minority": _minority(cosines(gram)),
        "target_minority": None if goal.is_zero else _minority(goal.classifier_cosines),
        "from_etf": gram_distance(gram, etf),
        "from_seli": gram_distance(gram, limit_grams(many)[0]),
        "from_target": gram_distance(gram, goal.classifier_gram),
    }
    return {name: rounded(value) for name, value in numbers.items()}


def _minority(between: Tensor) -> float:
    """The mean cosine of two different classes of the latter half."""
    own = between[len(between) // 2 :, len(between) // 2 :]
    return float(own.sum() - own.diagonal().sum()) / (len(own) * (len(own) - 1))


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train what is not below `out` yet; a row for every network, as columns."""
    fleets: list[tuple[Row, SweepConfig]] = []
    for seed in seeds:
        for imbalance in config.imbalances:
            large, small = config.counts(imbalance)
            place: Row = {"imbalance": imbalance, "ratio": rounded(large / small)}
            fleets.append((place, fleet(config, imbalance, seed)))
    rows = trained(fleets, config.networks, measure, out=out, engine=engine)
    return numbers_of(config, seeds, rows)


COLUMNS = {
    "minority": "cos minority",
    "target_minority": "its target",
    "from_etf": "to ETF",
    "from_seli": "to SELI",
    "from_target": "to target",
}


def tables(numbers: Numbers) -> list[Table]:
    """By imbalance and weight decay."""
    rows = as_rows(numbers)
    shown = []
    for imbalance in numbers["config"]["imbalances"]:
        for decay in numbers["config"]["weight_decays"]:
            own = having(rows, imbalance=imbalance, weight_decay=decay)
            good = [row for row in own if counts(row)]
            cells = [mean_and_deviation(row[name] for row in good) for name in COLUMNS]
            shown.append((str(imbalance), f"{decay:g}", f"{len(good)} of {len(own)}", *cells))
    title = (
        "Mean cosine between minority classifiers, and distances of the normalised Gram matrix of "
        "the classifier; mean ± deviation over networks with training accuracy 0.99 or more"
    )
    return [Table(title, ("R", "weight decay", "count", *COLUMNS.values()), shown)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Cosines and distances against the imbalance, a panel for each weight decay."""
    rows = as_rows(numbers)
    looks = (("minority", "{:g}", "solid"), ("target_minority", "", "dashed"))
    angles = Panel(
        "Cosine between minority classifiers",
        "imbalance R",
        "cosine",
        tuple(
            _line(having(rows, weight_decay=decay), name, words.format(decay), place, style)
            for place, decay in enumerate(numbers["config"]["weight_decays"])
            for name, words, style in looks
        ),
        x_scale="log",
    )
    distances = Panel(
        "Distance of the classifier's Gram matrix",
        "imbalance R",
        "distance",
        tuple(
            _line(rows, name, COLUMNS[name], place, "solid")
            for place, name in enumerate(("from_etf", "from_seli", "from_target"))
        ),
        x_scale="log",
    )
    if not any(line.x for panel in (angles, distances) for line in panel.series):
        return []
    return [
        Picture(
            "fang2021_imbalance",
            "Imbalanced classes: minority classifiers and their targets",
            (angles, distances),
            2,
            "Means over the networks that count. Left: solid the networks, dashed the optimum of "
            "their counts, weight decay and norms, a colour for each weight decay. Right: over all "
            "weight decays.",
        )
    ]


def _line(rows: Sequence[Row], name: str, label: str, colour: int, style: Any) -> Series:
    places, middle = [], []
    for ratio in sorted({float(row["ratio"]) for row in rows}):
        own = having(rows, ratio=ratio)
        values = list(averaged(by_cell(own, plain(name), "weight_decay")).values())
        if values:
            places.append(ratio)
            middle.append(fmean(values))
    return Series(label, places, middle, colour=colour, style=style, marker="filled")


def compared(
    numbers: Numbers, value: Callable[[Row], float], *keys: str, **match: Any
) -> dict[int, float]:
    """By seed, the mean of a value over the networks from imbalance 10 on."""
    large = tuple(one for one in numbers["config"]["imbalances"] if one >= LARGE)
    rows = having(as_rows(numbers), imbalance=large, **match)
    return averaged(by_cell(rows, value, "imbalance", "weight_decay", *keys))


def gap(more: str, less: str) -> Value:
    """The difference of two columns."""
    return lambda row: float(row[more]) - float(row[less])


claimed = partial(claim, needs="fang2021_imbalance", figure="fang2021_imbalance")


@claimed(
    "fang2021/minority-networks",
    Kind.RESULT,
    "In networks classifiers of minority classes turn towards each other as the imbalance grows.",
    "fang2021, Sec. Abstract “first predicted by the Layer-Peeled Model before being confirmed”",
    code="nclab_papers.shared.rows.slopes",
)
def minority_networks(numbers: Numbers) -> Finding:
    """The slope of their mean cosine per decade of the imbalance."""
    rows = as_rows(numbers)
    ratios = sorted({float(row["ratio"]) for row in rows})
    rises = slopes(rows, plain("minority"), along="ratio", at=ratios, keys=("weight_decay",))
    part = Part("rise of the cosine of minority classifiers", rises)
    return of_the_source(judge_effects([part], margin=0.05, unit="a decade"), numbers)


@claimed(
    "findings/imbalance-target",
    Kind.RESULT,
    "From imbalance 10 on networks are nearer to the optimum of their own weight decay than to "
    "SELI, its limit without weight decay.",
    "thrampoulidis2022, Sec. Abstract “ridge-regularization plays a critical role”",
    code="nclab_papers.fang2021.imbalance.compared",
)
def finite_target(numbers: Numbers) -> Finding:
    """Distance from SELI − from the target."""
    nearer = compared(numbers, gap("from_seli", "from_target"))
    return judge_effects([Part("distance, SELI − target", nearer)], margin=0.01)


@claimed(
    "findings/imbalance-tail-angles",
    Kind.RESULT,
    "From imbalance 10 on the mean cosine of minority classifiers is that of the target, to 0.1, "
    "at every weight decay.",
    "fang2021, Sec. Abstract “explaining and predicting common empirical patterns”",
)
def tail_angles(numbers: Numbers) -> Finding:
    """0.1 − deviation, at each weight decay."""

    def closeness(row: Row) -> float:
        return 0.1 - math.fabs(float(row["minority"]) - float(row["target_minority"]))

    parts = [
        Part(f"weight decay {decay:g}", compared(numbers, closeness, weight_decay=decay))
        for decay in numbers["config"]["weight_decays"]
    ]
    return judge_effects(parts, margin=0.0)

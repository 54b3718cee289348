"""Imbalanced classes: minority collapse, SELI, and the optimum for the networks' weight decay.

Claim: the classifier rows of minority classes become parallel as the imbalance grows.
Source: fang2021, Sec. Abstract

The imbalance R is the number of samples of a large class divided by that of a small class. The
networks learn FashionMNIST with five large (majority) and five small (minority) classes. They are
not the paper's networks, so the verdict on the paper's claims about its own networks stays "open",
with our results as evidence. The last claim is about the layer-peeled model itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.pictures import Line
from nclab.claims.statements import holds_if
from nclab.claims.tables import Column, Row, Table, Value
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.text import number
from nclab.theory.targets.dispatch import target
from nclab.theory.targets.distance import gram_distance
from nclab.theory.targets.limits import limit_grams
from nclab.theory.targets.result import cosines
from nclab.training.data.selection import SampleSelection
from nclab.training.sweep import SweepConfig, TrainedNetwork
from nclab_papers.shared import study
from nclab_papers.shared.networks import FieldNetworks, LastLayer, fashion, rounded

CLASSES = 10
LARGE = 10
"""Smallest imbalance at which networks are compared with the optimum for their weight decay."""
COLUMNS = {
    "minority": "cos minority",
    "target_minority": "its target",
    "from_etf": "to ETF",
    "from_seli": "to SELI",
    "from_target": "to target",
}
"""Measured quantity -> heading of its column in the table."""
MODELS = {
    "quick": ((5, 5, 1.0), (3, 2, 1.5)),
    "paper": ((5, 5, 1.0), (5, 5, 2.0), (7, 3, 2.0), (3, 7, 2.0), (3, 2, 1.5)),
}
"""Tested layer-peeled models by preset: the numbers of majority and of minority classes, and the
bound on the norms."""
NEAR = 0.05
"""Relative distance below and above the critical imbalance at which descent is tested."""
DIFFERENT, EQUAL = 1 - 1e-3, 1 - 1e-6
"""Minority classifiers count as different if their mean cosine is at most the first number, and as
equal if it is at least the second."""


@dataclass(frozen=True)
class Config:
    """Networks, imbalances and weight decays of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    imbalances: tuple[int, ...] = (1, 3, 10, 30, 100)
    weight_decays: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    rate: float = 0.03

    def counts(self, imbalance: int) -> tuple[int, int]:
        """Return the sizes of a large and a small class; all classes together have `samples`."""
        in_two_classes = self.networks.samples // (CLASSES // 2)
        small = max(1, round(in_two_classes / (1 + imbalance)))
        return in_two_classes - small, small


PRESETS = {
    "quick": Config(
        FieldNetworks(layers=4, samples=500, epochs=40, workers=0),
        imbalances=(1, 10, 100),
        weight_decays=(3e-3,),
    ),
    "paper": Config(),
}
"""Configurations. "paper" trains 200 networks with 8 seeds. "quick" has a quarter of the samples,
half of the epochs, three imbalances and one weight decay."""


def fleet(config: Config, imbalance: int, seed: int) -> SweepConfig:
    """Return the networks of one imbalance and seed, one for each weight decay."""
    large, small = config.counts(imbalance)
    return config.networks.of(
        fashion(large * CLASSES, classes=CLASSES, seed=seed),
        SampleSelection(imbalance=large / small, selection_seed=seed),
        seed=seed,
        weight_decays=config.weight_decays,
        rate=config.rate,
    )


def measure(trained_network: TrainedNetwork) -> dict[str, Any]:
    """Measure the cosines of minority classifiers, and how far W W' is from three geometries.

    The geometries are the simplex ETF, SELI and the target. The target is the optimum for the class
    counts and the weight decay. It needs a weight decay of the features, which training does not
    have; this is computed from the measured ratio of the norms of W and H.
    """
    last = LastLayer(trained_network)
    W, sizes = last.weight, last.moments.counts.double()
    decay = trained_network.weight_decay
    optimum = target(
        counts=sizes, weight_decay=(decay * last.decays[0], decay * last.decays[1]), bias=decay
    )
    gram = W @ W.T
    etf = torch.eye(len(W), dtype=torch.float64) - 1 / len(W)
    minority = None if optimum.is_zero else _minority_cosine(optimum.classifier_cosines)
    numbers = {
        "accuracy": last.accuracy,
        "minority": _minority_cosine(cosines(gram)),
        "target_minority": minority,
        "from_etf": gram_distance(gram, etf),
        "from_seli": gram_distance(gram, limit_grams(sizes)[0]),
        "from_target": gram_distance(gram, optimum.classifier_gram),
    }
    return {name: rounded(value) for name, value in numbers.items()}


def _minority_cosine(matrix: Tensor) -> float:
    """Return the mean entry of a (C, C) matrix over all pairs of different minority classes.

    The minority classes are the second half of all classes.
    """
    small = matrix[len(matrix) // 2 :, len(matrix) // 2 :]
    return float(small.sum() - small.diagonal().sum()) / (len(small) * (len(small) - 1))


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks that are not recorded yet, and return a row for every network."""
    fleets: list[tuple[Row, SweepConfig]] = []
    for seed in seeds:
        for imbalance in config.imbalances:
            large, small = config.counts(imbalance)
            setting: Row = {"imbalance": imbalance, "ratio": rounded(large / small)}
            fleets.append((setting, fleet(config, imbalance, seed)))
    return study.train_and_measure(config, fleets, measure, seeds=seeds, out=out, engine=engine)


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of cosines and distances by imbalance and weight decay."""
    title = (
        "Mean cosine between minority classifiers, and distances of the normalised Gram matrix of "
        "the classifier; mean ± deviation over networks with training accuracy 0.99 or more"
    )
    keys = [Column("R", "imbalance", "d"), Column("weight decay", "weight_decay", "g")]
    columns = [Column(heading, name) for name, heading in COLUMNS.items()]
    return study.table(title, numbers, keys, columns)


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of the cosines and distances against the imbalance."""
    angles = []
    for colour, decay in enumerate(numbers["config"]["weight_decays"]):
        where = {"weight_decay": decay}
        angles.append(Line(f"{decay:g}", "minority", where, colour))
        angles.append(Line("", "target_minority", where, colour, "dashed"))
    distances = [
        Line(COLUMNS[name], name, colour=colour)
        for colour, name in enumerate(("from_etf", "from_seli", "from_target"))
    ]
    return study.picture(
        "fang2021_imbalance",
        "Imbalanced classes: minority classifiers and their targets",
        study.as_rows(numbers),
        "ratio",
        [
            ("Cosine between minority classifiers", "cosine", angles),
            ("Distance of the classifier's Gram matrix", "distance", distances),
        ],
        caption="Left, one colour for each weight decay: networks (solid), and the optimum for "
        "their class counts, weight decay and norms (dashed). Right: mean over all weight decays.",
        x_label="imbalance R",
        x_scale="log",
    )


def mean_by_seed(numbers: Numbers, value: Value, **match: Any) -> dict[int, float]:
    """Return by seed the mean of a value over the networks with imbalance 10 or more."""
    large = tuple(ratio for ratio in numbers["config"]["imbalances"] if ratio >= LARGE)
    rows = study.as_rows(numbers, imbalance=large, **match)
    return study.averaged(study.by_cell(rows, value, "imbalance", "weight_decay"))


study_claim = study.claims_about("fang2021_imbalance")


@study_claim(
    "fang2021/minority-networks",
    "In networks classifiers of minority classes turn towards each other as the imbalance grows.",
    "fang2021, Sec. Abstract “first predicted by the Layer-Peeled Model before being confirmed”",
    code="nclab_papers.shared.study.slopes",
)
def minority_networks(numbers: Numbers) -> Finding:
    """Require that the mean cosine of minority classifiers rises with the imbalance."""
    rows = study.as_rows(numbers)
    ratios = sorted({float(row["ratio"]) for row in rows})
    rises = study.slopes(
        rows, study.column("minority"), along="ratio", at=ratios, keys=("weight_decay",)
    )
    unit = "per decade of the imbalance"
    part = Part("slope of the cosine of minority classifiers", rises, unit=unit)
    return study.of_the_source(judge_effects([part], margin=0.05), numbers)


@study_claim(
    "findings/imbalance-target",
    "From imbalance 10 on, networks are nearer to the optimum for their weight decay than to "
    "SELI, its limit without weight decay.",
    "thrampoulidis2022, Sec. Abstract “ridge-regularization plays a critical role”",
    code="nclab_papers.fang2021.imbalance.mean_by_seed",
)
def finite_target(numbers: Numbers) -> Finding:
    """Require that the distance from the target is smaller than the distance from SELI."""
    nearer = mean_by_seed(numbers, study.column("from_seli", minus="from_target"))
    return judge_effects(
        [Part("difference of distances, from SELI − from the target", nearer)], margin=0.01
    )


@study_claim(
    "findings/imbalance-tail-angles",
    "From imbalance 10 on, the mean cosine of minority classifiers differs from its target by at "
    "most 0.1, at every weight decay.",
    "fang2021, Sec. Abstract “explaining and predicting common empirical patterns”",
)
def tail_angles(numbers: Numbers) -> Finding:
    """Require that the cosine of minority classifiers is within 0.1 of that of the target."""

    def distance(row: Row) -> float | None:
        deviation = study.column("minority", minus="target_minority")(row)
        return None if deviation is None else abs(deviation)

    parts = [
        Part(
            f"distance of the cosine from its target at weight decay {decay:g}",
            mean_by_seed(numbers, distance, weight_decay=decay),
            below=0.1,
        )
        for decay in numbers["config"]["weight_decays"]
    ]
    return judge_effects(parts)


def critical_ratio(large: int, small: int, size: float) -> float:
    r"""Return the imbalance R* above which minority classifiers are equal in the model below.

    $$\min \tfrac1n\sum_i \ell(Wh_i,y_i),\quad \tfrac1C\|W\|^2\le E_W,\quad
      \tfrac1C\sum_c\tfrac1{n_c}\sum_{i\in c}\|h_i\|^2\le E_H,\qquad
      t(R^*) = \frac{n_B}{n}$$

    Source: fang2021, Sec. Abstract (Minority Collapse; the equation is derived in docs/targets.md)

    $\ell$ is the cross-entropy of one sample. $E_W$ and $E_H$ bound the norms of W and H; `size` is
    $\sqrt{E_W E_H}$. Of n samples, each of the `small` classes has $n_B$, and each of the `large`
    classes has R times as many. t(R) is the Lagrange multiplier of the norm bound at the
    optimum. The small classes have equal classifier rows if t exceeds $n_B/n$.
    """

    def excess(log_ratio: float) -> float:
        counts = [math.exp(log_ratio)] * large + [1.0] * small
        price = 1 / sum(counts)  # the share of a minority class
        optimum = target(counts=counts, weight_decay=(price, price), average="classes")
        norm = float(torch.linalg.svdvals(optimum.logits).sum())
        return math.log(max(norm, 1e-9) / (size * (large + small)))

    high = 1.0
    while excess(high) < 0:
        high += 1.5
    return math.exp(brentq(excess, max(1e-9, high - 1.5), high, xtol=1e-7))


def minority_cosine_at(large: int, small: int, size: float, ratio: float) -> float:
    """Return the mean cosine of minority classifiers after descent on the layer-peeled model."""
    C = large + small
    share = np.array([ratio] * large + [1.0] * small)
    share /= share.sum()
    weight = torch.tensor(share)
    labels = torch.arange(C)
    bound = C * size  # the product |W| |H|, with |W| = |H|

    def loss(W: Tensor, H: Tensor) -> Tensor:
        logits = bound * (W / W.norm()) @ (H / H.norm())
        return weight @ torch.nn.functional.cross_entropy(logits.T, labels, reduction="none")

    rows = study.minimise_freely(loss, C)[0][large:]
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return float((units.sum(0) @ units.sum(0) - small) / (small * (small - 1)))


def gather_thresholds(preset: str) -> dict[str, Any]:
    """Return critical imbalances, and minority cosines after descent just below and above them."""
    rows = []
    with one_thread():
        for large, small, size in MODELS[preset]:
            ratio = critical_ratio(large, small, size)
            below, above = (
                minority_cosine_at(large, small, size, ratio * factor)
                for factor in (1 - NEAR, 1 + NEAR)
            )
            rows.append(
                {
                    "classes": [large, small],
                    "size": size,
                    "ratio": ratio,
                    "below": below,
                    "above": above,
                }
            )
    return {"rows": rows}


@claim(
    "fang2021/minority-threshold",
    Kind.THEOREM,
    "In the layer-peeled model classifiers of minority classes coincide from a finite imbalance "
    "on, and not before.",
    "fang2021, Sec. Abstract “a hitherto unknown phenomenon that we term Minority Collapse”",
    gather=gather_thresholds,
    code="nclab_papers.fang2021.imbalance.critical_ratio",
)
def minority_threshold(numbers: Numbers) -> Finding:
    """Require different classifiers just below the critical imbalance and equal ones above it."""
    rows = numbers["rows"]
    evidence = ", ".join(
        f"{row['classes'][0]} + {row['classes'][1]} classes with norm bound {number(row['size'])}: "
        f"R* = {row['ratio']:.5f}"
        for row in rows
    )
    merged = all(row["above"] >= EQUAL for row in rows)
    separate = all(row["below"] <= DIFFERENT for row in rows)
    if not merged:
        evidence = f"classifiers differ above the critical imbalance; {evidence}"
    elif not separate:
        evidence = f"classifiers are equal below the critical imbalance; {evidence}"
    return holds_if(merged and separate, evidence, numbers)

"""Collapse under five optimisers, with weight decay coupled and decoupled.

Claim: coupled weight decay makes networks collapse, decoupled weight decay as in AdamW does not.
Source: zhao2026, Sec. Abstract

The networks are not the paper's: they have width 64 and 6 layers, and learn a teacher's data and
FashionMNIST. Claims about the paper's networks therefore stay open, with our results as evidence.
A claim that says "cannot" is about all networks: these networks can contradict it, but they cannot
reproduce it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.claims.claim import Finding, Numbers
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.tables import Column, Row, Table
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.training.fleet.recipe import Optimizer
from nclab.training.sweep import SweepConfig
from nclab_papers.shared import study
from nclab_papers.shared.networks import FieldData, FieldNetworks, collapse

DECAYS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
USUAL = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Weight decays at which the paper's claims are judged."""
LARGE = (1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Weight decays a hundred times as large as `USUAL`. At these, AdamW with a tenth of the learning
rate shrinks weights as much as SGD with momentum 0.9 does at `USUAL`."""
OPTIMIZERS: Mapping[Optimizer, str] = {
    "sgd": "SGD",
    "sgdw": "SGDW",
    "adam": "Adam",
    "adamw": "AdamW",
    "signum": "sign descent",
}
"""Names of the optimisers in tables and pictures."""
ADAPTIVE = ("adam", "adamw", "signum")
"""Optimisers that are used with a tenth of the learning rates of SGD."""
MARGIN = 0.1
"""Smallest difference of interest of base-10 logarithms: a factor of 1.26."""
CELL = ("rate", "classes", "data")
"""Columns that define a cell of comparable networks, besides optimiser, weight decay and seed."""
NO_MOMENTUM = "sgd without momentum"


@dataclass(frozen=True)
class Config:
    """Networks, data sets, learning rates and weight decays of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)
    """Learning rates of SGD with momentum."""
    classes: tuple[int, ...] = (4, 5, 6, 7)
    data: tuple[FieldData, ...] = ("teacher", "fashion")
    weight_decays: tuple[float, ...] = DECAYS
    momentum: float = 0.9


PRESETS = {
    "quick": Config(
        FieldNetworks(layers=4, samples=256, epochs=40, workers=0),
        rates=(0.03,),
        classes=(4, 5),
        data=("teacher",),
    ),
    "paper": Config(),
}
"""Configurations. "paper" trains 10,560 networks with 8 seeds, and 576 without momentum. "quick"
has half of the epochs, an eighth of the samples, and fewer layers, rates, classes and data sets."""


def arms(config: Config, seeds: Sequence[int]) -> list[tuple[Row, SweepConfig]]:
    """Return the sweeps to train, each with its setting: one network for each weight decay."""
    fleets: list[tuple[Row, SweepConfig]] = []
    small_decays = tuple(decay for decay in config.weight_decays if decay <= USUAL[-1])
    for seed, data, classes, rate in product(seeds, config.data, config.classes, config.rates):
        make = partial(config.networks.config, data, classes=classes, seed=seed)
        setting = {"data": data, "classes": classes, "rate": rate}
        for name in OPTIMIZERS:
            used = round(rate / 10, 9) if name in ADAPTIVE else rate
            recipe: dict[str, Any] = {"optimizer": name, "rate": used}
            if name not in ("adam", "adamw"):
                recipe["momentum"] = config.momentum
            fleet = make(weight_decays=config.weight_decays, **recipe)
            fleets.append(({"optimizer": name, **setting}, fleet))
        if classes in config.classes[:2]:
            faster = round(rate / (1 - config.momentum), 9)
            fleet = make(weight_decays=small_decays, momentum=0.0, rate=faster)
            fleets.append(({"optimizer": NO_MOMENTUM, **setting}, fleet))
    return fleets


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks that are not recorded yet, and return a row for every network.

    The column `rate` is the learning rate of SGD with momentum in the same cell. The optimisers in
    `ADAPTIVE` used a tenth of it, SGD without momentum ten times as much.
    """
    return study.train_and_measure(
        config, arms(config, seeds), collapse, seeds=seeds, out=out, engine=engine
    )


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of the measures of collapse by optimiser and weight decay."""
    title = (
        "Base-10 logarithms of NC1, NC2 and NC3, and NC0 itself; mean ± deviation over networks "
        f"with training accuracy {study.COUNTS} or more"
    )
    names = {str(name): label for name, label in OPTIMIZERS.items()}
    names[NO_MOMENTUM] = "SGD without momentum"
    keys = [
        Column("optimiser", "optimizer", names=names),
        Column("weight decay", "weight_decay", "g"),
    ]
    headings = {"nc1": "NC1", "nc2": "NC2", "nc3": "NC3", "raw_nc3": "NC3 raw"}
    columns = [Column(heading, study.log10(name), ".2f") for name, heading in headings.items()]
    columns.append(Column("NC0", "nc0"))
    return study.table(title, numbers, keys, columns)


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of NC1 to NC3 against weight decay, and of NC0 of AdamW against C."""
    panels = [
        (
            name.upper(),
            f"log10 {name.upper()}",
            study.arms(study.log10(name), "optimizer", OPTIMIZERS),
        )
        for name in ("nc1", "nc2", "nc3")
    ]
    classes = {count: f"C = {count}" for count in numbers["config"]["classes"]}
    nc0 = study.arms("nc0", "classes", classes, optimizer="adamw")
    return study.picture(
        "zhao2026_optimizers",
        "Collapse by optimiser and weight decay",
        [row for row in study.as_rows(numbers) if row["weight_decay"] > 0],
        "weight_decay",
        [*panels, ("NC0 of AdamW", "NC0", nc0)],
        caption="SGD, Adam and sign descent add weight decay to the gradient; SGDW and AdamW "
        "subtract it from the weights.",
        x_label="weight decay",
        x_scale="log",
    )


study_claim = study.claims_about("zhao2026_optimizers")


def decade_slopes(numbers: Numbers, name: str, column: str, at: Sequence[float]) -> study.BySeed:
    """Return by seed how much log10 of a metric changes if weight decay grows tenfold.

    Args:
        name: name of the optimiser.
        column: name of the metric.
        at: weight decays to which the line is fitted.
    """
    rows = study.as_rows(numbers, optimizer=name)
    return study.slopes(rows, study.log10(column), along="weight_decay", at=at, keys=CELL)


@study_claim(
    "zhao2026/coupled-collapses",
    "Weight decay that is added to the gradient, as by SGD and Adam, makes networks collapse.",
    "zhao2026, Sec. Abstract “the overlooked role of weight-decay coupling”",
    code="nclab_papers.shared.study.slopes",
)
def coupled_collapses(numbers: Numbers) -> Finding:
    """Require that NC1 falls with weight decay, for SGD and for Adam."""
    parts = [
        Part(
            f"slope of log10 NC1 of {label}",
            decade_slopes(numbers, name, "nc1", USUAL),
            below=0.0,
            unit="per decade of weight decay",
        )
        for name, label in (("sgd", "SGD"), ("adam", "Adam"))
    ]
    return study.of_the_source(judge_effects(parts, margin=MARGIN), numbers)


@study_claim(
    "zhao2026/decoupled-does-not",
    "Weight decay that is taken from the weights, as by AdamW, does not make networks collapse.",
    "zhao2026, Sec. Abstract “under decoupled weight decay in adaptive optimizers”",
    code="nclab_papers.shared.study.slopes",
)
def decoupled_does_not(numbers: Numbers) -> Finding:
    """Require that NC1 of AdamW falls by less than a factor of 1.26 per decade of weight decay."""
    slopes, unit = decade_slopes(numbers, "adamw", "nc1", USUAL), "per decade of weight decay"
    part = Part("slope of log10 NC1 of AdamW", slopes, above=-MARGIN, unit=unit)
    return study.of_the_source(judge_effects([part]), numbers)


@study_claim(
    "zhao2026/cannot-emerge",
    "Neural collapse cannot emerge under AdamW.",
    "zhao2026, Sec. Abstract “NC cannot emerge under decoupled weight decay”",
    code="nclab_papers.shared.study.differences",
)
def cannot_emerge(numbers: Numbers) -> Finding:
    """Require that AdamW stays behind SGD in at least one metric.

    Collapse means all of NC0 to NC3. For each metric, the smallest value over all rates and weight
    decays counts. Only an AdamW that lags in no metric would contradict the claim.
    """
    rows = study.as_rows(numbers)
    parts = [
        Part(
            f"difference of log10 of the smallest {name.upper()}, AdamW − SGD",
            study.differences(
                _smallest(study.having(rows, optimizer="adamw"), name),
                _smallest(study.having(rows, optimizer="sgd"), name),
            ),
        )
        for name in ("nc0", "nc1", "nc2", "nc3")
    ]
    finding = judge_effects(parts, margin=0.3, one_is_enough=True)
    return study.of_the_source(finding, numbers, universal=True)


def _smallest(rows: Iterable[Row], name: str) -> study.Cells:
    """Return log10 of the smallest value of a metric over learning rates and weight decays.

    There is one number for each combination of seed, number of classes and data.
    """
    smallest: study.Cells = {}
    cells = study.by_cell(rows, study.log10(name), "classes", "data", "rate", "weight_decay")
    for (seed, classes, data, *_), measured in cells.items():
        cell = (seed, classes, data)
        smallest[cell] = min(measured, smallest.get(cell, measured))
    return smallest


@study_claim(
    "zhao2026/momentum-accelerates",
    "Momentum makes SGD collapse faster, beyond what it does to the training loss.",
    "zhao2026, Sec. Abstract “the accelerating effect of momentum on NC (beyond convergence”",
    code="nclab_papers.shared.study.differences",
)
def momentum_accelerates(numbers: Numbers) -> Finding:
    """Require that NC1 / loss is larger without momentum, at ten times the learning rate."""
    rows = study.as_rows(numbers)
    keys = (*CELL, "weight_decay")

    def nc1_over_loss(name: str) -> study.Cells:
        networks = study.having(rows, optimizer=name)
        nc1, loss = (
            study.by_cell(networks, study.log10(column), *keys) for column in ("nc1", "loss")
        )
        return {key: nc1[key] - loss[key] for key in nc1.keys() & loss.keys()}

    gains = study.differences(nc1_over_loss(NO_MOMENTUM), nc1_over_loss("sgd"))
    part = Part("difference of log10 of NC1 over loss, without momentum − with momentum", gains)
    return study.of_the_source(judge_effects([part], margin=MARGIN), numbers)


@study_claim(
    "findings/optimizer-sgdw-matched",
    "SGDW collapses as much as SGD if both shrink weights equally: with momentum 0.9, at ten "
    "times the weight decay of SGD.",
    "zhao2026, Sec. Abstract “the overlooked role of weight-decay coupling”",
)
def sgdw_matched(numbers: Numbers) -> Finding:
    """Compare NC1 of SGDW at weight decay 10 λ with NC1 of SGD at λ."""
    rows = study.as_rows(numbers)
    decays = [decay for decay in numbers["config"]["weight_decays"] if decay]
    tenfold = {decay: float(f"{10 * decay:.6g}") for decay in decays}  # 10 * 3e-4 is not 3e-3
    matched = [
        {**row, "weight_decay": tenfold[row["weight_decay"]]}
        for row in study.having(rows, optimizer="sgd", weight_decay=tuple(tenfold))
    ]
    keys = (*CELL, "weight_decay")
    sgdw = study.by_cell(study.having(rows, optimizer="sgdw"), study.log10("nc1"), *keys)
    gaps = study.differences(sgdw, study.by_cell(matched, study.log10("nc1"), *keys))
    return judge_effects(
        [study.within("difference of log10 NC1 between SGDW and SGD", gaps, MARGIN)]
    )


@study_claim(
    "findings/optimizer-adamw-matched",
    "Networks also collapse with the weight decay of AdamW, from 1e-2 to 1, where it shrinks "
    "weights as much as the weight decay of SGD does.",
    "zhao2026, Sec. Abstract “NC cannot emerge under decoupled weight decay”",
    code="nclab_papers.shared.study.slopes",
)
def adamw_matched(numbers: Numbers) -> Finding:
    """Require that NC1, NC2 and NC3 of AdamW fall with weight decay from 1e-2 to 1."""
    parts = [
        Part(
            f"slope of log10 {column.upper()}",
            decade_slopes(numbers, "adamw", column, LARGE),
            below=0.0,
            unit="per decade of weight decay",
        )
        for column in ("nc1", "nc2", "nc3")
    ]
    return judge_effects(parts, margin=MARGIN)


@study_claim(
    "findings/optimizer-centred-raw",
    "Under AdamW at weight decay 1 the classifier is nearer to centred class means than to raw "
    "class means: metrics of raw means measure their common part.",
    "zhao2026, Sec. Abstract “typically quantified through NC metrics”",
    code="nclab_papers.shared.study.differences",
)
def centred_and_raw(numbers: Numbers) -> Finding:
    """Require that NC3 is larger with raw class means than with centred class means."""
    rows = study.as_rows(numbers, optimizer="adamw", weight_decay=1.0)
    raw, centred = (
        study.by_cell(rows, study.log10(column), *CELL) for column in ("raw_nc3", "nc3")
    )
    part = Part("difference of log10 NC3, raw − centred", study.differences(raw, centred))
    return judge_effects([part], margin=MARGIN)


@study_claim(
    "findings/optimizer-parity",
    "Under AdamW at weight decay 3 the sum of the classifier's rows stays larger for an odd "
    "number of classes: the corners of its box cannot sum to zero.",
    "zhao2026, Def. of NC0 “whose convergence to zero is a necessary condition”",
)
def parity(numbers: Numbers) -> Finding:
    """Require that NC0 of AdamW at weight decay 3 is larger for odd numbers of classes."""
    rows = study.as_rows(numbers, optimizer="adamw", weight_decay=3.0)
    cells = study.by_cell(rows, study.column("nc0"), "rate", "data", "classes")
    every = [int(classes) for classes in numbers["config"]["classes"]]
    odd, even = ([classes for classes in every if classes % 2 == parity] for parity in (1, 0))
    gaps = {
        key: fmean(cells[*key, C] for C in odd) - fmean(cells[*key, C] for C in even)
        for key in {cell[:3] for cell in cells}
        if odd and even and all((*key, C) in cells for C in every)
    }
    return judge_effects(
        [Part("difference of NC0, odd − even classes", study.averaged(gaps))], margin=0.01
    )

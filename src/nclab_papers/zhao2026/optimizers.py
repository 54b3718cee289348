"""Collapse under five optimisers, with weight decay coupled and decoupled.

Claim: coupled weight decay makes networks collapse, decoupled weight decay as in AdamW does not.
Source: zhao2026, Sec. Abstract

The networks are not the paper's: width 64, 6 layers, a teacher's data and FashionMNIST. A sentence
about its networks therefore stays open, with what is found here; one that says "cannot" is about
all networks and could be contradicted by these, but not reproduced.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Series
from nclab.training.fleet.recipe import Optimizer
from nclab.training.sweep import SweepConfig
from nclab_papers.shared.measures import collapse
from nclab_papers.shared.networks import FieldData, FieldNetworks
from nclab_papers.shared.rows import (
    COUNTS,
    BySeed,
    Value,
    as_rows,
    averaged,
    by_cell,
    counts,
    differences,
    having,
    log10,
    of_the_source,
    plain,
    signed,
    slopes,
    within,
)
from nclab_papers.shared.study import band, numbers_of, trained

DECAYS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
USUAL = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Weight decays over which the paper's claims are judged."""
LARGE = (1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""A hundred times as much: at a tenth of the rate AdamW then shrinks weights as SGD does at
`USUAL` with momentum."""
OPTIMIZERS: Mapping[Optimizer, str] = {
    "sgd": "SGD",
    "sgdw": "SGDW",
    "adam": "Adam",
    "adamw": "AdamW",
    "signum": "sign descent",
}
ADAPTIVE = ("adam", "adamw", "signum")
"""Take a tenth of the rates of SGD."""
MARGIN = 0.1
"""Of logarithms: a factor of 1.26."""
CELL = ("rate", "classes", "data")
NO_MOMENTUM = "sgd without momentum"


@dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)
    """Of SGD with momentum."""
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
"""paper: 10,560 networks with 8 seeds, and 576 without momentum. quick: epochs
divided by two, samples by eight, fewer layers, rates, classes and data, for the cost; as large as
training needs to get through."""


def arms(config: Config, seeds: Sequence[int]) -> list[tuple[Row, SweepConfig]]:
    """Every fleet with its place in the design; a fleet has all weight decays of one seed."""
    found: list[tuple[Row, SweepConfig]] = []
    few = tuple(one for one in config.weight_decays if one <= USUAL[-1])
    for seed in seeds:
        for data in config.data:
            for classes in config.classes:
                make = partial(config.networks.config, data, classes=classes, seed=seed)
                for rate in config.rates:
                    place = {"data": data, "classes": classes, "rate": rate}
                    for name in OPTIMIZERS:
                        how: dict[str, Any] = {"optimizer": name, "rate": _rate(name, rate)}
                        if name not in ("adam", "adamw"):
                            how["momentum"] = config.momentum
                        own = make(weight_decays=config.weight_decays, **how)
                        found.append(({"optimizer": name, **place}, own))
                    if classes in config.classes[:2]:
                        faster = rate / (1 - config.momentum)
                        own = make(weight_decays=few, momentum=0.0, rate=round(faster, 9))
                        found.append(({"optimizer": NO_MOMENTUM, **place}, own))
    return found


def _rate(optimizer: Optimizer, rate: float) -> float:
    return round(rate / 10, 9) if optimizer in ADAPTIVE else rate


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train what is not below `out` yet; a row for every network, as columns.

    The column `rate` is that of SGD, by which arms are matched; adaptive ones took a tenth.
    """
    fleets = arms(config, seeds)
    rows = trained(fleets, config.networks, collapse, out=out, engine=engine)
    return numbers_of(config, seeds, rows)


def tables(numbers: Numbers) -> list[Table]:
    """How many networks count, and collapse by optimiser and weight decay."""
    rows = as_rows(numbers)
    shown = []
    for name in (*OPTIMIZERS, NO_MOMENTUM):
        for decay in numbers["config"]["weight_decays"]:
            own = having(rows, optimizer=name, weight_decay=decay)
            good = [row for row in own if counts(row)]
            if own:
                cells = [_cell(good, value) for value in ("nc1", "nc2", "nc3", "raw_nc3")]
                nc0 = mean_and_deviation(_known(good, plain("nc0")))
                shown.append(
                    (_words(name), f"{decay:g}", f"{len(good)} of {len(own)}", *cells, nc0)
                )
    columns = ("optimiser", "weight decay", "count", "NC1", "NC2", "NC3", "NC3 raw", "NC0")
    title = (
        "Logarithms (base 10) of NC1, NC2, NC3 and NC0 itself, mean ± deviation over all networks "
        f"with training accuracy {COUNTS} or more"
    )
    return [Table(title, columns, shown)]


def _known(rows: Sequence[Row], value: Value) -> list[float]:
    return list(by_cell(rows, value, "optimizer", "weight_decay", *CELL).values())


def _cell(rows: Sequence[Row], name: str) -> str:
    return mean_and_deviation(_known(rows, log10(name)), ".2f")


def _words(name: Any) -> str:
    return NO_MOMENTUM.replace("sgd", "SGD") if name == NO_MOMENTUM else OPTIMIZERS[name]


def pictures(numbers: Numbers) -> list[Picture]:
    """NC1 to NC3 against weight decay, and NC0 by the number of classes."""
    rows = as_rows(numbers)
    panels = [
        Panel(
            title,
            "weight decay",
            f"log10 {title}",
            tuple(
                _line(having(rows, optimizer=name), log10(column), words, place)
                for place, (name, words) in enumerate(OPTIMIZERS.items())
            ),
            x_scale="log",
        )
        for column, title in (("nc1", "NC1"), ("nc2", "NC2"), ("nc3", "NC3"))
    ]
    panels.append(
        Panel(
            "NC0 of AdamW",
            "weight decay",
            "NC0",
            tuple(
                _line(
                    having(rows, optimizer="adamw", classes=classes),
                    plain("nc0"),
                    f"C = {classes}",
                    place,
                )
                for place, classes in enumerate(numbers["config"]["classes"])
            ),
            x_scale="log",
        )
    )
    if not any(line.x for panel in panels for line in panel.series):
        return []
    return [
        Picture(
            "zhao2026_optimizers",
            "Collapse by optimiser and weight decay",
            tuple(panels),
            2,
            "Means over the networks that count; bands reach from the smallest to the largest "
            "mean of a seed. Weight decay is added to the gradient by SGD, Adam and sign descent, "
            "and taken from the weights by SGDW and AdamW.",
        )
    ]


def _line(rows: Sequence[Row], value: Value, label: str, colour: int) -> Series:
    """Over weight decays above 0."""
    decayed = [row for row in rows if row["weight_decay"] > 0]
    return band(decayed, value, "weight_decay", CELL, label, colour)


claimed = partial(claim, needs="zhao2026_optimizers", figure="zhao2026_optimizers")


def decade_slopes(numbers: Numbers, name: str, column: str, at: Sequence[float]) -> BySeed:
    """The slope of a logarithm per decade of an optimiser's weight decay."""
    rows = having(as_rows(numbers), optimizer=name)
    return slopes(rows, log10(column), along="weight_decay", at=at, keys=CELL)


@claimed(
    "zhao2026/coupled-collapses",
    Kind.RESULT,
    "Weight decay that is added to the gradient, as by SGD and Adam, makes networks collapse.",
    "zhao2026, Sec. Abstract “the overlooked role of weight-decay coupling”",
    code="nclab_papers.shared.rows.slopes",
)
def coupled_collapses(numbers: Numbers) -> Finding:
    """NC1 falls with weight decay, for SGD and for Adam."""
    parts = [
        Part(f"fall of NC1, {words}", signed(decade_slopes(numbers, name, "nc1", USUAL), -1))
        for name, words in (("sgd", "SGD"), ("adam", "Adam"))
    ]
    return of_the_source(judge_effects(parts, margin=MARGIN, unit="a decade"), numbers)


@claimed(
    "zhao2026/decoupled-does-not",
    Kind.RESULT,
    "Weight decay that is taken from the weights, as by AdamW, does not make networks collapse.",
    "zhao2026, Sec. Abstract “under decoupled weight decay in adaptive optimizers”",
    code="nclab_papers.shared.rows.slopes",
)
def decoupled_does_not(numbers: Numbers) -> Finding:
    """NC1 of AdamW falls by less than the margin."""
    rises = signed(decade_slopes(numbers, "adamw", "nc1", USUAL), 1, MARGIN)
    part = Part(f"slope of NC1, AdamW, above −{MARGIN:g}", rises)
    return of_the_source(judge_effects([part], margin=0.0, unit="a decade"), numbers)


@claimed(
    "zhao2026/cannot-emerge",
    Kind.RESULT,
    "Neural collapse cannot emerge under AdamW.",
    "zhao2026, Sec. Abstract “NC cannot emerge under decoupled weight decay”",
    code="nclab_papers.shared.rows.differences",
)
def cannot_emerge(numbers: Numbers) -> Finding:
    """How far AdamW stays behind SGD in the measure where it lags most over all seeds.

    Collapse is all of NC0 to NC3. Each is taken where it is smallest, over all rates and weight
    decays: only an AdamW that lags in none of them would contradict the sentence.
    """
    rows = as_rows(numbers)
    lags = []
    for column in ("nc0", "nc1", "nc2", "nc3"):
        least = {
            name: _smallest(having(rows, optimizer=name), log10(column))
            for name in ("adamw", "sgd")
        }
        lags.append(differences(least["adamw"], least["sgd"]))
    seeds = sorted(set.intersection(*map(set, lags)))
    # One measure for all seeds: the largest lag of each seed would be above 0 for equal optimisers.
    worst = max(({seed: lag[seed] for seed in seeds} for lag in lags), key=_total)
    part = Part("smallest value, AdamW − SGD, of NC0 to NC3 the largest", worst)
    found = judge_effects([part], margin=0.3, chosen_of=len(lags))
    return of_the_source(found, numbers, universal=True)


def _total(lag: BySeed) -> float:
    return math.fsum(lag.values())


def _smallest(rows: Sequence[Row], value: Value) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], float] = {}
    for (seed, classes, data, *_), one in by_cell(
        rows, value, "classes", "data", "rate", "weight_decay"
    ).items():
        place = (seed, classes, data)
        found[place] = min(one, found.get(place, one))
    return found


@claimed(
    "zhao2026/momentum-accelerates",
    Kind.RESULT,
    "Momentum makes SGD collapse faster, beyond what it does to the training loss.",
    "zhao2026, Sec. Abstract “the accelerating effect of momentum on NC (beyond convergence”",
    code="nclab_papers.shared.rows.differences",
)
def momentum_accelerates(numbers: Numbers) -> Finding:
    """NC1 without momentum at ten times the rate − with it, less the same of the loss."""
    rows = as_rows(numbers)
    keys = (*CELL, "weight_decay")

    def beyond_loss(name: str) -> dict[tuple[Any, ...], float]:
        own = having(rows, optimizer=name)
        nc1, loss = (by_cell(own, log10(column), *keys) for column in ("nc1", "loss"))
        return {key: nc1[key] - loss[key] for key in nc1.keys() & loss.keys()}

    gains = differences(beyond_loss(NO_MOMENTUM), beyond_loss("sgd"))
    part = Part("NC1 over loss, without momentum − with it", gains)
    return of_the_source(judge_effects([part], margin=MARGIN), numbers)


@claimed(
    "findings/optimizer-sgdw-matched",
    Kind.RESULT,
    "Decoupled decay of SGD collapses as coupled decay does where it shrinks weights as much: "
    "SGDW at ten times the weight decay, with momentum 0.9.",
    "zhao2026, Sec. Abstract “the overlooked role of weight-decay coupling”",
)
def sgdw_matched(numbers: Numbers) -> Finding:
    """NC1 of SGDW at 10 λ beside that of SGD at λ."""
    rows = as_rows(numbers)
    more = {decay: _times_ten(decay) for decay in numbers["config"]["weight_decays"] if decay}
    matched = [
        {**row, "weight_decay": more[row["weight_decay"]]}
        for row in having(rows, optimizer="sgd", weight_decay=tuple(more))
    ]
    keys = (*CELL, "weight_decay")
    theirs = by_cell(having(rows, optimizer="sgdw"), log10("nc1"), *keys)
    gaps = differences(theirs, by_cell(matched, log10("nc1"), *keys))
    return judge_effects(within("NC1, SGDW − SGD", gaps, MARGIN), margin=0.0)


def _times_ten(decay: float) -> float:
    """As the grid has it: 10 * 3e-4 is not 3e-3 in binary."""
    return float(f"{10 * decay:.6g}")


@claimed(
    "findings/optimizer-adamw-matched",
    Kind.RESULT,
    "Under AdamW networks collapse with weight decay, too, where it shrinks weights as much as "
    "that of SGD does: from 1e-2 to 1.",
    "zhao2026, Sec. Abstract “NC cannot emerge under decoupled weight decay”",
    code="nclab_papers.shared.rows.slopes",
)
def adamw_matched(numbers: Numbers) -> Finding:
    """NC1, NC2 and NC3 fall with weight decay from 1e-2 to 1."""
    parts = [
        Part(
            f"fall of {column.upper()}", signed(decade_slopes(numbers, "adamw", column, LARGE), -1)
        )
        for column in ("nc1", "nc2", "nc3")
    ]
    return judge_effects(parts, margin=MARGIN, unit="a decade")


@claimed(
    "findings/optimizer-centred-raw",
    Kind.RESULT,
    "Under AdamW at weight decay 1 the classifier is nearer to centred class means than to raw "
    "ones: what is measured with raw means is their common part.",
    "zhao2026, Sec. Abstract “typically quantified through NC metrics”",
    code="nclab_papers.shared.rows.differences",
)
def centred_and_raw(numbers: Numbers) -> Finding:
    """NC3 with raw class means − with centred ones."""
    rows = having(as_rows(numbers), optimizer="adamw", weight_decay=1.0)
    raw, centred = (by_cell(rows, log10(column), *CELL) for column in ("raw_nc3", "nc3"))
    part = Part("NC3 raw − centred", differences(raw, centred))
    return judge_effects([part], margin=MARGIN)


@claimed(
    "findings/optimizer-parity",
    Kind.RESULT,
    "Under AdamW at weight decay 3 the sum of the classifier's rows stays larger for an odd "
    "number of classes: the corners of its box cannot sum to zero.",
    "zhao2026, Def. of NC0 “whose convergence to zero is a necessary condition”",
)
def parity(numbers: Numbers) -> Finding:
    """NC0 of AdamW at decay 3, odd − even."""
    rows = having(as_rows(numbers), optimizer="adamw", weight_decay=3.0)
    cells = by_cell(rows, plain("nc0"), "rate", "data", "classes")
    wanted = [int(one) for one in numbers["config"]["classes"]]
    odd, even = ([classes for classes in wanted if classes % 2 == rest] for rest in (1, 0))
    found = {
        place: fmean(cells[*place, one] for one in odd) - fmean(cells[*place, one] for one in even)
        for place in {key[:3] for key in cells}
        if odd and even and all((*place, classes) in cells for classes in wanted)
    }
    return judge_effects([Part("NC0, odd − even classes", averaged(found))], margin=0.01)

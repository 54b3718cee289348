"""Cross-entropy, label smoothing, focal loss and squared error: collapse, tests, and their targets.

Claim: all losses make networks collapse alike and generalise alike.
Source: zhou2022, Sec. Abstract

The networks are not the paper's, so that its sentences about its own stay open with what is found
here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture
from nclab.theory.targets.dispatch import target
from nclab.training.fleet import Recipe
from nclab.training.sweep import SweepConfig, TrainedNetwork
from nclab_papers.shared.measures import LastLayer, collapse_of, read, rounded
from nclab_papers.shared.networks import FieldData, FieldNetworks
from nclab_papers.shared.rows import (
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
    together,
    within,
)
from nclab_papers.shared.study import band, numbers_of, trained

FIRST = "cross_entropy"
LOSSES: Mapping[str, str] = {
    FIRST: "cross-entropy",
    "label_smoothing": "label smoothing 0.1",
    "focal": "focal loss 2",
    "mse": "squared error",
    "mse_penalised": "squared error, bias penalised",
}
CELL = ("data", "classes", "weight_decay")


@dataclass(frozen=True)
class Config:
    """Sizes of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    data: tuple[FieldData, ...] = ("teacher", "fashion")
    classes: tuple[int, ...] = (4, 10)
    weight_decays: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    rate: float = 0.03
    squared_rate: float = 0.01
    """Of the squared error."""
    bias_penalty: float = 1.0


PRESETS = {
    "quick": Config(
        FieldNetworks(layers=4, samples=256, epochs=40, workers=0),
        data=("teacher",),
        weight_decays=(1e-3,),
    ),
    "paper": Config(),
}
"""paper: 480 networks with 8 seeds; quick: epochs divided by two, samples by eight, one weight
decay and one data set, for the cost."""


def recipe_of(config: Config, loss: str) -> dict[str, Any]:
    """What a loss changes of the recipe: the squared error leaves its bias alone or penalises it.

    >>> recipe_of(Config(), "mse_penalised")
    {'loss': 'mse', 'rate': 0.01, 'head_bias_decay': 1.0}
    """
    if not loss.startswith("mse"):
        return {"loss": loss, "rate": config.rate}
    penalty = config.bias_penalty if loss == "mse_penalised" else 0.0
    return {"loss": "mse", "rate": config.squared_rate, "head_bias_decay": penalty}


def measure(ended: TrainedNetwork) -> dict[str, Any]:
    """Collapse, accuracy on held-out samples, and the gap of logits beside its prediction."""
    last = LastLayer(ended)
    numbers = collapse_of(last)
    own = ("accuracy", "nc0", "nc1", "nc2", "nc3")
    found: dict[str, Any] = {name: numbers[name] for name in own}
    if ended.test is not None:
        _, logits = read(ended.model, ended.test.inputs)
        right = logits.argmax(1) == ended.test.labels
        found["test_accuracy"] = rounded(float(right.double().mean()))
    found["gap"] = rounded(gap(last.logits, last.labels))
    found["predicted_gap"] = rounded(predicted_gap(last, ended.config.recipe, ended.weight_decay))
    return found


def gap(logits: Tensor, labels: Tensor) -> float:
    """Mean over samples (n, C) of the own logit minus the mean of the others.

    >>> gap(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    2.5
    """
    own = logits.gather(1, labels[:, None])[:, 0]
    others = (logits.sum(1) - own) / (logits.shape[1] - 1)
    return float((own - others).mean())


def predicted_gap(last: LastLayer, recipe: Recipe, decay: float) -> float:
    """The same at the optimum of equal classes, the weight decay and the measured norms."""
    C = len(last.weight)
    smoothing = recipe.smoothing if recipe.loss == "label_smoothing" else None
    bias = decay if recipe.head_bias_decay is None else recipe.head_bias_decay
    goal = target(
        counts=[len(last.labels) / C] * C,
        loss=recipe.loss,
        weight_decay=(decay * last.decays[0], decay * last.decays[1]),
        bias=bias,
        smoothing=smoothing,
        focal_gamma=recipe.focal_gamma if recipe.loss == "focal" else None,
    )
    logits = goal.logits + goal.bias[:, None]
    return gap(logits.T, torch.arange(C))


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train what is not below `out` yet; a row for every network, as columns."""
    fleets: list[tuple[Row, SweepConfig]] = [
        (
            {"loss": loss, "data": data, "classes": classes},
            config.networks.config(
                data,
                classes=classes,
                seed=seed,
                weight_decays=config.weight_decays,
                held_out=True,
                **recipe_of(config, loss),
            ),
        )
        for seed in seeds
        for data in config.data
        for classes in config.classes
        for loss in LOSSES
    ]
    rows = trained(fleets, config.networks, measure, out=out, engine=engine)
    return numbers_of(config, seeds, rows)


def tables(numbers: Numbers) -> list[Table]:
    """By loss and weight decay."""
    rows = as_rows(numbers)
    shown = []
    for loss, words in LOSSES.items():
        for decay in numbers["config"]["weight_decays"]:
            own = having(rows, loss=loss, weight_decay=decay)
            good = [row for row in own if counts(row)]
            cells = (
                mean_and_deviation(by_cell(good, log10("nc1"), *CELL).values(), ".2f"),
                mean_and_deviation(by_cell(good, plain("test_accuracy"), *CELL).values(), ".4f"),
                mean_and_deviation(by_cell(good, plain("gap"), *CELL).values(), ".2f"),
                mean_and_deviation(by_cell(good, plain("predicted_gap"), *CELL).values(), ".2f"),
            )
            shown.append((words, f"{decay:g}", f"{len(good)} of {len(own)}", *cells))
    columns = ("loss", "weight decay", "count", "log10 NC1", "test accuracy", "gap", "predicted")
    title = (
        "Collapse, held-out accuracy and gap of the logits, mean ± deviation over networks with "
        "training accuracy 0.99 or more"
    )
    return [Table(title, columns, shown)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Collapse, tests and gaps of the losses, against weight decay."""
    rows = together(as_rows(numbers), "loss", *CELL)
    quantities: tuple[tuple[str, str, Value], ...] = (
        ("NC1", "log10 NC1", log10("nc1")),
        ("Held-out samples", "accuracy", plain("test_accuracy")),
        ("Gap of logits", "log10 of measured over predicted", gap_error),
    )
    panels = tuple(
        Panel(
            title,
            "weight decay",
            words,
            tuple(
                band(having(rows, loss=loss), value, "weight_decay", CELL, label, place)
                for place, (loss, label) in enumerate(LOSSES.items())
            ),
            x_scale="log",
        )
        for title, words, value in quantities
    )
    if not any(line.x for panel in panels for line in panel.series):
        return []
    return [
        Picture(
            "zhou2022_losses",
            "Five losses: collapse, generalisation and gap of the logits",
            panels,
            3,
            "Means over the cells in which the networks of all losses count; bands reach from the "
            "smallest to the largest mean of a seed.",
        )
    ]


def gap_error(row: Row) -> float:
    """The logarithm of the measured gap over the predicted one; infinite gaps apart are 10."""
    measured, predicted = float(row["gap"]), float(row["predicted_gap"])
    if measured <= 0 or predicted <= 0:
        return 10.0
    return math.log10(measured / predicted)


def beside_first(numbers: Numbers, loss: str, value: Value) -> BySeed:
    """A loss minus cross-entropy, where both count."""
    rows = as_rows(numbers)
    return differences(
        by_cell(having(rows, loss=loss), value, *CELL),
        by_cell(having(rows, loss=FIRST), value, *CELL),
    )


OTHERS = [loss for loss in LOSSES if loss != FIRST]
claimed = partial(claim, needs="zhou2022_losses", figure="zhou2022_losses")


@claimed(
    "zhou2022/collapse-alike",
    Kind.RESULT,
    "Networks collapse alike under all losses.",
    "zhou2022, Sec. Abstract “produce equivalent features on training data”",
)
def collapse_alike(numbers: Numbers) -> Finding:
    """NC1 beside that of cross-entropy, both ways."""
    parts = [
        part
        for loss in OTHERS
        for part in within(f"NC1, {LOSSES[loss]}", beside_first(numbers, loss, log10("nc1")), 0.3)
    ]
    return of_the_source(judge_effects(parts, margin=0.0), numbers)


@claimed(
    "zhou2022/generalise-alike",
    Kind.RESULT,
    "Networks generalise alike under all losses.",
    "zhou2022, Sec. Abstract “lead to largely identical performance on test data”",
)
def generalise_alike(numbers: Numbers) -> Finding:
    """Accuracy on held-out samples beside that of cross-entropy, both ways."""
    parts = [
        part
        for loss in OTHERS
        for part in within(
            f"test accuracy, {LOSSES[loss]}",
            beside_first(numbers, loss, plain("test_accuracy")),
            0.01,
        )
    ]
    return of_the_source(judge_effects(parts, margin=0.0), numbers)


@claimed(
    "findings/losses-gap",
    Kind.RESULT,
    "Under every loss the gap of a network's logits is that of its target, to a factor of 1.26.",
    "zhou2022, Sec. Abstract “Based on the unconstrained feature model assumption”",
)
def gap_of_the_target(numbers: Numbers) -> Finding:
    """0.1 − deviation of the logarithms, for each loss."""
    rows = as_rows(numbers)
    parts = [
        Part(
            words,
            averaged(
                by_cell(having(rows, loss=loss), lambda row: 0.1 - abs(gap_error(row)), *CELL)
            ),
        )
        for loss, words in LOSSES.items()
    ]
    return judge_effects(parts, margin=0.0)

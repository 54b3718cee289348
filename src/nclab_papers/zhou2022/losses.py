"""Collapse and generalisation under cross-entropy, label smoothing, focal loss and squared error.

Claim: all losses make networks collapse alike and generalise alike.
Source: zhou2022, Sec. Abstract

The networks are not the paper's, so the verdict on the paper's claims about its own networks stays
"open", with our results as evidence. The last claim is about free features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.statements import holds_if
from nclab.claims.tables import Column, Row, Table, Value
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.text import number
from nclab.theory.targets.closed_forms import simplex_gap
from nclab.theory.targets.dispatch import target
from nclab.training.fleet import Recipe
from nclab.training.sweep import SweepConfig, TrainedNetwork
from nclab_papers.shared import study
from nclab_papers.shared.networks import (
    FieldData,
    FieldNetworks,
    LastLayer,
    collapse,
    read,
    rounded,
)

FIRST = "cross_entropy"
"""Loss with which the other losses are compared."""
LOSSES: Mapping[str, str] = {
    FIRST: "cross-entropy",
    "label_smoothing": "label smoothing 0.1",
    "focal": "focal loss 2",
    "mse": "squared error",
    "mse_penalised": "squared error, bias penalised",
}
"""Names of the losses in tables and pictures."""
CELL = ("data", "classes", "weight_decay")
"""Columns that define a cell of comparable networks, besides loss and seed."""
SMOOTHING_CASES = {
    "quick": ((4, 0.01, 0.1), (3, 0.05, 0.2)),
    "paper": ((4, 0.01, 0.1), (3, 0.05, 0.2), (10, 0.001, 0.1), (10, 0.005, 0.05), (6, 0.02, 0.3)),
}
"""Number of classes, weight decay and smoothing of the tested optima, by preset."""
ROUNDING = 1e-6
"""Logit gaps count as equal if their relative difference is at most this."""


@dataclass(frozen=True)
class Config:
    """Networks, data sets and weight decays of the study."""

    networks: FieldNetworks = field(default_factory=FieldNetworks)
    data: tuple[FieldData, ...] = ("teacher", "fashion")
    classes: tuple[int, ...] = (4, 10)
    weight_decays: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    rate: float = 0.03
    squared_rate: float = 0.01
    """Learning rate of the squared error."""
    bias_penalty: float = 1.0


PRESETS = {
    "quick": Config(
        FieldNetworks(layers=4, samples=256, epochs=40, workers=0),
        data=("teacher",),
        weight_decays=(1e-3,),
    ),
    "paper": Config(),
}
"""Configurations. "paper" trains 480 networks with 8 seeds. "quick" has half of the epochs, an
eighth of the samples, one weight decay and one data set."""


def recipe_of(config: Config, loss: str) -> dict[str, Any]:
    """Return the training options of a loss; "mse_penalised" has weight decay on the bias."""
    if not loss.startswith("mse"):
        return {"loss": loss, "rate": config.rate}
    penalty = config.bias_penalty if loss == "mse_penalised" else 0.0
    return {"loss": "mse", "rate": config.squared_rate, "head_bias_decay": penalty}


def measure(trained_network: TrainedNetwork) -> dict[str, Any]:
    """Measure collapse, held-out accuracy, the logit gap and its predicted value."""
    last = LastLayer(trained_network)
    metrics = collapse(last)
    names = ("accuracy", "nc0", "nc1", "nc2", "nc3")
    numbers: dict[str, Any] = {name: metrics[name] for name in names}
    test = trained_network.test
    if test is not None:
        _, logits = read(trained_network.model, test.inputs)
        correct = logits.argmax(1) == test.labels
        numbers["test_accuracy"] = rounded(float(correct.double().mean()))
    predicted = predicted_gap(last, trained_network.config.recipe, trained_network.weight_decay)
    numbers["gap"] = rounded(gap(last.logits, last.labels))
    numbers["predicted_gap"] = rounded(predicted)
    return numbers


def gap(logits: Tensor, labels: Tensor) -> float:
    """Return the logit gap: the correct logit minus the mean of the others, averaged over samples.

    Args:
        logits: (n, C) logits of n samples.
    """
    correct = logits.gather(1, labels[:, None])[:, 0]
    others = (logits.sum(1) - correct) / (logits.shape[1] - 1)
    return float((correct - others).mean())


def predicted_gap(last: LastLayer, recipe: Recipe, decay: float) -> float:
    """Return the logit gap of the layer-peeled optimum for a network's loss and weight decay.

    Classes are balanced. The measured norms determine the weight decay of the features, as in
    `LastLayer.decays`.
    """
    C = len(last.weight)
    smoothing = recipe.smoothing if recipe.loss == "label_smoothing" else None
    bias = decay if recipe.head_bias_decay is None else recipe.head_bias_decay
    optimum = target(
        counts=[len(last.labels) / C] * C,
        loss=recipe.loss,
        weight_decay=(decay * last.decays[0], decay * last.decays[1]),
        bias=bias,
        smoothing=smoothing,
        focal_gamma=recipe.focal_gamma if recipe.loss == "focal" else None,
    )
    logits = optimum.logits + optimum.bias[:, None]
    return gap(logits.T, torch.arange(C))


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks that are not recorded yet, and return a row for every network."""
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
        for seed, data, classes, loss in product(seeds, config.data, config.classes, LOSSES)
    ]
    return study.train_and_measure(config, fleets, measure, seeds=seeds, out=out, engine=engine)


def tables(numbers: Numbers) -> list[Table]:
    """Return a table of collapse, accuracy and logit gaps by loss and weight decay."""
    title = (
        "Collapse, held-out accuracy and logit gap; mean ± deviation over networks with training "
        "accuracy 0.99 or more"
    )
    keys = [Column("loss", "loss", names=LOSSES), Column("weight decay", "weight_decay", "g")]
    columns = [
        Column("log10 NC1", study.log10("nc1"), ".2f"),
        Column("test accuracy", "test_accuracy", ".4f"),
        Column("gap", "gap", ".2f"),
        Column("predicted gap", "predicted_gap", ".2f"),
    ]
    return study.table(title, numbers, keys, columns)


def pictures(numbers: Numbers) -> list[Picture]:
    """Return a picture of collapse, held-out accuracy and logit gaps against weight decay."""
    return study.picture(
        "zhou2022_losses",
        "Five losses: collapse, generalisation and logit gap",
        study.as_rows(numbers),
        "weight_decay",
        [
            ("NC1", "log10 NC1", study.arms(study.log10("nc1"), "loss", LOSSES)),
            ("Held-out samples", "accuracy", study.arms("test_accuracy", "loss", LOSSES)),
            ("Logit gap", "log10(measured / predicted)", study.arms(gap_error, "loss", LOSSES)),
        ],
        columns=3,
        x_label="weight decay",
        x_scale="log",
    )


def gap_error(row: Row) -> float | None:
    """Return log10 of (measured gap / predicted gap); 10 if one of the gaps is not positive."""
    if row["gap"] is None or row["predicted_gap"] is None:
        return None
    measured, predicted = float(row["gap"]), float(row["predicted_gap"])
    return math.log10(measured / predicted) if min(measured, predicted) > 0 else 10.0


def _equal_to_first(numbers: Numbers, name: str, value: Value, reach: float) -> Finding:
    """Judge whether a value differs from that of cross-entropy by less than `reach`, for each loss.

    Differences are averaged over the cells in which the networks of both losses count.
    """
    rows, parts = study.as_rows(numbers), []
    first = study.by_cell(study.having(rows, loss=FIRST), value, *CELL)
    for loss, label in LOSSES.items():
        if loss != FIRST:
            other = study.by_cell(study.having(rows, loss=loss), value, *CELL)
            name_of_part = f"difference of {name} between {label} and cross-entropy"
            parts.append(study.within(name_of_part, study.differences(other, first), reach))
    return study.of_the_source(judge_effects(parts), numbers)


study_claim = study.claims_about("zhou2022_losses")


@study_claim(
    "zhou2022/collapse-alike",
    "Networks collapse alike under all losses.",
    "zhou2022, Sec. Abstract “produce equivalent features on training data”",
)
def collapse_alike(numbers: Numbers) -> Finding:
    """Require that log10 NC1 of each loss differs from that of cross-entropy by less than 0.3."""
    return _equal_to_first(numbers, "log10 NC1", study.log10("nc1"), 0.3)


@study_claim(
    "zhou2022/generalise-alike",
    "Networks generalise alike under all losses.",
    "zhou2022, Sec. Abstract “lead to largely identical performance on test data”",
)
def generalise_alike(numbers: Numbers) -> Finding:
    """Require that held-out accuracy differs from that of cross-entropy by less than 0.01."""
    return _equal_to_first(numbers, "test accuracy", study.column("test_accuracy"), 0.01)


@study_claim(
    "findings/losses-gap",
    "Under every loss the logit gap of a network agrees with its target up to a factor of 1.26.",
    "zhou2022, Sec. Abstract “Based on the unconstrained feature model assumption”",
)
def gap_of_the_target(numbers: Numbers) -> Finding:
    """Require that log10 of the logit gap is within 0.1 of its prediction, for each loss."""
    parts = []
    for loss, label in LOSSES.items():
        errors = study.by_cell(study.as_rows(numbers, loss=loss), gap_error, *CELL)
        distances = study.averaged({cell: abs(error) for cell, error in errors.items()})
        name = f"absolute log10 of the gap over its target, {label}"
        parts.append(Part(name, distances, below=0.1))
    return judge_effects(parts)


def smoothed_gap(classes: int, decay: float, smoothing: float) -> float:
    """Return the smallest logit gap of a class after minimising over free features and classifier.

    The loss is cross-entropy with smoothed labels and one sample per class. The classifier has
    weight decay `decay`, the features `decay / classes`.
    """
    C = classes
    labels = torch.arange(C)

    def loss(W: Tensor, H: Tensor) -> Tensor:
        fit = torch.nn.functional.cross_entropy((W @ H).T, labels, label_smoothing=smoothing)
        return fit + decay / 2 * W.square().sum() + decay / (2 * C) * H.square().sum()

    W, H = study.minimise_freely(loss, C)
    logits = W @ H
    gaps = np.diag(logits) - (logits.sum(0) - np.diag(logits)) / (C - 1)
    return float(gaps.min())


def gather_smoothing(preset: str) -> dict[str, Any]:
    """Compare logit gaps: with label smoothing, and without it at a larger weight decay."""
    with one_thread():
        rows = [
            {
                "classes": C,
                "decay": decay,
                "smoothing": smoothing,
                "found": smoothed_gap(C, decay, smoothing),
                "shifted": simplex_gap(C, decay + smoothing / C**0.5),
                "alone": simplex_gap(C, decay),
            }
            for C, decay, smoothing in SMOOTHING_CASES[preset]
        ]
    return {"rows": rows}


@claim(
    "findings/losses-smoothing-is-decay",
    Kind.PROPOSITION,
    "With free features label smoothing δ acts as additional weight decay: the optimum at (λ, δ) "
    "has the logits of cross-entropy at λ + δ/√C.",
    "zhou2022, Sec. Abstract “produce equivalent features on training data”",
    gather=gather_smoothing,
    code="nclab.theory.targets.closed_forms.simplex_gap",
)
def smoothing_is_decay(numbers: Numbers) -> Finding:
    """Require that label smoothing and a larger weight decay without it give equal logit gaps."""
    rows = numbers["rows"]
    error = max(abs(row["found"] - row["shifted"]) / abs(row["found"]) for row in rows)
    moved = min(abs(row["found"] - row["alone"]) / abs(row["found"]) for row in rows)
    evidence = (
        f"largest relative difference of the gaps {number(error)} in {len(rows)} cases; without "
        f"the additional weight decay at least {number(moved)}"
    )
    if error <= ROUNDING and moved <= 100 * ROUNDING:
        return Finding(Verdict.OPEN, evidence, numbers)
    return holds_if(error <= ROUNDING, evidence, numbers)

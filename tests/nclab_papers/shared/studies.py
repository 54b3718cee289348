"""Numbers of the four studies as the papers would have them, and how to make each claim fail."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from nclab_papers.shared.rows import as_columns, as_rows
from nclab_papers.zhao2026.optimizers import DECAYS, NO_MOMENTUM, OPTIMIZERS, USUAL

Numbers = dict[str, Any]
Spoil = Callable[[Numbers], Numbers]
SEEDS = range(8)
OURS = {"source": True}
"""As if the networks were the source's own, so that a verdict is not open."""


def wobble(seed: int) -> float:
    """A little of every seed's own."""
    return 0.001 * (-1) ** seed


def log_nc1(optimizer: str, decay: float) -> float:
    """SGD and Adam collapse with weight decay, SGDW with a tenth of it, AdamW from 1e-2 on."""
    decades = math.log10(max(decay, 1e-4)) + 4
    if optimizer == "adamw":
        return -0.3 * max(0.0, decades - 2)
    return -0.5 * (max(0.0, decades - 1) if optimizer == "sgdw" else decades)


def optimizers() -> Numbers:
    rows = []
    for seed in SEEDS:
        for name in (*OPTIMIZERS, NO_MOMENTUM):
            for classes in (4, 5, 6, 7):
                for decay in DECAYS:
                    if name == NO_MOMENTUM and (classes > 5 or decay > USUAL[-1]):
                        continue
                    power = log_nc1(name, decay) + wobble(seed) + 0.5 * (name == NO_MOMENTUM)
                    rows.append(
                        {
                            "optimizer": name,
                            "data": "teacher",
                            "classes": classes,
                            "rate": 0.03,
                            "weight_decay": decay,
                            "seed": seed,
                            "accuracy": 1.0,
                            "loss": 0.01,
                            "nc0": 0.2 if classes % 2 else 0.01 + wobble(seed),
                        }
                        | dict.fromkeys(("nc1", "nc2", "nc3"), 10**power)
                        | dict.fromkeys(("raw_nc1", "raw_nc2", "raw_nc3"), 10 ** (power + 0.5))
                    )
    config = {"weight_decays": list(DECAYS), "classes": [4, 5, 6, 7], "networks": OURS}
    return {
        "config": config,
        "seeds": list(SEEDS),
        "size": "as the paper",
        "networks": as_columns(rows),
    }


def imbalance() -> Numbers:
    ratios, decays = (1, 3, 10, 30, 100), (1e-3, 1e-2)
    rows = [
        {
            "imbalance": ratio,
            "ratio": float(ratio),
            "weight_decay": decay,
            "seed": seed,
            "accuracy": 1.0,
            "minority": 0.2 * math.log10(ratio) + wobble(seed),
            "target_minority": 0.2 * math.log10(ratio) + 0.02,
            "from_etf": 0.5,
            "from_seli": 0.3 + wobble(seed),
            "from_target": 0.1,
        }
        for seed in SEEDS
        for ratio in ratios
        for decay in decays
    ]
    config = {"imbalances": list(ratios), "weight_decays": list(decays), "networks": OURS}
    return {
        "config": config,
        "seeds": list(SEEDS),
        "size": "as the paper",
        "networks": as_columns(rows),
    }


def losses() -> Numbers:
    names = ("cross_entropy", "label_smoothing", "focal", "mse", "mse_penalised")
    rows = [
        {
            "loss": loss,
            "data": "teacher",
            "classes": 4,
            "weight_decay": decay,
            "seed": seed,
            "accuracy": 1.0,
            "nc1": 0.1 + wobble(seed) * (loss == "mse"),
            "test_accuracy": 0.9 + wobble(seed) * (loss == "focal"),
            "gap": 5.0 + wobble(seed),
            "predicted_gap": 5.1,
        }
        for seed in SEEDS
        for loss in names
        for decay in (1e-3, 3e-3)
    ]
    config = {"weight_decays": [1e-3, 3e-3], "networks": OURS}
    return {
        "config": config,
        "seeds": list(SEEDS),
        "size": "as the paper",
        "networks": as_columns(rows),
    }


def depth() -> Numbers:
    rows = [
        {
            "kind": kind,
            "loss": loss,
            "classes": 6,
            "width": width,
            "layers": layers,
            "weight_decay": 1e-3,
            "start": 1.0,
            "seed": seed,
            "accuracy": 1.0,
            "rank": 3 if width == 1 else 4,
            "objective": 0.9,
            "etf": 1.0 if (kind, loss) == ("linear", "cross_entropy") else None,
            "steps": 100,
            "gradient": 1e-7,
        }
        for seed in SEEDS
        for kind in ("linear", "relu")
        for loss in ("mse", "cross_entropy")
        for width in (1, 8)
        for layers in (3, 4, 5)
    ]
    config = {"layers": [3, 4, 5], "widths": [1, 8]}
    return {
        "config": config,
        "seeds": list(SEEDS),
        "size": "as the paper",
        "networks": as_columns(rows),
    }


STUDIES = {
    "zhao2026_optimizers": optimizers(),
    "fang2021_imbalance": imbalance(),
    "zhou2022_losses": losses(),
    "sukenik2024_depth": depth(),
}


def where(column: str, value: Any, **match: Any) -> Spoil:
    """Another value, or a function of the row, in the rows with these values."""

    def spoil(numbers: Numbers) -> Numbers:
        rows = []
        for row in as_rows(numbers):
            hit = all(row[name] == one for name, one in match.items())
            new = value(row) if callable(value) else value
            rows.append({**row, column: new} if hit else row)
        return {**numbers, "networks": as_columns(rows)}

    return spoil


def everywhere(*spoils: Spoil) -> Spoil:
    """One after the other."""
    return lambda numbers: reduce(lambda spoilt, spoil: spoil(spoilt), spoils, numbers)


STUDY_SPOILS: dict[str, Spoil] = {
    "zhao2026/coupled-collapses": where("nc1", 0.5, optimizer="adam"),
    "zhao2026/decoupled-does-not": where(
        "nc1", lambda row: max(row["weight_decay"], 1e-5) ** -0.5, optimizer="adamw"
    ),
    "zhao2026/cannot-emerge": everywhere(
        *(where(name, 1e-6, optimizer="adamw") for name in ("nc0", "nc1", "nc2", "nc3"))
    ),
    "zhao2026/momentum-accelerates": where("loss", 0.1, optimizer=NO_MOMENTUM),
    "findings/optimizer-sgdw-matched": where("nc1", 1.0, optimizer="sgdw"),
    "findings/optimizer-adamw-matched": where("nc2", 0.1, optimizer="adamw"),
    "findings/optimizer-centred-raw": where("raw_nc3", lambda row: row["nc3"]),
    "findings/optimizer-parity": where("nc0", 0.1),
    "fang2021/minority-networks": where("minority", 0.1),
    "thrampoulidis2022/networks-follow-seli": where("from_seli", 0.5),
    "findings/imbalance-target": where("from_target", 0.4),
    "findings/imbalance-tail-angles": where("minority", 0.9, weight_decay=1e-2),
    "zhou2022/collapse-alike": where("nc1", 0.9, loss="mse"),
    "zhou2022/generalise-alike": where("test_accuracy", 0.8, loss="focal"),
    "findings/losses-gap": where("gap", 8.0, loss="label_smoothing"),
    "sukenik2024/descent-finds-low-rank": where("rank", 6, kind="relu"),
    "findings/depth-width": where("rank", 3),
    "findings/depth-orthoplex": where("objective", 1.0, kind="linear"),
}
"""Claim id -> what makes the papers' numbers contradict it."""

"""Artificial results of zhao2026 for tests: ideal ones, and changes that alter a verdict."""

import math
from functools import reduce

from nclab.claims.attacks import (
    Attacks,
    Change,
    Numbers,
    change_rows,
    change_where,
    changed,
    exchange,
    opposite,
    put,
    swap,
    unchanged,
    weakened,
)
from nclab_papers.shared.study import ideal_study, seed_noise
from nclab_papers.zhao2026.optimizers import DECAYS, LARGE, NO_MOMENTUM, OPTIMIZERS, USUAL

LOGARITHMIC = ("nc0", "nc1", "nc2", "nc3", "raw_nc3", "loss")


def log_nc1(optimizer: str, decay: float) -> float:
    """Return an invented log10 NC1 that falls as weight decay grows.

    It begins to fall at weight decay 1e-4 for SGD and Adam, 1e-3 for SGDW, and 1e-2 for AdamW.
    """
    decades = math.log10(max(decay, 1e-4)) + 4
    if optimizer == "adamw":
        return -0.3 * max(0.0, decades - 2)
    return -0.5 * (max(0.0, decades - 1) if optimizer == "sgdw" else decades)


def optimizers() -> Numbers:
    """Return invented results in which collapse needs coupled weight decay and momentum."""
    rows = []
    for seed in range(8):
        for name in (*OPTIMIZERS, NO_MOMENTUM):
            for classes in (4, 5, 6, 7):
                for decay in DECAYS:
                    if name == NO_MOMENTUM and (classes > 5 or decay > USUAL[-1]):
                        continue
                    power = log_nc1(name, decay) + seed_noise(seed) + 0.5 * (name == NO_MOMENTUM)
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
                            "nc0": 0.2 if classes % 2 else 0.01 + seed_noise(seed),
                        }
                        | dict.fromkeys(("nc1", "nc2", "nc3"), 10**power)
                        | dict.fromkeys(("raw_nc1", "raw_nc2", "raw_nc3"), 10 ** (power + 0.5))
                    )
    return ideal_study(rows, weight_decays=list(DECAYS), classes=[4, 5, 6, 7])


def scaled_logarithms(factor: float) -> Change:
    """Return a change that multiplies the logarithms of the metrics and of the loss by a factor."""
    return change_rows("networks", lambda row: {name: row[name] ** factor for name in LOGARITHMIC})


def falling_with_decay(power: float) -> Change:
    """Return a change that sets NC1 of AdamW to a power of the weight decay."""
    return change_where(
        "networks", "nc1", lambda row: max(row["weight_decay"], 1e-5) ** power, optimizer="adamw"
    )


def collapse_of_adamw(numbers: Numbers) -> Numbers:
    """Set NC0 to NC3 of the AdamW networks to 1e-6, to contradict that they cannot collapse."""
    return reduce(
        lambda result, name: change_where("networks", name, 1e-6, optimizer="adamw")(result),
        ("nc0", "nc1", "nc2", "nc3"),
        numbers,
    )


WEAKENED = (unchanged, weakened(scaled_logarithms))
ATTACKS = Attacks(
    verdicts={
        "zhao2026/nc0-necessary": ("holds", "the sum of centred means is zero"),
        "zhao2026/sgd-weight-sum": ("holds", "gradients of cross-entropy sum to zero"),
    },
    ideal={"zhao2026_optimizers": optimizers},
    spoiled={
        "zhao2026/nc0-necessary": put("violated", 3),
        "zhao2026/sgd-weight-sum": put("rows.0.error", 1e-3),
        "zhao2026/coupled-collapses": change_where("networks", "nc1", 0.5, optimizer="adam"),
        "zhao2026/decoupled-does-not": falling_with_decay(-0.5),
        "zhao2026/cannot-emerge": collapse_of_adamw,
        "zhao2026/momentum-accelerates": change_where(
            "networks", "loss", 0.1, optimizer=NO_MOMENTUM
        ),
        "findings/optimizer-sgdw-matched": change_where("networks", "nc1", 1.0, optimizer="sgdw"),
        "findings/optimizer-adamw-matched": change_where("networks", "nc2", 0.1, optimizer="adamw"),
        "findings/optimizer-centred-raw": change_where(
            "networks", "raw_nc3", lambda row: row["nc3"]
        ),
        "findings/optimizer-parity": change_where("networks", "nc0", 0.1),
    },
    shuffled={
        "zhao2026/coupled-collapses": exchange("networks", "weight_decay", opposite(USUAL)),
        "zhao2026/cannot-emerge": exchange(
            "networks", "optimizer", {"adamw": "sgd", "sgd": "adamw"}
        ),
        "zhao2026/momentum-accelerates": exchange(
            "networks", "optimizer", {NO_MOMENTUM: "sgd", "sgd": NO_MOMENTUM}
        ),
        "findings/optimizer-adamw-matched": exchange("networks", "weight_decay", opposite(LARGE)),
        "findings/optimizer-centred-raw": swap("networks", "raw_nc3", "nc3"),
        "findings/optimizer-parity": exchange("networks", "classes", {4: 5, 5: 4, 6: 7, 7: 6}),
    },
    not_shuffled={
        "zhao2026/decoupled-does-not": "the claim is that there is no effect",
        "findings/optimizer-sgdw-matched": "an equivalence: shuffled arms are as similar as before",
    },
    wrong_code={
        "zhao2026/coupled-collapses": WEAKENED,
        "zhao2026/cannot-emerge": WEAKENED,
        "zhao2026/momentum-accelerates": WEAKENED,
        "findings/optimizer-adamw-matched": WEAKENED,
        "findings/optimizer-centred-raw": WEAKENED,
        "zhao2026/decoupled-does-not": (
            changed(falling_with_decay(-0.5)),
            changed(falling_with_decay(-0.08)),
        ),
    },
    no_code={
        "findings/optimizer-parity": "its numbers come from training",
        "findings/optimizer-sgdw-matched": "a difference that may have either sign",
    },
)

"""Artificial results of fang2021 for tests: ideal ones, and changes that alter a verdict."""

import math

from nclab.claims.attacks import (
    Attacks,
    Numbers,
    change_where,
    exchange,
    opposite,
    put,
    scaled,
    swap,
    unchanged,
    weakened,
)
from nclab_papers.shared.study import ideal_study, seed_noise

RATIOS, DECAYS = (1, 3, 10, 30, 100), (1e-3, 1e-2)
SCALED_DISTANCES = scaled("networks", "from_etf", "from_seli", "from_target")


def imbalance() -> Numbers:
    """Return invented results in which minority classifiers align as the imbalance grows.

    The target is the optimum for the same class counts and weight decay. Its minority classifiers
    align at the same rate.
    """
    rows = [
        {
            "imbalance": ratio,
            "ratio": float(ratio),
            "weight_decay": decay,
            "seed": seed,
            "accuracy": 1.0,
            "minority": 0.2 * math.log10(ratio) + seed_noise(seed),
            "target_minority": 0.2 * math.log10(ratio) + 0.02,
            "from_etf": 0.5,
            "from_seli": 0.3 + seed_noise(seed),
            "from_target": 0.1,
        }
        for seed in range(8)
        for ratio in RATIOS
        for decay in DECAYS
    ]
    return ideal_study(rows, imbalances=list(RATIOS), weight_decays=list(DECAYS))


ATTACKS = Attacks(
    verdicts={
        "fang2021/minority-threshold": ("holds", "the optimality conditions of the convex program")
    },
    ideal={"fang2021_imbalance": imbalance},
    spoiled={
        "fang2021/minority-threshold": put("rows.0.above", 0.9),
        "fang2021/minority-networks": change_where("networks", "minority", 0.1),
        "findings/imbalance-target": change_where("networks", "from_target", 0.4),
        "findings/imbalance-tail-angles": change_where(
            "networks", "minority", 0.9, weight_decay=1e-2
        ),
    },
    shuffled={
        "fang2021/minority-networks": exchange(
            "networks", "ratio", opposite([float(ratio) for ratio in RATIOS])
        ),
        "findings/imbalance-target": swap("networks", "from_seli", "from_target"),
    },
    not_shuffled={
        "findings/imbalance-tail-angles": "an equivalence with the target at each weight decay"
    },
    wrong_code={
        "fang2021/minority-networks": (unchanged, weakened(scaled("networks", "minority"))),
        "findings/imbalance-target": (unchanged, weakened(SCALED_DISTANCES)),
    },
    no_code={"findings/imbalance-tail-angles": "a difference that may have either sign"},
)

"""Artificial results of sukenik2024 for tests: ideal ones, and changes that alter a verdict."""

from nclab.claims.attacks import (
    Attacks,
    Numbers,
    change_where,
    changed,
    exchange,
    put,
    scaled,
    swap,
    unchanged,
    weakened,
)
from nclab_papers.shared.study import ideal_study


def depth() -> Numbers:
    """Return invented results: runs end at a low rank and an objective below the simplex ETF."""
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
        for seed in range(8)
        for kind in ("linear", "relu")
        for loss in ("mse", "cross_entropy")
        for width in (1, 8)
        for layers in (3, 4, 5)
    ]
    return ideal_study(rows, layers=[3, 4, 5], widths=[1, 8])


LOW_RANK = "sukenik2024/descent-finds-low-rank"
HIGH_RANK = change_where("networks", "rank", 6, kind="relu")
AT_THE_ETF = change_where("networks", "objective", 1.0, kind="linear")
ATTACKS = Attacks(
    verdicts={"sukenik2024/low-rank-beats-collapse": ("holds", "both networks are written down")},
    ideal={"sukenik2024_depth": depth},
    spoiled={
        "sukenik2024/low-rank-beats-collapse": put("rows.0.graph", 0.03),
        LOW_RANK: HIGH_RANK,
        "findings/depth-width": change_where("networks", "rank", 3),
        "findings/depth-orthoplex": AT_THE_ETF,
    },
    shuffled={
        "findings/depth-width": exchange("networks", "width", {1: 8, 8: 1}),
        "findings/depth-orthoplex": swap("networks", "objective", "etf"),
    },
    not_shuffled={LOW_RANK: "a share of the runs of one arm, compared with one half"},
    wrong_code={
        LOW_RANK: (
            unchanged,
            changed(HIGH_RANK),
            changed(change_where("networks", "rank", 6, layers=4)),  # every other run of a choice
        ),
        "findings/depth-width": (unchanged, weakened(scaled("networks", "rank"))),
        "findings/depth-orthoplex": (
            unchanged,
            changed(AT_THE_ETF),
            changed(  # in two of six runs
                change_where(
                    "networks",
                    "objective",
                    lambda row: 0.9 if row["layers"] == 3 else 1.0,
                    kind="linear",
                )
            ),
        ),
    },
)

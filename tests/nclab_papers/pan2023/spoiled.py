"""For the claims about experiments of the thesis, numbers that contradict them."""

from collections.abc import Callable
from typing import Any

Numbers = dict[str, Any]


def each(key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Numbers], Any]:
    """Numbers with every row under a key changed."""
    return lambda numbers: numbers | {key: [row | change(row) for row in numbers[key]]}


def mirrored(row: dict[str, Any]) -> dict[str, Any]:
    """Weight decay upside down."""
    return {"weight_decay": 1e-6 / row["weight_decay"]}


SPOILED: dict[str, Callable[[Numbers], Any]] = {
    "pan2023/sec-3.1-converges": each("rows", lambda row: {"converged": False, "accuracy": 0.5}),
    "pan2023/sec-3.1-fails-without-norm": each("rows", lambda row: {"converged": True}),
    "pan2023/sec-3.1-only-affine": each(
        "rows", lambda row: {"norm": "plain" if row["norm"] == "affine" else "affine"}
    ),
    "pan2023/sec-3.1-grows": each("rows", mirrored),
    "pan2023/sec-3.1-affine-above-plain": each(
        "rows",
        lambda row: {"norm": {"affine": "plain", "plain": "affine"}.get(row["norm"], "none")},
    ),
    "pan2023/sec-3.1-falls-without-norm": each("rows", mirrored),
    "pan2023/sec-3.1-norm-helps-decay": each("rows", mirrored),
    "pan2023/sec-3.1-norms-fall": each("rows", mirrored),
    "pan2023/sec-1.4-simpler-data": each(
        "rows", lambda row: {"teacher_depth": 10 - row["teacher_depth"]}
    ),
    "pan2023/sec-3.2-early-layers": each("depths", lambda row: {"depth": 12}),
    "pan2023/sec-3.2-largest-decay-fails": each(
        "runs", lambda row: {"converged": True, "accuracy": 1.0}
    ),
    "pan2023/sec-3.2-accuracy-rises": each(
        "rows", lambda row: {"ncc_accuracy": 1 - 0.02 * row["layer"]}
    ),
    "pan2023/sec-3.2-intra-rises": each("rows", lambda row: {"min_intra": 1 - 0.02 * row["layer"]}),
    "pan2023/sec-3.2-gap-rises": each("rows", lambda row: {"max_inter": 0.2 * row["layer"]}),
    "pan2023/sec-3.2-depth-falls": each(
        "depths", lambda row: {"depth": round(1000 * row["weight_decay"])}
    ),
    "pan2023/sec-3.2-inter-positive": each("rows", lambda row: {"max_inter": -0.1}),
    "pan2023/sec-3.2-inter-unstable": each(
        "rows", lambda row: {"max_inter": (row["weight_decay"] < 1e-3) * (row["layer"] % 2)}
    ),
    **{
        name.format(number): each("worst", lambda row: {"smallest_e": 0.2})
        for number in ("3.1.1", "3.2.1", "3.2.2")
        for name in ("pan2023/conjecture-{}", "findings/conjecture-{}-teacher")
    },
    "findings/guarantees-worst-case": each("curve", lambda row: {"intra_lower": 1.0}),
    "findings/guarantees-telling": each("networks", lambda row: {"mean_guaranteed": 0.3}),
}
"""For every claim, a behaviour that contradicts it."""


def flat(key: str, **values: float) -> Callable[[Numbers], Any]:
    """Numbers in which nothing moves."""
    return each(key, lambda row: values)


FLAT: dict[str, Callable[[Numbers], Any]] = {
    "pan2023/sec-3.1-grows": flat("rows", min_intra=0.5, max_inter=0.1),
    "pan2023/sec-3.1-falls-without-norm": flat("rows", min_intra=0.5, max_inter=0.1),
    "pan2023/sec-3.1-norm-helps-decay": flat("rows", min_intra=0.5, max_inter=0.1),
    "pan2023/sec-1.4-simpler-data": flat("rows", min_intra=0.5, max_inter=0.1),
    "pan2023/sec-3.2-accuracy-rises": flat("rows", ncc_accuracy=0.9),
    "pan2023/sec-3.2-intra-rises": flat("rows", min_intra=0.5),
    "pan2023/sec-3.2-gap-rises": flat("rows", min_intra=0.5, max_inter=0.1),
    "pan2023/sec-3.2-depth-falls": flat("depths", depth=3),
}
"""For every claim that something rises or falls, a behaviour in which it stays."""

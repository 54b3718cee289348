"""For every claim, wrong numbers that its judge must not fall for."""

import copy
from collections.abc import Callable
from typing import Any

Numbers = dict[str, Any]
Spoil = Callable[[Numbers], Numbers]


def put(path: str, value: Any) -> Spoil:
    """Put a value at a dotted path; a part may be an index, or * for every row."""

    def spoil(numbers: Numbers) -> Numbers:
        spoiled = copy.deepcopy(dict(numbers))
        places: list[Any] = [spoiled]
        *parts, last = path.split(".")
        for part in parts:
            places = [found for place in places for found in _step(place, part)]
        for place in places:
            key: Any = int(last) if isinstance(place, list) else last
            assert isinstance(place, list) or key in place, f"{path}: no {last} in {sorted(place)}"
            place[key] = value(place[key]) if callable(value) else value
        return spoiled

    return spoil


def _step(place: Any, part: str) -> list[Any]:
    if part == "*":
        return list(place)
    return [place[int(part)] if isinstance(place, list) else place[part]]


FAILING = put("violated", 3)
REPAIR_FAILS = put("repaired.violated", 3)

SPOILS: dict[str, Spoil] = {
    "pan2023/def-1.2.1": put("scalar_error", 0.1),
    "pan2023/sec-2.2-batch-norm": put("variance_error", 0.0),
    "pan2023/prop-2.2.1": put("ideal.violated", 3),
    "pan2023/eq-2.1": put("lowest", 0.0),
    "pan2023/sec-2.2-bias": put("logit_error", 0.5),
    "pan2023/sec-2.2-cosines": put("inter_error", 1e-3),
    "pan2023/sec-2.2-nc1": put("same_direction_error", 0.1),
    "pan2023/sec-2.2-nc2": FAILING,
    "pan2023/sec-2.2-nc3": put("raw_before", 0.5),
    "pan2023/sec-2.2-nc4": put("lowest_accuracy", 0.4),
    "pan2023/thm-2.3.1": put("worst.*.attained", 0.5),
    "pan2023/thm-2.3.1-minimum": FAILING,
    "pan2023/thm-2.3.1-pairs": put("rows.0.attained", 0.9),
    "pan2023/remark-delta": put("pairs.0.below", -0.4),
    "pan2023/remark-regime": put("outside", 1),
    "pan2023/remark-exponent": put("best", 2.0),
    "pan2023/remark-increasing": put("rows.*.turning_point", 2.0),
    "pan2023/remark-weight-decay": put("alpha.0", 0.1),
    "pan2023/lemma-2.4.1": FAILING,
    "pan2023/lemma-2.4.2": FAILING,
    "pan2023/cor-2.4.1": put("tested", 3),
    "pan2023/lemma-2.4.3": FAILING,
    "pan2023/lemma-2.4.4": FAILING,
    "pan2023/lemma-2.4.5": FAILING,
    "pan2023/lemma-2.4.5-proposition": put("printed.violated", 0),
    "pan2023/cor-2.4.2": FAILING,
    "pan2023/lemma-2.4.6": REPAIR_FAILS,
    "pan2023/eq-2.9": FAILING,
    "pan2023/eq-2.18": FAILING,
    "pan2023/proof-range": FAILING,
    "pan2023/proof-third-gap": FAILING,
    "pan2023/proof-positive": FAILING,
    "pan2023/eq-2.21": FAILING,
    "pan2023/proof-worst-split": put("ratio", 1.1),
    "pan2023/eq-2.19": FAILING,
    "pan2023/eq-2.20": FAILING,
    "pan2023/eq-2.22": FAILING,
    "pan2023/eq-2.23": put("hand_error", 0.1),
    "pan2023/proof-nc3": FAILING,
    "pan2023/proof-intra": REPAIR_FAILS,
    "pan2023/proof-inter": put("rows.0.certified", None),
    "pan2023/def-conic-hull": put("moved_by_scaling", 1),
    "pan2023/def-3.2.1": put("composition_error", 0.1),
    "pan2023/def-3.2.2": put("differing", 1),
    "ji2022/eq-1": put("search_gap", 0.1),
    "ji2022/def-2.1": put("gram_error", 0.1),
    "ji2022/nc1": put("within_variation.0", 0.1),
    "ji2022/nc2": put("centred_error", 0.1),
    "ji2022/nc3": put("negative.distance", 0.0),
    "ji2022/nc4": put("argmax_agreement", 0.5),
    "ji2022/eq-4": put("loss_between", 0.0),
    "ji2022/sec-2.2-flow": put("change_printed", -1.0),
    "ji2022/def-3.1": put("error", 0.1),
    "ji2022/lemma-3.1": put("frame_ratio", 0.5),
    "ji2022/remark-3.1": put("rows.0.power_one", 100.0),
    "ji2022/remark-3.1-margin": put("rows.0.margin", 9.0),
    "ji2022/thm-3.2": put("rows.0.value", 100.0),
    "ji2022/thm-3.1": put("rows.*.epsilon", 1.0),
    "ji2022/lemma-3.2": put("equality_error", 0.1),
    "ji2022/lemma-3.3": put("rows.*.margin", 5.0),
    "ji2022/eq-8": put("residual", 0.1),
    "ji2022/example-3.1-stuck": put("per_seed.0.stuck.off_ray", 0.1),
    "ji2022/eq-11": put("rows.*.change", -1.0),
    "ji2022/example-3.1-saddle": put("rows.0.point", "not critical"),
    "ji2022/example-3.1-noise": put("per_seed.*.stochastic.normalised_margin", 0.99),
    "ji2022/remark-3.3": put("runs.*.left", [1, 2]),
    "ji2022/sec-1.1-landscape": put("critical.0.eigenvalue", 0.0),
    "ji2022/sec-3.2-infinity": put("largest_slope", 0.1),
    "ji2022/sec-3.2-speeds": put("fastest", 1.1),
    "ji2022/thm-3.3": put("smallest_gap", -0.1),
    "ji2022/remark-3.2": put("rows.*.collapse_error", 0.0),
    "ji2022/def-3.2": put("cosine", 0.1),
    "ji2022/thm-3.4": put("critical.0.change", 0.1),
    "ji2022/sec-4-setting": lambda numbers: {**numbers, "sum": numbers["mean"]},
    "ji2022/sec-5.2-max": put("rows.*.error", 0.05),
    "ji2022/sec-5.2-convex": put("rows.0.lowest", 0.1),
    "ji2022/sec-5.2-decay": put("scale_invariant", 0.1),
    "zhao2026/nc0-necessary": FAILING,
    "zhao2026/sgd-weight-sum": put("rows.0.error", 1e-3),
    "fang2021/minority-threshold": put("rows.0.above", 0.9),
    "findings/losses-smoothing-is-decay": put("rows.0.found", 3.0),
    "sukenik2024/low-rank-beats-collapse": put("rows.0.graph", 0.03),
}
"""Claim id -> what makes its numbers wrong."""

# Judged alone, the printed form of (9) is right where it equals what is measured.
SPOILS["ji2022/eq-9"] = lambda numbers: {
    "rows": [{**row, "printed": row["measured"]} for row in numbers["rows"]]
}

"""For every claim of order or comparison, its arms shuffled: an effect of zero.

Nothing is drawn. In every other seed the arms change places, or stand in the opposite order, so
that each comparison has as many seeds for it as against it and its mean effect is zero by design:
no permutation can be lucky. What comes out must be `no effect` or `undecided`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from nclab_papers.shared.rows import as_columns, as_rows
from nclab_papers.zhao2026.optimizers import LARGE, NO_MOMENTUM, USUAL
from tests.nclab_papers.pan2023.made_networks import LAYER_BY_LAYER, conjectured

Numbers = dict[str, Any]
Row = dict[str, Any]
Shuffle = Callable[[Numbers], Numbers]


def in_half(key: str, change: Callable[[Row], Row]) -> Shuffle:
    """Rows of every other seed, changed; rows of studies are kept as columns."""

    def shuffle(numbers: Numbers) -> Numbers:
        columns = isinstance(numbers[key], dict)
        rows = as_rows(numbers) if columns else numbers[key]
        new = [{**row, **change(dict(row))} if row["seed"] % 2 else row for row in rows]
        return {**numbers, key: as_columns(new) if columns else new}

    return shuffle


def opposite(values: Any) -> dict[Any, Any]:
    """Each value and the one at its place in the opposite order.

    >>> opposite((1, 3, 9))
    {1: 9, 3: 3, 9: 1}
    """
    return dict(zip(sorted(values), sorted(values, reverse=True), strict=True))


def exchanged(key: str, column: str, other: Mapping[Any, Any]) -> Shuffle:
    """In half of the seeds every arm has the name of another."""
    return in_half(key, lambda row: {column: other.get(row[column], row[column])})


def turned(key: str, column: str) -> Shuffle:
    """In half of the seeds all that occurs in a column stands in the opposite order."""
    return lambda numbers: exchanged(key, column, opposite({row[column] for row in numbers[key]}))(
        numbers
    )


def swapped(one: str, two: str) -> Shuffle:
    """In half of the seeds what was measured in two ways changes places."""
    return in_half("networks", lambda row: {one: row[two], two: row[one]})


def moments(row: Row) -> Row:
    """What was measured at the end is said of the beginning and the other way round."""
    end = row["moment"] == "before"
    return {"moment": "after" if end else "before", "epoch": 60 - row["epoch"]}


def epochs(numbers: Numbers) -> Numbers:
    """In half of the seeds training runs backwards, but for the accuracy."""
    kept = {row["epoch"]: row["accuracy"] for row in numbers["rows"]}
    shuffled = turned("rows", "epoch")(numbers)
    rows = [{**row, "accuracy": kept[row["epoch"]]} for row in shuffled["rows"]]
    return {**numbers, "rows": sorted(rows, key=lambda row: (row["seed"], row["epoch"]))}


def made_again(column: str) -> Shuffle:
    """The smallest e of networks whose weight decays or layers run backwards in half of the seeds,
    computed again: it is the largest fall, which no change of its own place undoes."""
    return lambda numbers: {**numbers, **conjectured(LAYER_BY_LAYER, backwards=column)}


DECAYS = turned("rows", "weight_decay")
LAYERS = turned("rows", "layer")
NORMS = exchanged("rows", "norm", {"affine": "plain", "plain": "affine"})
OTHER_OPTIMIZERS = exchanged("networks", "optimizer", {"adamw": "sgd", "sgd": "adamw"})
RATIOS = opposite((1.0, 3.0, 10.0, 30.0, 100.0))

SHUFFLED: dict[str, Shuffle] = {
    "pan2023/sec-3.1-converges": DECAYS,
    "pan2023/sec-3.1-fails-without-norm": DECAYS,
    "pan2023/sec-3.1-only-affine": NORMS,
    "pan2023/sec-3.1-grows": DECAYS,
    "pan2023/sec-3.1-affine-above-plain": NORMS,
    "pan2023/sec-3.1-falls-without-norm": DECAYS,
    "pan2023/sec-3.1-norm-helps-decay": DECAYS,
    "pan2023/sec-3.1-norms-fall": DECAYS,
    "pan2023/sec-1.4-simpler-data": turned("rows", "teacher_depth"),
    "pan2023/sec-3.2-largest-decay-fails": turned("runs", "weight_decay"),
    "pan2023/sec-3.2-accuracy-rises": LAYERS,
    "pan2023/sec-3.2-intra-rises": LAYERS,
    "pan2023/sec-3.2-gap-rises": LAYERS,
    "pan2023/sec-3.2-depth-falls": turned("depths", "weight_decay"),
    "pan2023/sec-3.2-inter-unstable": DECAYS,
    **{
        name.format(number): made_again(column)
        for number, column in (
            ("3.1.1", "weight_decay"),
            ("3.2.1", "measured"),
            ("3.2.2", "weight_decay"),
        )
        for name in ("pan2023/conjecture-{}", "findings/conjecture-{}-teacher")
    },
    "findings/guarantees-telling": turned("networks", "weight_decay"),
    "ji2022/fig-3b": epochs,
    "ji2022/fig-3c": epochs,
    "ji2022/fig-3d": epochs,
    "ji2022/sec-4-realistic": epochs,
    **{
        f"findings/terminal-{what}-{network}": in_half("rows", moments)
        for what in ("collapse", "generalisation", "margins", "robustness", "centres")
        for network in ("vgg", "mlp")
    },
    "fang2021/minority-networks": exchanged("networks", "ratio", RATIOS),
    "thrampoulidis2022/networks-follow-seli": swapped("from_etf", "from_seli"),
    "findings/imbalance-target": swapped("from_seli", "from_target"),
    "zhao2026/coupled-collapses": exchanged("networks", "weight_decay", opposite(USUAL)),
    "zhao2026/cannot-emerge": OTHER_OPTIMIZERS,
    "zhao2026/momentum-accelerates": exchanged(
        "networks", "optimizer", {NO_MOMENTUM: "sgd", "sgd": NO_MOMENTUM}
    ),
    "findings/optimizer-adamw-matched": exchanged("networks", "weight_decay", opposite(LARGE)),
    "findings/optimizer-centred-raw": swapped("raw_nc3", "nc3"),
    "findings/optimizer-parity": exchanged("networks", "classes", {4: 5, 5: 4, 6: 7, 7: 6}),
    "findings/depth-width": exchanged("networks", "width", {1: 8, 8: 1}),
    "findings/depth-orthoplex": swapped("objective", "etf"),
}
"""Claim id -> its experiment's numbers with the arms shuffled."""

RATE = "a slope beside a stated rate: a curve that stands still contradicts it"
ALIKE = "an equivalence: arms that are shuffled are as alike as before"
NOT_OF_ORDER = {
    **dict.fromkeys(("ji2022/fig-2a", "ji2022/fig-2b", "ji2022/fig-2c", "ji2022/fig-2d"), RATE),
    **dict.fromkeys(("findings/layer-peeled-rates", "findings/layer-peeled-within-rate"), RATE),
    "findings/layer-peeled-normalised": "a number of steps beside a bound of 15",
    "findings/layer-peeled-invariants": "a drift beside a bound of 1e-8",
    "ji2022/sec-5.3-slow": "a speed beside a bound of 1/2; what stands still is slow, too",
    "ji2022/fig-3a": "a level at the end of training beside 0.1",
    "findings/guarantees-worst-case": "a bound that a search tries to break",
    "pan2023/sec-3.2-early-layers": "a level, the depth beside half of the layers",
    "pan2023/sec-3.2-inter-positive": "a share of layers beside a third, at two weight decays",
    "sukenik2024/descent-finds-low-rank": "a share of runs of one arm, beside a half",
    "zhao2026/decoupled-does-not": "that there is no effect is what it says",
    **dict.fromkeys(("zhou2022/collapse-alike", "zhou2022/generalise-alike"), ALIKE),
    "findings/optimizer-sgdw-matched": ALIKE,
    "findings/imbalance-tail-angles": "an equivalence with the target at each weight decay",
    "findings/losses-gap": "an equivalence with the target under each loss",
}
"""Claims without arms whose order they are about, with the reason."""

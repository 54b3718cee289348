"""Test data of pan2023: ideal numbers of its experiments and attacks on its claims."""

from collections.abc import Callable
from typing import Any, NamedTuple

from nclab.claims.attacks import (
    Attacks,
    Case,
    Change,
    Numbers,
    Row,
    change_rows,
    changed,
    exchange,
    put,
    reverse,
    unchanged,
    weakened,
)
from nclab.claims.claim import Claim
from nclab_papers.pan2023 import regime
from nclab_papers.pan2023.conjectures import CONVERGED, PERFECT, smallest, worst_of_seeds
from nclab_papers.pan2023.fig33 import depth_rows
from nclab_papers.pan2023.guarantees import Config, curve_row

DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
DEEP_DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 5e-3, 1e-2)
SEEDS = tuple(range(8))
LAYERS = 14
ERRORS = (0.01, 0.05)


def fig31() -> dict[str, Any]:
    """Return collapse that grows with weight decay for affine batch norm and less for plain.

    Without batch norm collapse decreases with weight decay until training fails.
    """
    rows = []
    for seed in SEEDS:
        for index, decay in enumerate(DECAYS):
            shift = 0.001 * seed
            for norm, intra, inter in (
                ("affine", 0.45 + 0.08 * index, -0.1 - 0.03 * index),
                ("plain", 0.4 + 0.03 * index, 0.05),
                ("none", 0.6 - 0.05 * index, 0.3),
            ):
                failed = norm == "none" and decay > 5e-3
                rows.append(
                    {
                        "norm": norm,
                        "weight_decay": decay,
                        "seed": seed,
                        "accuracy": 0.6 if failed else 1.0,
                        "loss": 0.5 * decay,
                        "min_intra": 1.0 if failed else intra - shift,
                        "max_inter": 1.0 if failed else inter,
                        "alpha": 8.0 - index,
                        "beta": 2.5 - 0.1 * index,
                        "converged": not failed,
                        "run": f"{norm}-{decay}-{seed}",
                    }
                )
    return {"config": {"classes": 4}, "rows": rows}


def norms() -> dict[str, Any]:
    """Return the networks with affine batch norm, with guarantees that hold and grow."""
    rows = [
        row
        | {
            "mean_intra": row["min_intra"] + 0.02,
            "balanced_loss": row["loss"],
            "excess_loss": 0.1 * row["loss"],
            "optimal_loss": 0.9 * row["loss"],
            "guaranteed_mean_intra": row["min_intra"] - 0.2,
            "guaranteed_min_intra": row["min_intra"] - 0.3,
            "guarantee_slack": 0.1,
        }
        for row in fig31()["rows"]
        if row["norm"] == "affine"
    ]
    optima = [
        {"weight_decay": decay, "alpha": 3.0, "beta": 1.5, "product": 4.5, "optimal_loss": decay}
        for decay in DECAYS
    ]
    return {"config": {"classes": 4}, "rows": rows, "optima": optima}


def complexity() -> dict[str, Any]:
    """Return collapse that is weaker for deeper teachers."""
    rows = [
        {
            "norm": "affine",
            "weight_decay": decay,
            "seed": seed,
            "teacher_depth": depth,
            "accuracy": 1.0,
            "min_intra": 0.98 - 0.02 * depth,
            "max_inter": -0.3 + 0.01 * depth,
            "converged": True,
        }
        for seed in SEEDS
        for decay in (1e-3, 3e-3)
        for depth in (1, 3, 6, 9)
    ]
    return {"config": {"classes": 4}, "rows": rows}


def fig33() -> dict[str, Any]:
    """Return collapse that sharpens from layer to layer, and a depth that falls with decay.

    At weight decay 3e-3 and 5e-3 the inter-class cosine is positive in the middle layers.
    """
    rows, depths, runs = [], [], []
    for seed in SEEDS:
        for index, decay in enumerate(DEEP_DECAYS):
            key = {"weight_decay": decay, "seed": seed}
            failed = decay == 1e-2
            first = max(6 - index, 2)
            for layer in range(1, LAYERS + 1):
                bump = 0.05 * layer if decay in (3e-3, 5e-3) and layer < 9 else 0.0
                rows.append(
                    {
                        **key,
                        "layer": layer,
                        "ncc_accuracy": 1.0 if layer >= first else 0.9 + 0.01 * layer,
                        "min_intra": 0.2 + 0.05 * layer,
                        "max_inter": -0.02 * layer + 2 * bump / 3,
                    }
                )
            depths += [{**key, "epsilon": error, "depth": first} for error in ERRORS]
            accuracy = 0.3 if failed else 1.0
            runs.append({**key, "norm": "affine", "accuracy": accuracy, "converged": not failed})
    config = {"classes": 4, "layers": LAYERS + 1}
    return {"config": config, "rows": rows, "depths": depths, "runs": runs}


def conjectures() -> dict[str, Any]:
    """Return a small e for every conjecture and setting."""
    settings = [(data, layers) for data in ("conic", "teacher") for layers in (6, 15)]
    worst = [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "reading": reading,
            "seed": seed,
            "smallest_e": 0.002 * seed,
        }
        for name in ("3.1.1", "3.2.1", "3.2.2")
        for data, layers in settings
        for reading in (CONVERGED, PERFECT)
        for seed in SEEDS
    ]
    accuracies = [
        {"data": data, "layers": layers, "seed": seed, "weight_decay": 1e-3, "accuracy": 1.0}
        for data, layers in settings
        for seed in SEEDS
    ]
    tested = [{"data": data, "layers": layers} for data, layers in settings]
    config = {"classes": 4, "places": tested, "seeds": list(SEEDS)}
    return {
        "config": config,
        "worst": worst,
        "accuracies": accuracies,
        "small": 0.05,
        "skipped": 0,
    }


def guarantees() -> dict[str, Any]:
    """Return bounds that hold and become stronger with weight decay."""
    curve = [
        {
            "excess_loss": excess,
            "intra_lower": 1 - 3 * excess,
            "true_intra": 1 - 2 * excess,
            "thesis_intra_lower": 1 - 5 * excess**0.5,
            "inter_upper": None if excess > 1e-3 else -1 / 3 + 4 * excess**0.5,
            "true_inter": -1 / 3 + 3 * excess**0.5,
            "thesis_inter_upper": -1 / 3 + 30 * excess ** (1 / 6),
        }
        for excess in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    ]
    networks = [
        {
            "weight_decay": decay,
            "seed": seed,
            "loss": decay,
            "intra_cosine": [0.9, 0.8],
            "class_intra_lower": [0.6, 0.5],
            "accuracy": 1.0,
            "mean_guaranteed": 0.45 + 0.05 * index,
            "thesis_intra_lower": 0.0,
        }
        for seed in SEEDS
        for index, decay in enumerate((5e-4, 1e-3, 3e-3, 5e-3))
    ]
    return {"config": {"num_classes": 4}, "curve": curve, "networks": networks}


TWO_DECAYS = (1e-3, 1e-2)
SETTINGS = [(data, layers) for data in ("conic", "teacher") for layers in (6, 15)]


class Network(NamedTuple):
    """Measurements in each of three layers of a network."""

    gaps: tuple[float, float, float]
    accuracies: tuple[float, float, float]


Pair = tuple[Network, Network]
"""Networks of the smaller and of the larger weight decay."""
IMPROVING: Pair = (
    Network((0.1, 0.2, 0.3), (0.8, 0.9, 1.0)),
    Network((0.1, 0.3, 0.6), (0.9, 1.0, 1.0)),
)
"""Networks that satisfy the conjectures with e = 0."""


def needing(e: float) -> Pair:
    """Return networks that satisfy each conjecture with this e and no smaller one."""
    fall = 2.302585092994046 * e  # from the smaller to the larger weight decay, in the last layer
    return (
        Network((0.2, 0.6 + e, 0.6), (1 - e / 2, 1.0, 1.0)),
        Network((0.2, 0.6 + e - fall, 0.6 - fall), (1 - e, 1 - e / 2, 1.0)),
    )


def conjectured(pair: Pair, *, backwards: str = "") -> dict[str, Any]:
    """Compute the smallest e of every seed from two networks, the same in all seeds.

    Args:
        backwards: field that is reversed in odd seeds, weight_decay or measured.
    """
    rows = []
    for data, layers in SETTINGS:
        for seed in SEEDS:
            reversed_field = backwards if seed % 2 else ""
            keys = {"data": data, "layers": layers, "seed": seed}
            rows += [{**keys, **row} for row in smallest(_networks(pair, reversed_field))]
    return {"worst": worst_of_seeds(rows)}


def _networks(pair: Pair, reversed_field: str) -> list[dict[str, Any]]:
    """Return the rows of both networks, with weight decays or layers reversed on request."""
    decays = TWO_DECAYS[::-1] if reversed_field == "weight_decay" else TWO_DECAYS
    rows = []
    for decay, network in zip(decays, pair, strict=True):
        measured = [
            {"min_intra": gap, "max_inter": 0.0, "nc4_ncc_accuracy": accuracy}
            for gap, accuracy in zip(*network, strict=True)
        ]
        if reversed_field == "measured":
            measured.reverse()
        end = {"weight_decay": decay, "accuracy": 1.0, **measured[-1]}
        rows.append({**end, "measured": measured})
    return rows


HOLDS, CORRECTED, REFUTED = "holds", "holds with a correction", "refuted"
VERDICTS = {
    "pan2023/def-1.2.1": (HOLDS, "the frame and its cosines"),
    "pan2023/sec-2.2-batch-norm": (CORRECTED, "gamma is a standard deviation"),
    "pan2023/prop-2.2.1": (HOLDS, "exact for batch norm as it is defined"),
    "pan2023/eq-2.1": (HOLDS, "the penalty of batch norm is that of its outputs"),
    "pan2023/sec-2.2-bias": (HOLDS, "the same logits"),
    "pan2023/sec-2.2-cosines": (HOLDS, "an identity"),
    "pan2023/sec-2.2-nc1": (HOLDS, "1 - intra is a variance"),
    "pan2023/sec-2.2-nc2": (HOLDS, "the squared norm of the sum of means is not negative"),
    "pan2023/sec-2.2-nc3": (HOLDS, "what self-duality means"),
    "pan2023/sec-2.2-nc4": (HOLDS, "Chebyshev's inequality"),
    "pan2023/thm-2.3.1": (HOLDS, "proved with slope 1, better than printed"),
    "pan2023/thm-2.3.1-minimum": (HOLDS, "a lower bound, which simplex ETFs attain"),
    "pan2023/thm-2.3.1-pairs": (HOLDS, "proved with power 1/2 for every graph of pairs"),
    "pan2023/remark-delta": (HOLDS, "no whole class and no whole pair is exempt"),
    "pan2023/remark-regime": (HOLDS, "the constants are e^-50"),
    "pan2023/remark-exponent": (HOLDS, "true, and with half of it, too"),
    "pan2023/remark-increasing": (HOLDS, "calculus"),
    "pan2023/remark-weight-decay": (HOLDS, "both norms fall in closed form"),
    "pan2023/lemma-2.4.1": (HOLDS, "proved, and tight"),
    "pan2023/lemma-2.4.2": (HOLDS, "a cited theorem"),
    "pan2023/cor-2.4.1": (HOLDS, "follows from Lemma 2.4.2"),
    "pan2023/lemma-2.4.3": (HOLDS, "proved"),
    "pan2023/lemma-2.4.4": (HOLDS, "an identity"),
    "pan2023/lemma-2.4.5": (HOLDS, "true and tight, by another proof"),
    "pan2023/lemma-2.4.5-proposition": (REFUTED, "all of a on the one long b"),
    "pan2023/cor-2.4.2": (HOLDS, "Lemma 2.4.5 along the mean"),
    "pan2023/lemma-2.4.6": (CORRECTED, "a short mean unit feature may point anywhere"),
    "pan2023/eq-2.9": (HOLDS, "Jensen, twice"),
    "pan2023/eq-2.18": (HOLDS, "the logarithm is concave, and the class loss at most log C"),
    "pan2023/proof-range": (HOLDS, "leaving it costs more than a small epsilon"),
    "pan2023/proof-third-gap": (HOLDS, "a tangent of a convex function"),
    "pan2023/proof-positive": (HOLDS, "Jensen, with one class at 0"),
    "pan2023/eq-2.21": (HOLDS, "(2.19) over (2.20)"),
    "pan2023/proof-worst-split": (HOLDS, "concave in epsilon_2, still rising at epsilon"),
    "pan2023/eq-2.19": (HOLDS, "Lemma 2.4.1"),
    "pan2023/eq-2.20": (HOLDS, "Lemma 2.4.1 and Cauchy-Schwarz"),
    "pan2023/eq-2.22": (HOLDS, "Lemma 2.4.3"),
    "pan2023/eq-2.23": (HOLDS, "(2.22) plus the score of the class"),
    "pan2023/proof-nc3": (HOLDS, "(2.21) at its worst split"),
    "pan2023/proof-intra": (CORRECTED, "intra is a square"),
    "pan2023/proof-inter": (CORRECTED, "a negative cosine of short vectors"),
    "pan2023/def-conic-hull": (HOLDS, "consistent"),
    "pan2023/def-3.2.1": (HOLDS, "consistent"),
    "pan2023/def-3.2.2": (HOLDS, "consistent"),
}
"""Expected verdict of every claim that needs no experiment, and the reason for it."""


def reversed_decay(row: Row) -> Row:
    """Return the weight decay reversed_decay at 1e-3, so that the largest becomes the smallest."""
    return {"weight_decay": 1e-6 / row["weight_decay"]}


SPOILED: dict[str, Change] = {
    "pan2023/def-1.2.1": put("scalar_error", 0.1),
    "pan2023/sec-2.2-batch-norm": put("variance_error", 0.0),
    "pan2023/prop-2.2.1": put("ideal.violated", 3),
    "pan2023/eq-2.1": put("lowest", 0.0),
    "pan2023/sec-2.2-bias": put("logit_error", 0.5),
    "pan2023/sec-2.2-cosines": put("inter_error", 1e-3),
    "pan2023/sec-2.2-nc1": put("same_direction_error", 0.1),
    "pan2023/sec-2.2-nc2": put("violated", 3),
    "pan2023/sec-2.2-nc3": put("raw_before", 0.5),
    "pan2023/sec-2.2-nc4": put("lowest_accuracy", 0.4),
    "pan2023/thm-2.3.1": put("worst.*.attained", 0.5),
    "pan2023/thm-2.3.1-minimum": put("violated", 3),
    "pan2023/thm-2.3.1-pairs": put("rows.0.attained", 0.9),
    "pan2023/remark-delta": put("pairs.0.below", -0.4),
    "pan2023/remark-regime": put("outside", 1),
    "pan2023/remark-exponent": put("best", 2.0),
    "pan2023/remark-increasing": put("rows.*.turning_point", 2.0),
    "pan2023/remark-weight-decay": put("alpha.0", 0.1),
    "pan2023/lemma-2.4.1": put("violated", 3),
    "pan2023/lemma-2.4.2": put("violated", 3),
    "pan2023/cor-2.4.1": put("tested", 3),
    "pan2023/lemma-2.4.3": put("violated", 3),
    "pan2023/lemma-2.4.4": put("violated", 3),
    "pan2023/lemma-2.4.5": put("violated", 3),
    "pan2023/lemma-2.4.5-proposition": put("printed.violated", 0),
    "pan2023/cor-2.4.2": put("violated", 3),
    "pan2023/lemma-2.4.6": put("repaired.violated", 3),
    "pan2023/eq-2.9": put("violated", 3),
    "pan2023/eq-2.18": put("violated", 3),
    "pan2023/proof-range": put("violated", 3),
    "pan2023/proof-third-gap": put("violated", 3),
    "pan2023/proof-positive": put("violated", 3),
    "pan2023/eq-2.21": put("violated", 3),
    "pan2023/proof-worst-split": put("ratio", 1.1),
    "pan2023/eq-2.19": put("violated", 3),
    "pan2023/eq-2.20": put("violated", 3),
    "pan2023/eq-2.22": put("violated", 3),
    "pan2023/eq-2.23": put("hand_error", 0.1),
    "pan2023/proof-nc3": put("violated", 3),
    "pan2023/proof-intra": put("repaired.violated", 3),
    "pan2023/proof-inter": put("rows.0.certified", None),
    "pan2023/def-conic-hull": put("moved_by_scaling", 1),
    "pan2023/def-3.2.1": put("composition_error", 0.1),
    "pan2023/def-3.2.2": put("differing", 1),
    "pan2023/sec-3.1-converges": change_rows(
        "rows", lambda row: {"converged": False, "accuracy": 0.5}
    ),
    "pan2023/sec-3.1-fails-without-norm": change_rows("rows", lambda row: {"converged": True}),
    "pan2023/sec-3.1-only-affine": change_rows(
        "rows", lambda row: {"norm": "plain" if row["norm"] == "affine" else "affine"}
    ),
    "pan2023/sec-3.1-grows": change_rows("rows", reversed_decay),
    "pan2023/sec-3.1-affine-above-plain": change_rows(
        "rows",
        lambda row: {"norm": {"affine": "plain", "plain": "affine"}.get(row["norm"], "none")},
    ),
    "pan2023/sec-3.1-falls-without-norm": change_rows("rows", reversed_decay),
    "pan2023/sec-3.1-norm-helps-decay": change_rows("rows", reversed_decay),
    "pan2023/sec-3.1-norms-fall": change_rows("rows", reversed_decay),
    "pan2023/sec-1.4-simpler-data": change_rows(
        "rows", lambda row: {"teacher_depth": 10 - row["teacher_depth"]}
    ),
    "pan2023/sec-3.2-early-layers": change_rows("depths", lambda row: {"depth": 12}),
    "pan2023/sec-3.2-largest-decay-fails": change_rows(
        "runs", lambda row: {"converged": True, "accuracy": 1.0}
    ),
    "pan2023/sec-3.2-accuracy-rises": change_rows(
        "rows", lambda row: {"ncc_accuracy": 1 - 0.02 * row["layer"]}
    ),
    "pan2023/sec-3.2-intra-rises": change_rows(
        "rows", lambda row: {"min_intra": 1 - 0.02 * row["layer"]}
    ),
    "pan2023/sec-3.2-gap-rises": change_rows("rows", lambda row: {"max_inter": 0.2 * row["layer"]}),
    "pan2023/sec-3.2-depth-falls": change_rows(
        "depths", lambda row: {"depth": round(1000 * row["weight_decay"])}
    ),
    "pan2023/sec-3.2-inter-positive": change_rows("rows", lambda row: {"max_inter": -0.1}),
    "pan2023/sec-3.2-inter-unstable": change_rows(
        "rows", lambda row: {"max_inter": (row["weight_decay"] < 1e-3) * (row["layer"] % 2)}
    ),
    **{
        name.format(number): change_rows("worst", lambda row: {"smallest_e": 0.2})
        for number in ("3.1.1", "3.2.1", "3.2.2")
        for name in ("pan2023/conjecture-{}", "findings/conjecture-{}-teacher")
    },
    "findings/guarantees-worst-case": change_rows("curve", lambda row: {"intra_lower": 1.0}),
    "findings/guarantees-telling": change_rows("networks", lambda row: {"mean_guaranteed": 0.3}),
}
"""Change of the numbers after which each claim is false."""

FLAT: dict[str, Change] = {
    **dict.fromkeys(
        (
            "pan2023/sec-3.1-grows",
            "pan2023/sec-3.1-falls-without-norm",
            "pan2023/sec-3.1-norm-helps-decay",
            "pan2023/sec-1.4-simpler-data",
            "pan2023/sec-3.2-gap-rises",
        ),
        change_rows("rows", lambda row: {"min_intra": 0.5, "max_inter": 0.1}),
    ),
    "pan2023/sec-3.2-accuracy-rises": change_rows("rows", lambda row: {"ncc_accuracy": 0.9}),
    "pan2023/sec-3.2-intra-rises": change_rows("rows", lambda row: {"min_intra": 0.5}),
    "pan2023/sec-3.2-depth-falls": change_rows("depths", lambda row: {"depth": 3}),
}
"""Change after which the quantity of a claim about a rise or a fall is constant."""


def scaled(*columns: str) -> Callable[[float], Change]:
    """Return a function from a factor to a change that multiplies columns by it."""
    return lambda factor: change_rows(
        "rows", lambda row: {name: factor * row[name] for name in columns}
    )


def powers_of_norms(power: float) -> Change:
    """Return a change that multiplies the logarithms of both norms."""
    return change_rows("rows", lambda row: {name: row[name] ** power for name in ("alpha", "beta")})


def collapse_without_affine(row: Row) -> Row:
    """Return features of batch norm without affine parameters that collapse like affine ones."""
    return {"min_intra": row["min_intra"] + 0.2 * (row["norm"] == "plain")}


def recomputed_depths(first: Callable[[float], int] | None = None) -> Case:
    """Return a case in which the depths of Figure 3.3 are computed again from its layers.

    Args:
        first: number of the first near-perfect layer, a function of weight decay.
    """

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        rows = numbers["rows"]
        if first is not None:
            rows = [
                {**row, "ncc_accuracy": float(row["layer"] >= first(row["weight_decay"]))}
                for row in rows
            ]
        return {**numbers, "rows": rows, "depths": depth_rows(rows, ERRORS)}

    return case


def needed_slack(e: float) -> Case:
    """Return a case with the conjectures' smallest e, computed for networks that need this e."""
    return lambda claim, numbers: {**numbers, **conjectured(needing(e))}


def searched_curve(beyond: float = 0.0) -> Case:
    """Return a case with two points of the curve of guarantees, certified and searched.

    Args:
        beyond: excess of the intra-class spread over the worst network that the search finds.
    """

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        curve = [curve_row(Config(starts=1), relative, 0) for relative in (1e-3, 0.1)]
        for row in curve:
            row["true_intra"] = (row["true_intra"] or 0.0) - beyond
        return {**numbers, "curve": curve}

    return case


def recomputed_conjectures(column: str) -> Change:
    """Return a change that recomputes e after reversing `column` in the odd seeds.

    `column` is the weight decay or the layer. A conjecture allows falls of at most e, and e is the
    largest fall of a network, so exchanging values of e between networks would change nothing.
    """
    return lambda numbers: {**numbers, **conjectured(IMPROVING, backwards=column)}


CONJECTURES = [
    (name, column)
    for number, column in (
        ("3.1.1", "weight_decay"),
        ("3.2.1", "measured"),
        ("3.2.2", "weight_decay"),
    )
    for name in (f"pan2023/conjecture-{number}", f"findings/conjecture-{number}-teacher")
]
SHUFFLED_DECAYS = reverse("rows", "weight_decay")
SHUFFLED_LAYERS = reverse("rows", "layer")
SHUFFLED_NORMS = exchange("rows", "norm", {"affine": "plain", "plain": "affine"})
DEGREE = scaled("min_intra", "max_inter")
TRAINED = "its numbers come from training"
ATTACKS = Attacks(
    verdicts=VERDICTS,
    ideal={
        "pan2023_guarantees": guarantees,
        "pan2023_fig31": fig31,
        "pan2023_norms": norms,
        "pan2023_complexity": complexity,
        "pan2023_fig33": fig33,
        "pan2023_conjectures": conjectures,
    },
    spoiled=SPOILED,
    shuffled={
        "pan2023/sec-3.1-converges": SHUFFLED_DECAYS,
        "pan2023/sec-3.1-fails-without-norm": SHUFFLED_DECAYS,
        "pan2023/sec-3.1-only-affine": SHUFFLED_NORMS,
        "pan2023/sec-3.1-grows": SHUFFLED_DECAYS,
        "pan2023/sec-3.1-affine-above-plain": SHUFFLED_NORMS,
        "pan2023/sec-3.1-falls-without-norm": SHUFFLED_DECAYS,
        "pan2023/sec-3.1-norm-helps-decay": SHUFFLED_DECAYS,
        "pan2023/sec-3.1-norms-fall": SHUFFLED_DECAYS,
        "pan2023/sec-1.4-simpler-data": reverse("rows", "teacher_depth"),
        "pan2023/sec-3.2-largest-decay-fails": reverse("runs", "weight_decay"),
        "pan2023/sec-3.2-accuracy-rises": SHUFFLED_LAYERS,
        "pan2023/sec-3.2-intra-rises": SHUFFLED_LAYERS,
        "pan2023/sec-3.2-gap-rises": SHUFFLED_LAYERS,
        "pan2023/sec-3.2-depth-falls": reverse("depths", "weight_decay"),
        "pan2023/sec-3.2-inter-unstable": SHUFFLED_DECAYS,
        "findings/guarantees-telling": reverse("networks", "weight_decay"),
        **{name: recomputed_conjectures(column) for name, column in CONJECTURES},
    },
    not_shuffled={
        "findings/guarantees-worst-case": "a bound that a search tries to violate",
        "pan2023/sec-3.2-early-layers": "the depth compared with half of the layers",
        "pan2023/sec-3.2-inter-positive": "a share of layers compared with a third",
    },
    wrong_code={
        **dict.fromkeys(
            (
                "pan2023/sec-3.1-grows",
                "pan2023/sec-3.1-affine-above-plain",
                "pan2023/sec-3.1-falls-without-norm",
                "pan2023/sec-3.1-norm-helps-decay",
                "pan2023/sec-1.4-simpler-data",
            ),
            (unchanged, weakened(DEGREE)),
        ),
        **{name: (needed_slack(0.04), needed_slack(0.2)) for name, _ in CONJECTURES},
        "pan2023/sec-3.1-norms-fall": (unchanged, weakened(powers_of_norms)),
        "pan2023/sec-3.2-inter-unstable": (unchanged, weakened(scaled("max_inter"))),
        "pan2023/sec-3.1-only-affine": (
            unchanged,
            changed(change_rows("rows", collapse_without_affine)),
        ),
        "pan2023/sec-3.2-early-layers": (recomputed_depths(), recomputed_depths(lambda decay: 10)),
        "pan2023/sec-3.2-depth-falls": (
            recomputed_depths(),
            recomputed_depths(lambda decay: 6 - (decay == 5e-3)),  # 0.4 layers a decade
        ),
        "pan2023/sec-3.2-gap-rises": (
            unchanged,
            changed(DEGREE(0.008 / 0.91)),  # a rise of 0.008 from the first layer to the last
        ),
        "findings/guarantees-worst-case": (searched_curve(), searched_curve(beyond=0.1)),
    },
    no_code={
        "pan2023/sec-3.1-converges": TRAINED,
        "pan2023/sec-3.1-fails-without-norm": TRAINED,
        "pan2023/sec-3.2-largest-decay-fails": TRAINED,
        "pan2023/sec-3.2-accuracy-rises": TRAINED,
        "pan2023/sec-3.2-intra-rises": TRAINED,
        "pan2023/sec-3.2-inter-positive": TRAINED,
        "findings/guarantees-telling": "a certificate of a trained network; `certify` is tested",
    },
    unnoticed={("pan2023/def-conic-hull", "factor"): "a cone is a cone at every scale"},
    tiny={"pan2023_regime": regime.Config(classes=(3,), products=(2.0,), excess=(1e-3,))},
)

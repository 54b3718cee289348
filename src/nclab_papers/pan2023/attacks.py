"""Artificial results of pan2023 for tests: ideal ones, and changes that alter a verdict."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from nclab.claims.attacks import (
    Attacks,
    Case,
    Change,
    Numbers,
    Row,
    change_rows,
    change_where,
    changed,
    exchange,
    put,
    reverse,
    scaled,
    unchanged,
    weakened,
)
from nclab.claims.claim import Claim
from nclab_papers.pan2023 import author_results as published
from nclab_papers.pan2023 import regime
from nclab_papers.pan2023.conjectures import CONVERGED, PERFECT, smallest, worst_of_seeds
from nclab_papers.pan2023.fig33 import depth_rows
from nclab_papers.pan2023.guarantees import Config, curve_row
from nclab_papers.pan2023.networks import DECAYS, DEEP_DECAYS

SEEDS = tuple(range(8))
LAYERS = 14
ERRORS = (0.01, 0.05)
SETTINGS = [(data, layers) for data in ("conic", "teacher") for layers in (6, 15)]
AUTHOR_SETTINGS = [
    *[(data, layers) for data in ("conic", "mlp3") for layers in (6, 15)],
    *[(f"{data}, later design", 6) for data in ("conic", "mlp3")],
]
DEGREES = ("degree_worst", "degree_most", "degree_mean")


def fig31() -> dict[str, Any]:
    """Return invented results of Figure 3.1 that satisfy all claims.

    Collapse grows with weight decay, more with affine than with plain batch norm. Without batch
    norm it decreases with weight decay until training fails.
    """
    rows = []
    for seed, (index, decay) in product(SEEDS, enumerate(DECAYS)):
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
                    "min_intra": 1.0 if failed else intra - 0.001 * seed,
                    "max_inter": 1.0 if failed else inter,
                    "alpha": 8.0 - index,
                    "beta": 2.5 - 0.1 * index,
                    "converged": not failed,
                }
            )
    return {"config": {"classes": 4}, "rows": rows}


def norms() -> dict[str, Any]:
    """Return the invented networks of `fig31` with affine batch norm, and guarantees that hold.

    The guarantees grow with weight decay.
    """
    rows = [
        row
        | {
            "mean_intra": row["min_intra"] + 0.02,
            "balanced_loss": row["loss"],
            "excess_loss": 0.1 * row["loss"],
            "optimal_loss": 0.9 * row["loss"],
            "guaranteed_mean_intra": row["min_intra"] - 0.2,
            "guaranteed_min_intra": row["min_intra"] - 0.3,
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
    """Return invented results in which collapse is weaker for deeper teachers."""
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
        for seed, decay, depth in product(SEEDS, (1e-3, 3e-3), (1, 3, 6, 9))
    ]
    return {"config": {"classes": 4}, "rows": rows}


def fig33() -> dict[str, Any]:
    """Return invented results of Figure 3.3 that satisfy all claims.

    Collapse sharpens from layer to layer, and the effective depth falls with weight decay. At
    weight decay 3e-3 and 5e-3 the inter-class cosine is positive in the middle layers.
    """
    rows, depths, runs = [], [], []
    for seed, (index, decay) in product(SEEDS, enumerate(DEEP_DECAYS)):
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


def conjectures(settings: Sequence[tuple[str, int]] = SETTINGS) -> dict[str, Any]:
    """Return invented numbers in which every conjecture is true up to an error e of 0.014.

    Args:
        settings: data sets and numbers of layers.
    """
    worst = [
        {
            "conjecture": name,
            "data": data,
            "layers": layers,
            "reading": reading,
            "seed": seed,
            "smallest_e": 0.002 * seed,
        }
        for name, (data, layers), reading, seed in product(
            ("3.1.1", "3.2.1", "3.2.2"), settings, (CONVERGED, PERFECT), SEEDS
        )
    ]
    config = {"places": [{"data": data, "layers": layers} for data, layers in settings]}
    return {"config": config, "worst": worst, "small": 0.05}


def author_data() -> dict[str, Any]:
    """Return invented results of both designs that satisfy all claims.

    The later design collapses as much as the thesis's networks with affine batch norm.
    """
    rows = []
    for row in fig31()["rows"]:
        cosines = {"author_min_intra": row["min_intra"], "author_max_inter": row["max_inter"]}
        rows.append({"design": "thesis", **row, **cosines})
        if row["norm"] != "plain":
            norm = "last" if row["norm"] == "affine" else "none"
            rows.append({"design": "later", **row, **cosines, "norm": norm})
    return {"config": {"classes": 4}, "rows": rows}


def author_conjectures() -> dict[str, Any]:
    """Return invented results with a small error e for every conjecture, and with Figure 3.3."""
    return {**conjectures(AUTHOR_SETTINGS), "fig33": fig33()}


def author_results() -> dict[str, Any]:
    """Return invented results, in place of the published ones, that support the whole thesis."""
    rows = [
        {
            "network": network,
            "weight_decay": decay,
            "alpha": 20.0 - 2 * index,
            "beta": 0.6 - 0.05 * index,
            "guaranteed_between": 0.5 + 0.05 * index,
            "guaranteed_most": None,
            "thesis_guaranteed": None,
            **dict.fromkeys(DEGREES, 0.3 + 0.08 * index),
        }
        for network, (index, decay) in product("ABC", enumerate(DEEP_DECAYS))
    ]
    return {"rows": rows}


def guarantees() -> dict[str, Any]:
    """Return invented guarantees that hold, and that become stronger with weight decay."""
    curve = [
        {
            "excess_loss": excess,
            "intra_lower": 1 - 3 * excess,
            "true_intra": 1 - 2 * excess,
            "inter_upper": None if excess > 1e-3 else -1 / 3 + 4 * excess**0.5,
            "true_inter": -1 / 3 + 3 * excess**0.5,
        }
        for excess in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    ]
    networks = [
        {
            "weight_decay": decay,
            "seed": seed,
            "accuracy": 1.0,
            "mean_guaranteed": 0.45 + 0.05 * index,
        }
        for seed, (index, decay) in product(SEEDS, enumerate((5e-4, 1e-3, 3e-3, 5e-3)))
    ]
    return {"config": {"num_classes": 4}, "curve": curve, "networks": networks}


def network(decay: float, gaps: Sequence[float], accuracies: Sequence[float]) -> dict[str, Any]:
    """Return an invented network with the given degree of collapse and accuracy in each layer."""
    measured = [
        {"min_intra": gap, "max_inter": 0.0, "nc4_ncc_accuracy": accuracy}
        for gap, accuracy in zip(gaps, accuracies, strict=True)
    ]
    return {"weight_decay": decay, "accuracy": 1.0, **measured[-1], "measured": measured}


def of_every_seed(make: Callable[[int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the smallest e of each conjecture for the networks `make(seed)`, in every setting."""
    rows = [
        {"data": data, "layers": layers, "seed": seed, **row}
        for (data, layers), seed in product(dict.fromkeys([*SETTINGS, *AUTHOR_SETTINGS]), SEEDS)
        for row in smallest(make(seed))
    ]
    return worst_of_seeds(rows)


def needed_slack(e: float) -> Case:
    """Return a test case whose networks satisfy each conjecture with this e and no smaller one."""
    fall = math.log(10) * e  # from the smaller to the larger weight decay, in the last layer
    networks = [
        network(1e-3, (0.2, 0.6 + e, 0.6), (1 - e / 2, 1.0, 1.0)),
        network(1e-2, (0.2, 0.6 + e - fall, 0.6 - fall), (1 - e, 1 - e / 2, 1.0)),
    ]
    return lambda claim, numbers: {**numbers, "worst": of_every_seed(lambda seed: networks)}


def shuffled_conjectures(decays: tuple[float, float], step: int) -> Change:
    """Return a change to networks that satisfy each conjecture, and its reverse in odd seeds.

    Exchanging the values of e between networks would change nothing: e is the largest fall of a
    network, and a conjecture allows falls of at most e.

    Args:
        decays: weight decays of the two networks in the odd seeds.
        step: -1 reverses the layers in the odd seeds.
    """

    def make(seed: int) -> list[dict[str, Any]]:
        first, last = decays if seed % 2 else (1e-3, 1e-2)
        order = step if seed % 2 else 1
        return [
            network(first, (0.1, 0.2, 0.3)[::order], (0.8, 0.9, 1.0)[::order]),
            network(last, (0.1, 0.3, 0.6)[::order], (0.9, 1.0, 1.0)[::order]),
        ]

    return lambda numbers: {**numbers, "worst": of_every_seed(make)}


HOLDS, CORRECTED, REFUTED = "holds", "holds with a correction", "refuted"
STATEMENTS: dict[str, tuple[str, str, str, Any]] = {
    "def-1.2.1": (HOLDS, "the frame and its cosines", "scalar_error", 0.1),
    "sec-2.2-batch-norm": (CORRECTED, "gamma is a standard deviation", "variance_error", 0.0),
    "prop-2.2.1": (HOLDS, "exact for batch norm as it is defined", "ideal.violated", 3),
    "eq-2.1": (HOLDS, "the penalty of batch norm is that of its outputs", "lowest", 0.0),
    "sec-2.2-bias": (HOLDS, "the same logits", "logit_error", 0.5),
    "sec-2.2-cosines": (HOLDS, "an identity", "inter_error", 1e-3),
    "sec-2.2-nc1": (HOLDS, "1 - intra is a variance", "same_direction_error", 0.1),
    "sec-2.2-nc2": (HOLDS, "the squared norm of the sum of means is not negative", "violated", 3),
    "sec-2.2-nc3": (HOLDS, "what self-duality means", "raw_before", 0.5),
    "sec-2.2-nc4": (HOLDS, "Chebyshev's inequality", "lowest_accuracy", 0.4),
    "thm-2.3.1": (HOLDS, "proved with slope 1, better than printed", "worst.*.attained", 0.5),
    "thm-2.3.1-minimum": (HOLDS, "a lower bound, which simplex ETFs attain", "violated", 3),
    "thm-2.3.1-pairs": (
        HOLDS,
        "proved with power 1/2 for every graph of pairs",
        "rows.0.attained",
        0.9,
    ),
    "remark-delta": (HOLDS, "no whole class and no whole pair is exempt", "pairs.0.below", -0.4),
    "remark-regime": (HOLDS, "the constants are e^-50", "outside", 1),
    "remark-exponent": (HOLDS, "true; half of the exponent suffices", "best", 2.0),
    "remark-increasing": (HOLDS, "a minimum by calculus", "rows.*.turning_point", 2.0),
    "remark-weight-decay": (HOLDS, "both norms fall in closed form", "alpha.0", 0.1),
    "lemma-2.4.1": (HOLDS, "proved, and tight", "violated", 3),
    "lemma-2.4.2": (HOLDS, "a cited theorem", "violated", 3),
    "cor-2.4.1": (HOLDS, "follows from Lemma 2.4.2", "tested", 3),
    "lemma-2.4.3": (HOLDS, "proved", "violated", 3),
    "lemma-2.4.4": (HOLDS, "an identity", "violated", 3),
    "lemma-2.4.5": (HOLDS, "true and tight, by another proof", "violated", 3),
    "lemma-2.4.5-proposition": (REFUTED, "all of a on the one long b", "printed.violated", 0),
    "cor-2.4.2": (HOLDS, "Lemma 2.4.5 along the mean", "violated", 3),
    "lemma-2.4.6": (
        CORRECTED,
        "a short mean unit feature may point anywhere",
        "repaired.violated",
        3,
    ),
    "eq-2.9": (HOLDS, "Jensen, twice", "violated", 3),
    "eq-2.18": (HOLDS, "the logarithm is concave, and the class loss at most log C", "violated", 3),
    "proof-range": (CORRECTED, "one class may have longer features", "violated", 3),
    "proof-third-gap": (HOLDS, "a tangent of a convex function", "violated", 3),
    "proof-positive": (HOLDS, "Jensen, with one class at 0", "violated", 3),
    "eq-2.21": (HOLDS, "(2.19) over (2.20)", "violated", 3),
    "proof-worst-split": (HOLDS, "concave in epsilon_2, still rising at epsilon", "ratio", 1.1),
    "eq-2.19": (HOLDS, "Lemma 2.4.1", "violated", 3),
    "eq-2.20": (HOLDS, "Lemma 2.4.1 and Cauchy-Schwarz", "violated", 3),
    "eq-2.22": (HOLDS, "Lemma 2.4.3", "violated", 3),
    "eq-2.23": (HOLDS, "(2.22) plus the score of the class", "hand_error", 0.1),
    "proof-nc3": (HOLDS, "(2.21) at its worst split", "violated", 3),
    "proof-intra": (CORRECTED, "intra is a square", "repaired.violated", 3),
    "proof-inter": (CORRECTED, "a negative cosine of short vectors", "rows.0.certified", None),
    "def-conic-hull": (HOLDS, "consistent", "moved_by_scaling", 1),
    "def-3.2.1": (HOLDS, "consistent", "composition_error", 0.1),
    "def-3.2.2": (HOLDS, "consistent", "differing", 1),
}
"""For each claim that needs no experiment: the expected verdict, its reason, the name of a number,
and a value of this number that makes the verdict change."""


def falling(row: Row) -> float:
    """Return an invented value for the row of a layer; it falls from layer to layer."""
    return 1 - 0.02 * float(row["layer"])


EXCHANGED = change_rows(
    "rows", lambda row: {"norm": {"affine": "plain", "plain": "affine"}.get(row["norm"], "none")}
)
SPOILED: dict[str, Change] = {
    **{f"pan2023/{name}": put(path, value) for name, (_, _, path, value) in STATEMENTS.items()},
    "pan2023/sec-3.1-converges": change_rows(
        "rows", lambda row: {"converged": False, "accuracy": 0.5}
    ),
    "pan2023/sec-3.1-fails-without-norm": change_where("rows", "converged", True),
    **dict.fromkeys(
        ("pan2023/sec-3.1-only-affine", "pan2023/sec-3.1-affine-above-plain"), EXCHANGED
    ),
    **dict.fromkeys(
        (
            "pan2023/sec-3.1-grows",
            "pan2023/sec-3.1-falls-without-norm",
            "pan2023/sec-3.1-norm-helps-decay",
            "pan2023/sec-3.1-norms-fall",
        ),
        # Mirrored at 1e-3, the largest weight decay becomes the smallest.
        change_where("rows", "weight_decay", lambda row: 1e-6 / row["weight_decay"]),
    ),
    "pan2023/sec-1.4-simpler-data": change_where(
        "rows", "teacher_depth", lambda row: 10 - row["teacher_depth"]
    ),
    "pan2023/sec-3.2-early-layers": change_where("depths", "depth", 12),
    "pan2023/sec-3.2-largest-decay-fails": change_rows(
        "runs", lambda row: {"converged": True, "accuracy": 1.0}
    ),
    "pan2023/sec-3.2-accuracy-rises": change_where("rows", "ncc_accuracy", falling),
    "pan2023/sec-3.2-intra-rises": change_where("rows", "min_intra", falling),
    "pan2023/sec-3.2-gap-rises": change_rows("rows", lambda row: {"max_inter": 0.2 * row["layer"]}),
    "pan2023/sec-3.2-depth-falls": change_rows(
        "depths", lambda row: {"depth": round(1000 * row["weight_decay"])}
    ),
    "pan2023/sec-3.2-inter-positive": change_where("rows", "max_inter", -0.1),
    "pan2023/sec-3.2-inter-unstable": change_rows(
        "rows", lambda row: {"max_inter": (row["weight_decay"] < 1e-3) * (row["layer"] % 2)}
    ),
    **{
        name.format(number): change_where("worst", "smallest_e", 0.2)
        for number in ("3.1.1", "3.2.1", "3.2.2")
        for name in ("pan2023/conjecture-{}", "findings/conjecture-{}-teacher")
    },
    "findings/guarantees-worst-case": change_where("curve", "intra_lower", 1.0),
    "findings/guarantees-telling": change_where("networks", "mean_guaranteed", 0.3),
}
"""For each claim, a change to the numbers that makes the claim false."""


def powers_of_norms(power: float) -> Change:
    """Return a change that raises both norms to a power."""
    return change_rows("rows", lambda row: {name: row[name] ** power for name in ("alpha", "beta")})


def collapse_without_affine(row: Row) -> Row:
    """Return min intra; for plain batch norm, raise it to the value of affine batch norm."""
    return {"min_intra": row["min_intra"] + 0.2 * (row["norm"] == "plain")}


def recomputed_depths(first: Callable[[float], int] | None = None) -> Case:
    """Return a test case: the effective depths of Figure 3.3, computed again from its layers.

    Args:
        first: returns the number of the first near-perfect layer for a weight decay.
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


def searched_curve(beyond: float = 0.0) -> Case:
    """Return a test case: bounds, and worst cases found by a search, at two excess losses.

    Args:
        beyond: number subtracted from the worst intra-class cosine, to make a bound fail.
    """

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        curve = [curve_row(Config(starts=1), relative, 0) for relative in (1e-3, 0.1)]
        for row in curve:
            row["true_intra"] = (row["true_intra"] or 0.0) - beyond
        return {**numbers, "curve": curve}

    return case


CONJECTURES = {
    f"{prefix}conjecture-{number}{suffix}": change
    for number, change in (
        ("3.1.1", shuffled_conjectures((1e-2, 1e-3), 1)),
        ("3.2.1", shuffled_conjectures((1e-3, 1e-2), -1)),
        ("3.2.2", shuffled_conjectures((1e-2, 1e-3), 1)),
    )
    for prefix, suffix in (("pan2023/", ""), ("findings/", "-teacher"))
}
"""Conjecture -> change that reverses the order of weight decays or layers in half of the seeds."""
AUTHOR_CONJECTURES = {
    f"findings/author-{design}-conjecture-{number}-{data}": f"pan2023/conjecture-{number}"
    for design, numbers in (("data", ("3.1.1", "3.2.1", "3.2.2")), ("later", ("3.1.1",)))
    for number, data in product(numbers, ("conic", "mlp3"))
}
"""For each conjecture on the author's data, the conjecture of the thesis."""
FIGURE_33 = (
    *("inter-positive", "inter-unstable", "early-layers", "largest-decay-fails"),
    *("accuracy-rises", "intra-rises", "gap-rises", "depth-falls"),
)
AUTHOR_FIGURE_33 = {
    f"findings/author-data-3.2-{name}": f"pan2023/sec-3.2-{name}" for name in FIGURE_33
}
FIGURE_31 = (
    *("converges", "fails-without-norm", "only-affine", "grows", "affine-above-plain"),
    *("falls-without-norm", "norm-helps-decay"),
)
AUTHOR_FIGURE_31 = {
    f"findings/author-data-3.1-{name}": f"pan2023/sec-3.1-{name}" for name in FIGURE_31
}
LATER = [
    f"findings/author-later-{name}"
    for name in ("only-with-norm", "grows", "norm-helps-decay", "falls-without-norm")
]
RESULTS = [
    f"findings/author-results-{name}"
    for name in ("grows", "grows-on-average", "norms-fall", "guarantee-grows")
]
NOTHING_GUARANTEED = "findings/author-results-no-class-guaranteed"
ONE_SEED = "published results of one seed"


def in_figure(change: Change) -> Change:
    """Return a change that applies `change` to the part "fig33" of results on the author's data."""
    return lambda numbers: {**numbers, "fig33": change(numbers["fig33"])}


def in_figure_case(case: Case) -> Case:
    """Return a test case that applies `case` to part "fig33" of results on the author's data."""
    return lambda claim, numbers: {**numbers, "fig33": case(claim, numbers["fig33"])}


def recomputed_guarantees(smaller: float) -> Case:
    """Return a test case: the guarantees of two networks, computed from invented results.

    Args:
        smaller: loss of the network with the larger weight decay; the other one has loss 0.3.
    """

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        fields: Row = dict.fromkeys(published.FIELDS, 0.5)
        fields |= {"network": "A", "alpha": 16.0, "weight_norm": 17.0}
        networks = [
            {**fields, "weight_decay": decay, "loss": loss}
            for decay, loss in ((2e-4, 0.3), (2e-2, smaller))
        ]
        return {"rows": [published.guaranteed(published.Config(), row) for row in networks]}

    return case


LATER_NORMS = {"last": "none", "none": "last"}
LATER_DEGREE = scaled("rows", "author_min_intra", "author_max_inter")
MIRRORED = change_where("rows", "weight_decay", lambda row: 1e-6 / row["weight_decay"])
SPOILED |= {
    **{name: SPOILED[original] for name, original in AUTHOR_FIGURE_31.items()},
    **{name: in_figure(SPOILED[original]) for name, original in AUTHOR_FIGURE_33.items()},
    **{name: SPOILED[original] for name, original in AUTHOR_CONJECTURES.items()},
    **dict.fromkeys([*LATER, *RESULTS], MIRRORED),
    LATER[0]: change_rows("rows", lambda row: {"norm": LATER_NORMS.get(row["norm"], "")}),
    NOTHING_GUARANTEED: change_where("rows", "thesis_guaranteed", 0.5),
}
SHUFFLED_DECAYS = reverse("rows", "weight_decay")
SHUFFLED_LAYERS = reverse("rows", "layer")
SHUFFLED_NORMS = exchange("rows", "norm", {"affine": "plain", "plain": "affine"})
DEGREE = scaled("rows", "min_intra", "max_inter")
TRAINED = "its numbers come from training"
SHUFFLED: dict[str, Change] = {
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
    **CONJECTURES,
}
NOT_SHUFFLED = {
    "findings/guarantees-worst-case": "a bound that a search tries to violate",
    "pan2023/sec-3.2-early-layers": "the depth compared with half of the layers",
    "pan2023/sec-3.2-inter-positive": "a share of layers compared with a third",
}
WRONG_CODE: dict[str, Sequence[Case]] = {
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
    **dict.fromkeys(CONJECTURES, (needed_slack(0.04), needed_slack(0.2))),
    "pan2023/sec-3.1-norms-fall": (unchanged, weakened(powers_of_norms)),
    "pan2023/sec-3.2-inter-unstable": (unchanged, weakened(scaled("rows", "max_inter"))),
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
}
NO_CODE = {
    "pan2023/sec-3.1-converges": TRAINED,
    "pan2023/sec-3.1-fails-without-norm": TRAINED,
    "pan2023/sec-3.2-largest-decay-fails": TRAINED,
    "pan2023/sec-3.2-accuracy-rises": TRAINED,
    "pan2023/sec-3.2-intra-rises": TRAINED,
    "pan2023/sec-3.2-inter-positive": TRAINED,
    "findings/guarantees-telling": "a certificate of a trained network; `certify` is tested",
}
AUTHOR_CLAIMS = AUTHOR_FIGURE_31 | AUTHOR_FIGURE_33 | AUTHOR_CONJECTURES
"""For each claim judged on the author's data, the claim of the thesis."""
SHUFFLED |= {
    **{name: SHUFFLED[original] for name, original in AUTHOR_FIGURE_31.items()},
    **{
        name: in_figure(SHUFFLED[original])
        for name, original in AUTHOR_FIGURE_33.items()
        if original in SHUFFLED
    },
    **{name: SHUFFLED[original] for name, original in AUTHOR_CONJECTURES.items()},
    **dict.fromkeys(LATER, SHUFFLED_DECAYS),
    LATER[0]: exchange("rows", "norm", LATER_NORMS),
}
NOT_SHUFFLED |= {
    **{name: NOT_SHUFFLED[of] for name, of in AUTHOR_CLAIMS.items() if of in NOT_SHUFFLED},
    **dict.fromkeys([*RESULTS, NOTHING_GUARANTEED], ONE_SEED),
}
WRONG_CODE |= {
    **{name: WRONG_CODE[of] for name, of in AUTHOR_FIGURE_31.items() if of in WRONG_CODE},
    **{
        name: tuple(map(in_figure_case, WRONG_CODE[of]))
        for name, of in AUTHOR_FIGURE_33.items()
        if of in WRONG_CODE
    },
    "findings/author-data-3.2-inter-unstable": (
        unchanged,
        weakened(lambda factor: in_figure(scaled("rows", "max_inter")(factor))),
    ),
    **{name: WRONG_CODE[original] for name, original in AUTHOR_CONJECTURES.items()},
    **dict.fromkeys(LATER, (unchanged, weakened(LATER_DEGREE))),
    LATER[0]: (
        unchanged,
        changed(
            change_rows(
                "rows",
                lambda row: {
                    "author_min_intra": row["author_min_intra"] + 0.45 * (row["norm"] == "none")
                },
            )
        ),
    ),
    **dict.fromkeys(RESULTS[:2], (unchanged, weakened(scaled("rows", *DEGREES)))),
    RESULTS[2]: (unchanged, weakened(powers_of_norms)),
    RESULTS[3]: (recomputed_guarantees(0.2), recomputed_guarantees(0.28)),
}
NO_CODE |= {
    **{name: NO_CODE[original] for name, original in AUTHOR_CLAIMS.items() if original in NO_CODE},
    NOTHING_GUARANTEED: "a count of certificates; `certify` is tested",
}
ATTACKS = Attacks(
    verdicts={
        f"pan2023/{name}": (verdict, reason) for name, (verdict, reason, _, _) in STATEMENTS.items()
    },
    ideal={
        "pan2023_guarantees": guarantees,
        "pan2023_fig31": fig31,
        "pan2023_norms": norms,
        "pan2023_complexity": complexity,
        "pan2023_fig33": fig33,
        "pan2023_conjectures": conjectures,
        "pan2023_author_data": author_data,
        "pan2023_author_conjectures": author_conjectures,
        "pan2023_author_results": author_results,
    },
    spoiled=SPOILED,
    shuffled=SHUFFLED,
    not_shuffled=NOT_SHUFFLED,
    wrong_code=WRONG_CODE,
    no_code=NO_CODE,
    unnoticed={("pan2023/def-conic-hull", "factor"): "a cone is a cone at every scale"},
    tiny={"pan2023_regime": regime.Config(classes=(3,), products=(2.0,), excess=(1e-3,))},
)

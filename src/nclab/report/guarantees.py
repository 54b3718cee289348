"""What the last measurement of a run guarantees, beside what it measured."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nclab.errors import NclabError
from nclab.records.schema import last_layer
from nclab.theory.alignment import alignment_lower
from nclab.theory.budget import LossBudget, loss_budget
from nclab.theory.class_bounds import class_bounds
from nclab.theory.inter import inter_from_means, mean_cosine_upper
from nclab.theory.intra import intra_lower
from nclab.theory.thesis import curvature_reachable, thesis_bounds

NEEDED = ("num_classes", "alpha", "beta", "balanced_loss")
NOTHING = "At this loss nothing is guaranteed: a whole class could be lost."


def guarantees(measurement: Mapping[str, Any]) -> dict[str, Any] | None:
    """The certificate of the layer that the classifier reads, as rows for a page.

    The numbers are those of `certify`; the search for a bound on pairs of classes, which takes
    seconds, is left out where even the best outcome would say nothing.

    >>> layer = {"num_classes": 4, "alpha": 1.8, "beta": 1.8, "balanced_loss": 0.05,
    ...          "min_intra": 0.9, "max_inter": -0.2}
    >>> found = guarantees({"layers": [layer]})
    >>> found["rows"][1]["guaranteed"] < found["rows"][1]["measured"]
    True
    """
    layer = last_layer(measurement)
    if any(not isinstance(layer.get(name), int | float) for name in NEEDED):
        return None
    try:
        sizes = int(layer["num_classes"]), float(layer["alpha"]), float(layer["beta"])
        bias = float(layer.get("bias_norm") or 0.0)
        budget = loss_budget(*sizes, float(layer["balanced_loss"]), bias_norm=bias)
        return _guarantees(budget, layer, alpha=sizes[1], beta=sizes[2])
    except (NclabError, OverflowError) as error:
        return {"rows": [], "words": str(error), "classes": None}


def _guarantees(
    budget: LossBudget, layer: Mapping[str, Any], *, alpha: float, beta: float
) -> dict[str, Any]:
    rho = alignment_lower(budget)
    intra = intra_lower(budget, rho).value
    classes = _classes(budget, layer, (alpha, beta), (rho, intra))
    thesis = thesis_bounds(budget, 1 / (2 * budget.num_classes), curvature_reachable(budget))
    printed = thesis.intra_lower if budget.bias_norm == 0 and thesis.intra_lower > 0 else None
    simplex = -1 / (budget.num_classes - 1)
    rows = (
        ("cos(classifier, mean) ≥", rho if rho > 0 else None, "nc3_alignment_min", None, 1.0),
        ("intra ≥", intra if intra > 0 else None, "min_intra", printed, 1.0),
        ("inter ≤", _inter(budget, rho, intra), "max_inter", None, simplex),
    )
    return {
        "rows": [
            {
                "quantity": name,
                "guaranteed": bound,
                "measured": layer.get(measured),
                "thesis": other,
                "collapse": ideal,
            }
            for name, bound, measured, other, ideal in rows
        ],
        "words": _words(budget, rho, classes),
        "classes": classes,
    }


def _inter(budget: LossBudget, rho: float, intra: float) -> float | None:
    if rho <= 0 or inter_from_means(-1 / (budget.num_classes - 1), rho, intra) >= 1:
        return None
    proof = mean_cosine_upper(budget)
    value = 1.0 if proof is None else inter_from_means(proof.cosine, rho, intra)
    return value if value < 1 else None


def _classes(
    budget: LossBudget,
    layer: Mapping[str, Any],
    norms: tuple[float, float],
    least: tuple[float, float],
) -> dict[str, Any] | None:
    """Every class: guaranteed and measured intra-class cosine."""
    arrays = [layer.get(name) for name in ("class_loss", "class_alpha", "class_beta")]
    measured = layer.get("intra_cosine")
    if not measured or any(one is None or None in one for one in arrays):
        return None
    found = class_bounds(budget, *norms, *arrays)
    if found is None:
        return None
    return {"guaranteed": np.maximum(found[1], least[1]).tolist(), "measured": measured}


def _words(budget: LossBudget, rho: float, classes: dict[str, Any] | None) -> str:
    excess = max(budget.excess, 0.0)
    words = f"The loss is {excess:.3g} above the best that these norms allow. "
    words += NOTHING if rho <= 0 else f"Every class has alignment at least {rho:.4f}."
    mean = float(np.mean(classes["guaranteed"])) if classes else 0.0
    if mean > 0:
        words += f" By their own losses the classes have intra-class cosine at least {mean:.4f}"
        words += " on average."
    return words

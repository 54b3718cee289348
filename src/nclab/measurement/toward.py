"""How far a measurement is from its own optimum, cheap enough to stand beside every measurement."""

import math
from typing import TYPE_CHECKING, NamedTuple

from nclab.errors import DataError
from nclab.text import number
from nclab.theory.targets.dispatch import target as solved_target
from nclab.theory.targets.dispatch import target_of
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.given_norms import target_path
from nclab.theory.targets.result import Target
from nclab.theory.targets.setting import check_setting

if TYPE_CHECKING:
    from torch import Tensor

    from nclab.measurement.collapse import Collapse

MOST_CLASSES = 1000
ASK = "collapse.target() and collapse.distance_to() find it"


class Toward(NamedTuple):
    """A measurement against the optimum of its own counts, norms and bias under cross-entropy."""

    distance: TargetDistance
    weight_decay: tuple[float, float]
    """(λ_W, λ_H) whose optimum has these norms, shared out so that both penalties are equal."""

    def values(self) -> dict[str, float | None]:
        """By the names of `nclab.metrics.target_distance`."""
        found = self.distance
        return {
            "target_distance": found.means,
            "etf_distance": found.etf["means"],
            "target_distance_weights": found.classifier,
            "etf_distance_weights": found.etf["classifier"],
            "target_excess_loss": found.excess_loss,
        }

    def in_words(self) -> str:
        """One line, empty where the optimum is the simplex ETF, of which all else speaks."""
        found = self.distance
        if found.is_etf or found.means is None or found.classifier is None:
            return ""
        etf, other = found.etf["means"], found.etf["classifier"]
        first, second = self.weight_decay
        return (
            f"Own optimum, of these counts and norms ({found.geometry}): class means "
            f"{number(found.means)} and classifier {number(found.classifier)} away; the simplex "
            f"ETF, where equal counts would go, {number(etf)} and {number(other)}. Norms as of "
            f"weight decays {first:.2g} of weights and {second:.2g} of features, inferred from "
            "their balance."
        )


def toward(collapse: "Collapse") -> Toward:
    """The distance to the own optimum; DataError where that is not known or dear.

    Closed form for equal counts; for others the optima at some norms are solved once for all
    measurements with these counts, at most 88 of them, mostly two to four.
    """
    C = collapse.num_classes
    if collapse.weight is None or collapse.loss is None or collapse.beta is None:
        raise DataError("no classifier")
    if collapse.residuals is not None and collapse.residuals.soft is not None:
        raise DataError("labels are soft")
    if collapse.dim < C - 1:
        raise DataError(f"d = {collapse.dim} is below C - 1, where only a search helps: {ASK}")
    if C > MOST_CLASSES:
        raise DataError(f"more than {MOST_CLASSES} classes: {ASK}")
    counts = collapse.counts.cpu().double()
    alpha = math.sqrt(float((collapse.class_alpha.square().cpu() * counts).sum() / counts.sum()))
    norms = (alpha, collapse.beta)
    if min(norms) <= 0:
        raise DataError("features or classifier are zero")
    found = _target(collapse, counts, norms)
    rows = collapse.weight - collapse.weight.mean(0)  # as beta: logits up to a constant
    distance = distance_to(found, collapse.moments.means, rows, collapse.loss, counts=counts)
    share = collapse.beta / alpha * math.sqrt(C / collapse.samples)  # |W| / |H|
    return Toward(distance, (found.weight / share, found.weight * share))


def _target(collapse: "Collapse", counts: "Tensor", norms: tuple[float, float]) -> Target:
    bias = 0.0 if collapse.bias_norm > 0 else None
    if len(counts.unique()) == 1:
        return solved_target(counts=counts, norms=norms, bias=bias)
    setting = check_setting(None, counts, norms=norms, bias=bias)
    path = target_path(tuple(counts.tolist()), bias is not None)
    return target_of(setting, path.at(setting.norm))

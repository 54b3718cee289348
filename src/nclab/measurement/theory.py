"""Certificates and targets of a measured layer."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from nclab.errors import DataError, NclabError
from nclab.measurement.results import LayerResults
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.count_aware import (
    CountAwareBounds,
    bounds_from_probabilities,
    count_aware_bounds,
)
from nclab.theory.certificates.norms_and_loss import as_number
from nclab.theory.targets.dispatch import target, target_of
from nclab.theory.targets.distance import TargetDistance, distance_to
from nclab.theory.targets.given_norms import target_path
from nclab.theory.targets.result import Target
from nclab.theory.targets.setting import check_setting

SHOWN_WITH_CERTIFICATE = (
    "nc3_alignment_min",
    "min_intra",
    "mean_intra",
    "max_inter",
    "accuracy",
)
"""Measured scalars that a certificate shows next to its guarantees."""
MOST_CLASSES = 1000
"""Largest number of classes for which the distance to the optimum is computed automatically."""
ADVICE = "call collapse.target() and collapse.distance_to() to compute it"


class OptimumDistance(NamedTuple):
    """Distance of a layer to the optimum of cross-entropy for its class counts and norms."""

    distance: TargetDistance
    weight_decay: tuple[float, float]
    """Weight decays (λ_W, λ_H) whose optimum has these norms, if both penalties are equal."""

    def values(self) -> dict[str, float | None]:
        """Return the scalars that rows, records and sinks keep, by name."""
        distance = self.distance
        return {
            "target_distance": distance.means,
            "etf_distance": distance.etf["means"],
            "target_distance_weights": distance.classifier,
            "etf_distance_weights": distance.etf["classifier"],
            "target_excess_loss": distance.excess_loss,
        }


class LayerTheory(LayerResults):
    """What theory says about a measured layer: certificate, target, and distance to a target."""

    def certificate(self, delta: float | None = None, *, pairs: bool = True) -> Certificate:
        """Return what the norms and losses of this layer guarantee, with a bound for each class.

        Needs a classifier and samples of every class. Costs milliseconds, and up to seconds for
        the bound on pairs of classes and the optimum of unequal counts. With `pairs=False` both
        are omitted; the guarantee from the mean loss over samples then uses the network's own
        probabilities.

        >>> import nclab
        >>> features = [[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]
        >>> weight = [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1, 0, 1], weight=weight)
        >>> guaranteed = collapse.certificate().class_intra_lower
        >>> bool((guaranteed <= collapse.intra_cosine.numpy()).all())
        True
        """
        for name in ("balanced_loss", "optimal_loss"):
            if getattr(self, name) is None:
                raise DataError(
                    f"Expected a measurement with classifier and loss, but {name} is missing: "
                    f"{self.notes[name]}."
                )
        measured: Any = self  # with these two scalars, none of the fields below is None
        certificate = certify(
            *(measured.num_classes, measured.alpha, measured.beta, measured.balanced_loss, delta),
            class_losses=measured.class_loss.cpu().numpy(),
            class_alphas=measured.class_alpha.cpu().numpy(),
            class_betas=measured.class_beta.cpu().numpy(),
            bias_norm=self.bias_norm,
            pairs=pairs,
        )
        shown = {name: getattr(self, name) for name in SHOWN_WITH_CERTIFICATE}
        within = float((self.variances * self.counts).sum() / self.counts.sum())
        shown["within_share"] = within / mean_square_norm(self)
        return replace(certificate, measured=shown, count_aware=_count_aware(self, solve=pairs))

    def target(
        self,
        weight_decay: float | tuple[float, float] | None = None,
        *,
        loss: str = "cross_entropy",
        **options: Any,
    ) -> Target:
        """Return where this layer and its classifier should end, given counts, dimension and bias.

        Without `weight_decay` the target has the measured norms. With the weight decay of the
        classifier, that of the features is inferred: at an optimum both penalties are equal. Or
        pass both as (weights, features). `options` are those of `nclab.target`.

        >>> import nclab
        >>> features, weight = [[2.0, 0.0], [-2.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1], weight=weight)
        >>> collapse.target().geometry, round(collapse.distance_to(collapse.target()).means, 9)
        ('simplex ETF', 0.0)
        """
        rows = _square_norm(self)
        setting: dict[str, Any] = {"counts": self.counts.cpu(), "dim": self.dim, "loss": loss}
        setting |= {"bias": 0.0 if self.bias_norm > 0 else None, **options}
        if weight_decay is None:
            norms = math.sqrt(mean_square_norm(self)), math.sqrt(rows / self.num_classes)
            return target(**setting, norms=norms)
        if isinstance(weight_decay, tuple | list):
            return target(**setting, weight_decay=weight_decay)
        inferred = _feature_weight_decay(self, as_number("weight_decay", weight_decay))
        solution = target(**setting, weight_decay=(weight_decay, inferred))
        note = f"weight decay of the features inferred from the balance of norms: {inferred:.4g}"
        return replace(solution, notes=(note, *solution.notes))

    def distance_to(self, target: Target) -> TargetDistance:
        """Return the distances of class means, classifier and loss to a target and the ETF."""
        if not isinstance(target, Target):
            raise DataError(f"Expected a Target of nclab.target, got a {type(target).__name__}.")
        setting = target.setting
        comparable = setting.loss == "cross_entropy" and setting.targets is None
        return distance_to(
            target,
            self.moments.means,
            self.weight,
            self.loss if comparable else None,
            counts=self.counts,
        )

    @property
    def optimum_distance(self) -> OptimumDistance | None:
        """Distance to the optimum of cross-entropy for the measured class counts and norms.

        None without a classifier, or if that optimum takes long to compute; `to_dict` gives the
        reason in its notes. `target` computes optima of other settings.
        """
        return self._optimum_distance[0]

    @cached_property
    def _optimum_distance(self) -> tuple[OptimumDistance | None, str]:
        """The distance to the optimum, or the reason why it is missing."""
        try:
            return _distance_to_optimum(self), ""
        except NclabError as error:
            return None, "" if self.weight is None else str(error)


def _count_aware(results: LayerResults, *, solve: bool) -> CountAwareBounds | None:
    """Return what the mean loss over samples guarantees; None for equal counts.

    With `solve` the bound comes from the optimum for these counts, otherwise from the network's own
    probabilities.
    """
    if len(results.counts.unique()) == 1:
        return None
    measured: Any = results
    counts, bias_norm = results.counts.cpu(), results.bias_norm
    product = math.sqrt(mean_square_norm(results)) * measured.beta
    if solve:
        return count_aware_bounds(counts, product, measured.loss, bias=bias_norm > 0)
    if results.residuals is None:
        return None
    return bounds_from_probabilities(
        counts, results.residuals.sums, product, measured.loss, bias_norm=bias_norm
    )


def mean_square_norm(results: LayerResults) -> float:
    """Return the mean over samples of the squared feature norm."""
    square_norms = results.class_alpha.square() * results.counts
    return float(square_norms.sum() / results.counts.sum())


def _classifier(results: LayerResults) -> Tensor:
    if results.weight is None:
        raise DataError("Expected a measurement with a classifier, got none. Pass weight=.")
    return results.weight


def _square_norm(results: LayerResults) -> float:
    return float(_classifier(results).double().square().sum())


def _feature_weight_decay(results: LayerResults, weight_decay: float) -> float:
    """Return the weight decay of the features for which both penalties are equal.

    They are equal at an optimum.
    """
    rows, features = _square_norm(results), mean_square_norm(results) * results.samples
    if weight_decay and not min(rows, features) > 0:
        raise DataError(
            "Expected features and a classifier that are not zero, because their norms determine "
            "the weight decay of the features, got zeros. Pass weight_decay=(weights, features)."
        )
    return weight_decay * rows / features if features else 0.0


def _distance_to_optimum(results: LayerResults) -> OptimumDistance:
    """Return the distance to the optimum; raise DataError where it is unknown or takes long.

    For equal counts the optimum has a closed form. For other counts the optima at some norms are
    solved once for all measurements with these counts: at most 88 of them, mostly two to four.
    """
    C = results.num_classes
    if results.weight is None or results.loss is None or results.beta is None:
        raise DataError("no classifier")
    if results.dim < C - 1:
        raise DataError(f"d = {results.dim} is below C - 1, which needs a search: {ADVICE}")
    if C > MOST_CLASSES:
        raise DataError(f"more than {MOST_CLASSES} classes: {ADVICE}")
    counts = results.counts.cpu().double()
    alpha = math.sqrt(float((results.class_alpha.square().cpu() * counts).sum() / counts.sum()))
    norms = (alpha, results.beta)
    if min(norms) <= 0:
        raise DataError("features or classifier are zero")
    bias = 0.0 if results.bias_norm > 0 else None
    if len(counts.unique()) == 1:
        optimum = target(counts=counts, norms=norms, bias=bias)
    else:
        setting = check_setting(None, counts, norms=norms, bias=bias)
        path = target_path(tuple(counts.tolist()), bias is not None)
        optimum = target_of(setting, path.at(setting.norm))
    rows = results.weight - results.weight.mean(0)  # like beta: logits up to a constant
    distance = distance_to(optimum, results.moments.means, rows, results.loss, counts=counts)
    ratio = results.beta / alpha * math.sqrt(C / results.samples)  # |W| / |H|
    return OptimumDistance(distance, (optimum.weight / ratio, optimum.weight * ratio))

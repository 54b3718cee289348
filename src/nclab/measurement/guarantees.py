"""What norms and losses of a measured layer guarantee."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nclab.errors import DataError
from nclab.measurement.aims import mean_square_norm, over_samples
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.count_aware import (
    CountAwareBounds,
    bounds_from_probabilities,
    bounds_from_residuals,
    count_aware_bounds,
)

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse

BESIDE = ("nc3_alignment_min", "min_intra", "mean_intra", "max_inter", "accuracy")
"""What a certificate shows as measured beside what it guarantees."""


def certificate_of(collapse: "Collapse", delta: float | None, *, pairs: bool) -> Certificate:
    """See `Collapse.certificate`."""
    soft = None if collapse.residuals is None else collapse.residuals.soft
    for name in ("balanced_loss", *(("optimal_loss",) if soft is None else ())):
        if getattr(collapse, name) is None:
            raise DataError(
                f"Expected a measurement with classifier and loss, but {name} is missing: "
                f"{collapse.notes[name]}."
            )
    own: Any = collapse  # where these two are measured, nothing that follows is None
    losses, mean = own.class_loss, own.balanced_loss
    if soft is not None:
        losses = soft.hard_losses / collapse.counts
        mean = float(losses.mean())
    certificate = certify(
        *(own.num_classes, own.alpha, own.beta, mean, delta),
        class_losses=losses.cpu().numpy(),
        class_alphas=own.class_alpha.cpu().numpy(),
        class_betas=own.class_beta.cpu().numpy(),
        bias_norm=collapse.bias_norm,
        pairs=pairs,
    )
    measured = {name: getattr(collapse, name) for name in BESIDE}
    measured["within_share"] = over_samples(collapse, own.variances) / mean_square_norm(collapse)
    return replace(certificate, measured=measured, count_aware=_by_samples(collapse, pairs))


def _by_samples(collapse: "Collapse", solved: bool) -> CountAwareBounds | None:
    """What the mean loss over samples guarantees; of hard labels and equal counts nothing new.

    By the optimum of counts and targets if that is `solved`, else by the own probabilities.
    """
    rests = collapse.residuals
    soft = None if rests is None else rests.soft
    if soft is None and len(collapse.counts.unique()) == 1:
        return None
    own: Any = collapse
    counts, samples, bias_norm = collapse.counts.cpu(), collapse.samples, collapse.bias_norm
    product = math.sqrt(mean_square_norm(collapse)) * own.beta
    targets = None
    if soft is not None:
        mean = soft.targets.cpu() / counts[:, None]
        spread = float(soft.squares) - float((counts * mean.square().sum(1)).sum())
        targets = mean.T if spread <= 1e-9 * samples else None
    if solved and (soft is None or targets is not None):
        return count_aware_bounds(counts, product, own.loss, bias=bias_norm > 0, targets=targets)
    if rests is None:
        return None
    if soft is None:
        return bounds_from_probabilities(counts, rests.sums, product, own.loss, bias_norm=bias_norm)
    probabilities = rests.sums + collapse.counts.double().diag().to(rests.sums)
    gain = float((probabilities - soft.targets).sum(0).norm()) / samples * bias_norm
    of_q, of_targets = (soft.entropies / samples).tolist()
    return bounds_from_residuals(
        soft.moment.cpu(), (of_q, of_targets), samples, product, own.loss, bias=gain
    )

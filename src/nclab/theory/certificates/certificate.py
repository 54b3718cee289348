"""certify: what the norms and the loss of a network guarantee about neural collapse."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from nclab.errors import DataError
from nclab.frame import as_frame
from nclab.text import Printed
from nclab.theory.certificates.alignment import alignment_lower
from nclab.theory.certificates.any_counts import AnyCounts, any_counts
from nclab.theory.certificates.asymptotic import AsymptoticConstants, asymptotic_constants
from nclab.theory.certificates.bound import Bound
from nclab.theory.certificates.class_bounds import ClassArrays, CountedArrays, class_bounds
from nclab.theory.certificates.fraction_of_pairs import pairs_upper
from nclab.theory.certificates.inter import inter_from_means, mean_cosine_upper
from nclab.theory.certificates.intra import intra_lower, jensen_intra
from nclab.theory.certificates.norms_and_loss import NormsAndLoss, as_number, norms_and_loss
from nclab.theory.certificates.scores import deviation_upper, excess_to_leave
from nclab.theory.certificates.thesis import (
    ThesisBounds,
    curvature_printed,
    curvature_reachable,
    thesis_bounds,
)
from nclab.theory.certificates.worst_pair import MeanCosineProof
from nclab.theory.layer_peeled import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame

LOST = "the loss is high enough for a class to be lost entirely"
APART = "the class means are apart, but single features may not be"
NOT_SEARCHED = "not searched"
EXPLICIT = "pan2023, Thm 2.3.1 (explicit constants)"
RECORDED = ("alignment_lower", "intra_lower", "inter_upper", "thesis_intra_lower")
"""The bounds that a record keeps."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Printed):
    """Guarantees from the loss; see docs/certificates.md for the proofs.

    >>> certificate = certify(4, 1.8, 1.8, 0.05, delta=0.25)
    >>> certificate.fraction, certificate.alignment_lower.valid
    (0.75, True)
    """

    num_classes: int
    alpha: float
    beta: float
    loss: float
    bias_norm: float
    optimal_loss: float
    """The smallest loss these norms allow."""
    excess_loss: float
    alignment_lower: Bound
    """On cos(w_c, h_c), centred row and mean feature, of every class."""
    intra_lower: Bound
    """On the intra-class cosine of every class."""
    fraction: float
    """1 - delta, the share of classes, or of pairs, of the next three bounds; 1 without delta."""
    fraction_alignment_lower: Bound
    fraction_intra_lower: Bound
    fraction_inter_upper: Bound
    """On the inter-class cosine of that share of the pairs; it may be positive."""
    deviation_upper: Bound
    """D: sum_c mean_i |sqrt(tau) w_c - h_ci / sqrt(tau)|^2 is at most 2 D, tau = alpha / beta."""
    inter_upper: Bound
    """On the inter-class cosine of every pair; no value where none can be proved."""
    inter_proof: MeanCosineProof | None = field(repr=False)
    """The dual proof behind `inter_upper`."""
    thesis_delta: float
    """The delta of the four bounds below, which hold for a share 1 - 2 delta of the classes: half
    of the delta that was asked for, so that it is the `fraction` of the others."""
    thesis_intra_lower: Bound
    """pan2023 with explicit constants and the curvature of the scores that can be reached."""
    thesis_inter_upper: Bound
    thesis_printed_intra_lower: Bound
    """pan2023 with the curvature as its proof takes it."""
    thesis_printed_inter_upper: Bound
    asymptotic: AsymptoticConstants
    class_alignment_lower: FloatArray | None = field(repr=False)
    """(C,) from the measured loss of each class; -1 where nothing follows."""
    class_intra_lower: FloatArray | None = field(repr=False)
    """(C,) from the measured loss of each class."""
    measured: Mapping[str, float | None] | None = field(default=None, repr=False)
    """Measured values by metric, of the layer that the certificate is about."""
    any_counts: AnyCounts | None = None
    """From the mean loss over samples, where the counts were given."""
    at_worst: bool = False
    """Whether alpha and loss are the most that means over samples leave possible, for want of those
    of every class."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `alignment_lower` and `intra_lower` hold for `fraction` of classes."""
        bounds = {name: value for name, value in vars(self).items() if isinstance(value, Bound)}
        given = ("num_classes", "alpha", "beta", "loss", "bias_norm", "optimal_loss", "excess_loss")
        return {
            **{name: getattr(self, name) for name in given},
            "alignment_lower": self.fraction_alignment_lower.value,
            "intra_lower": self.fraction_intra_lower.value,
            "inter_upper": self.inter_upper.value,
            "fraction_inter_upper": self.fraction_inter_upper.value,
            "thesis_intra_lower": self.thesis_intra_lower.value,
            "thesis_inter_upper": self.thesis_inter_upper.value,
            "fraction": self.fraction,
            "thesis_delta": self.thesis_delta,
            "deviation_upper": self.deviation_upper.value,
            "class_alignment_lower": _listed(self.class_alignment_lower),
            "class_intra_lower": _listed(self.class_intra_lower),
            "asymptotic": {
                "kappa": self.asymptotic.kappa,
                "mu_standard": _finite(self.asymptotic.mu_standard),
                "mu_pairs": _finite(self.asymptotic.mu_pairs),
            },
            "bounds": {name: bound.to_dict() for name, bound in bounds.items()},
            "measured": None if self.measured is None else dict(self.measured),
            "any_counts": None if self.any_counts is None else self.any_counts.to_dict(),
        }

    def to_record(self) -> dict[str, Any]:
        """What a measurement's record keeps: the bounds that hold, why the others do not.

        >>> record = certify(4, 1.8, 1.8, 0.05, pairs=False).to_record()
        >>> 0 < record["alignment_lower"] < 1, record["inter_upper"], record["reasons"].keys()
        (True, None, dict_keys(['inter_upper', 'thesis_intra_lower']))
        """
        bounds = {name: getattr(self, name) for name in RECORDED}
        return {
            "excess_loss": self.excess_loss,
            **{name: bound.value if bound.valid else None for name, bound in bounds.items()},
            "class_intra_lower": _listed(self.class_intra_lower),
            **self._recorded_counts(),
            "reasons": {name: bound.reason for name, bound in bounds.items() if not bound.valid},
        }

    def _recorded_counts(self) -> dict[str, Any]:
        """Of the mean loss over samples, where that is another than the mean over classes."""
        found = self.any_counts
        if found is None:
            return {}
        within = found.within_upper
        share = None if self.measured is None else self.measured.get("within_share")
        return {
            "samples_excess_loss": found.excess_loss,
            "within_upper": within.value if within.valid else None,
            "within_share": share,
        }

    def __rich__(self) -> Any:
        from nclab.theory.certificates.certificate_table import certificate_table

        return certificate_table(self)

    def to_frame(self) -> "DataFrame":
        """A pandas table of every bound: its value, whether it is valid, why not, its source.

        >>> certify(4, 1.8, 1.8, 0.05).to_frame().loc["intra_lower", "valid"]
        np.True_
        """
        return as_frame(self.to_dict()["bounds"].values(), index=list(self.to_dict()["bounds"]))


def certify(
    num_classes: int,
    alpha: float,
    beta: float,
    loss: float,
    delta: float | None = None,
    *,
    bias_norm: float = 0.0,
    pairs: bool = True,
    **classes: Unpack[CountedArrays],
) -> Certificate:
    r"""What the norms and the loss guarantee about the geometry of features and weights.

    $$L = m(\alpha\beta)+\varepsilon \;\Rightarrow\; \cos(\dot w_c,\tilde h_c) \ge \rho^*,\quad
    \mathrm{intra}_c \ge R^2,\quad
    \mathrm{inter}_{c,c'} \le v\rho^{*2}+2\sqrt{(\rho^{*-2}-1)(1-R^2)}$$

    Source: pan2023, Thm 2.3.1
    Range: a bound that does not apply has valid=False and a reason.

    Args:
        alpha: rms feature norm, classes weighted equally.
        beta: |W|_F / sqrt C.
        loss: cross-entropy in nats, averaged over classes.
        delta: also bound what a fraction 1 - delta of the classes, and of the pairs, satisfies.
        bias_norm: norm of the centred bias.
        pairs: False leaves out the bound on pairs of classes, whose search can take seconds.
        classes: `class_losses`, `class_alphas` and `class_betas`, each (C,): mean loss, rms
            feature norm and norm of the centred row of every class, for bounds on each.
            `counts`, (C,), if loss and alpha are means over samples instead, and `targets`, (C, C),
            if labels are soft: then `any_counts` holds for them, and the bounds on single classes
            follow from the class arrays or, without them, from what the counts leave possible.

    >>> certificate = certify(10, 2.0, 2.5, 0.0352017)
    >>> round(certificate.intra_lower.value, 4), certificate.inter_upper.value
    (0.9014, None)
    """
    if delta is not None and not 0 < as_number("delta", delta) < 1:
        raise DataError(f"Expected delta between 0 and 1, got {delta}.")
    if unknown := set(classes) - CountedArrays.__optional_keys__:
        raise TypeError(f"certify() got an unexpected keyword argument {min(unknown)!r}")
    counts, targets = classes.pop("counts", None), classes.pop("targets", None)
    arrays = cast(ClassArrays, classes)
    by_samples, at_worst = None, False
    if counts is None and targets is not None:
        raise DataError("Expected counts beside targets, got targets alone.")
    if counts is not None:
        norms_and_loss(num_classes, alpha, beta, max(float(loss), math.log(num_classes)))  # checks
        by_samples = any_counts(
            counts, float(alpha) * float(beta), loss, bias=bias_norm > 0, targets=targets
        )
        alpha, loss, at_worst = _class_means(num_classes, alpha, loss, counts, arrays)
    given = norms_and_loss(num_classes, alpha, beta, loss, bias_norm=bias_norm)
    num_classes, bias_norm = given.num_classes, given.bias_norm
    alpha, beta, loss = float(alpha), float(beta), float(loss)
    rows = class_bounds(given, alpha, beta, **arrays)
    rho = alignment_lower(given)
    intra = intra_lower(given, rho)
    route = "sharp: the dual check holds" if intra.sharp else "exact mixture or unconditional form"
    all_alignment = _bound(rho, LOST, "pan2023, Eq. (2.21)")
    why = LOST if rho <= 0 else "vacuous"
    all_intra = _bound(intra.value, why, f"pan2023, Thm 2.3.1 ({route})")
    some_alignment, some_intra = all_alignment, all_intra
    if delta is not None:
        rho_some = max(rho, alignment_lower(given, math.floor(delta * num_classes + 1e-9)))
        intra_some = max(intra.value, float(jensen_intra(rho_some)))
        some_alignment = _bound(rho_some, LOST, "pan2023, Eq. (2.21)")
        some_intra = _bound(intra_some, "vacuous", "pan2023, Thm 2.3.1")
    inter, proof = _inter(given, rho, intra.value, pairs)
    some_inter = inter if delta is None else _fraction_inter(given, delta, inter, pairs)
    # The thesis leaves out 2 delta of the classes; below half a class neither of its two sets of
    # exceptions has a member.
    thesis_delta = 1 / (2 * num_classes) if delta is None else delta / 2
    reachable = thesis_bounds(given, thesis_delta, curvature_reachable(given))
    printed = thesis_bounds(given, thesis_delta, curvature_printed(given))
    if rows is not None:
        rows = np.maximum(rows[0], rho), np.maximum(rows[1], intra.value)
    return Certificate(
        num_classes=num_classes,
        alpha=alpha,
        beta=beta,
        loss=loss,
        bias_norm=bias_norm,
        optimal_loss=given.optimal_loss,
        excess_loss=max(loss - given.optimal_loss, 0.0),
        alignment_lower=all_alignment,
        intra_lower=all_intra,
        fraction=1.0 if delta is None else 1 - delta,
        fraction_alignment_lower=some_alignment,
        fraction_intra_lower=some_intra,
        fraction_inter_upper=some_inter,
        deviation_upper=Bound(deviation_upper(given), "", "pan2023, Thm 2.3.1 (proof)"),
        inter_upper=inter,
        inter_proof=proof,
        thesis_delta=thesis_delta,
        thesis_intra_lower=_thesis_intra(given, reachable),
        thesis_inter_upper=_thesis_inter(reachable),
        thesis_printed_intra_lower=_thesis_intra(given, printed, printed=True),
        thesis_printed_inter_upper=_thesis_inter(printed),
        asymptotic=asymptotic_constants(num_classes, given.product),
        class_alignment_lower=None if rows is None else rows[0],
        class_intra_lower=None if rows is None else rows[1],
        any_counts=by_samples,
        at_worst=at_worst,
    )


def _class_means(
    num_classes: int, alpha: float, loss: float, counts: ArrayLike, arrays: ClassArrays
) -> tuple[float, float, bool]:
    """Alpha and loss with classes weighted equally, or the most that they can be; whether so."""
    many = np.asarray(counts, dtype=np.float64)
    if many.shape != (num_classes,):
        raise DataError(f"Expected counts of {num_classes} classes, got shape {many.shape}.")
    most = float(many.sum() / (num_classes * many.min()))
    if (alphas := arrays.get("class_alphas")) is not None:
        alpha = math.sqrt(float((np.asarray(alphas, dtype=np.float64) ** 2).mean()))
    elif most > 1:
        alpha = float(alpha) * math.sqrt(most)
    if (losses := arrays.get("class_losses")) is not None:
        loss = float(np.asarray(losses, dtype=np.float64).mean())
    elif most > 1:
        loss = float(loss) * most
    known = all(arrays.get(name) is not None for name in ("class_alphas", "class_losses"))
    return alpha, loss, most > 1 and not known


def _inter(
    given: NormsAndLoss, rho: float, intra: float, pairs: bool
) -> tuple[Bound, MeanCosineProof | None]:
    proof, value, reason = None, None, ""
    if rho <= 0:
        reason = LOST
    elif not pairs:
        best = inter_from_means(-1 / (given.num_classes - 1), rho, intra)
        reason = NOT_SEARCHED if best < 1 else APART
    elif (proof := mean_cosine_upper(given)) is None:
        reason = "no negative cosine of class means can be proved at this loss"
    elif (value := inter_from_means(proof.cosine, rho, intra)) >= 1:
        value, reason = None, APART
    return Bound(value, reason, "pan2023, Thm 2.3.1 (dual proof)"), proof


def _fraction_inter(given: NormsAndLoss, delta: float, inter: Bound, pairs: bool) -> Bound:
    """The bound on most pairs; the one on all of them where that is better."""
    source = "pan2023, Thm 2.3.1 (fraction of pairs)"
    if not pairs:
        return Bound(None, NOT_SEARCHED, source)
    spared = math.floor(delta * given.num_classes * (given.num_classes - 1) / 2 + 1e-9)
    value = pairs_upper(given, spared)
    if inter.value is not None and inter.valid and (value is None or inter.value < value):
        return inter
    reason = "" if value is not None else "no cosine below 1 can be proved of so many pairs"
    return Bound(value, reason, source)


def _thesis_intra(given: NormsAndLoss, bounds: ThesisBounds, *, printed: bool = False) -> Bound:
    vacuous = f"vacuous: alignment >= 1 - {bounds.alignment_gap:.3g}"
    reason = vacuous if bounds.intra_lower <= 0 else ""
    if printed and given.excess >= excess_to_leave(given.num_classes, given.product):
        reason = reason or "at this loss a score may leave the range of the proof"
    reason = "the theorem has no bias" if given.bias_norm > 0 else reason
    return Bound(bounds.intra_lower, reason, EXPLICIT)


def _thesis_inter(bounds: ThesisBounds) -> Bound:
    value = bounds.inter_upper if math.isfinite(bounds.inter_upper) else None
    reason = "the two leading terms of the printed chain, not a full bound"
    if value is None or value >= 1:
        reason += "; vacuous"
    return Bound(value, reason, EXPLICIT)


def _bound(value: float, reason: str, source: str) -> Bound:
    """A lower bound, which holds where it is above 0."""
    return Bound(float(value), "" if value > 0 else reason, source)


def _listed(values: FloatArray | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""`certify`: compute what the norms and the loss of a network guarantee."""

import math
from dataclasses import replace
from typing import TypedDict, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from nclab.errors import DataError
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.count_aware import (
    count_aware_bounds,
    hard_loss_upper,
    least_soft_losses,
)
from nclab.theory.certificates.fraction_of_pairs import pairs_upper
from nclab.theory.certificates.inter import MeanCosineProof, inter_from_means, mean_cosine_upper
from nclab.theory.certificates.norms_and_loss import (
    Bound,
    NormsAndLoss,
    as_number,
    bias_shift,
    deviation_upper,
    excess_to_leave,
    norms_and_loss,
)
from nclab.theory.certificates.one_class import (
    IntraBound,
    alignment_lower,
    class_alignment_lower,
    class_intra_lower,
    intra_lower,
    jensen_intra,
)
from nclab.theory.certificates.theorem_constants import (
    ThesisBounds,
    asymptotic_constants,
    curvature_printed,
    curvature_reachable,
    thesis_bounds,
)
from nclab.theory.layer_peeled import FloatArray

LOST = "at this loss, the network could be at chance on one class"
APART = "the class means are apart, but single features may not be"
VACUOUS = "vacuous: only an intra-class cosine of at least 0 can be proved"
NOT_SEARCHED = "not searched"
EXPLICIT = "pan2023, Thm 2.3.1 (explicit constants)"
AGREEMENT = 1e-4
"""Largest allowed relative difference between `alpha`, `beta` or `loss` and the average of the
values of all classes."""


class ClassArrays(TypedDict, total=False):
    """Losses and norms of every class; pass all three or none."""

    class_losses: ArrayLike | None
    """(C,) mean cross-entropy of hard labels, also if `targets` are soft."""
    class_alphas: ArrayLike | None
    """(C,) rms feature norm."""
    class_betas: ArrayLike | None
    """(C,) norm of the centred classifier row."""


class CountedArrays(ClassArrays, total=False):
    """Class arrays, with the counts and targets that are needed if loss and alpha are averages
    over samples."""

    counts: ArrayLike | None
    """(C,) number of samples of every class."""
    targets: ArrayLike | None
    """(C, C) soft targets, one column per class; hard targets by default."""


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
    r"""Return what the norms and the loss guarantee about the geometry of features and weights.

    $$L = m(\alpha\beta)+\varepsilon \;\Rightarrow\; \cos(\dot w_c,\tilde h_c) \ge \rho^*,\quad
    \mathrm{intra}_c \ge R^2,\quad
    \mathrm{inter}_{c,c'} \le v\rho^{*2}+2\sqrt{(\rho^{*-2}-1)(1-R^2)}$$

    L is the loss, $m$ the smallest loss that the norms allow, $\dot w_c$ the centred classifier
    row and $\tilde h_c$ the mean feature of class c. The bounds $\rho^*$ on the alignment, $R^2$
    on the intra-class cosine and $v$ on the cosine of two class means are computed from the norms
    and the loss.

    Source: pan2023, Thm 2.3.1
    Range: a bound that does not hold has valid=False and a reason.

    Args:
        alpha: rms feature norm, classes weighted equally.
        beta: |W|_F / sqrt C.
        loss: cross-entropy in nats, averaged over classes.
        delta: if given, also compute bounds that hold for a share 1 - delta of the classes and of
            the pairs of classes. These bounds are stronger than those for all classes.
        bias_norm: norm of the centred bias.
        pairs: False skips the bounds on pairs of classes, whose computation can take seconds.
        classes: optional arrays.
            `class_losses`, `class_alphas` and `class_betas`, each (C,): mean loss, rms feature norm
            and norm of the centred row of every class; they give bounds on each class.
            `counts`, (C,): number of samples of every class. Pass it if loss and alpha are
            averages over samples; the result then also has bounds `count_aware`.
            `targets`, (C, C), one column per class: soft labels; needs `counts`. `class_losses`
            are still those of hard labels. Without class arrays, the bounds on single classes use
            the largest hard-label loss that counts, targets and the mean loss allow.

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
    by_samples, worst_case_inputs = None, False
    if counts is None and targets is not None:
        raise DataError(
            "Expected counts together with targets, got targets alone. "
            "Pass counts=, the number of samples of each class."
        )
    if counts is not None:
        # Raise if a number is wrong; a loss below the optimum of balanced classes is allowed.
        norms_and_loss(num_classes, alpha, beta, max(float(loss), math.log(num_classes)))
        by_samples = count_aware_bounds(
            counts, float(alpha) * float(beta), loss, bias=bias_norm > 0, targets=targets
        )
        alpha, loss, worst_case_inputs = _class_means(num_classes, alpha, loss, counts, arrays)
        if targets is not None:
            soft = np.asarray(targets, dtype=np.float64)
            loss = _hard_loss(by_samples.loss, counts, soft / soft.sum(0), arrays)
            # No network with these norms has more: |w_j - w_c| <= sqrt(2C) beta.
            largest = math.sqrt(2 * num_classes) * alpha * float(beta) + math.sqrt(2) * bias_norm
            loss = min(loss, math.log(num_classes) + largest)
            worst_case_inputs |= arrays.get("class_losses") is None
    inputs = norms_and_loss(num_classes, alpha, beta, loss, bias_norm=bias_norm)
    alpha, beta, loss = float(alpha), float(beta), float(loss)
    by_class = _class_bounds(inputs, alpha, beta, arrays)
    certificate = _certificate(inputs, alpha, beta, loss, delta, by_class, pairs=pairs)
    return replace(certificate, count_aware=by_samples, worst_case_inputs=worst_case_inputs)


def _certificate(
    inputs: NormsAndLoss,
    alpha: float,
    beta: float,
    loss: float,
    delta: float | None,
    by_class: tuple[FloatArray, FloatArray] | None,
    *,
    pairs: bool,
) -> Certificate:
    rho = alignment_lower(inputs)
    intra = intra_lower(inputs, rho)
    route = "sharp: the dual check holds" if intra.sharp else "exact mixture or unconditional form"
    alignment = _bound(rho, LOST, "pan2023, Eq. (2.21)")
    reason = LOST if rho <= 0 else VACUOUS
    intra_bound = _bound(intra.value, reason, f"pan2023, Thm 2.3.1 ({route})")
    inter, proof = _inter(inputs, rho, intra.value, pairs)
    some_alignment, some_intra, some_inter = alignment, intra_bound, inter
    if delta is not None:
        some_alignment, some_intra = _fraction_means(inputs, delta, rho, intra)
        some_inter = _fraction_inter(inputs, delta, inter, pairs)
    # The thesis excludes two sets of delta C classes each; with delta = 1/(2C) both are empty.
    thesis_delta = 1 / (2 * inputs.num_classes) if delta is None else delta / 2
    reachable = thesis_bounds(inputs, thesis_delta, curvature_reachable(inputs))
    printed = thesis_bounds(inputs, thesis_delta, curvature_printed(inputs))
    return Certificate(
        num_classes=inputs.num_classes,
        alpha=alpha,
        beta=beta,
        loss=loss,
        bias_norm=inputs.bias_norm,
        optimal_loss=inputs.optimal_loss,
        excess_loss=max(loss - inputs.optimal_loss, 0.0),
        alignment_lower=alignment,
        intra_lower=intra_bound,
        fraction=1.0 if delta is None else 1 - delta,
        fraction_alignment_lower=some_alignment,
        fraction_intra_lower=some_intra,
        fraction_inter_upper=some_inter,
        deviation_upper=Bound(deviation_upper(inputs), "", "pan2023, Thm 2.3.1 (proof)"),
        inter_upper=inter,
        inter_proof=proof,
        thesis_delta=thesis_delta,
        thesis_intra_lower=_thesis_intra(inputs, reachable),
        thesis_inter_upper=_thesis_inter(reachable),
        thesis_printed_intra_lower=_thesis_intra(inputs, printed, printed=True),
        asymptotic=asymptotic_constants(inputs.num_classes, inputs.product),
        class_alignment_lower=None if by_class is None else np.maximum(by_class[0], rho),
        class_intra_lower=None if by_class is None else np.maximum(by_class[1], intra.value),
    )


def _fraction_means(
    inputs: NormsAndLoss, delta: float, rho: float, intra: IntraBound
) -> tuple[Bound, Bound]:
    excluded = math.floor(delta * inputs.num_classes + 1e-9)
    some_rho = max(rho, alignment_lower(inputs, excluded))
    some_intra = max(intra.value, float(jensen_intra(some_rho)))
    alignment = _bound(some_rho, LOST, "pan2023, Eq. (2.21)")
    return alignment, _bound(some_intra, VACUOUS, "pan2023, Thm 2.3.1")


def _class_means(
    num_classes: int, alpha: float, loss: float, counts: ArrayLike, arrays: ClassArrays
) -> tuple[float, float, bool]:
    """Return alpha and loss with equal class weights, and whether they are only upper bounds."""
    sizes = np.asarray(counts, dtype=np.float64)
    if sizes.shape != (num_classes,):
        raise DataError(f"Expected counts of {num_classes} classes, got shape {sizes.shape}.")
    largest_ratio = float(sizes.sum() / (num_classes * sizes.min()))
    if (alphas := arrays.get("class_alphas")) is not None:
        alpha = math.sqrt(float((np.asarray(alphas, dtype=np.float64) ** 2).mean()))
    elif largest_ratio > 1:
        alpha = float(alpha) * math.sqrt(largest_ratio)
    if (losses := arrays.get("class_losses")) is not None:
        loss = float(np.asarray(losses, dtype=np.float64).mean())
    elif largest_ratio > 1:
        loss = float(loss) * largest_ratio
    known = all(arrays.get(name) is not None for name in ("class_alphas", "class_losses"))
    return alpha, loss, largest_ratio > 1 and not known


def _hard_loss(loss: float, counts: ArrayLike, targets: FloatArray, arrays: ClassArrays) -> float:
    """Return the hard-label loss averaged over classes.

    Without `class_losses`, return an upper bound on it from the mean soft loss.
    """
    sizes = np.asarray(counts, dtype=np.float64)
    if (given := arrays.get("class_losses")) is None:
        return hard_loss_upper(sizes, targets, loss)
    losses = _class_array("class_losses", given, len(sizes))
    least = float(least_soft_losses(losses, targets) @ sizes / sizes.sum())
    if least > loss * (1 + AGREEMENT):
        raise DataError(
            "Expected class_losses of hard labels. With these class_losses and soft targets, the "
            f"mean loss is at least {least:.6g}, but loss = {loss:.6g}. Pass for each class the "
            "mean of -log(probability of the class) over its samples."
        )
    return float(losses.mean())


def _inter(
    inputs: NormsAndLoss, rho: float, intra: float, pairs: bool
) -> tuple[Bound, MeanCosineProof | None]:
    proof, value, reason = None, None, ""
    if rho <= 0:
        reason = LOST
    elif not pairs:
        best = inter_from_means(-1 / (inputs.num_classes - 1), rho, intra)
        reason = NOT_SEARCHED if best < 1 else APART
    elif (proof := mean_cosine_upper(inputs)) is None:
        reason = "no negative cosine of class means can be proved at this loss"
    elif (value := inter_from_means(proof.cosine, rho, intra)) >= 1:
        value, reason = None, APART
    return Bound(value, reason, "pan2023, Thm 2.3.1 (dual proof)"), proof


def _fraction_inter(inputs: NormsAndLoss, delta: float, inter: Bound, pairs: bool) -> Bound:
    """Return the bound for a share of the pairs, or the bound for all pairs if that is smaller."""
    source = "pan2023, Thm 2.3.1 (fraction of pairs)"
    if not pairs:
        return Bound(None, NOT_SEARCHED, source)
    excluded = math.floor(delta * inputs.num_classes * (inputs.num_classes - 1) / 2 + 1e-9)
    value = pairs_upper(inputs, excluded)
    if inter.value is not None and inter.valid and (value is None or inter.value < value):
        return inter
    reason = "" if value is not None else "no cosine below 1 can be proved for so many pairs"
    return Bound(value, reason, source)


def _thesis_intra(inputs: NormsAndLoss, bounds: ThesisBounds, *, printed: bool = False) -> Bound:
    """Return the bound of pan2023 on the intra-class cosine, with a reason if it says nothing."""
    vacuous = f"vacuous: the theorem gives only alignment >= 1 - {bounds.alignment_gap:.3g}"
    reason = vacuous if bounds.intra_lower <= 0 else ""
    if printed and inputs.excess >= excess_to_leave(inputs.num_classes, inputs.product):
        reason = reason or "at this loss a score may leave the range that the proof assumes"
    reason = "the theorem assumes no bias" if inputs.bias_norm > 0 else reason
    return Bound(bounds.intra_lower, reason, EXPLICIT)


def _thesis_inter(bounds: ThesisBounds) -> Bound:
    """Return the two leading terms of pan2023's bound on the inter-class cosine.

    The result is never valid, because the smaller terms of the bound are missing.
    """
    value = bounds.inter_upper if math.isfinite(bounds.inter_upper) else None
    reason = "only the two leading terms of the theorem's bound"
    if value is None or value >= 1:
        reason += "; vacuous"
    return Bound(value, reason, EXPLICIT)


def _bound(value: float, reason: str, source: str) -> Bound:
    """Return the number as a lower bound, which is valid if it is above 0."""
    return Bound(float(value), "" if value > 0 else reason, source)


def _class_bounds(
    inputs: NormsAndLoss, alpha: float, beta: float, arrays: ClassArrays
) -> tuple[FloatArray, FloatArray] | None:
    r"""Return lower bounds on alignment and intra-class cosine of every class, or None.

    The result is None if no class arrays are given.

    $$\rho_c \ge \frac{g^{-1}(L_c)-\dot b_c}{\alpha_c\beta_c},\qquad \mathrm{intra}_c \ge R_c^2$$

    Class c has the loss $L_c$, the norms $\alpha_c$ and $\beta_c$, and the centred bias
    $\dot b_c$; g is the smallest loss at a given score (`layer_peeled`), and $R_c^2$ comes from
    `class_intra_lower`.

    Source: pan2023, Thm 2.3.1
    Range: [-1, 1]^C and [0, 1]^C.
    """
    values: dict[str, ArrayLike | None] = {
        "class_losses": arrays.get("class_losses"),
        "class_alphas": arrays.get("class_alphas"),
        "class_betas": arrays.get("class_betas"),
    }
    absent = [name for name, array in values.items() if array is None]
    if len(absent) == 3:
        return None
    if absent:
        raise DataError(
            "Expected class_losses, class_alphas and class_betas together, or none of them; "
            f"{absent[0]} is missing."
        )
    losses, alphas, betas = (
        _class_array(name, array, inputs.num_classes) for name, array in values.items()
    )
    _agree("class_losses", float(losses.mean()), "loss", inputs.loss)
    _agree("class_alphas", math.sqrt(float((alphas**2).mean())), "alpha", float(alpha))
    rms = math.sqrt(float((betas**2).mean()))
    if rms > beta * (1 + AGREEMENT):
        raise DataError(
            f"Expected class_betas with rms at most beta = {beta:.6g}, got rms {rms:.6g}. "
            "Pass the norms of the centred classifier rows."
        )
    shift = bias_shift(inputs)
    products = alphas * betas
    best = class_alignment_lower(inputs.num_classes, losses, products, shift=shift, clip=False)
    if (best > 1 + 1e-6).any():
        c = int(np.argmax(best))
        raise DataError(
            f"Loss {losses[c]:.6g} of class {c} is too small for its norms: class_alpha * "
            f"class_beta = {alphas[c]:.6g} * {betas[c]:.6g}. Pass bias_norm if the classifier has "
            "a bias."
        )
    rho = np.minimum(best, 1.0)
    return rho, class_intra_lower(inputs.num_classes, losses, products, rho, shift=shift)


def _class_array(name: str, values: ArrayLike | None, num_classes: int) -> FloatArray:
    """Return the array as finite non-negative float64 of shape (C,), or raise."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected {name} as numbers, got {values!r}.") from error
    if array.shape != (num_classes,):
        raise DataError(f"Expected {name} of shape ({num_classes},), got {array.shape}.")
    valid = np.isfinite(array) & (array >= 0)
    if not valid.all():
        bad = int(np.argmin(valid))
        raise DataError(f"Expected finite {name} >= 0, got {array[bad]} for class {bad}.")
    return array


def _agree(name: str, mean: float, total_name: str, total: float) -> None:
    if abs(mean - total) > AGREEMENT * total:
        raise DataError(
            f"Expected {name} that average to {total_name} = {total:.6g}, got an average of "
            f"{mean:.6g}. All classes have equal weight, whatever their counts."
        )

"""A certificate: the guaranteed bounds, with their table and sentences for the terminal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.text import Printed, as_frame, number
from nclab.theory.certificates.count_aware import CountAwareBounds
from nclab.theory.certificates.inter import MeanCosineProof
from nclab.theory.certificates.norms_and_loss import Bound
from nclab.theory.certificates.theorem_constants import AsymptoticConstants
from nclab.theory.layer_peeled import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame

RECORDED = ("alignment_lower", "intra_lower", "inter_upper", "thesis_intra_lower")
"""Names of the bounds that nclab saves in the record of a measurement."""
VALUES = ("inter_upper", "fraction_inter_upper", "thesis_intra_lower", "thesis_inter_upper")
"""Names of bounds that `to_dict` also gives as plain numbers, outside its entry `bounds`."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Printed):
    """Guaranteed bounds on the geometry of one layer; proofs are in docs/certificates.md.

    >>> import nclab
    >>> certificate = nclab.certify(4, 1.8, 1.8, 0.05, delta=0.25)
    >>> certificate.fraction, certificate.alignment_lower.valid
    (0.75, True)
    """

    num_classes: int
    alpha: float
    beta: float
    loss: float
    bias_norm: float
    optimal_loss: float
    """Smallest loss that any network with the norms `alpha` and `beta` can have."""
    excess_loss: float
    alignment_lower: Bound
    """Lower bound on cos(w_c, h_c) for every class c, with w_c its centred classifier row and h_c
    its mean feature."""
    intra_lower: Bound
    """Lower bound on the intra-class cosine of every class."""
    fraction: float
    """Share of the classes, or of the pairs of classes, for which the `fraction_…` bounds hold:
    1 - delta, with the delta that was passed to `certify`."""
    fraction_alignment_lower: Bound
    fraction_intra_lower: Bound
    fraction_inter_upper: Bound
    """Upper bound on the inter-class cosine for a share `fraction` of the pairs of classes; it may
    be positive."""
    deviation_upper: Bound
    """Upper bound D on how far features are from being multiples of their classifier row:
    sum_c mean_i |sqrt(tau) w_c - h_ci / sqrt(tau)|^2 <= 2 D, with tau = alpha / beta, w_c the
    centred row of class c and h_ci its i-th feature."""
    inter_upper: Bound
    """Upper bound on the inter-class cosine of every pair; its value is None without a proof."""
    inter_proof: MeanCosineProof | None = field(repr=False)
    """Proof of `inter_upper` by duality."""
    thesis_delta: float
    """Delta of the `thesis_…` bounds, which are those of pan2023. They hold for a share 1 - 2 delta
    of the classes, so nclab halves the delta that was passed; the share is then `fraction`."""
    thesis_intra_lower: Bound
    """Lower bound of pan2023 on the intra-class cosine, with explicit constants. Its proof divides
    by the smallest second derivative of the loss on a range of scores w_c . h_c. nclab takes the
    range that the loss allows."""
    thesis_inter_upper: Bound
    """The two leading terms of pan2023's upper bound on the inter-class cosine. These terms
    alone are not a valid bound, because smaller terms are missing."""
    thesis_printed_intra_lower: Bound
    """Like `thesis_intra_lower`, but with the larger range of scores that pan2023 uses."""
    asymptotic: AsymptoticConstants
    class_alignment_lower: FloatArray | None = field(repr=False)
    """(C,) lower bound on the alignment of each class, from the measured loss of that class; -1 if
    nothing is guaranteed."""
    class_intra_lower: FloatArray | None = field(repr=False)
    """(C,) lower bound on the intra-class cosine of each class, from its measured loss."""
    measured: Mapping[str, float | None] | None = field(default=None, repr=False)
    """Metric -> its measured value in the layer that the certificate describes."""
    count_aware: CountAwareBounds | None = None
    """Bounds from the mean loss over samples; None if no counts were given."""
    worst_case_inputs: bool = False
    """Whether `alpha` and `loss` are only upper bounds on the averages over classes. This is so for
    unequal counts, if you do not pass the values of every class."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values.

        At the top level, `alignment_lower` and `intra_lower` are the bounds that hold for a share
        `fraction` of the classes.
        """
        bounds = {name: value for name, value in vars(self).items() if isinstance(value, Bound)}
        names = ("num_classes", "alpha", "beta", "loss", "bias_norm", "optimal_loss", "excess_loss")
        return {
            **{name: getattr(self, name) for name in names},
            "alignment_lower": self.fraction_alignment_lower.value,
            "intra_lower": self.fraction_intra_lower.value,
            **{name: bounds[name].value for name in VALUES},
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
            "count_aware": None if self.count_aware is None else self.count_aware.to_dict(),
        }

    def to_record(self) -> dict[str, Any]:
        """Return what nclab saves in a record: valid bounds, and for the others the reason."""
        bounds = {name: getattr(self, name) for name in RECORDED}
        counted: dict[str, Any] = {}
        if self.count_aware is not None:
            counted = {
                "samples_excess_loss": self.count_aware.excess_loss,
                "within_upper": _valid_value(self.count_aware.within_upper),
                "within_share": None
                if self.measured is None
                else self.measured.get("within_share"),
            }
        return {
            "excess_loss": self.excess_loss,
            **{name: _valid_value(bound) for name, bound in bounds.items()},
            "class_intra_lower": _listed(self.class_intra_lower),
            **counted,
            "reasons": {name: bound.reason for name, bound in bounds.items() if not bound.valid},
        }

    def __rich__(self) -> Any:
        return certificate_table(self)

    def to_frame(self) -> "DataFrame":
        """Return a pandas table of every bound: value, whether it is valid, reason and source."""
        return as_frame(self.to_dict()["bounds"].values(), index=list(self.to_dict()["bounds"]))


def _listed(values: FloatArray | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


NO_CLASS = (
    "At this loss no single class is guaranteed anything: the network could be at chance on one "
    "class."
)


class _Row(NamedTuple):
    """Cells of one row of the table."""

    quantity: str
    guaranteed: str
    measured: str = ""
    thesis: str = ""
    ideal: str = "1"


def certificate_table(certificate: Certificate) -> Group:
    """Return a table of guaranteed and measured values, and the lines below it.

    The lines give the reasons for missing bounds, and a summary.
    """
    measured = certificate.measured
    table = Table(header_style="bold")
    table.add_column("quantity", no_wrap=True)
    table.add_column("guaranteed", justify="right")
    if measured is not None:
        table.add_column("measured", justify="right")
    table.add_column("pan2023", justify="right")
    table.add_column("at collapse", justify="right", style="dim")
    for row in _rows(certificate, measured):
        table.add_row(*(row if measured is not None else (*row[:2], *row[3:])))
    reasons = [(name, getattr(certificate, name).reason) for name in RECORDED]
    lines = [Text(f"– no {name}: {reason}", style="dim") for name, reason in reasons if reason]
    return Group(*map(Text, _header_lines(certificate)), table, *lines, Text(in_words(certificate)))


def _header_lines(certificate: Certificate) -> list[str]:
    """Return lines that compare each loss with the smallest loss that the norms allow.

    >>> from nclab.theory.certificates.certification import certify
    >>> certificate = certify(6, 2.0, 1.0, 0.3, counts=[10, 10, 10, 1, 1, 1])
    >>> for line in _header_lines(certificate): print(line)
    mean loss over samples 0.3; with these norms and counts no network has less than 0.267464: \
excess 0.0325
    mean loss over classes at most 1.65 (a small class may carry most of the loss: pass class_losses
    and class_alphas for exact values); no network with alpha * beta at most 4.69 has less than \
0.0178103: excess at most 1.63
    """
    by_samples, product = certificate.count_aware, certificate.alpha * certificate.beta
    least, excess = f"{certificate.optimal_loss:.6g}", f"{certificate.excess_loss:.3g}"
    if by_samples is None:
        return [
            f"loss {certificate.loss:.6g}; no network with alpha * beta = {product:.4g} has less "
            f"than {least}: excess {excess}"
        ]
    at_most, hint = "", ""
    labels = ", of hard labels," if by_samples.soft else ""
    if certificate.worst_case_inputs:
        at_most = "at most "
        why = "a small class may carry most of the loss"
        why = "the most that these soft labels allow" if by_samples.soft else why
        hint = f" ({why}: pass class_losses and class_alphas for exact values)"
    return [
        f"mean loss over samples {by_samples.loss:.6g}; with these norms and counts no network has "
        f"less than {by_samples.optimal_loss:.6g}: excess {by_samples.excess_loss:.3g}",
        f"mean loss over classes{labels} {at_most}{certificate.loss:.6g}{hint}; no network with "
        f"alpha * beta {at_most or '= '}{product:.4g} has less than {least}: "
        f"excess {at_most}{excess}",
    ]


def in_words(certificate: Certificate) -> str:
    """Return sentences that say what the certificate guarantees."""
    alignment = _valid_value(certificate.fraction_alignment_lower)
    text = NO_CLASS if alignment is None else _class_sentences(certificate, alignment)
    by_class, by_samples = certificate.class_intra_lower, certificate.count_aware
    if by_class is not None and (mean := float(by_class.mean())) > 0:
        text += (
            f" By the measured loss of each class, the intra-class cosine is at least {_down(mean)}"
            " on average over classes."
        )
    within = None if by_samples is None else _valid_value(by_samples.within_upper)
    if within is not None:
        text += (
            f" Over all samples, at most {_up(within)} of the squared feature norm is within "
            "classes."
        )
    return text


def _valid_value(bound: Bound) -> float | None:
    return bound.value if bound.valid else None


def _class_sentences(certificate: Certificate, alignment: float) -> str:
    share = _percent(certificate.fraction)
    subject = "every class" if certificate.fraction == 1 else f"at least {share} of the classes"
    text = (
        f"In {subject}, the mean feature has cosine at least {_down(alignment)} with the centred "
        "classifier row"
    )
    if (intra := _valid_value(certificate.fraction_intra_lower)) is not None:
        text += f", and two features have cosine at least {_down(intra)} on average"
    if (inter := _valid_value(certificate.inter_upper)) is not None:
        text += f". Features of any two classes have cosine at most {_up(inter)} on average."
    else:
        text += ". For the cosine between two classes, no bound holds for all pairs."
    inter = _valid_value(certificate.fraction_inter_upper)
    if certificate.fraction < 1 and inter is not None:
        text += (
            f" In {share} of the pairs of classes, features have cosine at most {_up(inter)} on "
            "average."
        )
    return text


def _rows(certificate: Certificate, measured: Mapping[str, float | None] | None) -> list[_Row]:

    def measured_text(name: str) -> str:
        return number(measured.get(name), near=1.0) if measured is not None else ""

    share = f" ({_percent(certificate.fraction)})"
    thesis = _cell(certificate.thesis_intra_lower, ">=")
    alignment = _cell(certificate.alignment_lower, ">=")
    intra = _cell(certificate.intra_lower, ">=")
    thesis_all = thesis if certificate.fraction == 1 else ""
    rows = [
        _Row("alignment, all classes", alignment, measured_text("nc3_alignment_min")),
        _Row("intra-class cosine, all classes", intra, measured_text("min_intra"), thesis_all),
    ]
    if certificate.fraction < 1:
        intra = _cell(certificate.fraction_intra_lower, ">=")
        rows.append(_Row("alignment" + share, _cell(certificate.fraction_alignment_lower, ">=")))
        rows.append(_Row("intra-class cosine" + share, intra, thesis=thesis))
    if certificate.class_intra_lower is not None:
        mean = float(certificate.class_intra_lower.mean())
        bound = f">= {_low(mean)}" if mean > 0 else "none"
        rows.append(_Row("intra-class cosine, average", bound, measured_text("mean_intra")))
    inter = _cell(certificate.inter_upper, "<=")
    thesis = _cell(certificate.thesis_inter_upper, "<=")
    ideal = number(-1 / (certificate.num_classes - 1))
    leading = thesis if thesis == "none" else f"{thesis} (leading terms)"
    leading = leading if certificate.fraction == 1 else ""
    all_pairs = "inter-class cosine, all pairs"
    rows.append(_Row(all_pairs, inter, measured_text("max_inter"), leading, ideal))
    if certificate.fraction < 1:
        some_inter = _cell(certificate.fraction_inter_upper, "<=")
        rows.append(_Row("inter-class cosine" + share, some_inter, ideal=ideal))
    deviation = _cell(certificate.deviation_upper, "<=")
    rows.append(_Row("distance D, features to rows", deviation, ideal="0"))
    if certificate.count_aware is not None:
        within = _cell(certificate.count_aware.within_upper, "<=")
        share = measured_text("within_share")
        rows.append(_Row("share of norm within classes", within, share, ideal="0"))
    return rows


def _cell(bound: Bound, sign: str) -> str:
    """Return a bound as text; "none" if it guarantees nothing."""
    invalid = "vacuous" in bound.reason or (sign == ">=" and not bound.valid)
    if bound.value is None or invalid:
        return "none"
    return f">= {_low(bound.value)}" if sign == ">=" else f"<= {_high(bound.value)}"


def _percent(fraction: float) -> str:
    """Return a share in percent, rounded down so that only all classes give 100%."""
    return f"{math.floor(1e4 * fraction + 1e-6) / 100:g}%"


def _low(value: float) -> str:
    """Return a lower bound as text, rounded down; bounds close to 1 are written as 1-x."""
    gap = 1 - value
    if not 1e-12 < gap < 1e-3:
        return _down(value)
    unit = 10.0 ** (math.floor(math.log10(gap)) - 1)
    return f"1-{math.ceil(gap / unit) * unit:.1e}"


def _high(value: float) -> str:
    """Return an upper bound with four significant digits, never rounded downwards.

    >>> _high(-0.11504), _high(0.81121), _high(0.0)
    ('-0.115', '0.8113', '0')
    """
    if value == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def _down(value: float) -> str:
    """Return a lower bound with four digits, rounded down."""
    return f"{math.floor(value * 10000) / 10000:.4f}"


def _up(value: float) -> str:
    """Return an upper bound with four digits, rounded up."""
    return f"{math.ceil(value * 10000) / 10000:.4f}"

"""A certificate as a table and a sentence for the terminal."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.text import number
from nclab.theory.certificates.bound import Bound

if TYPE_CHECKING:
    from nclab.theory.certificates.certificate import Certificate


class _Row(NamedTuple):
    quantity: str
    guaranteed: str
    measured: str = ""
    thesis: str = ""
    ideal: str = "1"


def certificate_table(certificate: "Certificate") -> Group:
    """Guaranteed beside measured, the thesis's constants beside both, and what it means."""
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
    head = (
        f"loss {certificate.loss:.6g}, best for alpha * beta = "
        f"{certificate.alpha * certificate.beta:.4g}: {certificate.optimal_loss:.6g}, "
        f"excess {certificate.excess_loss:.3g}"
    )
    if (by_samples := certificate.any_counts) is not None:
        head += (
            f"\nmean over samples {by_samples.loss:.6g}, best for these counts: "
            f"{by_samples.optimal_loss:.6g}, excess {by_samples.excess_loss:.3g}"
        )
    names = ("alignment_lower", "intra_lower", "inter_upper", "thesis_intra_lower")
    reasons = [(name, getattr(certificate, name).reason) for name in names]
    lines = [Text(f"– {name}: {reason}", style="dim") for name, reason in reasons if reason]
    return Group(Text(head), table, *lines, Text(in_words(certificate)))


def in_words(certificate: "Certificate") -> str:
    """What the certificate means, as sentences.

    >>> from nclab.theory.certificates.certificate import certify
    >>> print(in_words(certify(10, 2.0, 2.5, 2.0)))
    At this loss nothing is guaranteed: a whole class could be lost.
    """
    alignment, intra = certificate.fraction_alignment_lower, certificate.fraction_intra_lower
    if not alignment.valid or alignment.value is None:
        return "At this loss nothing is guaranteed: a whole class could be lost."
    who = (
        "Every class" if certificate.fraction == 1 else f"{certificate.fraction:.0%} of the classes"
    )
    text = (
        f"{who}: the mean feature has cosine at least {_down(alignment.value)} with its classifier"
    )
    if intra.valid and intra.value is not None:
        text += f", and two features have cosine at least {_down(intra.value)} on average"
    text += "."
    inter = certificate.inter_upper
    if inter.valid and inter.value is not None:
        text += f" Features of any two classes have cosine at most {_up(inter.value)} on average."
    else:
        text += " How far apart two classes are is not guaranteed."
    most = certificate.fraction_inter_upper
    if certificate.fraction < 1 and most.valid and most.value is not None:
        text += (
            f" In {certificate.fraction:.0%} of the pairs of classes it is guaranteed: there "
            f"features have cosine at most {_up(most.value)} on average."
        )
    if certificate.class_intra_lower is not None:
        mean = float(certificate.class_intra_lower.mean())
        text += (
            f" By their own losses the classes have intra-class cosines of at least {_down(mean)}, "
            "averaged over classes."
        )
    return text


def _rows(certificate: "Certificate", measured: Mapping[str, float | None] | None) -> list[_Row]:
    def seen(name: str) -> str:
        return number(measured.get(name), near=1.0) if measured is not None else ""

    share, thesis = f" ({certificate.fraction:.0%})", _cell(certificate.thesis_intra_lower, ">=")
    alignment, intra = (
        _cell(bound, ">=") for bound in (certificate.alignment_lower, certificate.intra_lower)
    )
    beside = thesis if certificate.fraction == 1 else ""
    rows = [
        _Row("alignment, all classes", alignment, seen("nc3_alignment_min")),
        _Row("intra cosine, all classes", intra, seen("min_intra"), beside),
    ]
    if certificate.fraction < 1:
        intra = _cell(certificate.fraction_intra_lower, ">=")
        rows.append(_Row("alignment" + share, _cell(certificate.fraction_alignment_lower, ">=")))
        rows.append(_Row("intra cosine" + share, intra, thesis=thesis))
    if certificate.class_intra_lower is not None:
        mean = float(certificate.class_intra_lower.mean())
        least = f">= {_low(mean)}" if mean > 0 else "none"
        rows.append(_Row("intra cosine, class mean", least, seen("mean_intra")))
    inter, thesis = (
        _cell(bound, "<=") for bound in (certificate.inter_upper, certificate.thesis_inter_upper)
    )
    ideal = number(-1 / (certificate.num_classes - 1))
    rows.append(_Row("inter cosine, all pairs", inter, seen("max_inter"), thesis, ideal))
    if certificate.fraction < 1:
        most = _cell(certificate.fraction_inter_upper, "<=")
        rows.append(_Row("inter cosine" + share, most, ideal=ideal))
    rows.append(_Row("joint deviation D", _cell(certificate.deviation_upper, "<="), ideal="0"))
    if certificate.any_counts is not None:
        within = _cell(certificate.any_counts.within_upper, "<=")
        share = seen("within_share")
        rows.append(_Row("within classes, any counts", within, share, ideal="0"))
    return rows


def _cell(bound: Bound, sign: str) -> str:
    vacuous = "vacuous" in bound.reason
    if bound.value is None or (sign == ">=" and (vacuous or not bound.valid)):
        return "none"
    if vacuous:
        return f"vacuous ({number(bound.value)})"
    return f">= {_low(bound.value)}" if sign == ">=" else f"<= {_high(bound.value)}"


def _low(value: float) -> str:
    """A lower bound, shown by its distance from 1 where it is close, never rounded upwards."""
    gap = 1 - value
    if not 1e-12 < gap < 1e-3:
        return _down(value)
    unit = 10.0 ** (math.floor(math.log10(gap)) - 1)
    return f"1-{math.ceil(gap / unit) * unit:.1e}"


def _high(value: float) -> str:
    """An upper bound with four significant digits, never rounded downwards.

    >>> _high(-0.11504), _high(0.81121), _high(0.0)
    ('-0.115', '0.8113', '0')
    """
    if value == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 3)
    return f"{math.ceil(value / unit) * unit:.4g}"


def _down(value: float) -> str:
    """Four digits, rounded towards the safe side of a lower bound."""
    return f"{math.floor(value * 10000) / 10000:.4f}"


def _up(value: float) -> str:
    """Four digits, rounded towards the safe side of an upper bound."""
    return f"{math.ceil(value * 10000) / 10000:.4f}"

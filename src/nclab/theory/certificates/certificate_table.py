"""A certificate as a table and a sentence for the terminal."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.text import number
from nclab.theory.certificates.bound import Bound

if TYPE_CHECKING:
    from nclab.theory.certificates.certificate import Certificate

Measured = Mapping[str, float | None]


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
    lines = [
        Text(
            f"loss {certificate.loss:.6g}, best for alpha * beta = "
            f"{certificate.alpha * certificate.beta:.4g}: {certificate.optimal_loss:.6g}, "
            f"excess {certificate.excess_loss:.3g}"
        )
    ]
    lines += [Text(f"– {text}", style="dim") for text in _reasons(certificate)]
    return Group(lines[0], table, *lines[1:], Text(in_words(certificate)))


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


def _rows(certificate: "Certificate", measured: Measured | None) -> list[tuple[str, ...]]:
    def seen(name: str) -> str:
        return number(measured.get(name), near=1.0) if measured is not None else ""

    share = f" ({certificate.fraction:.0%})"
    rows: list[tuple[str, ...]] = [
        (
            "alignment, all classes",
            _cell(certificate.alignment_lower, ">="),
            seen("nc3_alignment_min"),
            "",
            "1",
        ),
        (
            "intra cosine, all classes",
            _cell(certificate.intra_lower, ">="),
            seen("min_intra"),
            _cell(certificate.thesis_intra_lower, ">=") if certificate.fraction == 1 else "",
            "1",
        ),
    ]
    if certificate.fraction < 1:
        rows += [
            ("alignment" + share, _cell(certificate.fraction_alignment_lower, ">="), "", "", "1"),
            (
                "intra cosine" + share,
                _cell(certificate.fraction_intra_lower, ">="),
                "",
                _cell(certificate.thesis_intra_lower, ">="),
                "1",
            ),
        ]
    if certificate.class_intra_lower is not None:
        mean = float(certificate.class_intra_lower.mean())
        rows.append(
            (
                "intra cosine, class mean",
                f">= {_low(mean)}" if mean > 0 else "none",
                seen("mean_intra"),
                "",
                "1",
            )
        )
    rows += [
        (
            "inter cosine, all pairs",
            _cell(certificate.inter_upper, "<="),
            seen("max_inter"),
            _cell(certificate.thesis_inter_upper, "<="),
            number(-1 / (certificate.num_classes - 1)),
        ),
    ]
    if certificate.fraction < 1:
        rows.append(
            (
                "inter cosine" + share,
                _cell(certificate.fraction_inter_upper, "<="),
                "",
                "",
                number(-1 / (certificate.num_classes - 1)),
            )
        )
    rows.append(("joint deviation D", _cell(certificate.deviation_upper, "<="), "", "", "0"))
    return rows


def _cell(bound: Bound, sign: str) -> str:
    vacuous = bound.value is None or "vacuous" in bound.reason
    if vacuous or (not bound.valid and sign == ">="):
        return "none" if bound.value is None or sign == ">=" else f"vacuous ({number(bound.value)})"
    if sign == ">=" and bound.value is not None:
        return f">= {_low(bound.value)}"
    assert bound.value is not None
    return f"<= {_high(bound.value)}"


def _reasons(certificate: "Certificate") -> list[str]:
    names = ["alignment_lower", "intra_lower", "inter_upper", "thesis_intra_lower"]
    if certificate.fraction < 1:
        names.append("fraction_inter_upper")
    bounds = [(name, getattr(certificate, name)) for name in names]
    return [f"{name}: {bound.reason}" for name, bound in bounds if bound.reason]


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

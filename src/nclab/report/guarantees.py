"""The recorded certificate of a run next to the measured values, as rows for a page."""

from collections.abc import Mapping
from typing import Any

from nclab.records.schema import last_layer

NOTHING = "This loss guarantees nothing for a single class: a whole class could be misclassified."
OLDER = "No certificate: this run was recorded by a version without certificates."
ROWS = (
    ("cos(classifier, mean) ≥", "alignment_lower", "nc3_alignment_min"),
    ("intra ≥", "intra_lower", "min_intra"),
    ("inter ≤", "inter_upper", "max_inter"),
)
"""Name on the page, bound of the certificate, and metric that is bounded."""


def guarantees(measurement: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the certificate of the last layer as rows for a page.

    >>> certificate = {"excess_loss": 0.01, "alignment_lower": 0.9, "intra_lower": 0.8}
    >>> layer = {"num_classes": 4, "balanced_loss": 0.05, "min_intra": 0.9}
    >>> found = guarantees({"layers": [{**layer, "certificate": certificate}]})
    >>> found["rows"][1]["guaranteed"], found["rows"][1]["measured"]
    (0.8, 0.9)
    >>> guarantees({"layers": [layer]})["words"]
    'No certificate: this run was recorded by a version without certificates.'
    """
    layer = last_layer(measurement)
    if _number(layer.get("balanced_loss")) is None:
        return None
    certificate, classes = layer.get("certificate"), _number(layer.get("num_classes"))
    if not isinstance(certificate, dict) or classes is None or classes < 2:
        notes = layer.get("notes")
        why = notes.get("certificate") if isinstance(notes, dict) else None
        return {"rows": [], "words": str(why or OLDER), "classes": None}
    reasons = certificate.get("reasons")
    searched = not isinstance(reasons, dict) or reasons.get("inter_upper") != "not searched"
    rows = [
        {
            "quantity": name,
            "guaranteed": _number(certificate.get(bound)),
            "otherwise": "nothing" if searched or bound != "inter_upper" else "not searched",
            "measured": _number(layer.get(measured)),
            "thesis": _number(certificate.get(f"thesis_{bound}")),
            "collapse": -1 / (classes - 1) if bound == "inter_upper" else 1.0,
        }
        for name, bound, measured in ROWS
    ]
    within = _number(certificate.get("within_upper"))
    if within is not None:
        share = _number(certificate.get("within_share"))
        rows.append(
            {
                "quantity": "within-class share of the variance ≤",
                "guaranteed": within,
                "otherwise": "nothing",
                "measured": share,
                "thesis": None,
                "collapse": 0.0,
            }
        )
    promised, seen = _numbers(certificate.get("class_intra_lower")), layer.get("intra_cosine")
    every: dict[str, Any] | None = None
    if promised and seen:
        every = {"guaranteed": promised, "measured": seen}
        names = list(class_names(layer).values())
        every |= {"names": names} if len(names) == len(promised) else {}
    return {"rows": rows, "words": _words(certificate, promised), "classes": every}


def class_names(layer: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the measured classes by number; empty if the record has no names.

    >>> class_names({"classes": [0, 2], "class_names": ["cat", "fox"]})
    {'0': 'cat', '2': 'fox'}
    """
    numbers, names = layer.get("classes"), layer.get("class_names")
    if not (isinstance(numbers, list) and isinstance(names, list) and len(numbers) == len(names)):
        return {}
    return {str(number): str(name) for number, name in zip(numbers, names, strict=True)}


def _words(certificate: Mapping[str, Any], promised: list[float]) -> str:
    excess = _number(certificate.get("excess_loss")) or 0.0
    words = f"The loss is {excess:.3g} above the lowest loss that these norms allow. "
    if (by_samples := _number(certificate.get("samples_excess_loss"))) is not None:
        words = (
            f"The loss is {excess:.3g} above the lowest loss that these norms allow if every class "
        )
        words += f"has equal weight, and at most {by_samples:.3g} above it if every sample has. "
    rho = _number(certificate.get("alignment_lower"))
    words += (
        NOTHING
        if rho is None
        else f"Every class mean has a cosine of at least {rho:.4f} with its classifier row."
    )
    mean = sum(promised) / max(len(promised), 1)
    if mean > 0:
        words += (
            f" From the loss of each class follows a cosine within the class of at least {mean:.4f}"
        )
        words += " on average over classes."
    return words


def _numbers(values: Any) -> list[float]:
    known = [_number(value) for value in values] if isinstance(values, list) else []
    return [value for value in known if value is not None]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None

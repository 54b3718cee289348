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
    >>> card = guarantees({"layers": [{**layer, "certificate": certificate}]})
    >>> card["rows"][1]["guaranteed"], card["rows"][1]["measured"]
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
            "measured": _number(layer.get(metric)),
            "thesis": _number(certificate.get(f"thesis_{bound}")),
            "collapse": -1 / (classes - 1) if bound == "inter_upper" else 1.0,
        }
        for name, bound, metric in ROWS
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
    bounds, measured = certificate.get("class_intra_lower"), layer.get("intra_cosine")
    numbers = map(_number, bounds if isinstance(bounds, list) else [])
    guaranteed = [value for value in numbers if value is not None]
    classes_card: dict[str, Any] | None = None
    if guaranteed and measured:
        classes_card = {"guaranteed": guaranteed, "measured": measured}
        names = list(class_names(layer).values())
        classes_card |= {"names": names} if len(names) == len(guaranteed) else {}
    return {"rows": rows, "words": _explain(certificate, guaranteed), "classes": classes_card}


def class_names(layer: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the measured classes by number; empty if the record has no names.

    >>> class_names({"classes": [0, 2], "class_names": ["cat", "fox"]})
    {'0': 'cat', '2': 'fox'}
    """
    numbers, names = layer.get("classes"), layer.get("class_names")
    if not (isinstance(numbers, list) and isinstance(names, list) and len(numbers) == len(names)):
        return {}
    return {str(number): str(name) for number, name in zip(numbers, names, strict=True)}


def _explain(certificate: Mapping[str, Any], class_bounds: list[float]) -> str:
    """Return the certificate in sentences; `class_bounds` are the bounds within each class."""
    excess = _number(certificate.get("excess_loss")) or 0.0
    loss = f"The loss is {excess:.3g} above the lowest loss that these norms allow"
    if (by_samples := _number(certificate.get("samples_excess_loss"))) is not None:
        loss += " if every class has equal weight, "
        loss += f"and at most {by_samples:.3g} above it if every sample has"
    rho, alignment = _number(certificate.get("alignment_lower")), NOTHING
    if rho is not None:
        alignment = f"Every class mean has a cosine of at least {rho:.4f} with its classifier row."
    text = f"{loss}. {alignment}"
    mean = sum(class_bounds) / max(len(class_bounds), 1)
    if mean > 0:
        text += " From the loss of each class follows a cosine within the class of at least "
        text += f"{mean:.4f} on average over classes."
    return text


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None

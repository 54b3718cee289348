"""Names of classes, beside their numbers in every table, picture and page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.rare import SHOWN

LEFT_OUT = "Left out {} classes without samples:"
"""How the warning begins that lists classes by their numbers."""
ClassNames = Sequence[str] | Mapping[int, str] | None
"""In the order of the class numbers, or by number, as `config.id2label` has them."""


def as_class_names(names: ClassNames) -> tuple[str, ...] | None:
    """The names in order.

    >>> as_class_names({1: "dog", 0: "cat"})
    ('cat', 'dog')
    """
    if names is None:
        return None
    if isinstance(names, Mapping):
        if sorted(names) != list(range(len(names))):
            raise DataError(
                f"Expected class_names of the numbers 0 to {len(names) - 1}, got "
                f"{', '.join(map(str, list(names)[:10]))}."
            )
        names = [names[number] for number in range(len(names))]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise DataError(
            f"Expected class_names= a list of names, one a class, got a {type(names).__name__}."
        )
    found = tuple(str(name) for name in names)
    if len(set(found)) < len(found) or len(found) < 2:
        twice = next((name for name in found if found.count(name) > 1), "")
        raise DataError(
            f"Expected class_names= at least 2 different names, got "
            f"{f'{twice!r} twice' if twice else len(found)}."
        )
    return found


def named(collapse: Collapse, names: tuple[str, ...] | None, split: str | None = None) -> Collapse:
    """The measurement with the names of its classes, and of its data."""
    if names is None:
        return collapse if split is None else replace(collapse, split=split)
    own = tuple(names[number] for number in collapse.classes)
    known = {*own, *(names[number] for number in collapse.left_out)}
    missing = [name for name in names if name not in known]
    told = tuple(
        f"{LEFT_OUT.format(len(missing))} {', '.join(missing[:10])}."
        if missing and text.startswith(LEFT_OUT.format(len(missing)))
        else text
        for text in collapse.warnings
    )
    if collapse.left_out:  # "...: [5, 9]."
        rare = ", ".join(names[number] for number in collapse.left_out[:SHOWN])
        begins = f"Left out {len(collapse.left_out)} classes with fewer"
        told = tuple(
            f"{text.rpartition(': ')[0]}: {rare}." if text.startswith(begins) else text
            for text in told
        )
    return replace(collapse, class_names=own, split=split, warnings=told)

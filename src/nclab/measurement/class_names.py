"""Names of classes, beside their numbers in every table, picture and page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.rare import SHOWN

LEFT_OUT = "Left out {} classes without samples:"
"""How the warning begins that lists classes by their numbers."""
ClassNames = Sequence[str] | Mapping[int, str] | Mapping[str, str] | None
"""In the order of the class numbers, or by number, as `config.id2label` has them; the numbers may
be text, as JSON keeps them."""


def as_class_names(names: ClassNames) -> tuple[str, ...] | None:
    """The names in order.

    >>> as_class_names({1: "dog", 0: "cat"})
    ('cat', 'dog')
    """
    if names is None:
        return None
    if isinstance(names, Mapping):
        by_number: dict[object, str] = {_number(key): name for key, name in names.items()}
        if set(by_number) != set(range(len(names))):
            raise DataError(
                f"Expected class_names of the numbers 0 to {len(names) - 1}, got "
                f"{', '.join(map(repr, list(names)[:10]))}. Pass {{number: name}}, or a list of "
                "the names in order."
            )
        names = [by_number[number] for number in range(len(names))]
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


def _number(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def check_count(names: tuple[str, ...] | None, count: int | None, what: str) -> None:
    """Refuse names that are more or fewer than the classes.

    >>> check_count(("cat", "dog"), 3, "rows of weight")
    Traceback (most recent call last):
    nclab.errors.DataError: Expected a name for each of the 3 rows of weight, got 2 class_names.
    """
    if names is not None and count is not None and len(names) != count:
        raise DataError(
            f"Expected a name for each of the {count} {what}, got {len(names)} class_names."
        )


def check_labels(names: tuple[str, ...] | None, labels: Tensor, ignore_index: int | None) -> None:
    """Refuse class numbers without a name; what else is wrong with labels others say."""
    if names is None or labels.dtype.is_floating_point or not labels.numel():
        return
    highest = int(labels.max())
    if highest >= len(names) and highest != ignore_index:
        raise DataError(
            f"Expected a name for every class, got {len(names)} class_names and the label "
            f"{highest}. Pass at least {highest + 1} class_names."
        )


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

"""--counts: samples of every class, as words."""

from nclab.errors import DataError

COUNTS = "Samples of every class: 10,10,1,1 or 5x100,5x1 (five of a hundred…)."


def read_counts(text: str) -> list[float]:
    """10,10,1 or 2x10,1.

    >>> read_counts("2x10,1")
    [10.0, 10.0, 1.0]
    """
    from nclab.theory.targets.setting import MOST_CLASSES

    found: list[float] = []
    for part in text.split(","):
        many, cross, each = part.rpartition("x")
        try:
            count, times = float(each), int(many) if cross else 1
        except ValueError:
            raise DataError(
                f"Expected --counts as 10,10,1 or 2x10,1, got {part.strip()!r}."
            ) from None
        if not 1 <= times <= MOST_CLASSES:
            raise DataError(
                f"Expected 1 to {MOST_CLASSES} classes before the x of --counts, "
                f"got {part.strip()!r}."
            )
        found += [count] * times
    return found

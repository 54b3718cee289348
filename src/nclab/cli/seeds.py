"""Seeds as they are typed, the same in every command: a list with commas, or a range first:end.

A lone number means how many to `reproduce`, as ever; to `sweep`, where it once was one seed, it
says nothing clear and is refused.
"""

from nclab.errors import NclabError

MOST = 1000


def listed_seeds(given: str) -> tuple[int, ...] | None:
    """The seeds of a list or a range; None for a lone number.

    >>> listed_seeds("0,3"), listed_seeds("2,"), listed_seeds("4:7"), listed_seeds("2")
    ((0, 3), (2,), (4, 5, 6), None)
    """
    if ":" in given:
        first, end = (_number(part, given) for part in _pair(given))
        if not 0 < end - first <= MOST:
            raise NclabError(f"Expected --seeds first:end with up to {MOST} seeds, got {given!r}.")
        return tuple(range(first, end))
    if "," not in given:
        _number(given, given)
        return None
    seeds = tuple(_number(part, given) for part in given.split(",") if part.strip())
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected --seeds without repetition, got {given!r}.")
    return seeds


def _pair(given: str) -> tuple[str, str]:
    first, _, end = given.partition(":")
    return first, end


def _number(part: str, given: str) -> int:
    try:
        number = int(part)
    except ValueError:
        raise NclabError(f"Expected integers in --seeds, got {part.strip() or given!r}.") from None
    if not 0 <= number < 2**63:
        raise NclabError(f"Expected seeds of 0 or more in --seeds, got {number}.")
    return number

"""All ways in which one value of a JSON file can be wrong."""

import copy
from collections.abc import Iterator
from typing import Any

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**400, -(10**400), float("inf"), 1e308, 5e-324),
    *("", "text", "\ud800", [], [1], [None], [[1, 2]], ["a"], [10**400], {}, {"a": {"b": 1}}),
)


def damaged(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one part is missing or has another type."""
    for path in _paths(value):
        for wrong in (*WRONG, KeyError):
            spoiled = copy.deepcopy(value)
            place = spoiled
            for key in path[:-1]:
                place = place[key]
            if wrong is KeyError:
                del place[path[-1]]
            else:
                place[path[-1]] = wrong
            yield spoiled


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(min(2, len(value)))
    for key in keys:
        yield (key,)
        if isinstance(value[key], dict | list):
            yield from ((key, *path) for path in _paths(value[key]))

"""Attacks on claims: changes of numbers and code after which the verdict on a claim must change.

A paper's folder contains a module `attacks` with the constant `ATTACKS`, an instance of `Attacks`.
The tests of all papers read the constant, so a new paper needs no other test.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nclab.claims.claim import Claim

Numbers = dict[str, Any]
Row = dict[str, Any]
Change = Callable[[Numbers], Numbers]
Case = Callable[[Claim, Numbers], Numbers]

TOO_SMALL = 0.8
"""Size of a weakened effect, as a multiple of the margin of its claim."""


@dataclass(frozen=True)
class Attacks:
    """Test data of a paper.

    The tests try three attacks on every claim. *Spoiled numbers* contradict the claim. *Shuffled
    arms*: the settings that a claim compares, its arms, change places in every other seed, so a
    claim about their order must lose its effect. *Wrong code*: the function that the claim links
    to returns a constant, the negative or 1.5 times its values. The verdict must change each time.
    """

    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Claim that needs no experiment -> expected verdict and the reason for it."""
    ideal: Mapping[str, Callable[[], Numbers]] = field(default_factory=dict)
    """Experiment -> function that returns numbers exactly as the paper describes them."""
    spoiled: Mapping[str, Change] = field(default_factory=dict)
    """Claim -> change after which the numbers contradict the claim."""
    shuffled: Mapping[str, Change] = field(default_factory=dict)
    """Empirical claim -> change that shuffles the compared arms."""
    not_shuffled: Mapping[str, str] = field(default_factory=dict)
    """Empirical claim without arms to shuffle -> reason."""
    wrong_code: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    """Empirical claim -> cases whose verdicts reveal wrong code; by default the ideal numbers."""
    no_code: Mapping[str, str] = field(default_factory=dict)
    """Claim that links no code -> reason."""
    unnoticed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Claim and kind of wrong code that leaves the claim true -> reason."""
    tiny: Mapping[str, Any] = field(default_factory=dict)
    """Experiment -> configuration that runs within seconds."""


def put(path: str, value: Any) -> Change:
    """Return a change that sets the value at a dotted path.

    A part of the path may be an index, or * for every element. A function is applied to the old
    value.

    >>> put("rows.*.loss", lambda loss: 2 * loss)({"rows": [{"loss": 1}, {"loss": 3}]})
    {'rows': [{'loss': 2}, {'loss': 6}]}
    """

    def change(numbers: Numbers) -> Numbers:
        changed = copy.deepcopy(dict(numbers))
        containers: list[Any] = [changed]
        *parts, last = path.split(".")
        for part in parts:
            if part == "*":
                containers = [child for container in containers for child in container]
            else:
                containers = [
                    container[int(part) if isinstance(container, list) else part]
                    for container in containers
                ]
        for container in containers:
            key: Any = int(last) if isinstance(container, list) else last
            if not isinstance(container, list) and key not in container:
                raise KeyError(f"Expected {last} at {path}, got {sorted(container)}.")
            container[key] = value(container[key]) if callable(value) else value
        return changed

    return change


def change_rows(key: str, change: Callable[[Row], Row], *, every: int = 1) -> Change:
    """Return a change of fields of the rows under a key; the rows may be stored as columns.

    Args:
        every: 2 changes only the rows of odd seeds.
    """

    def changed(numbers: Numbers) -> Numbers:
        content = numbers[key]
        is_columns = isinstance(content, dict)
        rows = content
        if is_columns:
            rows = [
                dict(zip(content, cells, strict=True))
                for cells in zip(*content.values(), strict=True)
            ]
        rows = [
            {**row, **change(dict(row))} if every == 1 or row["seed"] % every else row
            for row in rows
        ]
        if is_columns:
            rows = {name: [row[name] for row in rows] for name in content}
        return {**numbers, key: rows}

    return changed


def change_where(key: str, column: str, value: Any, **match: Any) -> Change:
    """Return a change of one column in the rows with the given values of other columns.

    Args:
        value: the new value, or a function of the row.
    """

    def change(row: Row) -> Row:
        if any(row[name] != wanted for name, wanted in match.items()):
            return {}
        return {column: value(row) if callable(value) else value}

    return change_rows(key, change)


def scaled(key: str, *columns: str) -> Callable[[float], Change]:
    """Return a function from a factor to a change that multiplies some columns by it."""
    return lambda factor: change_rows(
        key, lambda row: {column: factor * row[column] for column in columns}
    )


def exchange(key: str, column: str, names: Mapping[Any, Any]) -> Change:
    """Return a change that renames the arms in every other seed, so that no effect remains.

    Half of the seeds then show the effect and half the opposite effect, so the mean is about zero.
    """
    return change_rows(key, lambda row: {column: names.get(row[column], row[column])}, every=2)


def reverse(key: str, column: str) -> Change:
    """Return a change that reverses the order of a column's values in every other seed."""
    return lambda numbers: exchange(key, column, opposite({row[column] for row in numbers[key]}))(
        numbers
    )


def swap(key: str, first: str, second: str) -> Change:
    """Return a change that swaps two columns in every other seed."""
    return change_rows(key, lambda row: {first: row[second], second: row[first]}, every=2)


def opposite(values: Any) -> dict[Any, Any]:
    """Map each value to the one at its position in the opposite order."""
    return dict(zip(sorted(values), sorted(values, reverse=True), strict=True))


def unchanged(claim: Claim, numbers: Numbers) -> Numbers:
    """Return the ideal numbers, as a case for wrong code."""
    return numbers


def changed(change: Change) -> Case:
    """Return a case for wrong code that changes the ideal numbers."""
    return lambda claim, numbers: change(numbers)


def weakened(scale: Callable[[float], Change]) -> Case:
    """Return a case for wrong code in which the effect is just too small for the claim.

    Wrong code that multiplies the effect by 1.5 then makes it larger than the margin.

    Args:
        scale: function from a factor to a change that multiplies the effect by about this factor.
    """
    factors: dict[str, float] = {}

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        if claim.id not in factors:
            factor = 1.0
            for _ in range(4):  # the effect need not be proportional to the factor
                effect = claim.judge(scale(factor)(numbers)).numbers
                factor *= TOO_SMALL * effect["margin"] / effect["estimate"]
            factors[claim.id] = factor
        return scale(factors[claim.id])(numbers)

    return case

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
"""Size of the effect that remains after `weakened`, as a share of the margin of the claim."""


@dataclass(frozen=True)
class Attacks:
    """Three attacks on every claim of a paper, each of which must change the verdict.

    *Spoiled numbers*: the numbers of the experiment are changed so that they contradict the claim.
    *Shuffled arms*: an arm is one of the settings that a claim compares. The arms are exchanged in
    every second seed, so that no difference between them remains. *Wrong code*: the function that
    `Claim.code` names returns a constant, or its values times -1 or 1.5.
    """

    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For every claim that needs no experiment: the expected verdict and the reason for it."""
    ideal: Mapping[str, Callable[[], Numbers]] = field(default_factory=dict)
    """For every experiment: a function that returns numbers exactly as the paper describes them."""
    spoiled: Mapping[str, Change] = field(default_factory=dict)
    """For every claim: a change after which the numbers contradict the claim."""
    shuffled: Mapping[str, Change] = field(default_factory=dict)
    """For empirical claims: a change that shuffles the compared arms."""
    not_shuffled: Mapping[str, str] = field(default_factory=dict)
    """For empirical claims that compare no arms: the reason why nothing can be shuffled."""
    wrong_code: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    """For empirical claims: functions that compute numbers; by default one that returns the ideal
    numbers. With wrong code, the verdict must differ for at least one of these functions."""
    no_code: Mapping[str, str] = field(default_factory=dict)
    """For every claim without `Claim.code`: the reason why it has none."""
    unnoticed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """For a claim and a kind of wrong code: the reason why the verdict does not change."""
    tiny: Mapping[str, Any] = field(default_factory=dict)
    """For every experiment: a configuration that runs within seconds."""


def put(path: str, value: Any) -> Change:
    """Return a change (a function from numbers to new numbers) that sets one value, by dotted path.

    A part of the path may be an index, or * for every element. If `value` is a function, it is
    called with the old value.

    >>> put("rows.*.loss", lambda loss: 2 * loss)({"rows": [{"loss": 1}, {"loss": 3}]})
    {'rows': [{'loss': 2}, {'loss': 6}]}
    """

    def change(numbers: Numbers) -> Numbers:
        changed = copy.deepcopy(dict(numbers))
        _put(changed, path.split("."), value)
        return changed

    return change


def _put(container: Any, path: Sequence[str], value: Any) -> None:
    """Set the value at a path inside a container; raise if there is no such path."""
    first, *rest = path
    for part in range(len(container)) if first == "*" else [first]:
        key = int(part) if isinstance(container, list) else part
        old = container[key]
        if rest:
            _put(old, rest, value)
        else:
            container[key] = value(old) if callable(value) else value


def change_rows(key: str, change: Callable[[Row], Row], *, every: int = 1) -> Change:
    """Return a change that gives new values to the rows in `numbers[key]`.

    The rows are a list of dictionaries or a dictionary of columns.

    Args:
        change: function from a row to the fields that get new values.
        every: 1 changes all rows; n > 1 skips the rows whose seed is a multiple of n.
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
    """Return a change that sets one column in the rows whose other columns have the values `match`.

    Args:
        value: the new value, or a function of the row.
    """

    def change(row: Row) -> Row:
        if any(row[name] != wanted for name, wanted in match.items()):
            return {}
        return {column: value(row) if callable(value) else value}

    return change_rows(key, change)


def scaled(key: str, *columns: str) -> Callable[[float], Change]:
    """Return a function `scale`; the change `scale(factor)` multiplies some columns by the factor.

    `weakened` needs such a function.
    """
    return lambda factor: change_rows(
        key, lambda row: {column: factor * row[column] for column in columns}
    )


def exchange(key: str, column: str, names: Mapping[Any, Any]) -> Change:
    """Return a change that exchanges the names of the arms in every second seed.

    Half of the seeds then show the effect and half the opposite effect, so the mean is about zero.

    Args:
        column: column with the name of the arm.
        names: old name -> new name.
    """
    return change_rows(key, lambda row: {column: names.get(row[column], row[column])}, every=2)


def reverse(key: str, column: str) -> Change:
    """Return a change that maps the smallest value of a column to the largest, and so on.

    Only every second seed is changed.
    """
    return lambda numbers: exchange(key, column, opposite({row[column] for row in numbers[key]}))(
        numbers
    )


def swap(key: str, first: str, second: str) -> Change:
    """Return a change that swaps two columns in every second seed."""
    return change_rows(key, lambda row: {first: row[second], second: row[first]}, every=2)


def opposite(values: Any) -> dict[Any, Any]:
    """Return a mapping of the smallest value to the largest, the second smallest to the next, …"""
    return dict(zip(sorted(values), sorted(values, reverse=True), strict=True))


def unchanged(claim: Claim, numbers: Numbers) -> Numbers:
    """Return the ideal numbers unchanged; can be an entry of `Attacks.wrong_code`."""
    return numbers


def changed(change: Change) -> Case:
    """Return a function for `Attacks.wrong_code` that applies `change` to the ideal numbers."""
    return lambda claim, numbers: change(numbers)


def weakened(scale: Callable[[float], Change]) -> Case:
    """Return a function for `Attacks.wrong_code`: its effect is 0.8 times the margin of the claim.

    Right code finds the effect too small. Wrong code that multiplies the effect by 1.5 finds 1.2
    times the margin, so the verdict changes.

    Args:
        scale: `scale(factor)` is a change that multiplies the effect by about the factor.
    """
    factors: dict[str, float] = {}

    def case(claim: Claim, numbers: Numbers) -> Numbers:
        if claim.id not in factors:
            factor = 1.0
            for _ in range(4):  # the effect need not be proportional to the factor
                effect = claim.judge(scale(factor)(numbers)).numbers
                factor *= TOO_SMALL * effect["margin"] / abs(effect["estimate"])
            factors[claim.id] = factor
        return scale(factors[claim.id])(numbers)

    return case

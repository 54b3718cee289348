"""Networks as points on a map of optima: read from a file, checked, put beside its numbers."""

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nclab.errors import DataError
from nclab.files import translate_os_errors

COLUMNS = {
    "imbalance": ("imbalance", "weight_decay"),
    "bias": ("weight_decay_share", "bias_penalty"),
    "depth": ("classes", "depth"),
}
"""By map: what places a network. `state`, what it was seen to be, is free text."""
SWEEP = {"run", "seed", "optimizer", "weight_decay"}
"""Columns by which the table of a sweep is known."""
MERGED = 0.99
"""Cosine of minority rows from which on they count as merged, where a row has no state."""


def with_points(numbers: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of a map with networks on it, each a row with `COLUMNS` and a `state`.

    On the map of imbalance a row without a state has that of its `minority_cosine`: merged or
    apart. Other columns are left alone. The `weight_decay` of a sweep's table is that of the
    weights, not t sqrt n: `nclab.training.sweep.on_maps.sweep_points` places its networks.

    >>> numbers = with_points({"map": "depth"}, [{"classes": 6, "depth": 2, "state": "orthoplex"}])
    >>> numbers["points"]
    [{'classes': 6.0, 'depth': 2.0, 'state': 'orthoplex'}]
    """
    first, second = COLUMNS[numbers["map"]]
    points = []
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(f"Expected points as rows with columns, got {row!r} in row {place}.")
        point: dict[str, Any] = {}
        for name in (first, second):
            point[name] = _positive(row.get(name), name, place, numbers["map"])
        point["state"] = str(row.get("state") or _state(row))
        points.append(point)
    if not points:
        raise DataError("Expected at least one point, got none.")
    return {**numbers, "points": points}


def read_points(path: Path) -> list[Mapping[str, Any]]:
    """Rows of a .csv with a header, or of a .json: a list, or an object with `rows` or `points`."""
    if path.suffix not in (".csv", ".json"):
        raise DataError(f"Expected points as .csv or .json, got {path.name}.")
    with translate_os_errors("read", str(path), DataError):
        text = path.read_text()
    if path.suffix == ".csv":
        table = csv.DictReader(text.splitlines())
        if set(table.fieldnames or ()) >= SWEEP:
            raise DataError(
                f"Expected weight_decay as t sqrt n, got the table of a sweep, {path.name}, which "
                "has that of the weights: pass its folder as --runs."
            )
        return list(table)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DataError(f"Expected JSON in {path.name}, got something else: {error}.") from error
    rows = (found.get("rows") or found.get("points")) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise DataError(f"Expected a list of rows in {path.name}, or one under rows or points.")
    return rows


def _positive(value: Any, name: str, place: int, kind: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        wanted = " and ".join(COLUMNS[kind])
        raise DataError(
            f"Expected positive {wanted} in every row of the points of --map {kind}, got "
            f"{name} = {value!r} in row {place}."
        )
    return number


def _state(row: Mapping[str, Any]) -> str:
    try:
        cosine = float(row.get("minority_cosine"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "network"
    return "merged" if cosine >= MERGED else "apart"

"""Maps of settings at which the optimum changes, with networks drawn as points."""

import csv
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from nclab.errors import DataError
from nclab.files import translate_os_errors
from nclab.theory.targets.deep_linear import shape_value, shapes
from nclab.theory.targets.program import class_logits, program_of_counts
from nclab.theory.targets.program_solver import solve
from nclab.theory.targets.result import cosines
from nclab.theory.targets.setting import check_setting, factor_grams

STEPS = 25


def imbalance_map(*, large: int = 5, small: int = 5, steps: int = STEPS) -> dict[str, Any]:
    r"""Return the cosine between minority classifier rows by imbalance and weight decay.

    There are `large` classes of R samples and `small` classes of one; the weight decay is
    $t\sqrt n$. Minority classes
    merge from $t = \sqrt{n_g}/n$ on, everything is zero from
    $\|PD^{1/2}\|_2/n$ on.
    """
    ratios = [10 ** (2 * k / (steps - 1)) for k in range(steps)]
    decays = [10 ** (-4 + 3.7 * k / (steps - 1)) for k in range(steps)]
    rows, merging, zeros = [], [], []
    for ratio in ratios:
        counts = torch.tensor([ratio] * large + [1.0] * small, dtype=torch.float64)
        n = float(counts.sum())
        merging.append(1 / math.sqrt(n))
        D = counts.sqrt()
        zeros.append(float(torch.linalg.matrix_norm(torch.diag(D) - D / len(D), 2)) / math.sqrt(n))
        row: list[float | None] = []
        for decay in decays:
            if decay >= zeros[-1]:
                row.append(None)
                continue
            program, group = program_of_counts(counts, decay / math.sqrt(n))
            if not bool(program.distinct[-1]):  # the minority classes coincide, perhaps at zero
                row.append(1.0)
                continue
            gram, _, _ = factor_grams(class_logits(solve(program, gap=1e-7).point, group), counts)
            row.append(float(cosines(gram)[-1, -2]))
        rows.append(row)
    return {
        "map": "imbalance",
        "ratios": ratios,
        "weight_decays": decays,
        "cosines": rows,
        "merge_at": merging,
        "zero_at": zeros,
        "classes": [large, small],
    }


def bias_map(*, num_classes: int = 10, steps: int = 2 * STEPS) -> dict[str, Any]:
    r"""Return the cosine between classes under mean squared error by bias penalty and weight decay.

    $$\cos = \frac{s_0-s_1}{s_0+(C-1)s_1},\qquad s_1 = (\sqrt m-nt)_+,\quad
    s_0 = (\sqrt m - nt(1+\lambda_b)/\lambda_b)_+$$

    with u = nt / sqrt m, the weight decay relative to the critical one, at which all is zero.
    """
    shares = [0.01 + 0.98 * k / (steps - 1) for k in range(steps)]
    penalties = [10 ** (-3 + 5 * k / (steps - 1)) for k in range(steps)]
    rows = []
    for share in shares:
        row = []
        for penalty in penalties:
            others, common = 1 - share, max(1 - share * (1 + penalty) / penalty, 0.0)
            row.append((common - others) / (common + (num_classes - 1) * others))
        rows.append(row)
    return {
        "map": "bias",
        "num_classes": num_classes,
        "shares": shares,
        "penalties": penalties,
        "cosines": rows,
        "simplex_until": [share / (1 - share) for share in shares],
    }


def depth_map(*, decay: float = 1e-3, largest: int = 20, deepest: int = 8) -> dict[str, Any]:
    """Return which known geometry is lowest under cross-entropy, by factors F and classes C.

    Every class has one sample. Zero wins if the penalty is too strong. There is no proof that no
    other geometry is lower.
    """
    classes, factors = list(range(3, largest + 1)), list(range(2, deepest + 1))
    names, rows = ["zero", "simplex ETF", "orthoplex", "polygon"], []
    for F in factors:
        row = []
        for C in classes:
            setting = check_setting(C, None, weight_decay=(decay, decay), depth=F - 1)
            values = {"zero": math.log(C)}
            for shape in shapes(C):
                values[shape.name] = shape_value(setting, shape, decay)[1]
            row.append(names.index(min(values, key=lambda name: values[name])))
        rows.append(row)
    return {
        "map": "depth",
        "weight_decay": decay,
        "classes": classes,
        "factors": factors,
        "names": names,
        "winners": rows,
    }


MAPS = {"imbalance": imbalance_map, "bias": bias_map, "depth": depth_map}


def check_map(name: str) -> None:
    """Raise if no map has this name."""
    if name not in MAPS:
        raise DataError(f"Expected a map of {', '.join(MAPS)}, got {name!r}.")


def phase_map(name: str, **options: int) -> dict[str, Any]:
    """Return the numbers of one map; `options` are those of its function.

    >>> phase_map("bias")["cosines"][0][0]  # a free bias: the simplex ETF
    -0.1111111111111111
    """
    check_map(name)
    return MAPS[name](**options)  # type: ignore[operator]


def draw_map(numbers: dict[str, Any]) -> Any:
    """Return a matplotlib figure of a map."""
    from nclab.figures.matplotlib_renderer import draw
    from nclab.figures.targets import map_picture

    return draw(map_picture(numbers))


COLUMNS = {
    "imbalance": ("imbalance", "weight_decay"),
    "bias": ("weight_decay_share", "bias_penalty"),
    "depth": ("classes", "depth"),
}
"""Columns that locate a network on each map; a column `state` is free text."""
SWEEP = {"run", "seed", "optimizer", "weight_decay"}
"""Columns that identify the table of a sweep."""
MERGED = 0.99
"""Smallest cosine of minority rows that counts as merged, for rows without a state."""


def with_points(numbers: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of a map together with networks, one row of `COLUMNS` and `state` each.

    On the map of imbalance a row without a state is merged or apart by its `minority_cosine`.
    Other columns are ignored. The `weight_decay` of a sweep's table is that of the
    weights, not t sqrt n: `nclab.training.sweep.networks_on_map.sweep_points` places its networks.

    >>> numbers = with_points({"map": "depth"}, [{"classes": 6, "depth": 2, "state": "orthoplex"}])
    >>> numbers["points"]
    [{'classes': 6.0, 'depth': 2.0, 'state': 'orthoplex'}]
    """
    first, second = COLUMNS[numbers["map"]]
    points = []
    for index, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(f"Expected points as rows with columns, got {row!r} in row {index}.")
        point: dict[str, Any] = {}
        for name in (first, second):
            point[name] = _positive(row.get(name), name, index, numbers["map"])
        point["state"] = str(row.get("state") or _state(row))
        points.append(point)
    if not points:
        raise DataError("Expected at least one point, got none.")
    return {**numbers, "points": points}


def read_points(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a .csv with a header, or of a .json.

    The .json holds a list, or an object with `rows` or `points`.
    """
    if path.suffix not in (".csv", ".json"):
        raise DataError(f"Expected points as .csv or .json, got {path.name}.")
    with translate_os_errors("read", str(path), DataError):
        text = path.read_text()
    if path.suffix == ".csv":
        table = csv.DictReader(text.splitlines())
        if set(table.fieldnames or ()) >= SWEEP:
            raise DataError(
                f"Expected weight_decay as t sqrt n, got {path.name}, a table of a sweep with the "
                "weight decay of the weights. Pass the folder of the sweep as --runs."
            )
        return list(table)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"Expected JSON in {path.name}, got text that is not: {error}.") from error
    rows = (content.get("rows") or content.get("points")) if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise DataError(f"Expected a list of rows in {path.name}, or one under rows or points.")
    return rows


def _positive(value: Any, name: str, index: int, kind: str) -> float:
    """Return a cell as a positive number, or raise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        columns = " and ".join(COLUMNS[kind])
        raise DataError(
            f"Expected positive {columns} in every row of the points of --map {kind}, got "
            f"{name} = {value!r} in row {index}."
        )
    return number


def _state(row: Mapping[str, Any]) -> str:
    """Return the state of a network from the cosine of its minority rows."""
    try:
        cosine = float(row.get("minority_cosine"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "network"
    return "merged" if cosine >= MERGED else "apart"

"""Pictures of experiments: panels built from rows, forest plots of effects, files on disk."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

from nclab.claims.claim import Verdict
from nclab.claims.judging import WEAKEST_FIRST
from nclab.claims.tables import Row, Value
from nclab.errors import MissingExtra
from nclab.figures.forest_layout import lay_out_forest
from nclab.figures.matplotlib_renderer import save
from nclab.figures.picture import (
    BLACK,
    EffectRow,
    Effects,
    Forest,
    Marker,
    Panel,
    Picture,
    Series,
    Style,
    to_json,
)
from nclab.records.results import NUMBERS, make_folder, write_json

EFFECT_COLOURS = {"reproduced": 2, "contradicted": 1, "no effect": 4}
"""Palette index of an effect by verdict; undecided effects have index 0."""
ROW_INCHES = 0.165
"""Height of a row of a forest plot."""
GROUP_SHIFT = 0.2
"""Distance between neighbouring groups of a panel of points."""
SEED_CAPTION = "Lines: mean over the seeds. Bands: from the smallest to the largest seed."


class Line(NamedTuple):
    """Description of a curve: its label, the value to draw, the rows to use, and the style."""

    label: str
    value: str | Value
    """Name of a field, or a function of the row; rows with None are left out."""
    where: Mapping[str, Any] = MappingProxyType({})
    """Values of fields that select the rows; empty for all rows."""
    colour: int = 0
    style: Style = "solid"
    marker: Marker = "filled"

    def value_of(self, row: Row) -> float | None:
        """Return the value of a row; None if the row has no value."""
        value = row[self.value] if isinstance(self.value, str) else self.value(row)
        return None if value is None else float(value)


class Points(NamedTuple):
    """Description of a group of points with error bars, one point for each named position."""

    label: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    colour: int = 0
    marker: Marker = "filled"


def mean_curve(rows: Iterable[Row], x: str, line: Line) -> Series:
    """Return a curve of the mean over seeds against a field, with a band from minimum to maximum.

    Several rows of a seed at the same x are averaged first. Rows without a field `seed` count as
    seeds of their own. A single seed has no band.

    >>> rows = [{"layer": 1, "v": 0.25}, {"layer": 1, "v": 0.75}, {"layer": 2, "v": 1.0}]
    >>> curve = mean_curve(rows, "layer", Line("v", "v"))
    >>> curve.x, curve.y, curve.low, curve.high
    ([1.0, 2.0], [0.5, 1.0], [0.25, 1.0], [0.75, 1.0])
    """
    values: dict[float, dict[Any, list[float]]] = {}
    for index, row in enumerate(rows):
        if all(row[name] == wanted for name, wanted in line.where.items()):
            value = line.value_of(row)
            if value is not None:
                seeds = values.setdefault(float(row[x]), {})
                seeds.setdefault(row.get("seed", index), []).append(value)
    positions = sorted(values)
    means = [[fmean(members) for members in values[at].values()] for at in positions]
    several = any(len(seeds) > 1 for seeds in means)
    return Series(
        line.label,
        positions,
        [sum(seeds) / len(seeds) for seeds in means],
        [min(seeds) for seeds in means] if several else None,
        [max(seeds) for seeds in means] if several else None,
        line.colour,
        line.style,
        line.marker,
    )


def failure_crosses(rows: Iterable[Row], x: str, lines: Iterable[Line]) -> list[Series]:
    """Return a series of crosses at the values of runs that did not converge, or no series."""
    failed = [(row, line.value_of(row)) for row in rows if not row["converged"] for line in lines]
    points = [(float(row[x]), y) for row, y in failed if y is not None]
    if not points:
        return []
    at, y = [point[0] for point in points], [point[1] for point in points]
    return [Series("not converged", at, y, colour=BLACK, style="none", marker="cross")]


def line_panel(
    title: str,
    rows: Sequence[Row],
    x: str,
    lines: Sequence[Line],
    *,
    more: Sequence[Series] = (),
    x_label: str = "",
    y_label: str = "",
    **options: Any,
) -> Panel:
    """Return a panel with one curve per line, each the mean over seeds with a band.

    Args:
        x: field on the horizontal axis.
        more: further series, such as a theoretical curve or marks for failed runs.
        options: further fields of `Panel`, such as `x_scale` or `references`.
    """
    curves = (mean_curve(rows, x, line) for line in lines)
    return Panel(title, x_label, y_label, (*curves, *more), **options)


def point_panel(
    title: str, names: Sequence[str], groups: Sequence[Points], **options: Any
) -> Panel:
    """Return a panel with named positions on the horizontal axis and groups side by side.

    Args:
        options: further fields of `Panel`, such as `y_label` or `references`.

    >>> panel = point_panel("NC1", ["a", "b"], [Points("before", [1, 2]), Points("after", [3, 4])])
    >>> panel.x_names, [series.x for series in panel.series]
    (('a', 'b'), [[-0.1, 0.9], [0.1, 1.1]])
    """
    middle = (len(groups) - 1) / 2
    series = tuple(
        Series(
            points.label,
            [position + GROUP_SHIFT * (index - middle) for position in range(len(names))],
            points.values,
            points.low,
            points.high,
            points.colour,
            "none",
            points.marker,
        )
        for index, points in enumerate(groups)
    )
    labels = {"x_label": "", "y_label": "", **options}
    ticks = tuple(float(position) for position in range(len(names)))
    return Panel(title, series=series, x_ticks=ticks, x_names=tuple(names), **labels)


def mean_points(label: str, columns: Sequence[Sequence[float]], **style: Any) -> Points:
    """Return a point at the mean of each column, with an error bar from minimum to maximum."""
    return Points(
        label,
        [fmean(values) if values else None for values in columns],
        [min(values, default=None) for values in columns],
        [max(values, default=None) for values in columns],
        **style,
    )


def forest(name: str, judged: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """Return a forest plot with a group per claim and a row per part; empty without effects.

    A forest plot shows one interval per row. If the source of a claim leaves a choice open, every
    choice is judged. Such a claim has one row per verdict: the weakest effect among the choices
    that got this verdict.

    Args:
        judged: the claims of the experiment, as the ledger returns them.
    """
    groups = tuple(group for row in judged for group in _effect_groups(row))
    if not groups:
        return []
    panel = Forest("", groups, "the opposite of the claim", "as claimed")
    rows, _, depth = lay_out_forest(panel)
    caption = (
        "Each row is one part of a claim: the median of the seeds and its 95 % interval, as the "
        "distance from the edge of what is claimed. Green: reproduced (right of the grey margin). "
        "Red: contradicted (left of it). Yellow: no effect (inside). Blue: undecided (crosses an "
        "edge). Each claim has its own scale. Filled: recorded evidence; hollow: this machine's "
        "run."
    )
    if any(any(row.cut) for row in rows):
        caption += " An arrow marks an interval of this machine's run that is cut off."
    if any(row["numbers"].get("choices") for row in judged):
        caption += (
            " If the source leaves a choice open, every choice is judged; a row then shows the "
            "weakest part of all choices with the same verdict."
        )
    size = (6.6, ROW_INCHES * depth + 0.9)
    title = "Effects with their 95 % intervals"
    return [Picture(f"{name}_effects", title, (panel,), 1, caption, size)]


def _effect_groups(row: Mapping[str, Any]) -> list[Effects]:
    """Return the effects of a claim, grouped by margin."""
    choices = row["numbers"].get("choices", ())
    recorded = _weakest_by_verdict(row["numbers"].get("effects") or (), choices)
    local = _weakest_by_verdict((row.get("here") or {}).get("effects") or (), choices)
    names = list(dict.fromkeys(effect["what"] for effect in (*recorded, *local)))
    rows = [
        EffectRow(
            name,
            estimate,
            low,
            high,
            EFFECT_COLOURS.get(effect["verdict"], 0),
            hollow=effects is local,
        )
        for name in names
        for effects in (recorded, local)
        for effect in effects
        if effect["what"] == name
        for estimate, low, high in [effect["beyond"]]
    ]
    margins = {effect["what"]: effect["margin"] for effect in (*local, *recorded)}
    title = f"{'ours, ' if row.get('ours') else ''}{row['id'].partition('/')[2]}: {row['verdict']}"
    return [
        Effects(title, margin, tuple(effect for effect in rows if margins[effect.name] == margin))
        for margin in dict.fromkeys(margins[effect.name] for effect in rows)
    ]


def _weakest_by_verdict(
    effects: Sequence[Mapping[str, Any]], choices: Iterable[str]
) -> list[Mapping[str, Any]]:
    """Return the effects of a claim as rows of the plot.

    If the claim was judged under several choices, group the choices by verdict and return one row
    per group: its weakest effect. The name of the row says how many choices got the verdict.
    """
    weakest_parts: dict[str, list[Mapping[str, Any]]] = {}
    for choice in choices:
        parts = [effect for effect in effects if effect["what"].startswith(f"{choice}, ")]
        if parts:
            worst = min(parts, key=_strength)
            weakest_parts.setdefault(worst["verdict"], []).append(worst)
    if not weakest_parts:
        return list(effects)
    total = sum(map(len, weakest_parts.values()))
    rows: list[Mapping[str, Any]] = []
    for verdict, members in weakest_parts.items():
        worst = min(members, key=_strength)
        name = f"{verdict} at {len(members)} of {total}: {worst['what']}"
        rows.append({**worst, "what": name})
    return rows


def _strength(effect: Mapping[str, Any]) -> tuple[int, float]:
    """Return a sort key, smallest for the weakest effect: by verdict, then by the estimate."""
    return WEAKEST_FIRST.index(Verdict(effect["verdict"])), effect["beyond"][0]


def write_results(
    pictures: Sequence[Picture], numbers: Mapping[str, Any], folder: Path
) -> list[str]:
    """Write the numbers and figures of an experiment; return one line per file for the terminal."""
    make_folder(folder)
    lines = [f"wrote {folder / NUMBERS}"]
    try:
        for picture in pictures:
            write_json(folder / f"{picture.name}.picture.json", to_json(picture))
            suffixes = ",".join(path.suffix[1:] for path in save(picture, folder))
            lines.append(f"drew {folder / picture.name}.{{{suffixes}}}")
    except MissingExtra as error:
        lines.append(f"no figures: {error}")
    # The numbers come last, because their presence marks the folder as complete.
    write_json(folder / NUMBERS, numbers)
    return lines


def are_drawn(pictures: Sequence[Picture], folder: Path) -> bool:
    """Whether every figure is on disk; figures are missing if matplotlib was not installed."""
    return all((folder / f"{picture.name}.svg").exists() for picture in pictures)

"""Figures of a sweep: the last measurement against every setting in which runs differ."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.figures.seeds import SEED_CAPTION, failure_crosses, mean_over_seeds
from nclab.report.compare import CHOSEN, SEED
from nclab.report.content import Content, Figure

EXPERIMENT = "sweep"
"""Name of the experiment to which the figures belong on pages and in files."""
MAX_VALUES = 30
"""Largest number of values of a setting that is drawn as an axis."""
MAX_LINES = 8
"""Largest number of lines in a panel."""
MAX_TICKS = 8
"""Largest number of values that are all labelled on the axis."""
LOG_RATIO = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
UNUSABLE = ("dead", "not finite", "not measured")

Row = Mapping[str, Any]


def with_figures(
    content: Content, table: Mapping[str, Any], metrics: Sequence[str] = ()
) -> Content:
    """Return the content with figures of its runs, if metrics are given or no experiments exist."""
    known = {name for row in table["runs"] for name in row["values"]}
    for name in metrics:
        if name not in known:
            names = ", ".join(sorted(known)) or "none, because nothing was measured"
            raise NclabError(f"Expected metrics of these runs ({names}), got {name!r}.")
    if content.experiments and not metrics:
        return content
    pictures = sweep_pictures(table, metrics)
    figures = (Figure(EXPERIMENT, picture.name, picture, {}) for picture in pictures)
    return replace(content, figures=tuple(figures))


def sweep_pictures(table: Mapping[str, Any], metrics: Sequence[str] = ()) -> list[Picture]:
    """Return a figure for every setting in which runs differ, with a panel for every metric.

    >>> runs = [{"config": {"rate": n}, "values": {"loss": 1 / n}, "state": "finished",
    ...          "health": "", "kind": "fleet"} for n in (1, 2)]
    >>> (picture,) = sweep_pictures({"runs": runs, "axes": ["rate"], "metrics": []})
    >>> picture.panels[0].series[0].y
    [1.0, 0.5]
    """
    pictures = []
    for axis in table["axes"]:
        rows = [row for row in table["runs"] if row["config"].get(axis) is not None]
        if axis != SEED and 1 < len(_values(rows, axis)) <= MAX_VALUES:
            picture = _picture(axis, rows, table, metrics)
            pictures += [picture] if picture.panels else []
    return pictures


def metrics_of(rows: Sequence[Row], chosen: Sequence[str] = ()) -> list[str]:
    """Return the chosen metrics that some run has, or else the first metrics of the runs."""
    names = [name for row in rows for name, value in row["values"].items() if value is not None]
    measured = dict.fromkeys(names)
    return [name for name in chosen or CHOSEN if name in measured] or list(measured)[: len(CHOSEN)]


class _AxisValues(NamedTuple):
    """Positions of the values of a setting on an axis."""

    of: Mapping[Any, float]
    names: tuple[str, ...]
    logarithmic: bool


def _picture(
    axis: str, rows: Sequence[Row], table: Mapping[str, Any], metrics: Sequence[str]
) -> Picture:
    others = [
        name
        for name in table["axes"]
        if name not in (axis, SEED) and 1 < len(_values(rows, name)) <= MAX_LINES
    ]
    by = _lines_by(axis, rows, others)
    positions = _positions(_values(rows, axis))
    ideals = {metric["name"]: metric["ideal"] for metric in table["metrics"]}
    panels = tuple(
        _panel(name, axis, rows, by, positions, ideals.get(name))
        for name in metrics_of(rows, metrics)
    )
    lines = ", ".join(by)
    caption = [SEED_CAPTION] if others or len(rows) > len(positions.of) else []
    if pooled := ", ".join(name for name in others if name not in by):
        caption.append(f"One line for each {lines}. The bands include runs with every {pooled}.")
    if lost := sum(_is_unusable(row) for row in rows):
        caption.append(
            f"Crosses: {lost} runs that failed, are dead or not finite; not in the lines."
        )
    if weak := sum(row["health"] == "not converged" for row in rows):
        caption.append(f"{weak} of {len(rows)} runs have not converged (accuracy below 0.99).")
    title = f"Final metrics by {axis}" + (f" (colour: {lines})" if by else "")
    return Picture(f"against_{axis}", title, panels, columns=3, caption=" ".join(caption))


def _lines_by(axis: str, rows: Sequence[Row], others: Sequence[str]) -> list[str]:
    """Return the settings whose combinations get a line each.

    All runs must have these settings, the settings may not follow from the axis, and at most
    `MAX_LINES` lines are drawn. If no setting qualifies, the first one is used.
    """
    axis_values = _combinations(rows, [axis])
    chosen: list[str] = []
    for name in others:
        in_all_runs = all(row["config"].get(name) is not None for row in rows)
        if not in_all_runs or len(_combinations(rows, [axis, name])) == len(axis_values):
            continue
        if len(_combinations(rows, [*chosen, name])) <= MAX_LINES:
            chosen.append(name)
    return chosen or list(others[:1])


def _combinations(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the combinations of values that occur, in the order of the values."""
    known = {tuple(row["config"].get(name) for name in names) for row in rows}
    products = itertools.product(*(_values(rows, name) for name in names))
    return [values for values in products if values in known]


def _panel(
    metric: str,
    axis: str,
    rows: Sequence[Row],
    by: Sequence[str],
    positions: _AxisValues,
    ideal: float | None,
) -> Panel:
    points = [
        {
            "at": positions.of[row["config"][axis]],
            "by": tuple(row["config"].get(name) for name in by),
            "value": row["values"].get(metric),
            "converged": not _is_unusable(row),
        }
        for row in rows
    ]
    lines: list[Series] = []
    for colour, values in enumerate(_combinations(rows, by)):
        group = [point for point in points if point["converged"] and point["by"] == values]
        label = ", ".join(f"{name} {_label(v)}" for name, v in zip(by, values, strict=True))
        lines.append(mean_over_seeds(group, "at", lambda point: point["value"], label, colour))
    crosses = failure_crosses(
        points, "at", [lambda point: point["value"]], "failed, dead or not finite"
    )
    has_ticks = positions.names or len(positions.of) <= MAX_TICKS
    return Panel(
        metric,
        axis,
        "",
        (*(line for line in lines if line.x), *crosses),
        x_scale="log" if positions.logarithmic else "linear",
        references=() if ideal is None else (Reference("collapse", y=ideal),),
        x_ticks=tuple(positions.of.values()) if has_ticks else (),
        x_names=positions.names,
    )


def _values(rows: Sequence[Row], axis: str) -> list[Any]:
    """Return the values of a setting: numbers sorted, texts in the order of the runs."""
    values = (row["config"].get(axis) for row in rows)
    known = list(dict.fromkeys(value for value in values if value is not None))
    return sorted(known) if all(type(value) in (int, float) for value in known) else known


def _positions(values: Sequence[Any]) -> _AxisValues:
    if any(type(value) not in (int, float) for value in values):
        names = tuple(_label(value) for value in values)
        return _AxisValues({value: float(n) for n, value in enumerate(values)}, names, False)
    logarithmic = min(values) > 0 and max(values) / min(values) >= LOG_RATIO
    return _AxisValues({value: float(value) for value in values}, (), logarithmic)


def _label(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_unusable(row: Row) -> bool:
    return row["state"] == "failed" or row["health"] in UNUSABLE

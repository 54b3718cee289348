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
    return replace(
        content, figures=tuple(Figure(EXPERIMENT, one.name, one, {}) for one in pictures)
    )


def sweep_pictures(table: Mapping[str, Any], metrics: Sequence[str] = ()) -> list[Picture]:
    """Return a figure for every setting in which runs differ, with a panel for every metric.

    >>> runs = [{"config": {"rate": n}, "values": {"loss": 1 / n}, "state": "finished",
    ...          "health": "", "kind": "fleet"} for n in (1, 2)]
    >>> (picture,) = sweep_pictures({"runs": runs, "axes": ["rate"], "metrics": []})
    >>> picture.panels[0].series[0].y
    [1.0, 0.5]
    """
    found = []
    for axis in table["axes"]:
        rows = [row for row in table["runs"] if row["config"].get(axis) is not None]
        if axis != SEED and 1 < len(_values(rows, axis)) <= MAX_VALUES:
            picture = _picture(axis, rows, table, metrics)
            found += [picture] if picture.panels else []
    return found


def metrics_of(rows: Sequence[Row], chosen: Sequence[str] = ()) -> list[str]:
    """Return the chosen metrics that some run has, or else the first metrics of the runs."""
    known = [name for row in rows for name, value in row["values"].items() if value is not None]
    there = dict.fromkeys(known)
    return [name for name in chosen or CHOSEN if name in there] or list(there)[: len(CHOSEN)]


class _AxisValues(NamedTuple):
    """Positions of the values of a setting on an axis."""

    of: Mapping[Any, float]
    names: tuple[str, ...]
    logarithmic: bool


def _picture(
    axis: str, rows: Sequence[Row], table: Mapping[str, Any], metrics: Sequence[str]
) -> Picture:
    others = [
        one
        for one in table["axes"]
        if one not in (axis, SEED) and 1 < len(_values(rows, one)) <= MAX_LINES
    ]
    by = _lines_by(axis, rows, others)
    places = _places(_values(rows, axis))
    ideals = {one["name"]: one["ideal"] for one in table["metrics"]}
    wanted = metrics_of(rows, metrics)
    panels = tuple(_panel(name, axis, rows, by, places, ideals.get(name)) for name in wanted)
    words = [SEED_CAPTION] if others or len(rows) > len(places.of) else []
    rest = [one for one in others if one not in by]
    lines = ", ".join(by)
    words += [
        f"One line for each {lines}. The bands include runs with every {', '.join(rest)}."
    ] * bool(rest)
    lost = sum(_is_unusable(row) for row in rows)
    words += (
        [f"Crosses: {lost} runs that failed, are dead or not finite; not in the lines."]
        if lost
        else []
    )
    weak = sum(row["health"] == "not converged" for row in rows)
    words += (
        [f"{weak} of {len(rows)} runs have not converged (accuracy below 0.99)."] if weak else []
    )
    title = f"Final metrics by {axis}" + (f" (colour: {lines})" if by else "")
    return Picture(f"against_{axis}", title, panels, columns=3, caption=" ".join(words))


def _lines_by(axis: str, rows: Sequence[Row], others: Sequence[str]) -> list[str]:
    """Return the settings whose combinations get a line each.

    All runs must have these settings, the settings may not follow from the axis, and at most
    `MAX_LINES` lines are drawn. If no setting qualifies, the first one is used.
    """
    at = _combinations(rows, [axis])
    chosen: list[str] = []
    for one in others:
        whole = all(row["config"].get(one) is not None for row in rows)
        if not whole or len(_combinations(rows, [axis, one])) == len(at):
            continue
        if len(_combinations(rows, [*chosen, one])) <= MAX_LINES:
            chosen.append(one)
    return chosen or list(others[:1])


def _combinations(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the combinations of values that occur, in the order of the values."""
    known = {tuple(row["config"].get(one) for one in names) for row in rows}
    whole = itertools.product(*(_values(rows, one) for one in names))
    return [one for one in whole if one in known]


def _panel(
    metric: str,
    axis: str,
    rows: Sequence[Row],
    by: Sequence[str],
    places: _AxisValues,
    ideal: float | None,
) -> Panel:
    plain = [
        {
            "at": places.of[row["config"][axis]],
            "by": tuple(row["config"].get(one) for one in by),
            "value": row["values"].get(metric),
            "converged": not _is_unusable(row),
        }
        for row in rows
    ]
    lines: list[Series] = []
    for colour, values in enumerate(_combinations(rows, by)):
        own = [row for row in plain if row["converged"] and row["by"] == values]
        label = ", ".join(f"{one} {_named(v)}" for one, v in zip(by, values, strict=True))
        lines.append(mean_over_seeds(own, "at", lambda row: row["value"], label, colour))
    crosses = failure_crosses(plain, "at", [lambda row: row["value"]], "failed, dead or not finite")
    ticks = tuple(places.of.values()) if places.names or len(places.of) <= MAX_TICKS else ()
    return Panel(
        metric,
        axis,
        "",
        (*(line for line in lines if line.x), *crosses),
        x_scale="log" if places.logarithmic else "linear",
        references=() if ideal is None else (Reference("collapse", y=ideal),),
        x_ticks=ticks,
        x_names=places.names,
    )


def _values(rows: Sequence[Row], axis: str) -> list[Any]:
    """Return the values of a setting: numbers sorted, texts in the order of the runs."""
    found = [row["config"].get(axis) for row in rows]
    known = list(dict.fromkeys(value for value in found if value is not None))
    return sorted(known) if all(type(one) in (int, float) for one in known) else known


def _places(values: Sequence[Any]) -> _AxisValues:
    if any(type(value) not in (int, float) for value in values):
        names = tuple(_named(value) for value in values)
        return _AxisValues({value: float(at) for at, value in enumerate(values)}, names, False)
    logarithmic = min(values) > 0 and max(values) / min(values) >= LOG_RATIO
    return _AxisValues({value: float(value) for value in values}, (), logarithmic)


def _named(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _is_unusable(row: Row) -> bool:
    return row["state"] == "failed" or row["health"] in UNUSABLE

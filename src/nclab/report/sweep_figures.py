"""Figures of a folder of runs: what was measured last against every setting that differs."""

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
"""Under which the figures stand on pages and in files."""
MOST_VALUES = 30
"""A setting with more values than this tells runs apart; it is no axis."""
MOST_LINES = 8
FEW = 8
"""So many values are all named below the axis."""
POWERS = 20
"""Positive numbers that reach over this factor are drawn on a logarithmic axis."""
LOST = ("dead", "not finite", "not measured")

Row = Mapping[str, Any]


def with_figures(
    content: Content, table: Mapping[str, Any], metrics: Sequence[str] = ()
) -> Content:
    """The content of a folder with figures of its runs, where no experiment has made some."""
    known = {name for row in table["runs"] for name in row["values"]}
    for name in metrics:
        if name not in known:
            some = ", ".join(sorted(known)) or "none, as nothing was measured"
            raise NclabError(f"Expected metrics of these runs ({some}), got {name!r}.")
    if content.experiments and not metrics:
        return content
    pictures = sweep_pictures(table, metrics)
    return replace(
        content, figures=tuple(Figure(EXPERIMENT, one.name, one, {}) for one in pictures)
    )


def sweep_pictures(table: Mapping[str, Any], metrics: Sequence[str] = ()) -> list[Picture]:
    """A picture for every setting, with a panel for every metric; none where nothing differs.

    >>> runs = [{"config": {"rate": n}, "values": {"loss": 1 / n}, "state": "finished",
    ...          "health": "", "kind": "fleet"} for n in (1, 2)]
    >>> (picture,) = sweep_pictures({"runs": runs, "axes": ["rate"], "metrics": []})
    >>> picture.panels[0].series[0].y
    [1.0, 0.5]
    """
    found = []
    for axis in table["axes"]:
        rows = [row for row in table["runs"] if row["config"].get(axis) is not None]
        if axis != SEED and 1 < len(_values(rows, axis)) <= MOST_VALUES:
            picture = _picture(axis, rows, table, metrics)
            found += [picture] if picture.panels else []
    return found


def metrics_of(rows: Sequence[Row], chosen: Sequence[str] = ()) -> list[str]:
    """The chosen metrics that some run has; where it has none of ours, the first that it has."""
    known = [name for row in rows for name, value in row["values"].items() if value is not None]
    there = dict.fromkeys(known)
    return [name for name in chosen or CHOSEN if name in there] or list(there)[: len(CHOSEN)]


class _Places(NamedTuple):
    """Where the values of a setting stand on an axis."""

    of: Mapping[Any, float]
    names: tuple[str, ...]
    logarithmic: bool


def _picture(
    axis: str, rows: Sequence[Row], table: Mapping[str, Any], metrics: Sequence[str]
) -> Picture:
    others = [
        one
        for one in table["axes"]
        if one not in (axis, SEED) and 1 < len(_values(rows, one)) <= MOST_LINES
    ]
    by = _lines_by(axis, rows, others)
    places = _places(_values(rows, axis))
    ideals = {one["name"]: one["ideal"] for one in table["metrics"]}
    wanted = metrics_of(rows, metrics)
    panels = tuple(_panel(name, axis, rows, by, places, ideals.get(name)) for name in wanted)
    words = [SEED_CAPTION] if others or len(rows) > len(places.of) else []
    rest = [one for one in others if one not in by]
    lines = ", ".join(by)
    words += [f"Lines by {lines}; runs of all {', '.join(rest)} are in their spread."] * bool(rest)
    lost = sum(_lost(row) for row in rows)
    words += [f"Crosses: {lost} failed, dead or not finite, left out of the lines."] if lost else []
    weak = sum(row["health"] == "not converged" for row in rows)
    words += (
        [f"{weak} of {len(rows)} runs have not converged: accuracy below 0.99."] if weak else []
    )
    title = f"{axis}: what was measured last" + (f", by {lines}" if by else "")
    return Picture(f"against_{axis}", title, panels, columns=3, caption=" ".join(words))


def _lines_by(axis: str, rows: Sequence[Row], others: Sequence[str]) -> list[str]:
    """The settings of which every combination can have a line: those that all runs have and that
    do not follow from the axis, as many as go; else the first."""
    at = _combinations(rows, [axis])
    chosen: list[str] = []
    for one in others:
        whole = all(row["config"].get(one) is not None for row in rows)
        if not whole or len(_combinations(rows, [axis, one])) == len(at):
            continue
        if len(_combinations(rows, [*chosen, one])) <= MOST_LINES:
            chosen.append(one)
    return chosen or list(others[:1])


def _combinations(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Those that there are of the values of some settings, ordered as each of them is."""
    known = {tuple(row["config"].get(one) for one in names) for row in rows}
    whole = itertools.product(*(_values(rows, one) for one in names))
    return [one for one in whole if one in known]


def _panel(
    metric: str,
    axis: str,
    rows: Sequence[Row],
    by: Sequence[str],
    places: _Places,
    ideal: float | None,
) -> Panel:
    plain = [
        {
            "at": places.of[row["config"][axis]],
            "by": tuple(row["config"].get(one) for one in by),
            "value": row["values"].get(metric),
            "converged": not _lost(row),
        }
        for row in rows
    ]
    lines: list[Series] = []
    for colour, values in enumerate(_combinations(rows, by)):
        own = [row for row in plain if row["converged"] and row["by"] == values]
        label = ", ".join(f"{one} {_named(v)}" for one, v in zip(by, values, strict=True))
        lines.append(mean_over_seeds(own, "at", lambda row: row["value"], label, colour))
    crosses = failure_crosses(plain, "at", [lambda row: row["value"]], "failed, dead or not finite")
    ticks = tuple(places.of.values()) if places.names or len(places.of) <= FEW else ()
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
    """The values of a setting, numbers by size, words as they come."""
    found = [row["config"].get(axis) for row in rows]
    known = list(dict.fromkeys(value for value in found if value is not None))
    return sorted(known) if all(type(one) in (int, float) for one in known) else known


def _places(values: Sequence[Any]) -> _Places:
    if any(type(value) not in (int, float) for value in values):
        names = tuple(_named(value) for value in values)
        return _Places({value: float(at) for at, value in enumerate(values)}, names, False)
    logarithmic = min(values) > 0 and max(values) / min(values) >= POWERS
    return _Places({value: float(value) for value in values}, (), logarithmic)


def _named(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _lost(row: Row) -> bool:
    return row["state"] == "failed" or row["health"] in LOST

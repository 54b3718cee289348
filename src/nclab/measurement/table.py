"""Measurements as tables for the terminal and the notebook.

The tables take plain rows, as `Collapse.table_rows` gives them and as a JSON file keeps them.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.figures.measured import cosine_keys
from nclab.measurement.strata_table import strata_html, strata_table
from nclab.metrics.catalogue import METRICS, Metric, every_metric
from nclab.text import number

Row = Mapping[str, Any]

LAYER_COLUMNS = {
    "min_intra": "min_intra",
    "max_inter": "max_inter",
    "nc1_trace_pinv": "nc1 trace",
    "cdnv": "cdnv",
    "nc2_equiangularity_means": "nc2 angles",
    "nc3_self_duality": "nc3 duality",
    "nc4_ncc_accuracy": "nc4 ncc",
    "reference_ncc_accuracy": "train ncc",
    "strong_test_collapse": "strong",
}
"""What a table of many layers has room for and how it heads them; the rest is in `to_dicts`."""


def side_by_side(rows: Sequence[Row], *, titles: Sequence[str] | None = None) -> Group:
    """Metrics as rows, measurements as columns, the value at collapse beside them."""
    table = Table(header_style="bold")
    table.add_column("metric", no_wrap=True)
    for title in titles or [_title(row) for row in rows]:
        table.add_column(Text(title), justify="right")
    null = rows[0].get("null") if len(rows) == 1 else None
    if null:
        table.add_column("labels shuffled", justify="right", style="dim")
    table.add_column("at collapse", justify="right", style="dim")
    meanings = len(rows) == 1 and not null  # there is room for one of them
    if meanings:
        table.add_column("meaning", style="dim")
    group = METRICS[0].group
    for metric in _measured(rows):
        if metric.group != group:
            table.add_section()
            group = metric.group
        ideal = {_ideal(metric, row) for row in rows}
        cells = [_cell(metric, row) for row in rows]
        if null:
            cells.append(number(null.get(metric.name)))
        cells.append(ideal.pop() if len(ideal) == 1 else "")
        if meanings:
            cells.append(metric.meaning)
        table.add_row(metric.name, *cells)
    groups = [strata_table(row["strata"], _title(row)) for row in rows if row.get("strata")]
    return Group(table, *groups, *_remarks(rows))


def layers(rows: Sequence[Row]) -> Group:
    """Layers as rows, the metrics there is room for as columns."""
    table = Table(header_style="bold")
    table.add_column("layer", overflow="fold")
    splits = any(row.get("split") for row in rows)
    if splits:
        table.add_column("data")
    table.add_column("d", justify="right")
    columns = _columns(rows)
    shown = [name for name in columns if any(row.get(name) is not None for row in rows)]
    for name in shown:
        table.add_column(columns[name], justify="right")
    for row in rows:
        cells = [number(row.get(name)) + _error(name, row) for name in shown]
        data = [Text(row.get("split") or "")] if splits else []
        table.add_row(Text(row["layer"] or ""), *data, str(row["dim"]), *cells)
    gaps = _gaps(rows, {name: columns[name] for name in shown})
    groups = [strata_table(row["strata"], _title(row)) for row in rows[-1:] if row.get("strata")]
    return Group(table, *groups, *_remarks(rows, with_notes=False), *gaps)


def _gaps(rows: Sequence[Row], shown: Mapping[str, str]) -> list[Text]:
    """Why cells are empty; not where only the classifier's own layer has a number."""
    reasons: dict[str, list[str]] = {}
    for name, head in shown.items():
        for row in rows:
            empty = row.get(name) is None and name in row["notes"]
            if empty and every_metric()[name].needs != "weight":
                where = f"{head} of {_title(row) if row['layer'] else 'the layer'}"
                reasons.setdefault(row["notes"][name], []).append(where)
    return [Text(f"– {why}: {', '.join(cells)}", style="dim") for why, cells in reasons.items()]


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """Centred cosines instead of those that features without negative entries cannot use."""
    own = {key: key.replace("_min", " min").replace("_max", " max") for key in cosine_keys(rows)}
    rest = list(LAYER_COLUMNS.items())[2:]
    return {**own, **dict(rest)}


def as_html(rows: Sequence[Row], *, remarks: Sequence[str] = ()) -> str:
    """A plain HTML table for notebooks: measurements as columns, user text escaped."""
    heads = "".join(f"<th>{html.escape(_title(row))}</th>" for row in rows)
    single = len(rows) == 1  # as in the terminal, there is room for words
    null = rows[0].get("null") if single else None
    lined = []
    for metric in _measured(rows):
        cells = "".join(f"<td>{_cell(metric, row)}</td>" for row in rows)
        cells += f"<td>{number(null.get(metric.name))}</td>" if null else ""
        cells += f"<td>{html.escape(_ideal(metric, rows[0]))}</td>"
        meaning = html.escape(metric.meaning)
        cells += f'<td class="meaning">{meaning}</td>' if single else ""
        lined.append(f'<tr><th title="{meaning}">{metric.name}</th>{cells}</tr>')
    lines = [*(str(text) for text in _remarks(rows)), *remarks]
    below = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    words = '<th class="meaning">meaning</th>' if single else ""
    heads += "<th>labels shuffled</th>" if null else ""
    head = f"<tr><th>metric</th>{heads}<th>at collapse</th>{words}</tr>"
    groups = "".join(
        f"<p>classes by frequency{_of(row, rows)}</p>{strata_html(row['strata'])}"
        for row in rows
        if row.get("strata")
    )
    return f"<table><thead>{head}</thead><tbody>{''.join(lined)}</tbody></table>{below}{groups}"


def _of(row: Row, rows: Sequence[Row]) -> str:
    return f" of {html.escape(_title(row))}" if len(rows) > 1 else ""


def _title(row: Row) -> str:
    return " · ".join(filter(None, (row["layer"], row.get("split")))) or "value"


def _measured(rows: Sequence[Row]) -> list[Metric]:
    known = every_metric().values()
    groups = list(dict.fromkeys(metric.group for metric in known))
    found = [metric for metric in known if any(row.get(metric.name) is not None for row in rows)]
    return sorted(found, key=lambda metric: groups.index(metric.group))


def _cell(metric: Metric, row: Row) -> str:
    near = None if metric.ideal is None else metric.ideal(row["num_classes"])
    return number(row.get(metric.name), near=near) + _error(metric.name, row)


def _error(name: str, row: Row) -> str:
    """± half the interval, or the interval itself where the value is not near its middle."""
    interval = (row.get("intervals") or {}).get(name)
    if interval is None:
        return ""
    low, high = interval[:2]
    half = (high - low) / 2
    if abs(row[name] - (low + high) / 2) <= half / 4:
        return f" ± {half:.2g}"
    return f" [{number(low)}, {number(high)}]"


def _ideal(metric: Metric, row: Row) -> str:
    if row.get("non_negative") and metric.name in ("max_inter", "mean_inter"):
        return "≥ 0"  # cosines of features without negative entries
    return "" if metric.ideal is None else number(metric.ideal(row["num_classes"]))


def _remarks(rows: Sequence[Row], *, with_notes: bool = True) -> list[Text]:
    """Each warning and each reason for a missing number once, with what it concerns."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        name = _title(row) if row["layer"] else row.get("split") or ""
        for warning in row["warnings"]:
            lines.setdefault(warning, []).append(name)
    remarks = []
    for warning, names in lines.items():
        everywhere = len(rows) == 1 or len(names) == len(rows)
        where = "" if everywhere else f" ({', '.join(names)})"
        remarks.append(Text(f"! {warning}{where}"))
    alone = len({row.get("split") for row in rows}) == len(rows)
    if with_notes and alone:
        reasons: dict[str, list[str]] = {}
        for row in rows:
            missing = list(row["notes"].items())
            for metric, why in row.get("no_interval", {}).items():
                missing.append((metric, f"no interval, {why}"))
            for metric, reason in missing:
                told = reasons.setdefault(reason, [])
                told += [] if metric in told else [metric]
        for reason, metrics in reasons.items():
            remarks.append(Text(f"– {reason}: {', '.join(metrics)}", style="dim"))
    return remarks

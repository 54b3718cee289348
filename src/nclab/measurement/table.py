"""Measurements as tables for the terminal and the notebook."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.metrics.catalogue import METRICS, Metric
from nclab.text import number

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse

LAYER_COLUMNS = (
    "min_intra",
    "max_inter",
    "nc1_trace_pinv",
    "cdnv",
    "nc2_equiangularity_means",
    "nc3_self_duality",
    "nc4_ncc_accuracy",
)
"""What a table of many layers has room for; the rest is in `to_dicts`."""
SHORT = {
    "nc1_trace_pinv": "nc1 trace",
    "nc2_equiangularity_means": "nc2 angles",
    "nc3_self_duality": "nc3 duality",
    "nc4_ncc_accuracy": "nc4 ncc",
}


def side_by_side(collapses: "Sequence[Collapse]", *, titles: Sequence[str] | None = None) -> Group:
    """Metrics as rows, measurements as columns, the value at collapse beside them."""
    table = Table(header_style="bold")
    table.add_column("metric", no_wrap=True)
    for title in titles or [_title(collapse) for collapse in collapses]:
        table.add_column(Text(title), justify="right")
    table.add_column("at collapse", justify="right", style="dim")
    if len(collapses) == 1:
        table.add_column("meaning", style="dim")
    group = METRICS[0].group
    for metric in _measured(collapses):
        if metric.group != group:
            table.add_section()
            group = metric.group
        ideal = {_ideal(metric, collapse) for collapse in collapses}
        cells = [_cell(metric, collapse) for collapse in collapses]
        cells.append(ideal.pop() if len(ideal) == 1 else "")
        if len(collapses) == 1:
            cells.append(metric.meaning)
        table.add_row(metric.name, *cells)
    return Group(table, *_remarks(collapses))


def layers(collapses: "Sequence[Collapse]") -> Group:
    """Layers as rows, the metrics there is room for as columns."""
    table = Table(header_style="bold")
    table.add_column("layer", overflow="fold")
    table.add_column("d", justify="right")
    shown = [name for name in LAYER_COLUMNS if any(getattr(c, name) is not None for c in collapses)]
    for name in shown:
        table.add_column(SHORT.get(name, name), justify="right")
    for collapse in collapses:
        cells = [number(getattr(collapse, name)) for name in shown]
        table.add_row(Text(collapse.layer or ""), str(collapse.dim), *cells)
    return Group(table, *_remarks(collapses, with_notes=False))


def as_html(collapses: "Sequence[Collapse]", *, remarks: Sequence[str] = ()) -> str:
    """A plain HTML table for notebooks: measurements as columns, user text escaped."""
    heads = "".join(f"<th>{html.escape(_title(collapse))}</th>" for collapse in collapses)
    rows = []
    for metric in _measured(collapses):
        cells = "".join(f"<td>{_cell(metric, collapse)}</td>" for collapse in collapses)
        ideal = _ideal(metric, collapses[0])
        rows.append(f"<tr><th>{metric.name}</th>{cells}<td>{ideal}</td></tr>")
    lines = [*(str(text) for text in _remarks(collapses)), *remarks]
    below = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    head = f"<tr><th>metric</th>{heads}<th>at collapse</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{below}"


def _title(collapse: "Collapse") -> str:
    return collapse.layer or "value"


def _measured(collapses: "Sequence[Collapse]") -> list[Metric]:
    return [
        metric
        for metric in METRICS
        if any(getattr(collapse, metric.name) is not None for collapse in collapses)
    ]


def _cell(metric: Metric, collapse: "Collapse") -> str:
    near = None if metric.ideal is None else metric.ideal(collapse.num_classes)
    return number(getattr(collapse, metric.name), near=near)


def _ideal(metric: Metric, collapse: "Collapse") -> str:
    return "" if metric.ideal is None else number(metric.ideal(collapse.num_classes))


def _remarks(collapses: "Sequence[Collapse]", *, with_notes: bool = True) -> list[Text]:
    """Each warning and each reason for a missing number once, with what it concerns."""
    lines: dict[str, list[str]] = {}
    for collapse in collapses:
        name = collapse.layer or ""
        for warning in collapse.warnings:
            lines.setdefault(warning, []).append(name)
    remarks = []
    for warning, names in lines.items():
        everywhere = len(collapses) == 1 or len(names) == len(collapses)
        where = "" if everywhere else f" ({', '.join(names)})"
        remarks.append(Text(f"! {warning}{where}"))
    if with_notes and len(collapses) == 1:
        reasons: dict[str, list[str]] = {}
        for metric, reason in collapses[0].notes.items():
            reasons.setdefault(reason, []).append(metric)
        for reason, metrics in reasons.items():
            remarks.append(Text(f"– {reason}: {', '.join(metrics)}", style="dim"))
    return remarks

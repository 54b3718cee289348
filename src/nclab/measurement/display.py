"""Display of measurements: tables for terminal and notebook, pictures, and HTML pages.

Tables are made from rows of plain values, which `Collapse.to_row` returns and JSON files contain.
"""

import base64
import html
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.figures.measured import cosine_keys
from nclab.files import write_whole
from nclab.metrics.catalogue import METRICS, Metric, every_metric
from nclab.text import Printed, as_html, number

if TYPE_CHECKING:
    from nclab.figures.matplotlib_renderer import Drawing
    from nclab.figures.picture import Picture

Row = Mapping[str, Any]

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--muted:#656d76;--line:#e4e7eb;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--muted:#9ba4ae;--line:#2d333b;--paper:#14181d}}
body{margin:2rem auto;max-width:1100px;padding:0 1.5rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
img{max-width:100%}h1{font-size:1.4rem}p{color:var(--muted);font-size:.9rem}
p.summary{color:var(--ink);font-size:1rem;max-width:50rem}
div{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.35rem 1rem .35rem 0;border-bottom:1px solid var(--line)}
th{color:var(--muted);font-weight:400}td{font-variant-numeric:tabular-nums}
"""
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
"""Columns of the table of layers: metric -> heading. The other metrics are in `to_dicts`."""
STRATA_COLUMNS = {
    "within": "within",
    "ncc_accuracy": "ncc",
    "accuracy": "accuracy",
    "loss": "loss",
    "alpha": "|h|",
    "beta": "|w|",
    "alignment": "cos(w, mean)",
}
"""Columns of the table of classes by frequency: name of an average -> heading."""


class Displayed(Printed, ABC):
    """A measurement that is shown as text, a table in a notebook, a picture or a page."""

    @abstractmethod
    def _picture(self) -> "Picture":
        """Return the panels that `plot` and `to_html` draw."""

    @abstractmethod
    def _table_rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values for each layer and data set."""

    @abstractmethod
    def summary(self) -> list[str]:
        """Return the sentences below the table."""

    def plot(self, dark: bool = False) -> "Drawing":
        """Draw a matplotlib figure and return it with its panels.

        A notebook shows the figure if the call is the last line of a cell.

        >>> import nclab
        >>> fig, axes = nclab.measure_features([[1.0, 0.0], [-1.0, 0.5]], [0, 1]).plot()
        >>> [ax.get_title(loc="left") for ax in axes]
        ['cosines between classes', 'every class']
        """
        from nclab.figures.matplotlib_renderer import plot

        return plot(self._picture(), dark)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write summary, picture and table as one HTML file that needs no other files."""
        table = as_html(_result_table(self._table_rows()))
        _write_page(path, self._picture(), table, self.summary())

    def __rich__(self) -> Any:
        return _with_summary(_result_table(self._table_rows()), self.summary())


def _write_page(
    path: str | os.PathLike[str], picture: "Picture", table: str, summary: Sequence[str]
) -> None:
    """Write an HTML file with sentences, a picture for light and dark screens, and a table."""
    from nclab.figures.matplotlib_renderer import draw

    title = html.escape(picture.title)
    first = "".join(f'<p class="summary">{html.escape(line)}</p>\n' for line in summary)
    urls = []
    for is_dark in (False, True):
        svg = io.BytesIO()
        figure = draw(picture._replace(title=""), is_dark)
        figure.savefig(svg, format="svg", metadata={"Date": None})
        urls.append(f"data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}")
    light, dark = urls
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
{first}<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">
<img src="{light}" alt="{title}"></picture>
<p>{html.escape(picture.caption)}</p>
<div>{table}</div>
</body></html>
"""
    write_whole(path, page.encode(), through_link=True)


def _result_table(rows: Sequence[Row]) -> Group:
    """Return one line per layer, or one line per metric if there is only one layer."""
    several_layers = len({row["layer"] for row in rows}) > 1
    return layer_table(rows) if several_layers else metric_table(rows)


def _with_summary(table: Any, lines: Sequence[str]) -> Group:
    """Return a table with sentences below it."""
    return Group(table, *(Text(line) for line in lines))


def train_and_test(train: Displayed, test: Displayed) -> Group:
    """Return a table of training and test data side by side, with the summaries of both."""
    both = (train, test)
    rows = [row for displayed in both for row in displayed._table_rows()]
    lines = [line for displayed in both for line in displayed.summary()]
    return _with_summary(metric_table(rows), lines)


def metric_table(rows: Sequence[Row], *, titles: Sequence[str] | None = None) -> Group:
    """Return a table with metrics as rows, measurements as columns and the value at collapse."""
    table = Table(header_style="bold")
    table.add_column("metric", no_wrap=True)
    for title in titles or [_title(row) for row in rows]:
        table.add_column(Text(title), justify="right")
    shuffled = rows[0].get("shuffled_labels") if len(rows) == 1 else None
    if shuffled:
        table.add_column("labels shuffled", justify="right", style="dim")
    table.add_column("at collapse", justify="right", style="dim")
    with_meanings = len(rows) == 1 and not shuffled  # there is space for one of the two
    if with_meanings:
        table.add_column("meaning", style="dim")
    group = METRICS[0].group
    for metric in _measured(rows):
        if metric.group != group:
            table.add_section()
            group = metric.group
        ideals = {_ideal(metric, row) for row in rows}
        cells = [_cell(metric, row) for row in rows]
        if shuffled:
            cells.append(number(shuffled.get(metric.name)))
        cells.append(ideals.pop() if len(ideals) == 1 else "")
        if with_meanings:
            cells.append(metric.meaning)
        table.add_row(metric.name, *cells)
    groups = [strata_table(row["strata"], _title(row)) for row in rows if row.get("strata")]
    return Group(table, *groups, *_remarks(rows))


def layer_table(rows: Sequence[Row]) -> Group:
    """Return a table with layers as rows and the most important metrics as columns."""
    table = Table(header_style="bold")
    table.add_column("layer", overflow="fold")
    has_splits = any(row.get("split") for row in rows)
    if has_splits:
        table.add_column("data")
    table.add_column("d", justify="right")
    # Features without negative entries have centred cosines only.
    columns = {
        key: key.replace("_min", " min").replace("_max", " max") for key in cosine_keys(rows)
    }
    columns |= dict(list(LAYER_COLUMNS.items())[2:])
    shown = [name for name in columns if any(row.get(name) is not None for row in rows)]
    for name in shown:
        table.add_column(columns[name], justify="right")
    for row in rows:
        cells = [number(row.get(name)) + _plus_minus(name, row) for name in shown]
        data = [Text(row.get("split") or "")] if has_splits else []
        table.add_row(Text(row["layer"] or ""), *data, str(row["dim"]), *cells)
    groups = [strata_table(row["strata"], _title(row)) for row in rows[-1:] if row.get("strata")]
    return Group(table, *groups, *_remarks(rows, with_notes=False))


def strata_table(groups: Sequence[Row], title: str = "value") -> Group:
    """Return a table of classes by frequency with a heading, one row per group of classes."""
    of_layer = "" if title == "value" else f" of {title}"
    shown = [name for name in STRATA_COLUMNS if any(group[name] is not None for group in groups)]
    table = Table(header_style="bold")
    for heading in ("samples per class", "classes", "samples"):
        table.add_column(heading, justify="right")
    for name in shown:
        table.add_column(Text(STRATA_COLUMNS[name]), justify="right")
    for group in groups:
        least, most = group["least"], group["most"]
        sizes = str(least) if least == most else f"{least}–{most}"
        averages = [number(group[name]) for name in shown]
        table.add_row(sizes, str(group["classes"]), str(group["samples"]), *averages)
    return Group(Text(f"classes by frequency{of_layer}"), table)


def _title(row: Row) -> str:
    return " · ".join(filter(None, (row["layer"], row.get("split")))) or "value"


def _measured(rows: Sequence[Row]) -> list[Metric]:
    """Return the metrics with a value in at least one row, sorted by group."""
    known = every_metric().values()
    groups = list(dict.fromkeys(metric.group for metric in known))
    present = [metric for metric in known if any(row.get(metric.name) is not None for row in rows)]
    return sorted(present, key=lambda metric: groups.index(metric.group))


def _cell(metric: Metric, row: Row) -> str:
    ideal = None if metric.ideal is None else metric.ideal(row["num_classes"])
    return number(row.get(metric.name), near=ideal) + _plus_minus(metric.name, row)


def _plus_minus(name: str, row: Row) -> str:
    """Return ± half the interval's width, or both ends if the value is not near its centre."""
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
    """Return each warning and each reason for a missing number once, with the layers concerned."""
    layers_of: dict[str, list[str]] = {}
    for row in rows:
        name = _title(row) if row["layer"] else row.get("split") or ""
        for warning in row["warnings"]:
            layers_of.setdefault(warning, []).append(name)
    remarks = []
    for warning, names in layers_of.items():
        everywhere = len(rows) == 1 or len(names) == len(rows)
        layers = "" if everywhere else f" ({', '.join(names)})"
        remarks.append(Text(f"! {warning}{layers}"))
    one_row_per_split = len({row.get("split") for row in rows}) == len(rows)
    if with_notes and one_row_per_split:
        metrics_of: dict[str, list[str]] = {}
        for row in rows:
            missing = list(row["notes"].items())
            for metric, why in row.get("no_interval", {}).items():
                missing.append((metric, f"no interval, {why}"))
            for metric, reason in missing:
                affected = metrics_of.setdefault(reason, [])
                affected += [] if metric in affected else [metric]
        for reason, affected in metrics_of.items():
            remarks.append(Text(f"– {reason}: {', '.join(affected)}", style="dim"))
    return remarks

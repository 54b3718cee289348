"""Groups of classes by frequency as tables for the terminal, notebooks and pages."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from nclab.text import number

Row = Mapping[str, Any]


def strata_table(groups: Sequence[Row], title: str = "value") -> Table:
    """Groups of classes by frequency as rows, what is known of them as columns."""
    of = "" if title == "value" else f" of {title}"
    table = Table(header_style="bold", title=f"classes by frequency{of}", title_justify="left")
    for head in ("samples a class", "classes", "samples"):
        table.add_column(head, justify="right")
    columns = columns_of(groups)
    for head in columns.values():
        table.add_column(Text(head), justify="right")
    for group in groups:
        cells = [number(group[name]) for name in columns]
        table.add_row(title_of(group), str(group["classes"]), str(group["samples"]), *cells)
    return table


def strata_html(groups: Sequence[Row]) -> str:
    """The same for notebooks and pages."""
    columns = columns_of(groups)
    heads = ("samples a class", "classes", "samples", *columns.values())
    lined = []
    for group in groups:
        cells = [str(group["classes"]), str(group["samples"])]
        cells += [number(group[name]) for name in columns]
        own = "".join(f"<td>{cell}</td>" for cell in cells)
        lined.append(f"<tr><th>{title_of(group)}</th>{own}</tr>")
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lined)}</tbody></table>"


def title_of(group: Row) -> str:
    """Samples of a class in a group.

    >>> title_of({"least": 2, "most": 9}), title_of({"least": 1, "most": 1})
    ('2–9', '1')
    """
    least, most = group["least"], group["most"]
    return str(least) if least == most else f"{least}–{most}"


def columns_of(rows: Sequence[Row]) -> dict[str, str]:
    """Fields that some group has, with their headings."""
    heads = {
        "within": "within",
        "ncc_accuracy": "ncc",
        "accuracy": "accuracy",
        "loss": "loss",
        "alpha": "|h|",
        "beta": "|w|",
        "alignment": "cos(w, mean)",
    }
    return {
        name: head for name, head in heads.items() if any(row[name] is not None for row in rows)
    }

"""The rows of a sweep as a table for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nclab.papers.sweep.rows import Row
from nclab.text import number, scientific

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = {
    "accuracy": "accuracy",
    "loss": "loss",
    "min_intra": "intra",
    "max_inter": "inter",
    "alpha": "α",
    "beta": "β",
}


def rows_table(rows: Sequence[Row]) -> "Table":
    """One line a model; those that have not converged are dim and say why."""
    from rich.table import Table

    shown = Table(header_style="bold")
    shown.add_column("norm")
    for title in ("decay", "seed", *COLUMNS.values()):
        shown.add_column(title, justify="right")
    shown.add_column("converged")
    for row in rows:
        cells = [number(row[name]) for name in COLUMNS]
        ended = "yes" if row["converged"] else _reason(row)
        decay = scientific(row["weight_decay"])
        style = None if row["converged"] else "dim"
        shown.add_row(row["norm"], decay, str(row["seed"]), *cells, ended, style=style)
    return shown


def _reason(row: Row) -> str:
    if row["why"]:
        return "not measured" if row["min_intra"] is None else "diverged"
    return "no, zeros" if row["zero_features"] else "no"

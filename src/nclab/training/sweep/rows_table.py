"""The rows of a sweep as a table for the terminal."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from nclab.text import number, scientific
from nclab.training.sweep.rows import Row

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
MEMBER = ("norm", "weight_decay", "seed")
MOST = 200
"""Lines that are shown."""


def rows_table(rows: Sequence[Row], axes: Collection[str] = ()) -> "Table":
    """One line a model with its place on the axes; dim and with a reason if it has not converged.

    Of very many models, the first.
    """
    from rich.table import Table

    others = [name for name in axes if name not in MEMBER]
    more = f"and {len(rows) - MOST:,} more" if len(rows) > MOST else None
    shown = Table(header_style="bold", caption=more)
    for name in others:
        shown.add_column(name)
    shown.add_column("norm")
    for title in ("decay", "seed", *COLUMNS.values()):
        shown.add_column(title, justify="right")
    shown.add_column("converged")
    for row in rows[:MOST]:
        cells = [number(row[name]) for name in COLUMNS]
        ended = "yes" if row["converged"] else _reason(row)
        decay = scientific(row["weight_decay"])
        style = None if row["converged"] else "dim"
        place = [_setting(row.get(name)) for name in others]
        shown.add_row(*place, row["norm"], decay, str(row["seed"]), *cells, ended, style=style)
    return shown


def _setting(value: Any) -> str:
    return number(value) if isinstance(value, float | None) else str(value)


def _reason(row: Row) -> str:
    if row["why"]:
        return "not measured" if row["min_intra"] is None else "diverged"
    return "no, zeros" if row["zero_features"] else "no"

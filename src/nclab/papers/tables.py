"""Tables of results: one description, shown in the terminal and written into the docs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Table(NamedTuple):
    """Words and numbers in rows, as they will be read."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def plus_minus(values: Iterable[float | None], form: str = ".3f") -> str:
    """Mean ± standard deviation over seeds; a dash where nothing was measured.

    >>> plus_minus([0.25, 0.75]), plus_minus([0.5]), plus_minus([None])
    ('0.500 ± 0.354', '0.500', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    middle = format(fmean(known), form)
    return middle if len(known) == 1 else f"{middle} ± {format(stdev(known), form)}"


def group(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some keys, in the order in which these first come.

    >>> group([{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a")
    {(1,): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def cell(rows: Sequence[Row], value: Callable[[Row], float | None], form: str = ".3f") -> str:
    """Mean ± deviation over the converged of some rows, and how many those are if not all.

    >>> rows = [{"v": 0.5, "converged": True}, {"v": 0.9, "converged": False}]
    >>> cell(rows, lambda row: row["v"])
    '0.500 (1 of 2 converged)'
    """
    known = [row for row in rows if row["converged"]]
    if not known:
        return "not converged"
    text = plus_minus(map(value, known), form)
    return text if len(known) == len(rows) else f"{text} ({len(known)} of {len(rows)} converged)"


def verdicts(judged: Sequence[Row]) -> Table:
    """Judged claims with what was found about them."""
    return Table(
        "Verdicts, computed from the numbers",
        ("", "claim", "source", "verdict", "evidence"),
        [
            (
                row["mark"],
                row["text"],
                row["source"].partition(", ")[2],
                row["verdict"],
                row["evidence"],
            )
            for row in judged
        ],
    )


def shown(table: Any) -> Any:
    """For the terminal; words left, numbers right. What is no `Table` stays as it is."""
    if not isinstance(table, Table):
        return table
    from rich.table import Table as Rich

    shown = Rich(title=table.title, title_justify="left", title_style="bold", header_style="bold")
    for place, name in enumerate(table.columns):
        wordy = any(len(row[place]) > 24 for row in table.rows)
        shown.add_column(name, justify="left" if wordy or place == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown


def as_markdown(table: Table) -> str:
    """For the docs.

    >>> print(as_markdown(Table("Cosines", ("layer", "intra"), [("1", "0.5")])))
    **Cosines**
    <BLANKLINE>
    | layer | intra |
    |---|---|
    | 1 | 0.5 |
    """
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    body = ["|" + "|".join(_padded(cell) for cell in line) + "|" for line in lines]
    return "\n".join([f"**{table.title}**", "", *body])


def _padded(text: str) -> str:
    return text if text == "---" else f" {text.replace('|', chr(92) + '|')} "

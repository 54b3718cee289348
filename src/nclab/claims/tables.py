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
    """Claims judged from the numbers that stand above, with what was found about them."""
    columns = ("", "claim", "source", "verdict", "evidence")
    return Table("Verdicts, computed from the numbers", columns, [*map(_verdict, judged)])


def recorded_verdicts(judged: Sequence[Row]) -> Table:
    """Claims judged from recorded evidence, whose size is said, and what a run here says."""
    size = next((row["size"] for row in judged if row["size"]), "nothing is recorded")
    here = [row.get("here") or {} for row in judged]
    ran = next((one["size"] for one in here if one.get("size")), "")
    return Table(
        f"Verdicts from the recorded evidence ({size})" + (f"; here ({ran})" if ran else ""),
        ("", "claim", "source", "verdict", "recorded evidence", "here"),
        [(*_verdict(row), one.get("says", "")) for row, one in zip(judged, here, strict=True)],
    )


def in_this_run(row: Row) -> str:
    """What this machine's own run says beside a recorded verdict; empty without one.

    >>> in_this_run({"here": {"size": "preset quick; 2 seeds", "says": "agrees (reproduced)"}})
    'here, preset quick; 2 seeds: agrees (reproduced)'
    """
    here = row.get("here")
    if not here:
        return ""
    return ", ".join(filter(None, ("here", here["size"]))) + f": {here['says']}"


def _verdict(row: Row) -> tuple[str, ...]:
    """The place alone where the paper is that of the experiment."""
    paper, _, place = row["source"].partition(", ")
    source = place if row["needs"].startswith(f"{paper}_") else row["source"]
    return row["mark"], row["text"], source, row["verdict"], row["evidence"]


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

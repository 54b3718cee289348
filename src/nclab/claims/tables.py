"""Tables of experiments and claims: built once, shown in the terminal and on the pages."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

from nclab.claims.claim import STYLES, Verdict
from nclab.claims.paper import Erratum
from nclab.text import counted, number, plain_math

Row = Mapping[str, Any]
Value = Callable[[Row], float | None]

DASH = "–"
"""Text of a cell without a number."""
WIDE = 24
"""A column is aligned left if one of its texts is longer than this, else right like numbers."""
FEW_CLAIMS = 5
"""Largest number of claims for which the terminal also prints the statements and their errata."""


class Table(NamedTuple):
    """A title, headings and rows of formatted cells."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Column:
    """Description of a table column: the heading, the value of a row, and the number format."""

    heading: str
    value: str | Callable[[Row], Any]
    """Name of a field, or a function of the row; None means that there is no value."""
    form: str = ".3f"
    """Format of numbers; empty for four significant digits."""
    names: Mapping[Any, str] = field(default_factory=dict)
    """Words to print instead of values."""
    spread: bool = True
    """Whether a summary shows the standard deviation after the mean."""

    def value_of(self, row: Row) -> Any:
        """Return the value of a row."""
        return row[self.value] if isinstance(self.value, str) else self.value(row)

    def format(self, value: Any) -> str:
        """Return a value as text."""
        if value in self.names:
            return self.names[value]
        if value is None or isinstance(value, str):
            return value or DASH
        return format(value, self.form) if self.form else number(value)


def list_rows(title: str, rows: Iterable[Row], columns: Sequence[Column]) -> Table:
    """Return a table with one line per row.

    >>> list_rows("Losses", [{"run": "a", "loss": 0.25}], [Column("run", "run"),
    ...           Column("loss", "loss", ".1e")]).rows
    [('a', '2.5e-01')]
    """
    lines = [tuple(column.format(column.value_of(row)) for column in columns) for row in rows]
    return Table(title, tuple(column.heading for column in columns), lines)


def summarise(
    title: str,
    rows: Iterable[Row],
    keys: Sequence[Column],
    columns: Sequence[Column],
    *,
    counts: Callable[[Row], bool] = lambda row: bool(row["converged"]),
    count_heading: str = "converged",
) -> Table:
    """Return a table with one line per setting: mean ± standard deviation over the rows that count.

    Args:
        keys: columns that define a setting. Settings appear in the order of their first row.
        columns: columns that are averaged within a setting.
        counts: whether a row enters the averages, by default whether the network converged.
        count_heading: heading of the column that shows how many rows count, such as "7 of 8".

    >>> rows = [{"size": 4, "loss": 0.5, "converged": True}, {"size": 4, "converged": False}]
    >>> summarise("Losses", rows, [Column("size", "size", "d")], [Column("loss", "loss")]).rows
    [('4', '1 of 2', '0.500')]
    """
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        settings.setdefault(tuple(key.value_of(row) for key in keys), []).append(row)
    lines = []
    for setting, members in settings.items():
        included = [row for row in members if counts(row)]
        cells = [
            mean_and_deviation(map(column.value_of, included), column.form, spread=column.spread)
            for column in columns
        ]
        names = [key.format(value) for key, value in zip(keys, setting, strict=True)]
        lines.append((*names, f"{len(included)} of {len(members)}", *cells))
    headings = (*(key.heading for key in keys), count_heading)
    return Table(title, (*headings, *(column.heading for column in columns)), lines)


def mean_and_deviation(
    values: Iterable[float | None], form: str = ".3f", *, spread: bool = True
) -> str:
    """Return mean ± standard deviation of the values that are not None; a dash if all are None.

    >>> mean_and_deviation([0.25, 0.75]), mean_and_deviation([0.5]), mean_and_deviation([None])
    ('0.500 ± 0.354', '0.500', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return DASH
    mean = format(fmean(known), form)
    return f"{mean} ± {format(stdev(known), form)}" if spread and len(known) > 1 else mean


def group(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of some fields, in order of first appearance.

    >>> group([{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a")
    {(1,): [{'a': 1, 'b': 2}, {'a': 1, 'b': 3}]}
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def recorded_verdict_table(judged: Sequence[Row]) -> Table:
    """Return a table of claims judged from recorded evidence, compared with this machine's runs.

    The source of a claim omits the key of the paper if the experiment belongs to this paper.
    """
    size = next((row["size"] for row in judged if row["size"]), "nothing is recorded")
    local = [row.get("here") or {} for row in judged]
    local_size = next((result["size"] for result in local if result.get("size")), "")
    title = f"Verdicts from the recorded evidence ({size})"
    lines = []
    for row, result in zip(judged, local, strict=True):
        paper, _, location = row["source"].partition(", ")
        source = location if row["needs"].startswith(f"{paper}_") else row["source"]
        cells = row["mark"], row["text"], source, row["verdict"], row["evidence"]
        lines.append((*cells, result.get("says", "")))
    return Table(
        f"{title}; here ({local_size})" if local_size else title,
        ("", "claim", "source", "verdict", "recorded evidence", "here"),
        lines,
    )


def for_terminal(table: Any) -> Any:
    """Convert a `Table` to a right-aligned `rich.table.Table`; return other objects unchanged."""
    if not isinstance(table, Table):
        return table
    rich_table = RichTable(
        title=table.title, title_justify="left", title_style="bold", header_style="bold"
    )
    for index, heading in enumerate(table.columns):
        has_words = any(len(row[index]) > WIDE for row in table.rows)
        rich_table.add_column(heading, justify="left" if has_words or index == 0 else "right")
    for row in table.rows:
        rich_table.add_row(*map(plain_math, row))
    return rich_table


def claims_table(rows: Sequence[Row], errata: Sequence[Erratum] = ()) -> list[Any]:
    """Return a terminal table of ids, verdicts and evidence, followed by counts of the verdicts.

    A table of at most five claims also prints the statements and their errata.

    >>> row = {"id": "pan2023/lemma-2.4.4", "verdict": "holds", "evidence": "to 1e-17"}
    >>> str(claims_table([row])[-1])
    '1 claim: 1 holds'
    """
    few = len(rows) <= FEW_CLAIMS
    table = RichTable(header_style="bold", show_lines=few)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict")
    table.add_column("answer", ratio=1)
    for row in rows:
        verdict = Text(row["verdict"], style=STYLES[Verdict(row["verdict"]).tone])
        evidence = row.get("answer") or row["evidence"]
        evidence += f" ({row['size']})" if row.get("size") else ""
        if local := row.get("here"):
            here = f"here, {local['size']}" if local["size"] else "here"
            evidence += f"\n{here}: {local['says']}"
        evidence = plain_math(evidence)
        table.add_row(row["id"], verdict, Text(evidence))
    statements = []
    for row in rows if few else ():
        lines = [f"{row.get('source', row['id'])}: {row.get('text', '')}"]
        quoted = row.get("quote") and not row.get("ours")
        lines += [f"  quote: “{row['quote']}”"] if quoted else []
        lines += [
            f"  if {reading['reading']}: {reading['verdict']} ({reading['evidence']})"
            for reading in row.get("readings", ())
        ]
        lines += [f"  repeat: {row['command']}"] if row.get("command") else []
        for erratum in errata:
            if row["id"] in erratum.claims:
                lines += [f"  printed: {erratum.printed}", f"  correct: {erratum.correct}"]
                lines.append(f"  why: {erratum.why}")
        statements.append(Text(plain_math("\n".join(lines)) + "\n"))
    return [table, *statements, Text("\n".join(count_verdicts(rows)))]


def count_verdicts(rows: Sequence[Row]) -> list[str]:
    """Return a line with the counts of verdicts on claims of papers, and one on our findings."""
    lines = []
    for ours, noun in ((False, "claim"), (True, "finding")):
        counts = Counter(row["verdict"] for row in rows if bool(row.get("ours")) is ours)
        parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
        if parts:
            total = counted(counts.total(), noun)
            lines.append(f"{total}{' of ours' if ours else ''}: {', '.join(parts)}")
    return lines

"""Judged claims as a table for the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from nclab.claims.registry import errata
from nclab.claims.tables import in_this_run
from nclab.claims.verdict import STYLES, Verdict

FEW = 5
"""Claims of which there is room for more than a row."""


def claims_table(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A table of ids, verdicts and evidence, and the counts of verdicts, our findings apart.

    Of a few claims also the statements and, where they need it, what they should say.

    >>> row = {"id": "pan2023/lemma-2.4.4", "verdict": "holds", "evidence": "to 1e-17"}
    >>> str(claims_table([row])[-1])
    '1 claim: 1 holds'
    """
    table = Table(header_style="bold", show_lines=len(rows) <= FEW)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict")
    table.add_column("evidence", ratio=1)
    for row in rows:
        verdict = Text(row["verdict"], style=STYLES[Verdict(row["verdict"]).look.tone])
        table.add_row(row["id"], verdict, Text(_evidence(row)))
    statements = [_statement(row) for row in rows] if len(rows) <= FEW else []
    papers, ours = ([row for row in rows if bool(row.get("ours")) is own] for own in (False, True))
    lines = [_counted(papers, "claim", "claims")] if papers else []
    lines += [_counted(ours, "finding of ours", "findings of ours")] if ours else []
    return [table, *statements, Text("\n".join(lines))]


def _counted(rows: Sequence[Mapping[str, Any]], one: str, many: str) -> str:
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    return f"{len(rows)} {one if len(rows) == 1 else many}: {', '.join(parts)}"


def _statement(row: Mapping[str, Any]) -> Text:
    """What is claimed, in our words, and what the errata have to say about it."""
    lines = [f"{row.get('source', row['id'])}: {row.get('text', '')}"]
    for erratum in errata():
        if row["id"] in erratum.claims:
            lines += [f"  printed: {erratum.printed}", f"  correct: {erratum.correct}"]
            lines.append(f"  why: {erratum.why}")
    return Text("\n".join(lines) + "\n")


def _evidence(row: Mapping[str, Any]) -> str:
    """With the size of the evidence, and what this machine's own runs say beside it."""
    words = str(row["evidence"])
    if row.get("size"):
        words += f" ({row['size']})"
    return "\n".join(filter(None, (words, in_this_run(row))))

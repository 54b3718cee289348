"""Judged claims as a table for the terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from nclab.claims.verdict import Verdict

STYLES = {
    Verdict.HOLDS: "green",
    Verdict.REPRODUCED: "green",
    Verdict.CORRECTED: "yellow",
    Verdict.PARTLY: "yellow",
    Verdict.REFUTED: "red",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.OPEN: "dim",
}


def claims_table(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A table of ids, verdicts and evidence, and a line that counts the verdicts.

    >>> row = {"id": "pan2023/lemma-2.4.4", "verdict": "holds", "evidence": "to 1e-17"}
    >>> str(claims_table([row])[1])
    '1 claim: 1 holds'
    """
    table = Table(header_style="bold", show_lines=len(rows) <= 5)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict")
    table.add_column("evidence", ratio=1)
    for row in rows:
        verdict = Text(row["verdict"], style=STYLES[Verdict(row["verdict"])])
        table.add_row(row["id"], verdict, Text(_evidence(row)))
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    noun = "claim" if len(rows) == 1 else "claims"
    return [table, Text(f"{len(rows)} {noun}: {', '.join(parts)}")]


def _evidence(row: Mapping[str, Any]) -> str:
    """With the preset where the numbers are those of an experiment, as it may be another one."""
    preset = row.get("preset") if row.get("needs") else None
    return f"{row['evidence']} (preset {preset})" if preset else str(row["evidence"])

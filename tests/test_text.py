"""Tables for people: on a narrow terminal lines go before digits do."""

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.text import as_html, as_text

NUMBERS = ("0.0004123", "-0.3333", "6.398e-37", "1-9.9e-07", "0.08921", "-0.04002", "1.333")


def wide() -> Table:
    """A table that takes more than 80 columns."""
    table = Table(header_style="bold")
    table.add_column("metric")
    for place in range(len(NUMBERS)):
        table.add_column(f"column {place}", justify="right")
    table.add_row("a name", *NUMBERS)
    return table


def test_numbers_are_whole_at_every_width() -> None:
    for width in (100, 80, 72):
        shown = as_text(Group(wide(), "words"), width=width)
        assert "…" not in shown
        assert all(number in shown for number in NUMBERS), width
        assert max(map(len, shown.splitlines())) <= width


def test_a_table_with_room_keeps_its_lines() -> None:
    assert "│" in as_text(wide(), width=120)


def test_a_notebook_shows_nothing_while_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich would display what it prints, and write nothing, where it believes in a notebook."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    shown: list[object] = []
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    assert "6.398e-37" in as_text(wide(), width=80)
    assert not shown


def test_tables_as_html_are_tables() -> None:
    page = as_html(Group(wide(), Text("a < b")))
    assert page.count("<table>") == 1
    assert page.count("<td") == 8
    assert '<td style="text-align:right">6.398e-37</td>' in page
    assert page.endswith("<p>a &lt; b</p>")

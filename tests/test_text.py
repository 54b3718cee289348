"""Tables keep their digits on narrow terminals, and text from files cannot control the terminal."""

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from nclab.text import Printed, as_html, as_text, printable

NUMBERS = ("0.0004123", "-0.3333", "6.398e-37", "1-9.9e-07", "0.08921", "-0.04002", "1.333")


def wide_table() -> Table:
    """Return a table that is wider than 80 characters."""
    table = Table(header_style="bold")
    table.add_column("metric")
    for index in range(len(NUMBERS)):
        table.add_column(f"column {index}", justify="right")
    table.add_row("a name", *NUMBERS)
    return table


def test_numbers_are_complete_at_every_width() -> None:
    for width in (100, 80, 72):
        text = as_text(Group(wide_table(), "words"), width=width)
        assert "…" not in text
        assert all(number in text for number in NUMBERS), width
        assert max(map(len, text.splitlines())) <= width


def test_a_table_with_enough_space_keeps_its_borders() -> None:
    assert "│" in as_text(wide_table(), width=120)


def test_a_notebook_displays_nothing_while_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, rich would display the table and write nothing to the stream."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    displayed: list[object] = []
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: displayed.append(parts))
    assert "6.398e-37" in as_text(wide_table(), width=80)
    assert not displayed


def test_tables_become_html_tables() -> None:
    page = as_html(Group(wide_table(), Text("a < b")))
    assert page.count("<table>") == 1
    assert page.count("<td") == 8
    assert '<td style="text-align:right">6.398e-37</td>' in page
    assert page.endswith("<p>a &lt; b</p>")


def test_a_notebook_shows_the_text() -> None:
    class Result(Printed):
        def __rich__(self) -> Text:
            return Text("a < b")

    assert Result()._repr_html_() == "<p>a &lt; b</p>"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\r", "\x9b", "\u202e"])
def test_control_characters_are_replaced(character: str) -> None:
    assert printable(f"a{character}b") == "a\ufffdb"
    assert printable("plain – ü\tx") == "plain – ü\tx"

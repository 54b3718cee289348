"""Sentences that claim most ("exact", "every", ...) are listed with a proof or an attack."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\b(exact(ly)?|closed[ -]forms?|best|every|always)\b", re.IGNORECASE)
PAGES = ("certificates", "targets", "ulpm")


def plain(text: str) -> str:
    """Return the text without marks of emphasis, quotes of code and tables, in one line."""
    return re.sub(r"[|>\s]+", " ", re.sub("[*`]", "", text)).strip()


def rows() -> list[tuple[str, str, str]]:
    """Return statement, page and evidence of every row."""
    lines = (ROOT / "docs/design/strong_words.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [(plain(a), page.strip(), evidence) for a, page, evidence in cells[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_every_strong_word_is_listed(page: str) -> None:
    text = plain((ROOT / f"docs/{page}.md").read_text(encoding="utf-8"))
    covered: set[int] = set()
    for statement, of_page, _ in rows():
        if of_page != page:
            continue
        assert WORDS.search(statement), statement
        starts = [match.start() for match in re.finditer(re.escape(statement), text)]
        assert starts, f"the page does not say: {statement}"
        covered.update(*(range(start, start + len(statement)) for start in starts))
    missing = [match for match in WORDS.finditer(text) if match.start() not in covered]
    assert not missing, [text[max(0, m.start() - 60) : m.end() + 60] for m in missing]


def test_proofs_and_attacks_exist() -> None:
    for statement, page, evidence in rows():
        assert re.search(r"proof: |attack: |a definition|a heading", evidence), statement
        text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
        for section in re.findall("“(.+?)”", evidence):
            assert f"## {section}" in text, (page, section)
        for path in re.findall(r"`((?:tests|benchmarks)/[^`]+)`", evidence):
            file, _, name = path.partition("::")
            assert (ROOT / file).is_file(), path
            assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), path

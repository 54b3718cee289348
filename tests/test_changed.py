"""`make check` runs the tests of what changed."""

import pytest

from tests.changed import ALWAYS, CORE, chosen_for


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("src/nclab/errors.py", ("src/nclab/errors.py", *CORE)),
        ("src/nclab/text.py", ("src/nclab/text.py", "tests/test_text.py")),
        ("src/nclab/report/assets/run.js", ("tests/report",)),
        ("src/nclab/no_such/thing.py", CORE),
        ("tests/test_text.py", ("tests/test_text.py",)),
        ("tests/report/folders.py", ("tests/report",)),
        ("tests/reference/slow.py", CORE),
        ("tests/conftest.py", CORE),
        ("docs/build_errata.py", ("tests/test_docs.py",)),
        ("README.md", ("tests/test_docs.py",)),
        ("pyproject.toml", CORE),
    ],
)
def test_a_file_has_its_tests(file: str, wanted: tuple[str, ...]) -> None:
    assert chosen_for([file]) == [*ALWAYS, *wanted]

"""The scripts and styles of the pages stay readable, even without their linter."""

from nclab.report.pages import ASSETS


def test_lines_fit_a_screen() -> None:
    files = [*ASSETS.glob("*.js"), *ASSETS.glob("*.css")]
    assert len(files) > 5
    for file in files:
        long = [line for line in file.read_text().splitlines() if len(line) > 100]
        assert not long, f"{file.name}: {long}"

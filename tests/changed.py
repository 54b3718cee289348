"""Runs the tests of what changed since `main`, or the core of them, for 45 seconds.

python -m tests.changed [OPTIONS OF PYTEST]
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALWAYS = ("tests/test_imports.py",)
CORE = (
    *(f"tests/{room}" for room in ("statistics", "metrics", "features", "measurement", "models")),
    *(f"tests/{room}" for room in ("data", "figures")),
    "tests/cli/test_measure.py",
    "tests/records/test_run.py",
)
"""Fast, and where most mistakes show."""
SECONDS = 45.0
"""So long tests begin."""


def changed() -> list[str]:
    """Files that differ from `main` or, there, from the last commit; new ones too."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return _git("diff", "--name-only", *base) + _git("ls-files", "--others", "--exclude-standard")


def chosen_for(files: Iterable[str]) -> list[str]:
    """What to hand to pytest: mirrors and doctests of sources, tests themselves; else the core.

    >>> chosen_for(["src/nclab/text.py", "docs/sweep.md"])
    ['tests/test_imports.py', 'src/nclab/text.py', 'tests/test_text.py', 'tests/test_docs.py']
    """
    found = [test for file in files for test in _of(Path(file))]
    return list(dict.fromkeys([*ALWAYS, *(found or CORE)]))


def _of(file: Path) -> Iterator[str]:
    match file.parts:
        case ("src", "nclab", *folders, _):
            if file.suffix == ".py" and (ROOT / file).exists():
                yield str(file)  # its doctests
            test = Path("tests", *folders, f"test_{file.stem}.py")
        case ("docs" | "examples", *_) | (_,) if file.suffix in (".md", ".py"):
            test = Path("tests", "test_docs.py")
        case _:
            test = file
    if test.name.startswith("test_") and (ROOT / test).exists():
        yield str(test)
    else:  # a helper, or many tests: those of its folder
        with_tests = (up for up in test.parents if any((ROOT / up).glob("test_*.py")))
        folder = str(next(with_tests, "tests"))
        yield from CORE if folder == "tests" else (folder,)


@cache
def deadline() -> float:
    """Of this process; its clock starts with its first test."""
    return time.monotonic() + SECONDS


def pytest_runtest_setup() -> None:
    """Skips what would begin too late; this file is a plugin of the run that it starts."""
    if time.monotonic() > deadline():
        pytest.skip("no time is left: `make test` runs it")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1]


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-p", "tests.changed", *sys.argv[1:], *chosen_for(changed())]))

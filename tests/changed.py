"""Run the tests of files that changed since `main`, otherwise the core tests, for 45 seconds.

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
    *(f"tests/{package}" for package in ("statistics", "metrics", "features", "measurement")),
    *(f"tests/{package}" for package in ("training/data", "training/models", "figures")),
    "tests/cli/test_measure.py",
    "tests/records/test_run.py",
)
"""Fast tests that find most mistakes."""
SECONDS = 45.0
"""Time after which no further test starts."""


def changed() -> list[str]:
    """Return new files and those that differ from `main`, or on `main` from the last commit."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return _git("diff", "--name-only", *base) + _git("ls-files", "--others", "--exclude-standard")


def chosen_for(files: Iterable[str]) -> list[str]:
    """Return the arguments for pytest: doctests and tests of the files, otherwise the core tests.

    >>> chosen_for(["src/nclab/text.py", "docs/sweep.md"])
    ['tests/test_imports.py', 'src/nclab/text.py', 'tests/test_text.py', 'tests/test_docs.py']
    """
    found = [test for file in files for test in _of(Path(file))]
    return list(dict.fromkeys([*ALWAYS, *(found or CORE)]))


def _of(file: Path) -> Iterator[str]:
    match file.parts:
        case ("src", package, *folders, _):
            if file.suffix == ".py" and (ROOT / file).exists():
                yield str(file)  # for its doctests
            mirror = folders if package == "nclab" else [package, *folders]
            test = Path("tests", *mirror, f"test_{file.stem}.py")
        case ("docs" | "examples", *_) | (_,) if file.suffix in (".md", ".py"):
            test = Path("tests", "test_docs.py")
        case _:
            test = file
    if test.name.startswith("test_") and (ROOT / test).exists():
        yield str(test)
    else:  # a helper or a file without a test of its own: the tests of its folder
        with_tests = (up for up in test.parents if any((ROOT / up).glob("test_*.py")))
        folder = str(next(with_tests, "tests"))
        yield from CORE if folder == "tests" else (folder,)


@cache
def deadline() -> float:
    """Return the time after which no test starts; the clock starts with the first test."""
    return time.monotonic() + SECONDS


def pytest_runtest_setup() -> None:
    """Skip tests that would start too late. pytest loads this file as a plugin."""
    if time.monotonic() > deadline():
        pytest.skip("no time is left: `make test` runs it")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1]


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-p", "tests.changed", *sys.argv[1:], *chosen_for(changed())]))

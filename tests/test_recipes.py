"""The recipes of CONTRIBUTING work when they are followed in a copy of the source."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n# (src/nclab_papers/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the papers and of what their tests need; the library is linked."""
    no_data = shutil.ignore_patterns("__pycache__", "evidence")
    for folder in ("src/nclab_papers", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=no_data)
    (tmp_path / "src" / "nclab").symlink_to(ROOT / "src" / "nclab")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    """Run a Python command with the copy on the path; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_paper_is_added_by_its_folder_alone(copy: Path) -> None:
    files = dict(BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert {Path(name).name for name in files} == {"__init__.py", "fig1.py", "attacks.py"}
    for name, code in files.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(code)
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0"]
    chosen = "me2026 or every_claim_has or every_paper_has or has_a_statement"
    tests = ("tests/claims/test_attacks.py", "tests/claims/test_ledger.py")
    assert "passed" in run(copy, *test, *tests, "-k", chosen)
    output = run(copy, "-m", "nclab", "reproduce", "me2026", "--out", "runs")
    assert "The loss falls." in output
    assert "The Loss Falls" in (copy / "runs" / "report" / "papers" / "me2026.html").read_text()

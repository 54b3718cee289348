"""The recipes of CONTRIBUTING work when they are followed in a copy of the source."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = """
import json, shlex, sys
from tests.cli.runner import call

outputs = []
for command in sys.argv[1:]:
    done = call(*shlex.split(command))
    assert done.code == 0, done.err
    outputs.append(done.out)
print(json.dumps(outputs))
"""
"""Program that runs several commands of nclab, because importing torch takes long."""
TINY = "--samples 60 --teacher-depth 1 --layers 2 --width 4 --epochs 2 --batch 20 --norm none"
SWEEP = f"sweep --weight-decay 1e-3 --workers 0 --out runs --json {TINY}"


class Copy:
    """A copy of the source, the tests and the pages, in which recipes are followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        no_data = shutil.ignore_patterns("evidence", "tutorials", "images", "experiments")
        for name in ("src", "tests", "docs"):
            # Times of files are copied, so that compiled files stay valid.
            shutil.copytree(ROOT / name, folder / name, ignore=no_data)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def follow(self, *titles: str) -> None:
        """Write the files and apply the diffs of recipes exactly as they are printed."""
        changed = set()
        sections = re.split(r"^###? ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
        for title in titles:
            [section] = [text for text in sections if text.startswith(f"{title}\n")]
            for language, code in BLOCK.findall(section):
                changed |= self._write(code) if language == "python" else self._apply(code)
        files = sorted(name for name in changed if name.endswith(".py"))
        for command in (("check",), ("format", "--check")):
            self.run("-m", "ruff", *command, "--no-cache", *files)

    def _write(self, code: str) -> set[str]:
        first, _, content = code.partition("\n")
        name = first.removeprefix("# ")
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(content)
        return {name}

    def _apply(self, diff: str) -> set[str]:
        _, *changes = re.split(r"^--- (\S+)\n", diff, flags=re.MULTILINE)
        names = changes[::2]
        for name, parts in zip(names, changes[1::2], strict=True):
            content = "\n" + (self.folder / name).read_text()
            for part in parts.split("@@\n"):
                lines = part.splitlines()
                old = "".join(f"\n{line[1:]}" for line in lines if line[0] != "+")
                new = "".join(f"\n{line[1:]}" for line in lines if line[0] != "-")
                assert content.count(f"{old}\n") == 1, f"not once in {name}:\n{part}"
                content = content.replace(f"{old}\n", f"{new}\n")
            (self.folder / name).write_text(content.removeprefix("\n"))
        return set(names)

    def run(self, *words: str) -> str:
        """Run Python with the copy on the path; return its output."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test(self, *files: str, only: str) -> None:
        """Run the tests of the copy whose names contain the words of `only`."""
        assert "passed" in self.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", *files, "-k", only
        )

    def nclab(self, *commands: str) -> list[str]:
        """Run commands of nclab; return the output of each."""
        outputs: list[str] = json.loads(self.run("-c", COMMANDS, *commands))
        return outputs


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_metric_is_measured_and_tested(copy: Copy) -> None:
    copy.follow("A metric")
    tests = [f"tests/metrics/test_{name}.py" for name in ("contract", "against_reference")]
    tests += ["tests/metrics/test_exact_etf.py", "src/nclab/metrics/nc1_variability.py"]
    copy.test(*tests, only="nc1_worst_class or invariances or slow_loops or ideal or catalogue")
    labels = np.arange(12) % 3
    np.savez(copy.folder / "mine.npz", features=np.eye(3)[labels], labels=labels)
    table, text = copy.nclab("measure mine.npz", "measure mine.npz --json")
    assert "nc1_worst_class" in table
    assert "largest variance / tr Σ_B" in table
    assert json.loads(text)["nc1_worst_class"] == 0.0


def test_a_paper_is_added_by_its_folder_alone(copy: Copy) -> None:
    copy.follow("A paper", "An experiment and its claims")
    added = sorted(file.name for file in (copy.folder / "src/nclab_papers/me2026").iterdir())
    assert added == ["__init__.py", "attacks.py", "fig1.py"]
    tests = ("tests/claims/test_attacks.py", "tests/claims/test_ledger.py")
    copy.test(*tests, only="me2026 or every_claim_has or every_paper_has or has_a_statement")
    [output] = copy.nclab("reproduce me2026 --out runs")
    assert "The loss falls." in output
    page = copy.folder / "runs" / "report" / "papers" / "me2026.html"
    assert "The Loss Falls" in page.read_text()


def test_a_loss_trains_networks_with_both_backends(copy: Copy) -> None:
    copy.follow("A loss for training")
    files = (
        "tests/training/fleet/test_optimizers.py",
        "tests/training/fleet/test_torch_backend.py",
    )
    copy.test(*files, only="logistic and not dtype1 and not adam and not signum")
    [output] = copy.nclab(f"{SWEEP} --loss logistic")
    [row] = json.loads(output)
    assert row["objective"] == "logistic"
    assert row["trained_loss"] > 0


def test_a_field_is_written_and_read_and_shown_in_a_column(copy: Copy) -> None:
    copy.follow("A field of a record", "A column of `nclab runs`")
    files = ("tests/records/test_schema.py", "tests/records/test_version1.py")
    copy.test(*files, only="a_sweep_writes or they_are_read")
    shutil.copytree(copy.folder / "tests/records/version1/whole", copy.folder / "runs/whole")
    _, table, listed, exported = copy.nclab(
        SWEEP, "runs runs", "runs runs --json", "export runs --json"
    )
    assert re.search(r"│ +epoch +│ +samples +│", table.replace("┃", "│"))
    seen = {row["kind"]: row["samples_seen"] for row in json.loads(listed)}
    assert seen == {"fleet": 120, "demo": None}
    assert {row["samples_seen"] for row in json.loads(exported)} == {120, None}


def test_a_data_set_becomes_options_of_the_sweep(copy: Copy) -> None:
    copy.follow("A data set")
    options = SWEEP.replace("--samples 60 --teacher-depth 1", "--data clouds --clouds-samples 60")
    near, far = copy.nclab(f"{options} --clouds-spread 0.1,0.2", "verify runs --numbers --json")
    assert {row["data_spread"] for row in json.loads(near)} == {0.1, 0.2}
    assert {result["state"] for result in json.loads(far)} == {"good"}

"""A tiny paper: one experiment, one claim, one erratum, as a folder or as an installed package."""

import zipfile
from pathlib import Path

KEY = "tiny2026"
INIT = '''"""Two and two."""

from nclab.claims.paper import Paper

PAPER = Paper("tiny2026", "On Two and Two", "A. Author", 2026)
'''
SUM = '''"""The sum of two and two, one experiment and what the paper says of it."""

from dataclasses import asdict, dataclass

from nclab.figures.picture import Panel, Picture, Series
from nclab.claims.claim import Kind, claim
from nclab.claims.paper import Erratum
from nclab.claims.tables import Table
from nclab.claims.claim import Finding, Verdict

NAME = "tiny2026_sum"


@dataclass(frozen=True)
class Config:
    first: int = 2


PRESETS = {"quick": Config(), "paper": Config()}
ERRATA = (Erratum("tiny2026, Eq. (1)", "5", "4", "It is even.", ("tiny2026/eq-1",)),)


def run(config, *, seeds, out, engine=None):
    return {"config": asdict(config), "sum": config.first + 2}


def tables(numbers):
    return [Table("Sums", ("first", "sum"), [("2", str(numbers["sum"]))])]


def pictures(numbers):
    line = Series("sum", [0, 1], [0, numbers["sum"]])
    return [Picture("sum", "The sum", (Panel("", "x", "y", (line,)),))]


@claim("tiny2026/eq-1", Kind.RESULT, "Two and two are five.", "tiny2026, Eq. (1)", needs=NAME)
def five(numbers):
    right = numbers["sum"] == 5
    verdict = Verdict.REPRODUCED if right else Verdict.CONTRADICTED
    return Finding(verdict, f"the sum is {numbers['sum']}", {"sum": numbers["sum"]})
'''
EVIDENCE = '{"preset": "paper", "seeds": [0], "config": {"first": 2}, "sum": 4}'
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_folder(root: Path) -> Path:
    """The paper as a folder below `root`."""
    folder = root / KEY
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(INIT)
    (folder / "sum.py").write_text(SUM)
    (folder / "evidence").mkdir()
    (folder / "evidence" / "tiny2026_sum.json").write_text(EVIDENCE)
    return folder


def write_wheel(root: Path) -> Path:
    """The paper as a package of its own, ready to be installed."""
    wheel = root / "tiny_paper-1.0-py3-none-any.whl"
    info = "tiny_paper-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny_paper/__init__.py", INIT)
        file.writestr("tiny_paper/sum.py", SUM)
        file.writestr("tiny_paper/evidence/tiny2026_sum.json", EVIDENCE)
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-paper\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", WHEEL)
        file.writestr(f"{info}/entry_points.txt", "[nclab.papers]\ntiny = tiny_paper\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel

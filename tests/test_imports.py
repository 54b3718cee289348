"""Imports go one way: who may import whom, held by a table."""

import ast
from pathlib import Path

import nclab

ROOT = Path(nclab.__file__).parent
BASE = {"errors", "papers", "files", "progress", "text", "threads"}
EVERYTHING = {
    "data",
    "models",
    "training",
    "features",
    "statistics",
    "metrics",
    "measurement",
    "ulpm",
    "theory",
    "claims",
    "monitor",
    "records",
    "engine",
    "experiments",
    "figures",
    "report",
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "papers": set(),
    "files": {"errors"},
    "progress": set(),
    "text": set(),
    "threads": set(),
    "data": BASE,
    "models": BASE,
    "training": BASE | {"models"},
    "records": BASE,
    "engine": BASE,
    "features": BASE,
    "statistics": BASE,
    "metrics": BASE | {"statistics"},
    "ulpm": BASE | {"statistics", "metrics"},
    "theory": BASE | {"statistics", "metrics", "ulpm"},
    "measurement": BASE | {"features", "statistics", "metrics", "theory", "figures"},
    "claims": BASE | {"statistics", "metrics", "ulpm", "theory", "measurement", "data", "models"},
    "monitor": BASE | {"features", "statistics", "metrics", "theory", "measurement", "records"},
    "figures": BASE | {"records"},
    "report": BASE | {"records", "figures", "metrics"},
    "experiments": BASE | EVERYTHING,
    "cli": BASE | EVERYTHING,
}


def imported_rooms(file: Path) -> set[str]:
    """The rooms of nclab that a file imports, wherever in the file it does so."""
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("nclab.")}
    return rooms - {"__version__"}


def test_imports_go_one_way() -> None:
    seen = set()
    for file in sorted(ROOT.rglob("*.py")):
        room = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        seen.add(room)
        assert room in MAY_IMPORT, f"{file}: give {room} a row in the table"
        forbidden = imported_rooms(file) - MAY_IMPORT[room] - {room}
        assert not forbidden, f"{file.relative_to(ROOT)} may not import {sorted(forbidden)}"
    assert seen == set(MAY_IMPORT), "the table names rooms that do not exist"


def test_public_names_are_few_and_there() -> None:
    assert len(nclab.__all__) <= 25
    for name in nclab.__all__:
        assert getattr(nclab, name) is not None
    assert set(dir(nclab)) == set(nclab.__all__)

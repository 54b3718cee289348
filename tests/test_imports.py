"""Imports go one way: who may import whom, without a circle, from packages that are declared."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import nclab

ROOT = Path(nclab.__file__).parent
GROUND = {
    "compiler",
    "errors",
    "files",
    "folder_marks",
    "folders",
    "frame",
    "plugins",
    "progress",
    "regular_files",
    "tensor_trees",
    "text",
    "threads",
}
"""What any room may stand on."""
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "compiler": {"errors"},
    "files": {"errors"},
    "folder_marks": {"errors", "files", "regular_files"},
    "folders": {"errors", "files", "folder_marks"},
    "frame": {"errors"},
    "plugins": {"errors"},
    "progress": set(),
    "regular_files": set(),
    "tensor_trees": {"errors", "files"},
    "text": set(),
    "threads": set(),
    "data": set(),
    "models": set(),
    "training": {"models"},
    "records": set(),
    "engine": set(),
    "features": set(),
    "statistics": set(),
    "metrics": {"statistics"},
    "figures": set(),
    "theory": {"figures", "metrics"},
    "measurement": {"data", "engine", "features", "figures", "metrics", "statistics", "theory"},
    "ulpm": {"data", "figures", "metrics", "statistics"},
    "monitor": {"features", "figures", "measurement", "metrics", "records", "statistics"},
    "report": {"figures", "metrics", "records"},
    "papers": {
        "data",
        "engine",
        "figures",
        "measurement",
        "metrics",
        "models",
        "monitor",
        "records",
        "report",
        "statistics",
        "theory",
        "training",
        "ulpm",
    },
    "cli": {
        "data",
        "engine",
        "measurement",
        "papers",
        "records",
        "report",
        "theory",
        "training",
        "ulpm",
    },
}
"""Beside the ground. Every edge is used: what no file needs any more is taken out."""
SINCE_STARTED = {"nclab"}
"""Is loaded before any of its modules: `from nclab import __version__` waits for nothing."""


def modules() -> dict[str, Path]:
    """Every module of nclab, a package under its own name."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = ("nclab", *file.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported(file: Path) -> Iterator[str]:
    """What a file imports, wherever in the file it does so.

    Not what stands under TYPE_CHECKING: mypy reads it and minds no circle, and it is never run.
    """
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def graph() -> dict[str, set[str]]:
    """Module -> the modules of nclab that it imports, early or late."""
    known = modules()
    edges: dict[str, set[str]] = {}
    for name, file in known.items():
        own = {word for word in imported(file) if word.split(".")[0] == "nclab"}
        shortcuts = {f"nclab.{one}" for one in nclab.__all__} - set(known)
        assert not own & shortcuts, f"{name}: import {sorted(own & shortcuts)} from their modules"
        edges[name] = {one if one in known else one.rpartition(".")[0] for one in own}
    return edges


def test_no_circle() -> None:
    """Not even by imports inside functions, where a circle waits for its moment."""
    edges = {name: ones - SINCE_STARTED for name, ones in graph().items()}
    assert set.union(*edges.values()) <= set(edges), "an import of what is not there"
    tuple(TopologicalSorter(edges).static_order())  # raises a CycleError that names the circle


def test_imports_go_one_way() -> None:
    tuple(TopologicalSorter(MAY_IMPORT).static_order())
    used: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for name, ones in graph().items():
        room = name.split(".")[1] if "." in name else ""
        if room in ("", "__main__"):
            continue
        assert room in MAY_IMPORT, f"{name}: give {room} a row in the table"
        rooms = {one.split(".")[1] for one in ones - SINCE_STARTED} - {room}
        ground = set() if room in GROUND else GROUND
        forbidden = rooms - MAY_IMPORT[room] - ground
        assert not forbidden, f"{name} may not import {sorted(forbidden)}"
        used[room] |= rooms
    unused = {room: sorted(ones - used[room]) for room, ones in MAY_IMPORT.items()}
    assert not any(unused.values()), {room: ones for room, ones in unused.items() if ones}
    assert set(used) == {name.split(".")[1] for name in graph() if "." in name} - {"__main__"}


def test_imported_packages_are_declared() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]
    core, extras = project["dependencies"], project["optional-dependencies"]
    wanted = [*core, *(one for name, ones in extras.items() if name != "dev" for one in ones)]
    declared = {re.split(r"[\[<>=]", line)[0] for line in wanted}
    homes = packages_distributions()
    for name, file in modules().items():
        for package in {word.split(".")[0] for word in imported(file)}:
            if package == "nclab" or package in sys.stdlib_module_names:
                continue
            brought = {one.lower() for one in homes.get(package, [package])}
            assert declared & brought, f"{name} imports {package}: declare it in pyproject.toml"


def test_public_names_are_few_and_there() -> None:
    assert len(nclab.__all__) <= 25
    for name in nclab.__all__:
        assert getattr(nclab, name) is not None
    assert set(dir(nclab)) == set(nclab.__all__)

"""Packages import each other as the table allows, without cycles, and declare dependencies."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import nclab

SRC = Path(nclab.__file__).parents[1]
PACKAGES = ("nclab", "nclab_papers")
GROUND = {
    "array_files",
    "compute",
    "errors",
    "files",
    "plugins",
    "progress",
    "text",
}
"""Top-level modules that every package may import."""
MAY_IMPORT: dict[str, set[str]] = {
    "statistics": set(),
    "metrics": {"statistics"},
    "features": set(),
    "figures": set(),
    "engine": set(),
    "records": set(),
    "theory": {"figures", "metrics"},
    "measurement": {"engine", "features", "figures", "metrics", "statistics", "theory"},
    "ulpm": {"figures", "measurement", "metrics", "records", "statistics"},
    "monitor": {"features", "figures", "measurement", "metrics", "records", "statistics"},
    "report": {"figures", "metrics", "records"},
    "training.data": set(),
    "training.models": set(),
    "training.fleet": {"training.models"},
    "training.sweep": {
        "engine",
        "measurement",
        "metrics",
        "records",
        "training.data",
        "training.fleet",
        "training.models",
    },
    "claims": {"engine", "figures", "records", "report", "theory", "training.sweep"},
    "cli": {
        "claims",
        "engine",
        "measurement",
        "records",
        "report",
        "theory",
        "training.data",
        "training.sweep",
        "ulpm",
    },
}
"""Package -> packages that it may import besides the top-level modules. Every entry is used."""
SINCE_STARTED = {"nclab"}
"""Modules that are loaded first: `from nclab import __version__` cannot close a cycle."""


def modules() -> dict[str, Path]:
    """Return every module of both packages by its dotted name; a package has its own name."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (SRC / package).rglob("*.py")):
        name = ".".join(file.relative_to(SRC).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = file
    return found


def imported(file: Path, *, typing: bool = True) -> Iterator[str]:
    """Yield the names that a file imports anywhere, with or without those under TYPE_CHECKING."""
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    """Return the package that the table names for a module.

    >>> room_of("nclab.training.data.artificial"), room_of("nclab.figures.seeds"), room_of("nclab")
    ('training.data', 'figures', '')
    """
    parts = module.split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == ["training"] else parts[:1])


@functools.cache
def graph(typing: bool) -> dict[str, set[str]]:
    """Return for every module the modules of both packages that it imports anywhere."""
    known = modules()
    edges: dict[str, set[str]] = {}
    for name, file in known.items():
        used = {word for word in imported(file, typing=typing) if word.split(".")[0] in PACKAGES}
        shortcuts = {f"nclab.{public}" for public in nclab.__all__} - set(known)
        assert not used & shortcuts, f"{name}: import {sorted(used & shortcuts)} from their modules"
        edges[name] = {word if word in known else word.rpartition(".")[0] for word in used}
    return edges


@pytest.mark.parametrize("typing", [False, True], ids=["run", "type-checking"])
def test_no_cycle(typing: bool) -> None:
    """No import closes a cycle, not even inside functions or for the type checker."""
    edges = {name: names - SINCE_STARTED for name, names in graph(typing).items()}
    assert set.union(*edges.values()) <= set(edges), "an import of a missing module"
    tuple(TopologicalSorter(edges).static_order())  # raises a CycleError that names the cycle


def test_the_library_does_not_import_the_papers() -> None:
    for name, names in graph(typing=True).items():
        if name.startswith("nclab."):
            assert not {one for one in names if one.startswith("nclab_papers")}, name


def test_imports_go_one_way() -> None:
    tuple(TopologicalSorter(MAY_IMPORT).static_order())
    used: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for name, names in graph(typing=False).items():
        room = room_of(name)
        if name.startswith("nclab_papers") or room in ("", "__main__", "training", *GROUND):
            continue
        assert room in MAY_IMPORT, f"{name}: add {room} to the table"
        rooms = {room_of(one) for one in names - SINCE_STARTED} - {room}
        forbidden = rooms - MAY_IMPORT[room] - GROUND
        assert not forbidden, f"{name} may not import {sorted(forbidden)}"
        used[room] |= rooms
    unused = {room: sorted(rooms - used[room]) for room, rooms in MAY_IMPORT.items()}
    assert not any(unused.values()), {room: rooms for room, rooms in unused.items() if rooms}


def test_the_ground_stands_on_itself() -> None:
    for name, names in graph(typing=False).items():
        if room_of(name) in GROUND:
            assert {room_of(one) for one in names - SINCE_STARTED} <= GROUND, name


def test_imported_packages_are_declared() -> None:
    project = tomllib.loads((SRC.parent / "pyproject.toml").read_text())["project"]
    core, extras = project["dependencies"], project["optional-dependencies"]
    wanted = [*core, *(one for name, ones in extras.items() if name != "dev" for one in ones)]
    declared = {re.split(r"[\[<>=]", line)[0] for line in wanted}
    homes = packages_distributions()
    for name, file in modules().items():
        for package in {word.split(".")[0] for word in imported(file)}:
            if package in PACKAGES or package in sys.stdlib_module_names:
                continue
            brought = {one.lower() for one in homes.get(package, [package])}
            assert declared & brought, f"{name} imports {package}: declare it in pyproject.toml"


def test_public_names_are_few_and_there() -> None:
    assert len(nclab.__all__) <= 25
    for name in nclab.__all__:
        assert getattr(nclab, name) is not None
    assert set(dir(nclab)) == set(nclab.__all__)

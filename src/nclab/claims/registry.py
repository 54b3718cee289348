"""Registry of papers: finds installed papers with their experiments, claims and errata.

A package registers papers through the entry point `nclab.papers`. The entry point names either a
paper, which is a package with a `PAPER`, or a package whose subpackages are papers. A module of a
paper that has `PRESETS` is an experiment; every `Claim` and `Erratum` that a module names belongs
to the paper. Nothing else lists papers.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from nclab import plugins
from nclab.claims.attacks import Attacks
from nclab.claims.claim import OURS, Claim
from nclab.claims.paper import Erratum, Experiment, Paper
from nclab.errors import NclabError

ATTACKS_MODULE = "attacks"
"""Module of a paper's folder that contains the attacks on its claims; imported by tests only."""


@cache
def packages() -> dict[str, ModuleType]:
    """Return the package of every paper by its key; the findings of this project come first."""
    by_key: dict[str, ModuleType] = {}
    registered = plugins.plugins("papers").values()
    for package in (paper for value in registered for paper in _paper_packages(value)):
        paper = getattr(package, "PAPER", None)
        if isinstance(paper, Paper):
            if paper.key in by_key:
                raise NclabError(
                    f"Expected one package with the paper {paper.key!r}, got "
                    f"{by_key[paper.key].__name__} and {package.__name__}. Uninstall one of them."
                )
            by_key[paper.key] = package
    return dict(sorted(by_key.items(), key=lambda item: item[0] != OURS))


def papers() -> dict[str, Paper]:
    """Return every paper by its key, in alphabetical order.

    >>> papers()["ji2022"].year
    2022
    """
    return {key: package.PAPER for key, package in sorted(packages().items())}


@cache
def experiments() -> dict[str, Experiment]:
    """Return every experiment by its name, in running order."""
    named: dict[str, Any] = {}
    for key in packages():
        for module in _modules(key):
            if hasattr(module, "PRESETS"):
                default = f"{key}_{module.__name__.rpartition('.')[2]}"
                named[getattr(module, "NAME", default)] = module
    return named


def find_experiments(names: Sequence[str]) -> dict[str, Experiment]:
    """Return experiments by name; the key of a paper selects all of its experiments.

    Without names, return every experiment.

    >>> list(find_experiments(["tour", "ji2022_fig2"]))
    ['tour', 'ji2022_fig2']
    """
    known = experiments()
    chosen: dict[str, Experiment] = {}
    for name in names or known:
        if name in packages():
            chosen |= {key: known[key] for key in known if key.startswith(f"{name}_")}
        elif name in known:
            chosen[name] = known[name]
        else:
            raise NclabError(
                f"Expected an experiment, one of {', '.join(known)}, or a paper, one of "
                f"{', '.join(packages())}; got {name!r}."
            )
    return chosen


def paper_of(name: str) -> str:
    """Return the key of the paper whose folder contains an experiment."""
    module = cast(ModuleType, experiments()[name]).__name__.rpartition(".")[0]
    return next(key for key, package in packages().items() if package.__name__ == module)


@cache
def claims() -> tuple[Claim, ...]:
    """Return every claim, ordered by paper."""
    values = (value for key in packages() for value in contents(key))
    return tuple({value.id: value for value in values if isinstance(value, Claim)}.values())


@cache
def errata() -> tuple[Erratum, ...]:
    """Return every erratum, ordered by paper."""
    return tuple(
        erratum
        for key in packages()
        for module in _modules(key)
        for erratum in getattr(module, "ERRATA", ())
    )


@cache
def attacks() -> dict[str, Attacks]:
    """Return the attacks on the claims of every paper that has some, by the key of the paper."""
    return {
        key: import_module(f"{package.__name__}.{ATTACKS_MODULE}").ATTACKS
        for key, package in packages().items()
        if ATTACKS_MODULE in _names(package)
    }


def contents(paper: str) -> Iterator[object]:
    """Yield every object that the modules of a paper define or import, module by module."""
    for module in _modules(paper):
        yield from vars(module).values()


def forget() -> None:
    """Clear the caches, for example after a package was installed."""
    plugins.clear_cache()
    for cached in (packages, experiments, claims, errata, attacks):
        cached.cache_clear()


def _modules(key: str) -> Iterator[ModuleType]:
    """Yield the modules of a paper, those in `PAPER.parts` first."""
    package = packages()[key]
    first = package.PAPER.parts
    names = [name for name in _names(package) if name != ATTACKS_MODULE]
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        yield import_module(f"{package.__name__}.{name}")


def _paper_packages(registered: ModuleType) -> Iterator[ModuleType]:
    """Yield the registered package if it is a paper, otherwise its subpackages."""
    if hasattr(registered, "PAPER") or not hasattr(registered, "__path__"):
        yield registered
        return
    for name in _names(registered, only_packages=True):
        yield import_module(f"{registered.__name__}.{name}")


def _names(package: ModuleType, *, only_packages: bool = False) -> list[str]:
    """Return the sorted names of the modules directly in a package."""
    modules = pkgutil.iter_modules(package.__path__)
    return sorted(info.name for info in modules if info.ispkg or not only_packages)

"""Find the installed papers with their experiments, claims and errata.

A package registers papers through the entry point `nclab.papers`. The entry point names either a
paper, which is a package with a `PAPER`, or a package whose subpackages are papers. A module of a
paper that has `PRESETS` is an experiment; every `Claim` and `Erratum` that a module names belongs
to the paper. Papers are listed nowhere else.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import cast

from nclab import plugins
from nclab.claims.claim import Claim
from nclab.claims.erratum import Erratum
from nclab.claims.experiment import Experiment
from nclab.claims.paper import Paper
from nclab.errors import NclabError


@cache
def packages() -> dict[str, ModuleType]:
    """Return the package of every paper by its key, in the order of entry points and names."""
    found: dict[str, ModuleType] = {}
    registered = plugins.plugins("papers").values()
    for package in (paper for value in registered for paper in _paper_packages(value)):
        paper = getattr(package, "PAPER", None)
        if isinstance(paper, Paper):
            if paper.key in found:
                raise NclabError(
                    f"Expected one paper for a key, got {found[paper.key].__name__} and "
                    f"{package.__name__} for {paper.key!r}. Uninstall one of them."
                )
            found[paper.key] = package
    return found


def papers() -> dict[str, Paper]:
    """Every paper by its key.

    >>> papers()["ji2022"].year
    2022
    """
    return {key: package.PAPER for key, package in packages().items()}


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, in the order in which they run.

    >>> "tour" in experiments(), "pan2023_fig31" in experiments()
    (True, True)
    """
    return {
        getattr(module, "NAME", f"{key}_{module.__name__.rpartition('.')[2]}"): cast(
            Experiment, module
        )
        for key in packages()
        for module in _modules(key)
        if hasattr(module, "PRESETS")
    }


def find_experiments(names: Sequence[str]) -> dict[str, Experiment]:
    """The named experiments, those of named papers, or all of them, by name.

    >>> list(find_experiments(["tour", "ji2022_fig2"]))
    ['tour', 'ji2022_fig2']
    """
    known = experiments()
    chosen: dict[str, Experiment] = {}
    for name in names or known:
        if name in packages():
            chosen |= {one: known[one] for one in known if one.startswith(f"{name}_")}
        elif name in known:
            chosen[name] = known[name]
        else:
            keys = [key for key in packages() if any(one.startswith(f"{key}_") for one in known)]
            raise NclabError(
                f"Expected an experiment, one of {', '.join(known)}, or a paper, one of "
                f"{', '.join(keys)}; got {name!r}."
            )
    return chosen


def paper_of(name: str) -> str:
    """The key of the paper in whose folder an experiment is.

    >>> paper_of("pan2023_fig31"), paper_of("tour")
    ('pan2023', 'findings')
    """
    module = cast(ModuleType, experiments()[name]).__name__.rpartition(".")[0]
    return next(key for key, package in packages().items() if package.__name__ == module)


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers."""
    everything = (value for key in packages() for value in contents(key))
    return tuple({value.id: value for value in everything if isinstance(value, Claim)}.values())


@cache
def errata() -> tuple[Erratum, ...]:
    """Every erratum, in the order of the papers."""
    return tuple(
        erratum
        for key in packages()
        for module in _modules(key)
        for erratum in getattr(module, "ERRATA", ())
    )


def contents(paper: str) -> Iterator[object]:
    """Whatever the modules of a paper name, in their order."""
    for module in _modules(paper):
        yield from vars(module).values()


def forget() -> None:
    """Look again, as after an installation."""
    plugins.forget()
    for found in (packages, experiments, claims, errata):
        found.cache_clear()


def _modules(key: str) -> Iterator[ModuleType]:
    package = packages()[key]
    names, first = _names(package), package.PAPER.parts
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        yield import_module(f"{package.__name__}.{name}")


def _paper_packages(registered: ModuleType) -> Iterator[ModuleType]:
    """Yield the registered package if it is a paper, otherwise its subpackages."""
    if hasattr(registered, "PAPER") or not hasattr(registered, "__path__"):
        yield registered
        return
    for name in _names(registered, packages=True):
        yield import_module(f"{registered.__name__}.{name}")


def _names(package: ModuleType, *, packages: bool = False) -> list[str]:
    return sorted(
        info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg or not packages
    )

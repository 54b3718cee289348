"""Parts of a paper's folder: the source, its errata and its experiments."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from nclab.engine import LOCAL, Engine, Job, ReportStep
from nclab.errors import MissingData, NclabError
from nclab.figures.picture import Picture

AUTHOR_DATA = "NCLAB_AUTHOR_DATA"
"""Environment variable with the folder of the files that the author of a paper published."""


@dataclass(frozen=True)
class Paper:
    """Bibliographic data of one source; `PAPER` in the `__init__` of a paper's folder."""

    key: str
    """Key in the form authoryear, as docstrings cite it."""
    title: str
    authors: str
    year: int
    symbols: Mapping[str, str] = field(default_factory=dict)
    """For symbols of the paper that nclab writes differently: the symbol in nclab."""
    parts: tuple[str, ...] = ()
    """Modules of the folder in reading and running order; unlisted modules follow."""


@dataclass(frozen=True)
class Erratum:
    """A correction of one passage of a paper."""

    where: str
    """Key of the paper and location; also the unique heading on the page of errata."""
    printed: str
    correct: str
    why: str
    claims: tuple[str, ...] = ()
    """Ids of the claims whose checks show the error; empty for a slip without consequences."""
    confidence: Literal["certain", "likely", "scan"] = "certain"
    """certain: a counterexample shows the error; scan: our scan of the paper may be wrong."""
    typo: bool = False
    """Whether readers notice the error at once; the page of errata lists typos at its end."""

    @property
    def paper(self) -> str:
        """Key of the paper."""
        return self.where.split(",")[0]

    @property
    def anchor(self) -> str:
        """Link to the entry on the page of errata."""
        heading = re.sub(r"[^\w\- ]", "", self.where.lower()).replace(" ", "-")
        return f"docs/errata.md#{heading}"


class Experiment(Protocol):
    """Interface of an experiment's module, recognised by its `PRESETS`.

    `run` returns plain JSON values. Tables, pictures and claims are derived from these numbers
    alone, so that every page can be rebuilt from the numbers on disk. The experiment is called
    `<paper>_<module>`, or `NAME` if the module defines this constant.
    """

    @property
    def PRESETS(self) -> Mapping[str, Any]:
        """Configurations by name (quick and paper), each a frozen dataclass."""

    def run(
        self, config: Any, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
    ) -> dict[str, Any]:
        """Return the numbers of a configuration; the engine trains networks below `out`."""

    def tables(self, numbers: Mapping[str, Any]) -> list[Any]:
        """Return what the terminal shows: tables, lines of text, or other rich renderables."""

    def pictures(self, numbers: Mapping[str, Any]) -> list[Picture]:
        """Return the figures as plain data."""


def find_preset(experiment: Experiment, name: str) -> Any:
    """Return a configuration of an experiment by its name."""
    if name not in experiment.PRESETS:
        known = ", ".join(experiment.PRESETS)
        raise NclabError(f"Expected a preset, one of {known}; got {name!r}.")
    return experiment.PRESETS[name]


def find_author_file(names: Sequence[str], *, source: str) -> Path:
    """Return the first named file that exists in the folder of the author's data, or raise.

    Args:
        names: paths below the folder.
        source: where the author published the files.
    """
    folder = os.environ.get(AUTHOR_DATA)
    if not folder:
        raise MissingData(
            f"it needs the author's {names[-1]}. Pass --author-data FOLDER with a copy of {source}."
        )
    for name in names:
        if (path := Path(folder) / name).exists():
            return path
    raise MissingData(
        f"Expected {' or '.join(names)} in {folder}, found none of them. "
        f"Pass --author-data FOLDER with a copy of {source}."
    )


def describe_experiment(module: Experiment) -> dict[str, str]:
    """Read title, claim, source and description from the docstring of an experiment's module."""
    title, _, body = (inspect.getdoc(module) or "").partition("\n")

    def labelled(label: str) -> str:
        match = re.search(rf"^{label}: (.+?)(?:\n\S+: |\n\n|\Z)", body, re.MULTILINE | re.DOTALL)
        return " ".join(match[1].split()) if match else ""

    statement = labelled("Claim")
    paragraphs = [" ".join(paragraph.split()) for paragraph in body.split("\n\n")]
    return {
        "title": title.strip().removesuffix("."),
        "says": "" if statement.startswith("none") else statement,
        "source": labelled("Source"),
        "about": " ".join(
            paragraph
            for paragraph in paragraphs
            if paragraph and not re.match(r"(Claim|Source): ", paragraph)
        ),
    }


def run_jobs(jobs: Sequence[Job], title: str, *, engine: Engine, **options: Any) -> list[Any]:
    """Return the values of jobs, run by `Engine.run_with_bar`; raise NclabError if a job fails."""
    results = engine.run_with_bar(jobs, title, **options)
    for result in results:
        if not result.ok:
            raise NclabError(f"{result.name} failed: {result.error}")
    return [result.value for result in results]


def run_in_one_step(report: ReportStep, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function as a job that reports a single step."""
    value = function(*arguments)
    report(1, 1)
    return value

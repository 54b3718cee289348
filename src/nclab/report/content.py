"""What a folder of runs holds: experiments with their figures, claims, runs, what was skipped."""

import contextlib
import hashlib
import os
import re
import stat
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, RecordError
from nclab.figures.picture import Picture, from_json
from nclab.files import list_folder, read_regular, translate_os_errors
from nclab.records import find_runs
from nclab.records.read import LeftOut
from nclab.records.results import CLAIMS, NUMBERS, SKIPPED, digest, parse_json
from nclab.report.foreign_files import (
    read_claims,
    read_errata,
    read_numbers,
    read_papers,
    read_skipped,
    read_stories,
)
from nclab.text import counted

PICTURE = ".picture.json"
IMAGES = (".svg", ".png", ".pdf")
ACTIVE_ELEMENTS = {
    "script",
    "foreignobject",
    "iframe",
    "embed",
    "object",
    "handler",
    "set",
    "animate",
}
"""Elements of SVG that can run or load something; figures of nclab contain none of them."""


@dataclass(frozen=True)
class Figure:
    """One figure of an experiment."""

    experiment: str
    name: str
    picture: Picture
    """Without panels where only its images are known."""
    images: Mapping[str, Path]
    """By suffix."""

    @property
    def id(self) -> str:
        """A name that is safe in a path and used by no other figure."""
        return safe_name(f"{self.experiment}-{self.name}")


@dataclass(frozen=True)
class ExperimentFolder:
    """The numbers and the figures of one experiment."""

    name: str
    numbers: Mapping[str, Any]
    figures: tuple[Figure, ...]
    file: Path | None
    """Where its numbers are."""
    stale: bool = False
    """Whether claims were judged from other numbers than these."""
    damage: str = ""
    """Why its numbers cannot be read, if they cannot."""

    @property
    def size(self) -> str:
        """Preset and number of seeds, as far as they are known."""
        preset, seeds = self.numbers.get("preset"), self.numbers.get("seeds") or []
        known = [f"preset {preset}"] if preset else []
        return ", ".join([*known, *([counted(len(seeds), "seed")] if seeds else [])])

    @property
    def wide(self) -> bool:
        """Whether some figure has panels that need the whole width of a page."""
        pictures = [figure.picture for figure in self.figures]
        return any(min(one.columns, len(one.panels)) > 2 for one in pictures)

    @property
    def command(self) -> str:
        """What makes it again."""
        preset, seeds = self.numbers.get("preset"), self.numbers.get("seeds") or []
        words = ["nclab reproduce", self.name]
        words += [f"--preset {preset}"] if preset else []
        words += [f"--seeds {len(seeds)}"] if seeds else []
        words += [f"--seed {seeds[0]}"] if seeds and seeds[0] else []
        return " ".join(words)


@dataclass(frozen=True)
class Content:
    """A folder of runs, read once."""

    root: Path
    experiments: tuple[ExperimentFolder, ...]
    claims: tuple[Mapping[str, Any], ...]
    skipped: tuple[tuple[str, str], ...]
    """What, and why."""
    papers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Title, authors and year of every paper of which there are claims or experiments."""
    problems: tuple[str, ...] = field(default=())
    """Files that are there but cannot be read."""
    figures: tuple[Figure, ...] = ()
    """Of the runs themselves, made for the pages."""
    stories: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the name of an experiment: its title, what the paper says, and where."""
    errata: tuple[Mapping[str, Any], ...] = ()

    def title_of(self, experiment: str) -> str:
        """What an experiment is called among people."""
        return self.stories.get(experiment, {}).get("title") or experiment

    def paper_of(self, experiment: str) -> str:
        """The key of the paper that an experiment is from, empty if none."""
        key = experiment.split("_")[0]
        return key if key in self.papers else ""

    def of_paper(self, key: str) -> tuple[ExperimentFolder, ...]:
        """The experiments of a paper; those of none for the empty key."""
        return tuple(one for one in self.experiments if self.paper_of(one.name) == key)

    def claims_of(self, key: str) -> list[Mapping[str, Any]]:
        """The claims of a paper."""
        return [claim for claim in self.claims if str(claim["id"]).startswith(f"{key}/")]

    def judging(self, key: str) -> list[ExperimentFolder]:
        """The experiments of other papers from whose numbers statements of this one are judged."""
        needed = {claim["needs"] for claim in self.claims_of(key)}
        return [
            one
            for one in self.experiments
            if one.name in needed - {""} and self.paper_of(one.name) != key
        ]

    @property
    def ledger_problem(self) -> str:
        """Why there are no claims although there is a file of them; empty if nothing is wrong."""
        about = (one for one in self.problems if one.startswith(CLAIMS))
        return "" if self.claims else next(about, "")


def read_content(root: Path) -> Content:
    """Read everything but the runs; what is missing is missing, what is damaged is said."""
    problems: list[str] = []
    with translate_os_errors("read the folder", root, NclabError):
        inside = list_folder(root, root=root)
    folders = [root / name for name, mode in inside.items() if stat.S_ISDIR(mode)]
    damage: dict[str, str] = {}
    found = [_experiment(folder, root, problems, damage) for folder in folders]
    experiments = [one for one in found if one is not None]
    judged = _json(root / CLAIMS, problems, root)
    ledger = judged if isinstance(judged, dict) else {"claims": judged}
    claims = read_claims(ledger.get("claims"), problems)
    damage |= _others(experiments, claims, problems)
    stale = _stale(root, ledger.get("judged_from"), claims) - damage.keys()
    names = {one.name.split("_")[0] for one in experiments} | {one["id"] for one in claims}
    return Content(
        root,
        experiments=tuple(
            replace(one, stale=one.name in stale, damage=damage.get(one.name, ""))
            for one in experiments
        ),
        claims=tuple(
            {**one, "stale": one["needs"] in stale, "damage": damage.get(one["needs"], "")}
            for one in claims
        ),
        skipped=tuple(read_skipped(_json(root / SKIPPED, problems, root), problems)),
        papers=read_papers(ledger.get("papers"), {name.split("/")[0] for name in names}, problems),
        problems=tuple(problems),
        stories=read_stories(ledger.get("stories")),
        errata=tuple(read_errata(ledger.get("errata"))),
    )


def _others(
    experiments: list[ExperimentFolder], claims: list[dict[str, Any]], problems: list[str]
) -> dict[str, str]:
    """Of the experiments that claims are about, those whose file holds the numbers of another."""
    needed = {one["needs"] for one in claims}
    found = {}
    for one in experiments:
        held = one.numbers.get("experiment", one.name)
        if one.name in needed and held != one.name:
            found[one.name] = f"it holds the numbers of {held!r}"
            problems.append(f"{one.name}/{NUMBERS} cannot be used: {found[one.name]}")
    return found


def _stale(root: Path, judged_from: Any, claims: list[dict[str, Any]]) -> set[str]:
    """Experiments whose numbers are not those that their claims were judged from.

    A ledger that does not say what it was judged from is older than this question.
    """
    if not isinstance(judged_from, dict):
        return set()
    needed = {one["needs"] for one in claims if one["needs"]}
    return {name for name in needed if (now := digest(root, name)) and now != judged_from.get(name)}


def stamp(root: Path) -> list[tuple[str, int, int]]:
    """What changes when any file that `read_content` reads does; costs no reading."""
    files = [root / CLAIMS, root / SKIPPED]
    with contextlib.suppress(OSError):
        files += [*root.glob(f"*/{NUMBERS}"), *root.glob(f"*/*{PICTURE}")]
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            facts = file.lstat()
            found.append((str(file), facts.st_mtime_ns, facts.st_size))
    return sorted(found)


def runs_below(root: Path, problems: list[str]) -> list[Path]:
    """The runs in a folder, links aside; what is left out is said."""
    left_out: list[LeftOut] = []
    found = find_runs(root, left_out=left_out)
    problems += [one.why.replace(f"{root}/", "") for one in left_out]
    return found


def safe_name(text: str) -> str:
    """A file name of plain letters that no other text gets.

    >>> safe_name("wd=1e-3/seed 0")
    'wd-1e-3-seed-0-123df2b9'
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:60] or "run"
    if plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def check_folder(root: Path) -> Path:
    """The folder of runs, or one line on why it is none."""
    if not root.is_dir():
        raise NclabError(f"Expected a folder with runs, got {root}, which is none.")
    return root


def _experiment(
    folder: Path, root: Path, problems: list[str], damage: dict[str, str]
) -> ExperimentFolder | None:
    """An experiment, None where a folder holds none; why its numbers cannot be read goes along."""
    try:
        names = list(list_folder(folder, root=root))
    except OSError:  # as is said where runs are looked for
        return None
    numbers_file, before = folder / NUMBERS, len(problems)
    numbers = _json(numbers_file, problems, root)
    if len(problems) > before:
        damage[folder.name] = problems[-1].partition("cannot be read: ")[2]
    elif numbers is not None and not isinstance(numbers, dict):
        damage[folder.name] = f"a JSON {type(numbers).__name__}, not an object"
    pictures: dict[str, Picture] = {}
    for path in (folder / name for name in names if name.endswith(PICTURE)):
        content = _json(path, problems, root)
        try:
            if isinstance(content, dict):
                pictures[path.name.removesuffix(PICTURE)] = from_json(content)
        except NclabError as error:
            problems.append(f"{path.relative_to(root)}: {error}")
    # A figure without its numbers is better than none.
    for path in (folder / name for name in names if name.endswith(".png") and numbers is not None):
        pictures.setdefault(path.stem, Picture(path.stem, path.stem, ()))
    figures = tuple(
        Figure(folder.name, stem, picture, _images(folder, stem, names, root, problems))
        for stem, picture in pictures.items()
    )
    if numbers is None and not figures:
        return None
    file = numbers_file if isinstance(numbers, dict) else None
    kept = {} if numbers is None else read_numbers(numbers, f"{folder.name}/{NUMBERS}", problems)
    return ExperimentFolder(folder.name, kept, figures, file)


def _images(
    folder: Path, stem: str, names: Collection[str], root: Path, problems: list[str]
) -> dict[str, Path]:
    found = {}
    for suffix in IMAGES:
        if (name := f"{stem}{suffix}") in names:
            try:
                image = read_regular(folder / name, root=root)
            except OSError as error:
                problems.append(f"{folder.name}/{name} cannot be read: {error.strerror}")
                continue
            if suffix == ".svg" and not is_static_svg(image):
                problems.append(
                    f"{folder.name}/{name} is left out: it contains scripts or is not a valid SVG"
                )
            else:
                found[suffix] = folder / name
    return found


def is_static_svg(content: bytes) -> bool:
    """Whether a file is an SVG image without scripts, event handlers and foreign content.

    >>> is_static_svg(b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>')
    True
    >>> is_static_svg(b'<svg xmlns="http://www.w3.org/2000/svg"><g onclick="alert(1)"/></svg>')
    False
    """
    if b"<!ENTITY" in content:
        return False
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return False
    for element in root.iter():
        name = str(element.tag).rpartition("}")[2].lower()
        if name in ACTIVE_ELEMENTS:
            return False
        for attribute, value in element.attrib.items():
            attribute = attribute.rpartition("}")[2].lower()
            is_link = attribute == "href" and not value.startswith(("#", "data:image/"))
            if attribute.startswith("on") or is_link:
                return False
    return True


def _json(path: Path, problems: list[str], root: Path) -> Any:
    """What a file holds; None where it is absent, damaged or elsewhere."""
    if not os.path.lexists(path):
        return None
    try:
        return parse_json(path, root=root)
    except RecordError as error:
        problems.append(f"{path.relative_to(root)} cannot be read: {error}")
        return None

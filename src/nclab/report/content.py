"""Content of a folder of runs except the runs: experiments with figures, claims, what was skipped.

Other programs may have written any of these files. What cannot be used is skipped and named in
`Content.problems`.
"""

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
from nclab.text import counted

PICTURE = ".picture.json"
IMAGES = (".svg", ".png", ".pdf")
_ACTIVE_ELEMENTS = {"script", "foreignobject", "iframe", "embed", "object", "set", "animate"}
"""Elements of SVG that can run or load something; figures of nclab contain none of them."""
_CLAIM_TEXTS = ("kind", "text", "source", "evidence", "needs", "verdict", "mark", "tone", "size")
_HERE_TEXTS = ("verdict", "evidence", "size", "relation", "says")
_OWN_PREFIX = "findings/"
"""Prefix of the ids of our findings, for files that do not say whose a claim is."""


@dataclass(frozen=True)
class Figure:
    """One figure of an experiment."""

    experiment: str
    name: str
    picture: Picture
    """The figure as data; without panels if only its images are known."""
    images: Mapping[str, Path]
    """Image files by suffix."""

    @property
    def id(self) -> str:
        """Name that is safe in a path and unique among all figures."""
        return safe_name(f"{self.experiment}-{self.name}")


@dataclass(frozen=True)
class ExperimentFolder:
    """Numbers and figures of one experiment."""

    name: str
    numbers: Mapping[str, Any]
    figures: tuple[Figure, ...]
    file: Path | None
    """File of the numbers."""
    stale: bool = False
    """Whether the claims were judged from older numbers."""
    damage: str = ""
    """Why the numbers cannot be read; empty if they can."""

    @property
    def size(self) -> str:
        """Preset and number of seeds, as far as they are known."""
        preset, seeds = self.numbers.get("preset"), self.numbers.get("seeds") or []
        parts = [f"preset {preset}"] if preset else []
        return ", ".join([*parts, *([counted(len(seeds), "seed")] if seeds else [])])

    @property
    def wide(self) -> bool:
        """Whether a figure has more than two panels in a row."""
        pictures = [figure.picture for figure in self.figures]
        return any(min(picture.columns, len(picture.panels)) > 2 for picture in pictures)

    @property
    def command(self) -> str:
        """Command that repeats the experiment."""
        preset, seeds = self.numbers.get("preset"), self.numbers.get("seeds") or []
        words = ["nclab reproduce", self.name]
        words += [f"--preset {preset}"] if preset else []
        words += [f"--seeds {len(seeds)}"] if seeds else []
        words += [f"--seed {seeds[0]}"] if seeds and seeds[0] else []
        return " ".join(words)


@dataclass(frozen=True)
class Content:
    """Content of a folder of runs at the moment of reading."""

    root: Path
    experiments: tuple[ExperimentFolder, ...]
    claims: tuple[Mapping[str, Any], ...]
    skipped: tuple[tuple[str, str], ...]
    """Names of skipped experiments with the reasons."""
    papers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Title, authors and year of every paper that has claims or experiments here."""
    problems: tuple[str, ...] = field(default=())
    """Files that exist but cannot be read."""
    figures: tuple[Figure, ...] = ()
    """Figures of the runs themselves."""
    descriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Descriptions of experiments by name: title, what the paper says, and where."""
    errata: tuple[Mapping[str, Any], ...] = ()

    def title_of(self, experiment: str) -> str:
        """Return the title of an experiment, or its name."""
        return self.descriptions.get(experiment, {}).get("title") or experiment

    def paper_of(self, experiment: str) -> str:
        """Return the key of the paper of an experiment, or an empty text."""
        key = experiment.split("_")[0]
        return key if key in self.papers else ""

    def of_paper(self, key: str) -> tuple[ExperimentFolder, ...]:
        """Return the experiments of a paper; for the empty key, those without a paper."""
        return tuple(item for item in self.experiments if self.paper_of(item.name) == key)

    def claims_of(self, key: str) -> list[Mapping[str, Any]]:
        """Return the claims of a paper."""
        return [claim for claim in self.claims if str(claim["id"]).startswith(f"{key}/")]

    def judging(self, key: str) -> list[ExperimentFolder]:
        """Return the experiments of other papers from which claims of this paper are judged."""
        needed = {claim["needs"] for claim in self.claims_of(key)}
        return [
            experiment
            for experiment in self.experiments
            if experiment.name in needed - {""} and self.paper_of(experiment.name) != key
        ]

    @property
    def ledger_problem(self) -> str:
        """Why no claims are shown although there is a file of them; empty if all is well."""
        about = (problem for problem in self.problems if problem.startswith(CLAIMS))
        return "" if self.claims else next(about, "")


def read_content(root: Path) -> Content:
    """Read everything but the runs."""
    problems: list[str] = []
    with translate_os_errors("read the folder", root, NclabError):
        modes = list_folder(root, root=root)
    folders = [root / name for name, mode in modes.items() if stat.S_ISDIR(mode)]
    damage: dict[str, str] = {}
    entries = [_read_experiment(folder, root, problems, damage) for folder in folders]
    experiments = [entry for entry in entries if entry is not None]
    content = _read_json(root / CLAIMS, problems, root)
    ledger = content if isinstance(content, dict) else {"claims": content}
    claims = read_claims(ledger.get("claims"), problems)
    needed = {claim["needs"] for claim in claims} - {""}
    for entry in experiments:
        name, recorded_name = entry.name, entry.numbers.get("experiment", entry.name)
        if name in needed and recorded_name != name:
            damage[name] = f"it holds the numbers of {recorded_name!r}"
            problems.append(f"{name}/{NUMBERS} cannot be used: {damage[name]}")
    stale = _stale(root, ledger.get("judged_from"), needed) - damage.keys()
    keys = {experiment.name.split("_")[0] for experiment in experiments}
    keys |= {claim["id"].split("/")[0] for claim in claims}
    skipped = _read_skipped(_read_json(root / SKIPPED, problems, root), problems)
    papers = {
        key: _texts(paper, ("title", "authors", "year"))
        for key, paper in _items(ledger, "papers", problems)
        if key in keys
    }
    descriptions = {
        name: _texts(entry, ("title", "says", "source", "about"))
        for name, entry in _items(ledger, "stories", problems)
    }
    return Content(
        root,
        experiments=tuple(
            replace(entry, stale=entry.name in stale, damage=damage.get(entry.name, ""))
            for entry in experiments
        ),
        claims=tuple(
            {**claim, "stale": claim["needs"] in stale, "damage": damage.get(claim["needs"], "")}
            for claim in claims
        ),
        skipped=tuple(skipped),
        papers=papers,
        problems=tuple(problems),
        descriptions=descriptions,
        errata=tuple(_read_errata(ledger.get("errata"))),
    )


def read_claims(content: Any, problems: list[str]) -> list[dict[str, Any]]:
    """Return the claims that pages can show; name the others in `problems`.

    >>> problems = []
    >>> rows = [{"id": "a"}, {"id": "b", "links": "x"}]
    >>> [claim["id"] for claim in read_claims(rows, problems)]
    ['a']
    >>> problems
    ["claims.json: claim 2 is skipped: expected an object as links, got 'x'"]
    """
    if content is not None and not isinstance(content, list):
        problems.append(f"{CLAIMS}: expected a list of claims")
        return []
    claims = []
    for number, claim in enumerate(content or [], start=1):
        try:
            claims.append(_read_claim(claim))
        except ValueError as error:
            problems.append(f"{CLAIMS}: claim {number} is skipped: {error}")
    return claims


def _read_claim(claim: Any) -> dict[str, Any]:
    """Return a claim with all entries that pages use; raise `ValueError` if a type is wrong."""
    if not isinstance(claim, dict) or not isinstance(claim.get("id"), str):
        raise ValueError("expected an object with an id")
    defaults = {**dict.fromkeys(_CLAIM_TEXTS, ""), "verdict": "open", "tone": "open"}
    known = {name: value for name, value in claim.items() if value is not None}
    _require(known, _CLAIM_TEXTS, str, "a text")
    _require(known, ("links", "here"), dict, "an object")
    links = known.get("links", {})
    _require(links, tuple(name for name in links if links[name] is not None), str, "a text")
    here = known.get("here")
    if here is not None:
        _require(here, tuple(n for n in _HERE_TEXTS if here.get(n) is not None), str, "a text")
        here = {**here, **{name: here.get(name) or "" for name in _HERE_TEXTS}}
        older = f"{here['relation']} ({here['verdict']})"  # claims of older versions
        here["says"] = here["says"] or older
    ours = known.get("ours", claim["id"].startswith(_OWN_PREFIX)) is True
    return {"numbers": {}, **defaults, **known, "links": links, "ours": ours, "here": here}


def _require(value: Mapping[str, Any], names: tuple[str, ...], kind: type, noun: str) -> None:
    for name in names:
        if name in value and not isinstance(value[name], kind):
            raise ValueError(f"expected {noun} as {name}, got {value[name]!r}")


def _items(
    ledger: Mapping[str, Any], name: str, problems: list[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects in an object of the ledger, by key."""
    content = ledger.get(name) or {}
    if not isinstance(content, dict):
        problems.append(f"{CLAIMS}: expected an object as {name}")
        return []
    return [(str(key), value) for key, value in content.items() if isinstance(value, dict)]


def _texts(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(value.get(name) or "") for name in names}


def _read_errata(content: Any) -> list[dict[str, Any]]:
    """Return the errata with the ids of their claims."""
    names = ("where", "printed", "correct", "why", "confidence")
    return [
        {**_texts(erratum, names), "claims": [str(id_) for id_ in erratum.get("claims") or []]}
        for erratum in (content if isinstance(content, list) else [])
        if isinstance(erratum, dict) and isinstance(erratum.get("claims"), list | None)
    ]


def _read_skipped(content: Any, problems: list[str]) -> list[tuple[str, str]]:
    """Return what was skipped with the reasons; older folders hold a list of objects.

    >>> _read_skipped({"tour": "no data"}, []), _read_skipped([{"what": "tour"}], [])
    ([('tour', 'no data')], [('tour', '')])
    """
    if isinstance(content, dict):
        return [(str(name), str(reason)) for name, reason in content.items()]
    if not isinstance(content, list | None):
        problems.append(f"{SKIPPED}: expected a list or an object")
        return []
    rows = []
    for entry in content or []:
        entry = entry if isinstance(entry, dict) else {"what": entry}
        name = entry.get("what") or entry.get("name") or entry.get("experiment") or ""
        rows.append((str(name), str(entry.get("why") or entry.get("reason") or "")))
    return rows


def _stale(root: Path, judged_from: Any, needed: set[str]) -> set[str]:
    """Return the experiments whose numbers changed after their claims were judged.

    Ledgers of older versions do not record from which numbers they were judged.
    """
    if not isinstance(judged_from, dict):
        return set()
    digests = {name: digest(root, name) for name in needed}
    return {name for name, now in digests.items() if now and now != judged_from.get(name)}


def stamp(root: Path) -> list[tuple[str, int, int]]:
    """Return times and sizes of the files that `read_content` reads, to notice changes."""
    files = [root / CLAIMS, root / SKIPPED]
    with contextlib.suppress(OSError):
        files += [*root.glob(f"*/{NUMBERS}"), *root.glob(f"*/*{PICTURE}")]
    stamps = []
    for file in files:
        with contextlib.suppress(OSError):
            status = file.lstat()
            stamps.append((str(file), status.st_mtime_ns, status.st_size))
    return sorted(stamps)


def runs_below(root: Path, problems: list[str]) -> list[Path]:
    """Return the folders of the runs; name what is skipped in `problems`."""
    left_out: list[LeftOut] = []
    folders = find_runs(root, left_out=left_out)
    problems += [entry.why.replace(f"{root}/", "") for entry in left_out]
    return folders


def safe_name(text: str) -> str:
    """Return a file name of plain letters that no other text gets.

    >>> safe_name("wd=1e-3/seed 0")
    'wd-1e-3-seed-0-123df2b9'
    """
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:60] or "run"
    if plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def check_folder(root: Path) -> Path:
    """Return the folder of runs; raise if it does not exist."""
    if not root.is_dir():
        reason = "is a file" if root.exists() else "does not exist"
        raise NclabError(f"Expected a folder with runs, but {root} {reason}.")
    return root


def _read_experiment(
    folder: Path, root: Path, problems: list[str], damage: dict[str, str]
) -> ExperimentFolder | None:
    """Return the experiment in a folder, or None; add damaged numbers to `damage`."""
    try:
        names = list(list_folder(folder, root=root))
    except OSError:  # the search for runs reports this folder
        return None
    file, before = folder / NUMBERS, len(problems)
    numbers = _read_json(file, problems, root)
    if len(problems) > before:
        damage[folder.name] = problems[-1].partition("cannot be read: ")[2]
    elif numbers is not None and not isinstance(numbers, dict):
        damage[folder.name] = f"a JSON {type(numbers).__name__}, not an object"
        problems.append(f"{folder.name}/{NUMBERS}: expected an object")
    pictures: dict[str, Picture] = {}
    for path in (folder / name for name in names if name.endswith(PICTURE)):
        content = _read_json(path, problems, root)
        try:
            if isinstance(content, dict):
                pictures[path.name.removesuffix(PICTURE)] = from_json(content)
        except NclabError as error:
            problems.append(f"{path.relative_to(root)}: {error}")
    if numbers is not None:  # show images even if their numbers are missing
        for name in names:
            if name.endswith(".png"):
                stem = name.removesuffix(".png")
                pictures.setdefault(stem, Picture(stem, stem, ()))
    figures = tuple(
        Figure(folder.name, stem, picture, _read_images(folder, stem, names, root, problems))
        for stem, picture in pictures.items()
    )
    if numbers is None and not figures:
        return None
    is_object = isinstance(numbers, dict)
    kept = _check_numbers(numbers, f"{folder.name}/{NUMBERS}", problems) if is_object else {}
    return ExperimentFolder(folder.name, kept, figures, file if is_object else None)


def _check_numbers(numbers: Mapping[str, Any], where: str, problems: list[str]) -> dict[str, Any]:
    """Return the numbers without a preset or seeds that pages could not show."""
    kept = dict(numbers)
    seeds = kept.get("seeds") or []
    if not (isinstance(seeds, list) and all(type(seed) is int for seed in seeds)):
        problems.append(f"{where}: expected a list of whole numbers as seeds")
        del kept["seeds"]
    if not isinstance(kept.get("preset"), str | None):
        problems.append(f"{where}: expected a text as preset")
        del kept["preset"]
    return kept


def _read_images(
    folder: Path, stem: str, names: Collection[str], root: Path, problems: list[str]
) -> dict[str, Path]:
    """Return the image files of a figure that can be shown, by suffix."""
    images = {}
    for suffix in IMAGES:
        name = f"{stem}{suffix}"
        if name not in names:
            continue
        try:
            content = read_regular(folder / name, root=root)
        except OSError as error:
            problems.append(f"{folder.name}/{name} cannot be read: {error.strerror}")
            continue
        if suffix == ".svg" and not is_static_svg(content):
            problems.append(f"{folder.name}/{name} is skipped: it is not an SVG without scripts")
        else:
            images[suffix] = folder / name
    return images


def is_static_svg(content: bytes) -> bool:
    """Whether a file is an SVG image without scripts, event handlers and outside content.

    >>> is_static_svg(b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>')
    True
    >>> is_static_svg(b'<svg xmlns="http://www.w3.org/2000/svg"><g onclick="alert(1)"/></svg>')
    False
    """
    if b"<!ENTITY" in content or b"<?xml-stylesheet" in content:
        return False
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return False
    for element in root.iter():
        if str(element.tag).rpartition("}")[2].lower() in _ACTIVE_ELEMENTS:
            return False
        for name, value in element.attrib.items():
            attribute = name.rpartition("}")[2].lower()
            is_link = attribute == "href" and not value.startswith(("#", "data:image/"))
            if attribute.startswith("on") or is_link:
                return False
    return True


def _read_json(path: Path, problems: list[str], root: Path) -> Any:
    """Return the value of a JSON file, or None if it is missing or damaged."""
    if not os.path.lexists(path):
        return None
    try:
        return parse_json(path, root=root)
    except RecordError as error:
        problems.append(f"{path.relative_to(root)} cannot be read: {error}")
        return None

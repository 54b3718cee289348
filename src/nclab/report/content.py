"""Content of a folder of runs except the runs: experiments with figures, claims, skipped parts.

Other programs may have written any of these files. Values of a wrong type are shown as text, and
`Content.problems` names files that cannot be used.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, RecordError
from nclab.figures.picture import AnyPanel, Forest, HeatMap, Picture, from_json, to_json
from nclab.figures.plotly_renderer import plotly_spec
from nclab.files import list_folder, read_regular, translate_os_errors
from nclab.records.results import (
    CLAIMS,
    NUMBERS,
    SKIPPED,
    UNREADABLE,
    digest,
    parse_json,
    read_numbers,
)
from nclab.text import counted

PICTURE = ".picture.json"
IMAGES = (".svg", ".png", ".pdf")
_CLAIM_TEXTS = ("kind", "text", "source", "evidence", "needs", "verdict", "mark", "tone", "size")
_BESIDE_TEXTS = ("id", "verdict", "answer")
_HERE_TEXTS = ("verdict", "evidence", "size", "relation", "says")
_ERRATUM_TEXTS = ("where", "printed", "correct", "why", "confidence")
_OUR_PREFIX = "findings/"
"""Prefix of the ids of our own findings; in older files nothing else shows that they are ours."""
DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that drawing a picture raises if its file is valid JSON with wrong content."""


@dataclass(frozen=True)
class Figure:
    """One figure of an experiment."""

    experiment: str
    name: str
    picture: Picture
    """The figure as data; it has no panels if only image files exist."""
    images: Mapping[str, Path]
    """Image files by suffix."""

    @property
    def id(self) -> str:
        """Name for paths and links, unique among all figures."""
        return safe_name(f"{self.experiment}-{self.name}")

    @cached_property
    def data(self) -> dict[str, str]:
        """Return the script that draws the figure, and its numbers as JSON and CSV, by suffix."""
        if not self.picture.panels:
            return {}
        return {
            ".js": script("addFigure", self.id, plotly_spec(self.picture)),
            ".json": compact_json(to_json(self.picture)),
            ".csv": picture_csv(self.picture),
        }


@dataclass(frozen=True)
class ExperimentFolder:
    """Numbers and figures of one experiment."""

    name: str
    preset: str
    """Name of the preset with which the numbers were computed; empty if unknown."""
    seeds: list[Any]
    figures: tuple[Figure, ...]
    file: Path | None
    """File of the numbers; None if it is missing or damaged."""
    stale: bool = False
    """Whether the numbers have changed since the claims were judged."""
    damage: str = ""
    """Why the numbers cannot be read; empty if they can."""

    @property
    def size(self) -> str:
        """Preset and number of seeds as text; unknown parts are omitted."""
        parts = [f"preset {self.preset}"] if self.preset else []
        parts += [counted(len(self.seeds), "seed")] if self.seeds else []
        return ", ".join(parts)

    @property
    def wide(self) -> bool:
        """Whether any figure has more than two panels in a row."""
        pictures = [figure.picture for figure in self.figures]
        return any(min(picture.columns, len(picture.panels)) > 2 for picture in pictures)

    @property
    def command(self) -> str:
        """Command line that repeats the experiment."""
        words = ["nclab reproduce", self.name]
        words += [f"--preset {self.preset}"] if self.preset else []
        words += [f"--seeds {len(self.seeds)}"] if self.seeds else []
        words += [f"--seed {self.seeds[0]}"] if self.seeds and self.seeds[0] else []
        return " ".join(words)


@dataclass(frozen=True)
class Content:
    """Content of a folder of runs at the moment of reading."""

    root: Path
    experiments: tuple[ExperimentFolder, ...] = ()
    claims: tuple[Mapping[str, Any], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Reasons for skipped experiments, by name."""
    papers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Title, authors and year of every paper that has claims or experiments here."""
    problems: tuple[str, ...] = ()
    """Files that exist but cannot be read, each in one line."""
    descriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Descriptions of experiments by name: title, the statement of the paper, and its source."""
    errata: tuple[Mapping[str, Any], ...] = ()

    def title_of(self, experiment: str) -> str:
        """Return the title of an experiment, or its name."""
        return self.descriptions.get(experiment, {}).get("title") or experiment

    def paper_of(self, experiment: str) -> str:
        """Return the key of the paper of an experiment, or an empty text."""
        key = experiment.split("_")[0]
        return key if key in self.papers else ""

    def of_paper(self, key: str) -> list[ExperimentFolder]:
        """Return the experiments of a paper; for the empty key, those without a paper."""
        return [entry for entry in self.experiments if self.paper_of(entry.name) == key]

    def claims_of(self, key: str) -> list[Mapping[str, Any]]:
        """Return the claims of a paper."""
        return [claim for claim in self.claims if claim["id"].startswith(f"{key}/")]

    @property
    def ledger_problem(self) -> str:
        """Why no claims are shown although the file of claims exists; else empty."""
        problems = (problem for problem in self.problems if problem.startswith(CLAIMS))
        return "" if self.claims else next(problems, "")


def read_content(root: Path) -> Content:
    """Read everything but the runs."""
    problems: list[str] = []
    with translate_os_errors("read the folder", root, NclabError):
        modes = list_folder(root, root=root)
    folders = [root / name for name, mode in modes.items() if stat.S_ISDIR(mode)]
    entries = [_read_experiment(folder, root, problems) for folder in folders]
    experiments = [entry for entry in entries if entry is not None]
    ledger = _read_json(root / CLAIMS, problems, root)
    ledger = {"claims": ledger} if isinstance(ledger, list) else ledger  # written by older versions
    claims = read_claims(ledger.get("claims"), problems)
    # Files of older versions do not record from which numbers the claims were judged.
    if isinstance(judged_from := ledger.get("judged_from"), dict):
        needed = {claim["needs"] for claim in claims}
        for index, entry in enumerate(experiments):
            if entry.file is not None and entry.name in needed:
                stale = digest(root, entry.name) != judged_from.get(entry.name)
                experiments[index] = replace(entry, stale=stale)
    by_name = {entry.name: entry for entry in experiments}
    for claim in claims:
        source = by_name.get(claim["needs"])
        claim["stale"] = source is not None and source.stale
        claim["damage"] = "" if source is None else source.damage
    keys = {name.split("_")[0] for name in by_name}
    keys |= {claim["id"].split("/")[0] for claim in claims}
    papers = _texts_by_key(ledger.get("papers"), ("title", "authors", "year"))
    skipped = _read_json(root / SKIPPED, problems, root)
    if isinstance(skipped, list):  # written by older versions
        rows = (_texts(row, ("what", "why")) for row in skipped if isinstance(row, dict))
        skipped = {row["what"]: row["why"] for row in rows}
    return Content(
        root,
        tuple(experiments),
        tuple(claims),
        {str(name): str(reason) for name, reason in skipped.items()},
        {key: paper for key, paper in papers.items() if key in keys},
        tuple(problems),
        _texts_by_key(ledger.get("stories"), ("title", "says", "source", "about")),
        tuple(_read_errata(ledger.get("errata"))),
    )


def read_claims(content: Any, problems: list[str]) -> list[dict[str, Any]]:
    """Return the claims with all entries that pages use; report other rows in `problems`."""
    claims = []
    for number, row in enumerate(content if isinstance(content, list) else [], start=1):
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            problems.append(f"{CLAIMS}: claim {number} is skipped: expected an object with an id")
            continue
        claim = {**_texts(row, _CLAIM_TEXTS), "id": row["id"], "numbers": row.get("numbers") or {}}
        claim["verdict"], claim["tone"] = claim["verdict"] or "open", claim["tone"] or "open"
        links = row.get("links")
        claim["links"] = _texts(links, tuple(links)) if isinstance(links, dict) else {}
        claim["ours"] = row.get("ours", row["id"].startswith(_OUR_PREFIX)) is True
        beside = row.get("beside")
        claim["beside"] = [
            _texts(other, _BESIDE_TEXTS)
            for other in (beside if isinstance(beside, list) else ())
            if isinstance(other, dict)
        ]
        claim["here"] = None
        if isinstance(row.get("here"), dict):
            here = _texts(row["here"], _HERE_TEXTS)
            here["says"] = here["says"] or f"{here['relation']} ({here['verdict']})"  # older files
            claim["here"] = here
        claims.append(claim)
    return claims


def _texts(value: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return the entries `names` of a JSON object as texts; missing entries become empty texts."""
    return {str(name): str(value.get(name) or "") for name in names}


def _texts_by_key(content: Any, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the entries `names` of every object in `content` as texts, by the object's key."""
    items = content.items() if isinstance(content, dict) else ()
    return {str(key): _texts(value, names) for key, value in items if isinstance(value, dict)}


def _read_errata(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the errata as texts, each with the ids of the claims that it corrects."""
    for erratum in content if isinstance(content, list) else []:
        if isinstance(erratum, dict) and isinstance(erratum.get("claims"), list | None):
            claims = [str(id_) for id_ in erratum.get("claims") or []]
            yield {**_texts(erratum, _ERRATUM_TEXTS), "claims": claims}


def stamp(root: Path) -> list[tuple[str, int, int]]:
    """Return times and sizes of the files that `read_content` reads, to detect changes."""
    files = [root / CLAIMS, root / SKIPPED]
    with contextlib.suppress(OSError):
        files += [*root.glob(f"*/{NUMBERS}"), *root.glob(f"*/*{PICTURE}")]
    stamps = []
    for file in files:
        with contextlib.suppress(OSError):
            status = file.lstat()
            stamps.append((str(file), status.st_mtime_ns, status.st_size))
    return sorted(stamps)


def safe_name(text: str) -> str:
    """Return a text as file name; different texts get different names.

    Long texts and texts with other characters than letters, digits and _ end with a part of their
    SHA-256.

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


def _read_experiment(folder: Path, root: Path, problems: list[str]) -> ExperimentFolder | None:
    """Return the experiment in a folder, or None if the folder has neither numbers nor figures."""
    try:
        names = list(list_folder(folder, root=root))
    except OSError:  # `find_runs` reports this folder
        return None
    numbers = read_numbers(root, [folder.name]).get(folder.name, {})
    damage = str(numbers.get(UNREADABLE, ""))
    if damage:
        problems.append(f"{folder.name}/{NUMBERS} cannot be read: {damage}")
    figures = _read_figures(folder, names, root, problems) if NUMBERS in names else ()
    if not numbers and not figures:
        return None
    seeds = numbers.get("seeds")
    return ExperimentFolder(
        folder.name,
        str(numbers.get("preset") or ""),
        seeds if isinstance(seeds, list) else [],
        figures,
        None if damage else folder / NUMBERS,
        damage=damage,
    )


def _read_figures(
    folder: Path, names: Collection[str], root: Path, problems: list[str]
) -> tuple[Figure, ...]:
    """Return the figures of an experiment; those without a data file have only images."""
    figures = {}
    stems = [name.removesuffix(PICTURE) for name in names if name.endswith(PICTURE)]
    stems += [name.removesuffix(".png") for name in names if name.endswith(".png")]
    for stem in dict.fromkeys(stems):
        images = _read_images(folder, stem, names, root, problems)
        figure = Figure(folder.name, stem, Picture(stem, stem, ()), images)
        if f"{stem}{PICTURE}" in names:
            path = folder / f"{stem}{PICTURE}"
            try:
                drawn = replace(figure, picture=from_json(parse_json(path, root=root)))
                figure = drawn if drawn.data else figure  # raises if it cannot be drawn
            except (RecordError, *DAMAGE) as error:
                reason = error if isinstance(error, RecordError) else repr(error)
                problems.append(f"{path.relative_to(root)} cannot be drawn: {reason}")
        if figure.images or figure.picture.panels:
            figures[stem] = figure
    return tuple(figures.values())


def _read_images(
    folder: Path, stem: str, names: Collection[str], root: Path, problems: list[str]
) -> dict[str, Path]:
    """Return the readable image files of a figure by suffix; PNG only if there is no SVG."""
    images = {}
    for suffix in IMAGES:
        path = folder / f"{stem}{suffix}"
        if path.name not in names or (suffix == ".png" and ".svg" in images):
            continue
        try:
            read_regular(path, root=root)
            images[suffix] = path
        except OSError as error:
            problems.append(f"{folder.name}/{path.name} cannot be read: {error.strerror}")
    return images


def _read_json(path: Path, problems: list[str], root: Path) -> Any:
    """Return the object or list in a JSON file; an empty object if it is missing or damaged."""
    if not os.path.lexists(path):
        return {}
    try:
        content = parse_json(path, root=root)
        if isinstance(content, dict | list):
            return content
        error = RecordError("expected an object")
    except RecordError as reason:
        error = reason
    problems.append(f"{path.relative_to(root)} cannot be read: {error}")
    return {}


def script(function: str, *values: Any) -> str:
    """Return a script that calls a JavaScript function with values.

    A page opened from disk may load scripts, but no other files.

    >>> script("gotRun", {"loss": 0.5})
    'nclab.gotRun({"loss":0.5});\\n'
    """
    return f"nclab.{function}({', '.join(map(compact_json, values))});\n"


def compact_json(value: Any) -> str:
    """Return JSON without spaces, in ASCII; numbers must be finite."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def picture_csv(picture: Picture) -> str:
    """Return the numbers of a figure as CSV.

    A row is a point of a series, a cell of a heat map (its value as y), or an effect of a forest
    plot (its estimate as x).
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("panel", "series", "x", "y", "low", "high"))
    for panel in picture.panels:
        writer.writerows(_panel_rows(panel))
    return text.getvalue()


def _panel_rows(panel: AnyPanel) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a panel: title, name of the series, x, y, low and high."""
    if isinstance(panel, HeatMap):
        for row, values in enumerate(panel.values):
            name = panel.y_names[row] if panel.y_names else panel.y[row] if panel.y else row
            for column, value in enumerate(values):
                label = panel.x_names[column] if panel.x_names else column
                x = panel.x[column] if len(panel.x) else label
                yield panel.title, str(name), x, value, None, None
    elif isinstance(panel, Forest):
        for group in panel.groups:
            for effect in group.rows:
                yield group.title, effect.name, effect.estimate, None, effect.low, effect.high
    else:
        for series in panel.series:
            empty = [None] * len(series.x)
            bounds = series.low or empty, series.high or empty
            for point in zip(series.x, series.y, *bounds, strict=True):
                yield (panel.title, series.label, *point)
        for reference in panel.references:
            yield panel.title, reference.label, reference.x, reference.y, None, None

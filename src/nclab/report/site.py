"""The static report: a folder of pages that open from disk, without a server and offline."""

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, RecordError
from nclab.figures.palette import DARK, LIGHT
from nclab.figures.picture import AnyPanel, Forest, HeatMap, Picture, to_json
from nclab.figures.plotly_renderer import PLOTLY_CONFIG, plotly_spec
from nclab.files import FolderMark, read_regular, replace_folder, translate_os_errors
from nclab.metrics.target_distance import MEANINGS
from nclab.progress import track
from nclab.records import find_runs
from nclab.records.checkpoints import CHECKPOINTS
from nclab.records.journal import JOURNAL
from nclab.records.manifest import MANIFEST
from nclab.records.results import CLAIMS, NUMBERS, SKIPPED
from nclab.records.run import holds_run
from nclab.records.state import LOCK, STATE
from nclab.report.compare import curves, table
from nclab.report.content import (
    Content,
    Figure,
    check_folder,
    read_content,
    runs_below,
    safe_name,
)
from nclab.report.environment import formulas_of_metrics
from nclab.report.pages import ASSETS, Pages
from nclab.report.run_data import page_limits, run_data
from nclab.report.run_follower import RunFollower
from nclab.report.sweep_figures import with_figures

MARK = FolderMark(
    "report.json",
    {"format": "nclab report"},
    folders=(
        "assets",
        "data/curves",
        "data/figures",
        "data/numbers",
        "data/runs",
        "papers",
        "runs",
    ),
    pages=("index.html", "claims.html", "runs.html", "formulas.html"),
)
RESERVED_NAMES = (CHECKPOINTS, STATE, JOURNAL, LOCK, MANIFEST, CLAIMS, NUMBERS, SKIPPED)
"""Names that have another meaning in a folder of runs."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet takes for a formula."""


@dataclass(frozen=True)
class WrittenReport:
    """Summary of a report that was written."""

    page: Path
    """The first page to open."""
    figures: int
    claims: Mapping[str, int]
    """Number of claims by verdict."""
    runs: int
    skipped: int
    bytes: int
    problems: tuple[str, ...] = ()
    """Files that exist but could not be read, each in one line."""
    ledger_problem: str = ""
    """Why no claims are shown although there is a file of claims."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = {"page": str(self.page), "claims": dict(self.claims)}
        return {**vars(self), **plain, "problems": list(self.problems)}


def write_report(
    runs: Path, out: Path | None = None, *, metrics: Sequence[str] = ()
) -> WrittenReport:
    """Write the report of a folder of runs; an earlier report is replaced.

    Args:
        runs: the folder of runs.
        out: the folder of the report; by default `report` in the folder of runs.
        metrics: metrics to draw against the settings in which the runs differ; by default a few
            common ones.
    """
    root = check_folder(runs)
    target = check_target(root / "report" if out is None else out, root)
    problems: list[str] = []
    content = read_content(root)
    followers, scripts = read_runs(root, problems)
    content = replace(content, problems=(*content.problems, *problems))
    content = with_figures(content, table(followers), metrics)
    plotly = plotly_script() if any(item.figures for item in content.experiments) else None
    content = without_pngs(content) if plotly is not None else content
    pages = Pages(content, followers, plotly=plotly is not None)
    files: dict[str, str | bytes] = {f"assets/{name}": text for name, text in assets(plotly)}
    for name, make in data_files(content).items():
        with translate_os_errors("read", name, NclabError):
            files[f"data/{name}"] = make()
    files["data/claims.json"] = json.dumps(list(content.claims), indent=1, ensure_ascii=False)
    files |= {f"data/runs/{slug}.js": text for slug, text in scripts.items()}
    files |= {f"data/{name}": text for name, text in comparison_scripts(pages.table, followers)}
    for name in track(pages.names(), "pages"):
        page = pages.render(name)
        assert page is not None
        files[name] = page
    encoded = {
        name: text.encode("utf-8", "replace") if isinstance(text, str) else text
        for name, text in files.items()
    }
    replace_folder(target, encoded, MARK)
    return WrittenReport(
        page=target / "index.html",
        figures=len(content.figures) + sum(len(item.figures) for item in content.experiments),
        claims=Counter(str(claim.get("verdict") or "open") for claim in content.claims),
        runs=len(followers),
        skipped=len(content.skipped),
        bytes=sum(map(len, encoded.values())),
        problems=content.problems,
        ledger_problem=content.ledger_problem,
    )


def check_target(target: Path, root: Path) -> Path:
    """Return the folder for the report of the runs in `root`, or raise if runs could be lost.

    The folder must be new, empty or an earlier report. It may lie in the folder of runs, but not
    in a run, and it may not be or contain the folder of runs.
    """
    folder, runs = Path(os.path.realpath(target)), Path(os.path.realpath(root))
    if target.is_symlink() and Path(os.path.realpath(target.parent)) == runs:
        raise NclabError(
            f"Expected a folder, but {target} is a link. Delete the link, or pass another --out."
        )
    if runs.is_relative_to(folder):
        relation = "is" if runs == folder else "contains"
        raise NclabError(
            f"Expected a separate folder for the report, got {target}, which {relation} the "
            f"folder of runs {root}. Pass another folder with --out."
        )
    above = [path for path in (folder, *folder.parents) if runs in path.parents]
    if above and (folder.name in RESERVED_NAMES or any(map(holds_run, above))):
        raise NclabError(
            f"Expected a folder for the report outside of every run, got {target}. Pass another "
            "folder with --out."
        )
    shown = folder if ".." in target.parts else target
    MARK.check(shown)
    if folder.exists() and (within := find_runs(folder)):
        raise NclabError(
            f"Expected a folder without runs for the report, got {target} with the run "
            f"{within[0]}. Move the run, or pass another folder with --out."
        )
    return shown


def read_runs(root: Path, problems: list[str]) -> tuple[dict[str, RunFollower], dict[str, str]]:
    """Read every run of a folder; return the runs and the scripts of their pages, by slug."""
    followers: dict[str, RunFollower] = {}
    scripts: dict[str, str] = {}
    folders = runs_below(root, problems)
    limits = page_limits(len(folders))
    for folder in track(folders, "reading runs"):
        try:
            run = RunFollower(folder, root=root)
            run.refresh()
        except RecordError as error:
            problems.append(skipped_run(folder, root, error))
            continue
        if run.problem:
            problems.append(run.problem)
        slug = slug_of(run)
        scripts[slug] = script("gotRun", run_data(run, slug=slug, limits=limits))
        followers[slug] = run
    return followers, scripts


def skipped_run(folder: Path, root: Path, error: RecordError) -> str:
    """Return one line on why a run is not shown."""
    return f"The run {folder.relative_to(root)} is skipped: {error}"


def slug_of(run: RunFollower) -> str:
    """Return the name of the page of a run."""
    return safe_name(run.name if run.path == "." else run.path)


def plotly_script() -> bytes | None:
    """Return the script of plotly, which reports contain; None if plotly is not installed."""
    try:
        import plotly
    except ImportError:
        return None
    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return script.read_bytes() if script.is_file() else None


def assets(plotly: bytes | None) -> Iterable[tuple[str, str | bytes]]:
    """Yield the scripts and the style sheet that all pages share."""
    from nclab.metrics.catalogue import BY_NAME

    for file in sorted(ASSETS.iterdir()):
        if file.suffix in (".js", ".css"):
            yield file.name, file.read_bytes()
    meanings = {**MEANINGS, **{name: metric.meaning for name, metric in BY_NAME.items()}}
    yield (
        "metrics.js",
        (
            f"nclab.meanings = {compact_json(meanings)};\n"
            f"nclab.formulas = {compact_json(formulas_of_metrics())};\n"
        ),
    )
    papers = {"light": LIGHT._asdict(), "dark": DARK._asdict()}
    yield (
        "palette.js",
        (
            f"window.nclab = window.nclab || {{}};\nnclab.palette = {json.dumps(papers)};\n"
            f"nclab.plotConfig = {json.dumps(PLOTLY_CONFIG)};\n"
        ),
    )
    if plotly is not None:
        yield "plotly.min.js", plotly


def script(function: str, *values: Any) -> str:
    """Return a script that passes values to a page, which may not read files from disk.

    >>> script("gotRun", {"loss": 0.5})
    'nclab.gotRun({"loss":0.5});\\n'
    """
    return f"nclab.{function}({', '.join(map(compact_json, values))});\n"


def comparison_scripts(
    rows: Mapping[str, Any], runs: Mapping[str, RunFollower]
) -> Iterable[tuple[str, str]]:
    """Yield the table of all runs as a script, and one script of curves for every metric."""
    named = [{**metric, "file": safe_name(metric["name"])} for metric in rows["metrics"]]
    yield "compare.js", script("gotRuns", {**rows, "metrics": named})
    for metric, data in curves(runs).items():
        yield f"curves/{safe_name(metric)}.js", script("gotCurves", metric, data)


def compact_json(value: Any) -> str:
    """Return JSON without spaces, in ASCII; numbers must be finite."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def without_pngs(content: Content) -> Content:
    """Drop PNG files that a page can draw itself: they are the largest files of a report."""

    def without_png(figure: Figure) -> Figure:
        if not figure.picture.panels or ".svg" not in figure.images:
            return figure
        images = {suffix: file for suffix, file in figure.images.items() if suffix != ".png"}
        return replace(figure, images=images)

    experiments = (
        replace(experiment, figures=tuple(map(without_png, experiment.figures)))
        for experiment in content.experiments
    )
    return replace(content, experiments=tuple(experiments))


def data_files(content: Content) -> dict[str, Callable[[], str | bytes]]:
    """Return functions that make the numbers and images behind the pages, by path."""
    files: dict[str, Callable[[], str | bytes]] = {}
    for experiment in content.experiments:
        if experiment.file is not None:
            files[f"numbers/{safe_name(experiment.name)}.json"] = partial(
                read_regular, experiment.file, root=content.root
            )
        for figure in experiment.figures:
            if figure.picture.panels:
                files |= _figure_files(figure, "addFigure", plotly_spec)
            for suffix, image in figure.images.items():
                path = f"figures/{figure.id}{suffix}"
                files[path] = partial(read_regular, image, root=content.root)
    for figure in content.figures:
        files |= _figure_files(figure, "addPicture", to_json)
    return files


def _figure_files(
    figure: Figure, function: str, specify: Callable[[Picture], Any]
) -> dict[str, Callable[[], str | bytes]]:
    """Return the script and the numbers of a figure; `specify` returns what the page draws."""
    base, picture = f"figures/{figure.id}", figure.picture
    return {
        f"{base}.js": lambda: script(function, figure.id, specify(picture)),
        f"{base}.json": lambda: compact_json(to_json(picture)),
        f"{base}.csv": partial(picture_csv, picture),
    }


def picture_csv(picture: Picture) -> str:
    """Return the numbers of a figure as CSV.

    A row is a point of a series, a cell of a heat map (its value as y), or an effect of a forest
    plot (its estimate as x).

    >>> from nclab.figures.picture import Panel, Series
    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, None]),))
    >>> print(picture_csv(Picture("p", "", (panel,))).replace("\\r", ""), end="")
    panel,series,x,y,low,high
    loss,run,0,2.0,,
    loss,run,1,,,
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("panel", "series", "x", "y", "low", "high"))
    for panel in picture.panels:
        for title, series, *numbers in _rows_of(panel):
            writer.writerow([_cell(title), _cell(series), *numbers])
    return text.getvalue()


def _rows_of(panel: AnyPanel) -> Iterator[tuple[Any, ...]]:
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


def _cell(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text

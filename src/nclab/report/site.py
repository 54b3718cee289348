"""The static report: a folder of pages that a browser opens from disk, without a server."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nclab.errors import NclabError
from nclab.figures.picture import DARK, LIGHT
from nclab.figures.plotly_renderer import PLOTLY_CONFIG
from nclab.files import FolderMark, read_regular, replace_folder, translate_os_errors
from nclab.metrics.catalogue import TARGET_MEANINGS
from nclab.progress import track
from nclab.records import find_runs
from nclab.records.run import holds_run
from nclab.report.content import Content, check_folder, compact_json, safe_name, script
from nclab.report.pages import ASSETS, Pages, formulas_of_metrics
from nclab.report.run_data import curves, page_limits, run_data
from nclab.report.run_follower import RunFollower
from nclab.report.watcher import Watcher

MARK = FolderMark(
    "report.json",
    {"format": "nclab report"},
    folders=(
        *("assets", "data/curves", "data/figures", "data/numbers", "data/runs"),
        *("papers", "runs"),
    ),
    pages=("index.html", "claims.html", "runs.html", "formulas.html"),
)


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
    """Why no claims are shown although the file of claims exists; empty if there is no problem."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = {"page": str(self.page), "claims": dict(self.claims)}
        return {**vars(self), **plain, "problems": list(self.problems)}


def write_report(runs: Path, out: Path | None = None) -> WrittenReport:
    """Write the report of a folder of runs; an earlier report is replaced.

    Args:
        runs: the folder of runs.
        out: the folder of the report; by default `report` in the folder of runs.
    """
    root = check_folder(runs)
    target = check_target(root / "report" if out is None else out, root)
    watcher = Watcher(root)
    watcher.refresh()
    content, followers = watcher.content, watcher.runs
    plotly = plotly_script() if any(entry.figures for entry in content.experiments) else None
    pages = Pages(content, followers, watcher.table(), plotly=plotly is not None)
    files: dict[str, str | bytes] = {f"assets/{name}": text for name, text in assets(plotly)}
    for name, data in data_files(content).items():
        with translate_os_errors("read", name, NclabError):
            text = read_regular(data, root=root) if isinstance(data, Path) else data
        files[f"data/{name}"] = text
    limits = page_limits(len(followers))
    for slug, run in followers.items():
        files[f"data/runs/{slug}.js"] = script("gotRun", run_data(run, slug=slug, limits=limits))
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
        figures=sum(len(entry.figures) for entry in content.experiments),
        claims=Counter(claim["verdict"] for claim in content.claims),
        runs=len(followers),
        skipped=len(content.skipped),
        bytes=sum(map(len, encoded.values())),
        problems=content.problems,
        ledger_problem=content.ledger_problem,
    )


def check_target(target: Path, root: Path) -> Path:
    """Return the folder for the report of the runs in `root`, or raise if runs could be lost.

    The folder must be new, empty or an earlier report. It may lie in the folder of runs, but not
    in a run, and it may not be or contain the folder of runs or a run.
    """
    folder, runs = Path(os.path.realpath(target)), Path(os.path.realpath(root))
    above = [path for path in (folder, *folder.parents) if runs in path.parents]
    if runs.is_relative_to(folder) or any(map(holds_run, above)):
        raise NclabError(
            f"Expected a separate folder for the report, got {target}, which is or contains the "
            f"folder of runs {root} or lies in a run. Pass another folder with --out."
        )
    shown = folder if ".." in target.parts else target
    MARK.check(shown)
    if folder.exists() and (within := find_runs(folder)):
        raise NclabError(
            f"Expected a folder without runs for the report, got {target} with the run "
            f"{within[0]}. Move the run, or pass another folder with --out."
        )
    return shown


def plotly_script() -> bytes | None:
    """Return plotly's JavaScript, which is copied into reports; None if plotly is missing."""
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
    meanings = {**TARGET_MEANINGS, **{name: metric.meaning for name, metric in BY_NAME.items()}}
    text = f"nclab.meanings = {compact_json(meanings)};\n"
    yield "metrics.js", f"{text}nclab.formulas = {compact_json(formulas_of_metrics())};\n"
    palettes = {"light": LIGHT._asdict(), "dark": DARK._asdict()}
    text = f"window.nclab = window.nclab || {{}};\nnclab.palette = {json.dumps(palettes)};\n"
    yield "palette.js", f"{text}nclab.plotConfig = {json.dumps(PLOTLY_CONFIG)};\n"
    if plotly is not None:
        yield "plotly.min.js", plotly


def comparison_scripts(
    rows: Mapping[str, Any], runs: Mapping[str, RunFollower]
) -> Iterable[tuple[str, str]]:
    """Yield the table of all runs as a script, and one script of curves for every metric."""
    named = [{**metric, "file": safe_name(metric["name"])} for metric in rows["metrics"]]
    yield "compare.js", script("gotRuns", {**rows, "metrics": named})
    for metric, data in curves(runs).items():
        yield f"curves/{safe_name(metric)}.js", script("gotCurves", metric, data)


def data_files(content: Content) -> dict[str, str | Path]:
    """Return the files below `data/` by path: a text, or the path of a file to copy."""
    claims = json.dumps(list(content.claims), indent=1, ensure_ascii=False)
    files: dict[str, str | Path] = {"claims.json": claims}
    for experiment in content.experiments:
        if experiment.file is not None:
            files[f"numbers/{safe_name(experiment.name)}.json"] = experiment.file
        for figure in experiment.figures:
            contents: dict[str, str | Path] = {**figure.data, **figure.images}
            files |= {f"figures/{figure.id}{suffix}": data for suffix, data in contents.items()}
    return files

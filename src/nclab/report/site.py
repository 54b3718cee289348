"""The static report: a folder of pages that opens from disk, without a server and offline."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, RecordError
from nclab.figures.picture import Picture, to_json
from nclab.figures.plotly_renderer import PLOTLY_CONFIG, plotly_spec
from nclab.files import read_regular, translate_os_errors
from nclab.folders import replace_folder
from nclab.metrics.target_distance import MEANINGS
from nclab.progress import track
from nclab.report.compare import curves, table
from nclab.report.content import (
    Content,
    Figure,
    check_folder,
    read_content,
    runs_below,
    safe_name,
)
from nclab.report.formulas import of_metrics
from nclab.report.pages import ASSETS, Pages, palette_script
from nclab.report.picture_csv import picture_csv
from nclab.report.place import MARK, check_target
from nclab.report.run_data import room_for, run_data
from nclab.report.run_follower import RunFollower
from nclab.report.sweep_figures import with_figures


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written."""

    page: Path
    """Where to begin."""
    figures: int
    claims: Mapping[str, int]
    """By verdict."""
    runs: int
    skipped: int
    bytes: int
    problems: tuple[str, ...] = ()
    """Files that are there but could not be read, each in one line."""
    ledger_problem: str = ""
    """Why no claims are shown although there is a file of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = {"page": str(self.page), "claims": dict(self.claims)}
        return {**vars(self), **plain, "problems": list(self.problems)}


def write_report(
    runs: Path, out: Path | None = None, *, metrics: Sequence[str] = ()
) -> WrittenReport:
    """Write the report of a folder of runs; by default into `report` in that folder.

    An earlier report is replaced; one that holds files of others among its own is refused.

    Runs that differ in their settings are drawn against them: the given metrics, or a usual few.
    """
    root = check_folder(runs)
    target = check_target(root / "report" if out is None else out, root)
    problems: list[str] = []
    content = read_content(root)
    found, scripts = read_runs(root, problems)
    content = replace(content, problems=(*content.problems, *problems))
    content = with_figures(content, table(found), metrics)
    plotly = plotly_script() if any(one.figures for one in content.experiments) else None
    content = without_pngs(content) if plotly is not None else content
    pages = Pages(content, found, plotly=plotly is not None)
    files: dict[str, str | bytes] = {f"assets/{name}": text for name, text in assets(plotly)}
    for name, make in data_files(content).items():
        with translate_os_errors("read", name, NclabError):
            files[f"data/{name}"] = make()
    files["data/claims.json"] = json.dumps(list(content.claims), indent=1, ensure_ascii=False)
    files |= {f"data/runs/{slug}.js": text for slug, text in scripts.items()}
    files |= {f"data/{name}": text for name, text in compared(pages.table, found)}
    for name in track(pages.names(), "pages"):
        page = pages.render(name)
        assert page is not None
        files[name] = page
    written = {name: _encoded(text) for name, text in files.items()}
    replace_folder(target, written, MARK)
    return WrittenReport(
        page=target / "index.html",
        figures=len(content.figures) + sum(len(one.figures) for one in content.experiments),
        claims=Counter(str(claim.get("verdict") or "open") for claim in content.claims),
        runs=len(found),
        skipped=len(content.skipped),
        bytes=sum(map(len, written.values())),
        problems=content.problems,
        ledger_problem=content.ledger_problem,
    )


def read_runs(root: Path, problems: list[str]) -> tuple[dict[str, RunFollower], dict[str, str]]:
    """Every run of a folder, read to its end, and its script, both by slug."""
    found: dict[str, RunFollower] = {}
    scripts: dict[str, str] = {}
    folders = runs_below(root, problems)
    room = room_for(len(folders))
    for folder in track(folders, "reading runs"):
        try:
            run = RunFollower(folder, root=root)
            run.refresh()
        except RecordError as error:
            problems.append(problem_of(folder, root, error))
            continue
        if run.problem:
            problems.append(run.problem)
        slug = slug_of(run)
        scripts[slug] = run_script(run_data(run, slug=slug, room=room))
        found[slug] = run
    return found, scripts


def problem_of(folder: Path, root: Path, error: RecordError) -> str:
    """Why a run is not shown, in one line."""
    return f"The run {folder.relative_to(root)} is left out: {error}"


def slug_of(run: RunFollower) -> str:
    """The name of a run's page."""
    return safe_name(run.name if run.path == "." else run.path)


def plotly_script() -> bytes | None:
    """plotly's own script from its package, which pages load from beside them; None without it."""
    try:
        import plotly
    except ImportError:
        return None
    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return script.read_bytes() if script.is_file() else None


def assets(plotly: bytes | None) -> Iterable[tuple[str, str | bytes]]:
    """What pages share, each file once."""
    for file in sorted(ASSETS.iterdir()):
        if file.suffix in (".js", ".css"):
            yield file.name, file.read_bytes()
    yield "metrics.js", metrics_script()
    config = f"nclab.plotConfig = {json.dumps(PLOTLY_CONFIG)};\n"
    yield "palette.js", palette_script() + config
    if plotly is not None:
        yield "plotly.min.js", plotly


def metrics_script() -> str:
    """What metrics mean and their formulas: once, not with every run."""
    from nclab.metrics.catalogue import BY_NAME

    meanings = {**MEANINGS, **{name: metric.meaning for name, metric in BY_NAME.items()}}
    told = f"nclab.meanings = {compact(meanings)};\n"
    return f"{told}nclab.formulas = {compact(of_metrics())};\n"


def figure_script(id_: str, picture: Any) -> str:
    """A figure as a script, which a page may load from disk where it may not read a file."""
    return f"nclab.addFigure({json.dumps(id_)}, {compact(plotly_spec(picture))});\n"


def picture_script(id_: str, picture: Picture) -> str:
    """The same for a figure that the pages draw by themselves."""
    return f"nclab.addPicture({json.dumps(id_)}, {compact(to_json(picture))});\n"


def run_script(data: Mapping[str, Any]) -> str:
    """The same for what the page of a run draws."""
    return f"nclab.gotRun({compact(data)});\n"


def compared(rows: Mapping[str, Any], runs: Mapping[str, RunFollower]) -> Iterable[tuple[str, str]]:
    """All runs as a script, and the curves of every metric as one of their own."""
    named = [{**one, "file": safe_name(one["name"])} for one in rows["metrics"]]
    yield "compare.js", f"nclab.gotRuns({compact({**rows, 'metrics': named})});\n"
    for metric, own in curves(runs).items():
        script = f"nclab.gotCurves({compact(metric)}, {compact(own)});\n"
        yield f"curves/{safe_name(metric)}.js", script


def compact(value: Any) -> str:
    """JSON without spaces, in ASCII; not finite is a bug."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def without_pngs(content: Content) -> Content:
    """Figures whose PNG the page can make when it is asked for: those are the heaviest files."""

    def kept(figure: Figure) -> Figure:
        able = bool(figure.picture.panels) and ".svg" in figure.images
        images = {suffix: f for suffix, f in figure.images.items() if suffix != ".png" or not able}
        return replace(figure, images=images)

    experiments = (
        replace(one, figures=tuple(map(kept, one.figures))) for one in content.experiments
    )
    return replace(content, experiments=tuple(experiments))


def data_files(content: Content) -> dict[str, Callable[[], str | bytes]]:
    """Numbers and images behind the pages by their path, each made when it is wanted."""
    files: dict[str, Callable[[], str | bytes]] = {}
    for experiment in content.experiments:
        if experiment.file is not None:
            files[f"numbers/{safe_name(experiment.name)}.json"] = partial(
                read_regular, experiment.file, root=content.root
            )
        for figure in experiment.figures:
            base, picture = f"figures/{figure.id}", figure.picture
            if picture.panels:
                files[f"{base}.js"] = partial(figure_script, figure.id, picture)
                files |= _numbers_of(base, picture)
            for suffix, image in figure.images.items():
                files[f"{base}{suffix}"] = partial(read_regular, image, root=content.root)
    for figure in content.figures:
        base = f"figures/{figure.id}"
        files[f"{base}.js"] = partial(picture_script, figure.id, figure.picture)
        files |= _numbers_of(base, figure.picture)
    return files


def _numbers_of(base: str, picture: Picture) -> dict[str, Callable[[], str | bytes]]:
    return {
        f"{base}.json": lambda: compact(to_json(picture)),
        f"{base}.csv": partial(picture_csv, picture),
    }


def _encoded(content: str | bytes) -> bytes:
    return content.encode("utf-8", "replace") if isinstance(content, str) else content

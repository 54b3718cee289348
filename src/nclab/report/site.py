"""The static report: a folder of pages that opens from disk, without a server and offline."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nclab.errors import NclabError
from nclab.figures.interactive import CONFIG, spec
from nclab.figures.picture import to_json
from nclab.files import write_whole
from nclab.progress import track
from nclab.report.content import Content, check_folder, read_content, runs_below, safe_name
from nclab.report.follower import Follower
from nclab.report.pages import ASSETS, Pages, palette_script
from nclab.report.run_data import Room, room_for, run_data
from nclab.report.table import picture_csv

MARK = "report.json"
FORMAT = "nclab report"
OURS = ("assets", "data", "papers", "runs")
"""Folders of a report; an earlier one's are replaced."""


@dataclass(frozen=True)
class Report:
    """A report that was written."""

    page: Path
    """Where to begin."""
    figures: int
    claims: Mapping[str, int]
    """By verdict."""
    runs: int
    skipped: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**vars(self), "page": str(self.page), "claims": dict(self.claims)}


def write_report(runs: Path, out: Path | None = None) -> Report:
    """Write the report of a folder of runs; by default into `report` in that folder."""
    root = check_folder(runs)
    target = root / "report" if out is None else out
    _make_room(target)
    content = read_content(root)
    followers = follow_all(root)
    plotly = plotly_script()
    pages = Pages(content, followers, plotly=plotly is not None)
    for folder in ("assets", "data/figures", "data/numbers", "data/runs", "papers", "runs"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    for name, text in assets(plotly):
        _write(target / "assets" / name, text)
    _write_data(target / "data", content, followers)
    for name in track(pages.names(), "pages"):
        page = pages.render(name)
        assert page is not None
        _write(target / name, page)
    tally: dict[str, int] = {}
    for claim in content.claims:
        verdict = str(claim.get("verdict") or "open")
        tally[verdict] = tally.get(verdict, 0) + 1
    return Report(
        page=target / "index.html",
        figures=sum(len(one.figures) for one in content.experiments),
        claims=tally,
        runs=len(followers),
        skipped=len(content.skipped),
        bytes=sum(file.stat().st_size for file in target.rglob("*") if file.is_file()),
    )


def follow_all(root: Path) -> dict[str, Follower]:
    """Every run of a folder, read to its end, by slug."""
    found: dict[str, Follower] = {}
    for folder in track(runs_below(root), "reading runs"):
        run = Follower(folder, root=root)
        run.refresh()
        found[slug_of(run)] = run
    return found


def slug_of(run: Follower) -> str:
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
    config = f"nclab.plotConfig = {json.dumps(CONFIG)};\n"
    yield "palette.js", palette_script() + config
    if plotly is not None:
        yield "plotly.min.js", plotly


def figure_script(id_: str, picture: Any) -> str:
    """A figure as a script, which a page may load from disk where it may not read a file."""
    return f"nclab.addFigure({json.dumps(id_)}, {compact(spec(picture))});\n"


def run_script(slug: str, run: Follower, room: Room) -> str:
    """The same for what the page of a run draws."""
    return f"nclab.gotRun({compact(run_data(run, slug=slug, room=room))});\n"


def compact(value: Any) -> str:
    """JSON without spaces, in ASCII; not finite is a bug."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _write_data(folder: Path, content: Content, followers: Mapping[str, Follower]) -> None:
    for experiment in content.experiments:
        if experiment.file is not None:
            _write(
                folder / "numbers" / f"{safe_name(experiment.name)}.json",
                experiment.file.read_bytes(),
            )
        for figure in experiment.figures:
            base = folder / "figures" / figure.id
            if figure.picture.panels:
                _write(base.with_name(f"{figure.id}.js"), figure_script(figure.id, figure.picture))
                _write(base.with_name(f"{figure.id}.json"), compact(to_json(figure.picture)))
                _write(base.with_name(f"{figure.id}.csv"), picture_csv(figure.picture))
            for suffix, image in figure.images.items():
                _write(base.with_name(f"{figure.id}{suffix}"), image.read_bytes())
    _write(folder / "claims.json", json.dumps(list(content.claims), indent=1, ensure_ascii=False))
    room = room_for(len(followers))
    for slug, run in track(list(followers.items()), "runs"):
        _write(folder / "runs" / f"{slug}.js", run_script(slug, run, room))


def _make_room(target: Path) -> None:
    """An empty folder, or an earlier report that is replaced; nothing else is touched."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        there = any(target.iterdir())
    except OSError as error:
        raise NclabError(f"Cannot make the folder {target}: {error.strerror}.") from error
    if there and not _is_ours(target / MARK):
        raise NclabError(
            f"Expected a new or empty folder or an earlier report, but {target} has other files "
            "in it. Pass another folder with --out."
        )
    for name in OURS:
        if (target / name).is_dir() and not (target / name).is_symlink():
            shutil.rmtree(target / name)
    _write(target / MARK, json.dumps({"format": FORMAT}) + "\n")


def _is_ours(mark: Path) -> bool:
    """Whether a file is the mark of a report; others use that name, too."""
    try:
        found = json.loads(mark.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def _write(path: Path, content: str | bytes) -> None:
    write_whole(path, content.encode() if isinstance(content, str) else content, flush=False)

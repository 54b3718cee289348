"""All runs of a folder, followed while they grow, for every page that looks at them."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nclab.errors import RecordError
from nclab.report.columns import Key
from nclab.report.compare import describe_all, row_of, table, with_axes
from nclab.report.content import Content, read_content, runs_below, stamp
from nclab.report.pages import Pages
from nclab.report.run_data import run_data, short
from nclab.report.run_follower import RunFollower
from nclab.report.site import plotly_script, problem_of, slug_of
from nclab.report.sweep_figures import with_figures

REFRESH_SECONDS = 0.4
"""No journal is looked at more often."""
SEARCH_SECONDS = 1.0
"""New runs and experiments are looked for as often as this."""


class Selection(NamedTuple):
    """What a page compares."""

    metric: str = ""
    layer: str = "last"
    """`last`, `every`, or `=` and the name of a layer."""
    place: str = "epoch"
    more: tuple[str, ...] = ()
    """Other metrics beside the first."""


class Watcher:
    """Reads incrementally, at most once for all who ask; safe to ask from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[str, RunFollower] = {}
        self.versions: dict[str, int] = {}
        """By slug, a number that grows whenever the run does."""
        self.content: Content = read_content(root)
        self.plotly = plotly_script()
        self._problems: list[str] = []
        self._odd: dict[Path, str] = {}
        """Runs that could not be read, and why."""
        self._lock = threading.Lock()
        self._looked = self._searched = 0.0
        self._stamp = stamp(root)
        self._rows: dict[str, dict[str, Any]] = {}
        self._marks: dict[str, Any] = {}
        """By slug, what its row was made from."""
        self._table: dict[str, Any] | None = None

    def refresh(self, *, again: bool = False) -> None:
        """Read what is new, unless someone just did; `again` reads it all the same."""
        with self._lock:
            now = time.monotonic()
            if self._looked and now - self._looked < REFRESH_SECONDS and not again:
                return
            if not self._searched or now - self._searched >= SEARCH_SECONDS or again:
                self._search()
                self._searched = time.monotonic()
            for slug, run in list(self.runs.items()):
                try:
                    grown = run.refresh()
                except RecordError as error:
                    del self.runs[slug]
                    self._odd[run.folder] = problem_of(run.folder, self.root, error)
                    continue
                if grown:
                    self.versions[slug] = self.versions.get(slug, 0) + 1
            self._looked = time.monotonic()

    def _search(self) -> None:
        known = {run.folder for run in self.runs.values()}
        self._problems = []
        found = runs_below(self.root, self._problems)
        self._odd = {folder: why for folder, why in self._odd.items() if folder in found}
        for folder in found:
            if folder in known or folder in self._odd:
                continue
            try:
                run = RunFollower(folder, root=self.root)
            except RecordError as error:  # looked at again: only its manifest was read
                self._problems.append(problem_of(folder, self.root, error))
                continue
            self.runs[slug_of(run)] = run
        there = set(found)
        gone = [slug for slug, run in self.runs.items() if run.folder not in there]
        for slug in gone:
            del self.runs[slug]
        self.runs = dict(sorted(self.runs.items(), key=lambda item: item[1].path))
        now = stamp(self.root)
        if now != self._stamp:
            self._stamp = now
            self.content = read_content(self.root)

    def render(self, name: str) -> str | None:
        """One page of this moment, None if there is no such page."""
        with self._lock:  # runs grow meanwhile
            return self._pages().render(name)

    def live_page(self) -> str:
        """The page on which runs are compared."""
        with self._lock:
            return self._pages().live_page()

    def _pages(self) -> Pages:
        damaged = (run.problem for run in self.runs.values() if run.problem)
        problems = (*self.content.problems, *self._problems, *self._odd.values(), *damaged)
        content = replace(self.figured(), problems=problems)
        return Pages(content, self.runs, plotly=self.plotly is not None, live=True)

    def figured(self) -> Content:
        """What the folder holds, with figures of its runs as they are now."""
        return with_figures(self.content, table(self.runs))

    def list_runs(self) -> list[dict[str, Any]]:
        """Every run in one line, with what can be drawn of it."""
        with self._lock:
            return [
                {
                    **row_of(slug, run),
                    "layers": run.layers(),
                    "metrics": list(dict.fromkeys(metric for _, metric in run.names())),
                }
                for slug, run in self.runs.items()
            ]

    def table(self) -> dict[str, Any]:
        """The same as pages compare it, and every layer that some run has."""
        with self._lock:
            marks = {
                slug: (self.versions.get(slug, 0), run.state, run.progress)
                for slug, run in self.runs.items()
            }
            if self._table is None or marks != self._marks:
                before, self._marks = self._marks, marks
                for slug, run in self.runs.items():
                    if slug not in self._rows or before.get(slug) != marks[slug]:
                        self._rows[slug] = row_of(slug, run)
                layers = (layer for run in self.runs.values() for layer in run.layers())
                rows = [self._rows[slug] for slug in self.runs]
                found = with_axes(rows, describe_all(self.runs))
                self._table = {**found, "layers": list(dict.fromkeys(layers))}
            return self._table

    def curves(self, selection: Selection, since: dict[str, int]) -> dict[str, Any]:
        """The chosen curves of the runs that grew; `since` is brought up to date."""
        with self._lock:
            found = {}
            for slug, run in self.runs.items():
                version = self.versions.get(slug, 0)
                if since.get(slug) != version:
                    since[slug] = version
                    found[slug] = _curves(run, selection)
            return found

    def run(self, slug: str) -> dict[str, Any] | None:
        """What the page of a run draws, None if there is no such run."""
        with self._lock:
            run = self.runs.get(slug)
            return None if run is None else run_data(run, slug=slug)


def _curves(run: RunFollower, selection: Selection) -> list[dict[str, Any]]:
    found = []
    for metric in (selection.metric, *selection.more):
        for key in _keys(run, metric, selection.layer):
            x, y = run.curve(key, selection.place)
            if not x and selection.place == "epoch":
                x, y = run.curve(key, "step")  # a run that does not count epochs
            if x:
                about = {"metric": metric, "layer": key[0]}
                found.append({**about, "x": short(x, 9), "y": short(y)})
    return found


def _keys(run: RunFollower, metric: str, layer: str) -> list[Key]:
    keys = [key for key in run.names() if key[1] == metric]
    whole = [key for key in keys if not key[0]]
    layers = [key for key in keys if key[0]]
    if layer == "every":
        return whole + layers
    if layer.startswith("="):
        return whole + [key for key in layers if key[0] == layer[1:]]
    last = [key for key in layers if key[0] in run.last_layers()]
    return last or (whole + layers)[-1:]

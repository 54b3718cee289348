"""All runs of a folder, followed while they grow, for all pages of the live server."""

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
from nclab.report.run_data import round_values, run_data
from nclab.report.run_follower import RunFollower
from nclab.report.site import plotly_script, skipped_run, slug_of
from nclab.report.sweep_figures import with_figures

REFRESH_SECONDS = 0.4
"""Shortest time between two reads of the journals."""
SEARCH_SECONDS = 1.0
"""Shortest time between two searches for new runs and experiments."""


class Selection(NamedTuple):
    """The curves that a page compares."""

    metric: str = ""
    layer: str = "last"
    """`last`, `every`, or `=` and the name of a layer."""
    axis: str = "epoch"
    more: tuple[str, ...] = ()
    """Further metrics."""


class Watcher:
    """Reads a folder of runs incrementally, once for all clients; several threads may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[str, RunFollower] = {}
        self.versions: dict[str, int] = {}
        """A number for every slug that increases whenever the run grows."""
        self.content: Content = read_content(root)
        self.plotly = plotly_script()
        self._problems: list[str] = []
        self._unreadable: dict[Path, str] = {}
        """Runs that could not be read, with the reasons."""
        self._lock = threading.Lock()
        self._last_refresh = self._last_search = 0.0
        self._stamp = stamp(root)
        self._rows: dict[str, dict[str, Any]] = {}
        self._row_keys: dict[str, Any] = {}
        """Version, state and progress from which each row was made."""
        self._table: dict[str, Any] | None = None

    def refresh(self, *, force: bool = False) -> None:
        """Read what is new, unless that was done a moment ago; with `force`, in any case."""
        with self._lock:
            now = time.monotonic()
            if self._last_refresh and now - self._last_refresh < REFRESH_SECONDS and not force:
                return
            if not self._last_search or now - self._last_search >= SEARCH_SECONDS or force:
                self._search()
                self._last_search = time.monotonic()
            for slug, run in list(self.runs.items()):
                try:
                    grown = run.refresh()
                except RecordError as error:
                    del self.runs[slug]
                    self._unreadable[run.folder] = skipped_run(run.folder, self.root, error)
                    continue
                if grown:
                    self.versions[slug] = self.versions.get(slug, 0) + 1
            self._last_refresh = time.monotonic()

    def _search(self) -> None:
        """Find new runs, forget deleted ones, and read changed experiments."""
        known = {run.folder for run in self.runs.values()}
        self._problems = []
        folders = runs_below(self.root, self._problems)
        self._unreadable = {path: why for path, why in self._unreadable.items() if path in folders}
        for folder in folders:
            if folder in known or folder in self._unreadable:
                continue
            try:
                run = RunFollower(folder, root=self.root)
            except RecordError as error:  # tried again at the next search
                self._problems.append(skipped_run(folder, self.root, error))
                continue
            self.runs[slug_of(run)] = run
        deleted = [slug for slug, run in self.runs.items() if run.folder not in folders]
        for slug in deleted:
            del self.runs[slug]
        self.runs = dict(sorted(self.runs.items(), key=lambda item: item[1].path))
        now = stamp(self.root)
        if now != self._stamp:
            self._stamp = now
            self.content = read_content(self.root)

    def render(self, name: str) -> str | None:
        """Return a page, or None if there is no such page."""
        with self._lock:  # no run may grow meanwhile
            return self._pages().render(name)

    def live_page(self) -> str:
        """Return the page on which runs are compared."""
        with self._lock:
            return self._pages().live_page()

    def _pages(self) -> Pages:
        damaged = (run.problem for run in self.runs.values() if run.problem)
        problems = *self.content.problems, *self._problems, *self._unreadable.values(), *damaged
        content = replace(self.content_with_figures(), problems=problems)
        return Pages(content, self.runs, plotly=self.plotly is not None, live=True)

    def content_with_figures(self) -> Content:
        """Return the content of the folder with current figures of its runs."""
        return with_figures(self.content, table(self.runs))

    def list_runs(self) -> list[dict[str, Any]]:
        """Return a summary of every run, with its layers and metrics."""
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
        """Return the table by which pages compare runs, and every layer that some run has."""
        with self._lock:
            keys = {
                slug: (self.versions.get(slug, 0), run.state, run.progress)
                for slug, run in self.runs.items()
            }
            if self._table is None or keys != self._row_keys:
                before, self._row_keys = self._row_keys, keys
                for slug, run in self.runs.items():
                    if slug not in self._rows or before.get(slug) != keys[slug]:
                        self._rows[slug] = row_of(slug, run)
                layers = (layer for run in self.runs.values() for layer in run.layers())
                rows = [self._rows[slug] for slug in self.runs]
                comparison = with_axes(rows, describe_all(self.runs))
                self._table = {**comparison, "layers": list(dict.fromkeys(layers))}
            return self._table

    def curves(self, selection: Selection, since: dict[str, int]) -> dict[str, Any]:
        """Return the selected curves of the runs that grew, and update the versions in `since`."""
        with self._lock:
            grown = {}
            for slug, run in self.runs.items():
                version = self.versions.get(slug, 0)
                if since.get(slug) != version:
                    since[slug] = version
                    grown[slug] = _curves(run, selection)
            return grown

    def run(self, slug: str) -> dict[str, Any] | None:
        """Return what the page of a run draws, or None if there is no such run."""
        with self._lock:
            run = self.runs.get(slug)
            return None if run is None else run_data(run, slug=slug)


def _curves(run: RunFollower, selection: Selection) -> list[dict[str, Any]]:
    curves = []
    for metric in (selection.metric, *selection.more):
        for key in _keys(run, metric, selection.layer):
            x, y = run.curve(key, selection.axis)
            if not x and selection.axis == "epoch":
                x, y = run.curve(key, "step")  # the run does not count epochs
            if x:
                about = {"metric": metric, "layer": key[0]}
                curves.append({**about, "x": round_values(x, 9), "y": round_values(y)})
    return curves


def _keys(run: RunFollower, metric: str, layer: str) -> list[Key]:
    keys = [key for key in run.names() if key[1] == metric]
    without_layer = [key for key in keys if not key[0]]
    layers = [key for key in keys if key[0]]
    if layer == "every":
        return without_layer + layers
    if layer.startswith("="):
        return without_layer + [key for key in layers if key[0] == layer[1:]]
    last = [key for key in layers if key[0] in run.last_layers()]
    return last or (without_layer + layers)[-1:]

"""All runs of a folder, followed while they grow, for the static report and the live server."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nclab.errors import RecordError
from nclab.progress import track
from nclab.records import find_runs
from nclab.records.read import SkippedPath
from nclab.report.content import Content, read_content, safe_name, stamp
from nclab.report.run_data import describe_all, round_values, row_of, run_data, with_axes
from nclab.report.run_follower import Key, RunFollower

REFRESH_SECONDS = 0.4
"""Shortest time between two reads of the journals."""
SEARCH_SECONDS = 1.0
"""Shortest time between two searches for new runs and experiments."""


class Selection(NamedTuple):
    """Choice of the curves that a page compares."""

    metric: str = ""
    layer: str = "last"
    """`last`, `every`, or `=` and the name of a layer."""
    axis: str = "epoch"
    more: tuple[str, ...] = ()
    """Metrics whose curves are sent besides those of `metric`."""


class Watcher:
    """Reads a folder of runs incrementally, once for all clients; several threads may use it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[str, RunFollower] = {}
        """Runs by slug, the name of their page."""
        self.versions: dict[str, int] = {}
        """A number for every slug that increases whenever the run grows."""
        self.lock = threading.RLock()
        """Lock that is held while runs are read; callers hold it to see unchanged runs."""
        self._content = read_content(root)
        self._stamp = stamp(root)
        self._problems: list[str] = []
        self._unreadable: dict[Path, str] = {}
        """Runs whose journals could not be read, with the reasons."""
        self._last_refresh = self._last_search = 0.0
        self._rows: dict[str, tuple[Any, dict[str, Any]]] = {}
        """Row of each run, with the version, state and progress from which it was made."""
        self._table: dict[str, Any] = {}

    def refresh(self, *, force: bool = False) -> None:
        """Read what is new; a second call within `REFRESH_SECONDS` does nothing without `force`."""
        with self.lock:
            now = time.monotonic()
            if self._last_refresh and now - self._last_refresh < REFRESH_SECONDS and not force:
                return
            if not self._last_search or now - self._last_search >= SEARCH_SECONDS or force:
                self._search()
                self._last_search = time.monotonic()
            runs = list(self.runs.items())
            for slug, run in runs if self._last_refresh else track(runs, "reading runs"):
                try:
                    grown = run.refresh()
                except RecordError as error:
                    del self.runs[slug]
                    self._unreadable[run.folder] = self._skipped(run.folder, error)
                    continue
                if grown:
                    self.versions[slug] = self.versions.get(slug, 0) + 1
            self._last_refresh = time.monotonic()

    def _search(self) -> None:
        """Find new runs, forget deleted ones, and read changed experiments."""
        skipped: list[SkippedPath] = []
        folders = find_runs(self.root, skipped=skipped)
        self._problems = [entry.reason.replace(f"{self.root}/", "") for entry in skipped]
        self._unreadable = {path: why for path, why in self._unreadable.items() if path in folders}
        known = {run.folder: run for run in self.runs.values()}
        self.runs = {}
        for folder in folders:
            if folder in self._unreadable:
                continue
            try:
                run = known.get(folder) or RunFollower(folder, root=self.root)
            except RecordError as error:  # tried again at the next search
                self._problems.append(self._skipped(folder, error))
                continue
            self.runs[safe_name(run.name if run.path == "." else run.path)] = run
        now = stamp(self.root)
        if now != self._stamp:
            self._stamp = now
            self._content = read_content(self.root)

    def _skipped(self, folder: Path, error: RecordError) -> str:
        return f"The run {folder.relative_to(self.root)} is skipped: {error}"

    @property
    def content(self) -> Content:
        """Content of the folder except the runs; `problems` also names runs that cannot be read."""
        with self.lock:
            damaged = (run.problem for run in self.runs.values() if run.problem)
            unread = *self._problems, *self._unreadable.values(), *damaged
            return replace(self._content, problems=(*self._content.problems, *unread))

    def list_runs(self) -> list[dict[str, Any]]:
        """Return a summary of every run, with its layers and metrics."""
        with self.lock:
            return [
                {
                    **row_of(slug, run),
                    "layers": run.layers(),
                    "metrics": list(dict.fromkeys(metric for _, metric in run.names())),
                }
                for slug, run in self.runs.items()
            ]

    def table(self) -> dict[str, Any]:
        """Return the table that compares runs, and the names of all layers."""
        with self.lock:
            before, self._rows = self._rows, {}
            for slug, run in self.runs.items():
                key = (self.versions.get(slug, 0), run.state, run.progress)
                row = before.get(slug)
                self._rows[slug] = row if row and row[0] == key else (key, row_of(slug, run))
            if not self._table or self._rows != before:
                layers = (layer for run in self.runs.values() for layer in run.layers())
                rows = [row for _, row in self._rows.values()]
                comparison = with_axes(rows, describe_all(self.runs))
                self._table = {**comparison, "layers": list(dict.fromkeys(layers))}
            return self._table

    def curves(self, selection: Selection, since: dict[str, int]) -> dict[str, Any]:
        """Return the selected curves of the runs that have changed since the last call.

        `since` holds the versions of the runs that the caller has seen, and is updated.
        """
        with self.lock:
            grown = {}
            for slug, run in self.runs.items():
                version = self.versions.get(slug, 0)
                if since.get(slug) != version:
                    since[slug] = version
                    grown[slug] = _curves(run, selection)
            return grown

    def run(self, slug: str) -> dict[str, Any] | None:
        """Return what the page of a run draws, or None if there is no such run."""
        with self.lock:
            run = self.runs.get(slug)
            return None if run is None else run_data(run, slug=slug)


def _curves(run: RunFollower, selection: Selection) -> list[dict[str, Any]]:
    curves = []
    for metric in (selection.metric, *selection.more):
        for key in _keys(run, metric, selection.layer):
            x, y = run.curve(key, selection.axis)
            if not x and selection.axis == "epoch":
                x, y = run.curve(key, "step")  # for runs that do not count epochs
            if x:
                labels = {"metric": metric, "layer": key[0]}
                curves.append({**labels, "x": round_values(x, 9), "y": round_values(y)})
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

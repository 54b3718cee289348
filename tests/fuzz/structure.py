"""Valid JSON with wrong content: only errors of nclab are raised, and every view still works."""

import copy
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nclab.errors import NclabError, NclabWarning
from nclab.records import open_run, read_run
from nclab.records.encoding import dump_checked_json, load_checked_json
from nclab.records.verify import verify_folder
from nclab.report.content import compact_json
from nclab.report.pages import Pages
from nclab.report.site import data_files, write_report
from nclab.report.watcher import Selection, Watcher
from nclab.training.sweep.rows import write_results
from tests.cli.runner import call
from tests.report.damage import WRONG
from tests.report.folders import reproduced

REPORTED = 0.05
"""So many attacks are looked at by a whole report, which takes longest."""
NAMES = ("layers", "kind", "step", "epoch", "train", "split", "why", "state", "config", "links", "")
SPOILED = "spoiled"


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Return an attack on a folder of experiments and runs; it returns whether anything changed."""
    root = reproduced(folder / "runs", images=False)
    files = [path for path in sorted(root.rglob("*.json")) if path.name != "state.json"]
    files += sorted(root.rglob("state.json"))
    contents = {path: path.read_bytes() for path in files}
    records = read_run(root / "fleet" / "seed-0").records
    return lambda chance: attack(chance, root, contents, records)


def attack(
    chance: random.Random, root: Path, contents: dict[Path, bytes], records: list[Any]
) -> bool:
    """Change the content of one file or one record; fail if another error than ours is raised."""
    if chance.random() < 0.5:
        path = chance.choice(list(contents))
        value, sealed = load_checked_json(contents[path])
        changed = mutated(chance, value)
        path.write_bytes(_written(changed, sealed))
        try:
            look(chance, root)
        finally:
            path.write_bytes(contents[path])
        return bool(changed != value)
    with open_run(root / SPOILED, kind="fleet", config={"a": 1}, seed=0) as run:
        run.resume(None)
        for record in records:
            other = mutated(chance, record) if chance.random() < 0.2 else record
            try:
                run.append(other if isinstance(other, dict) else {"kind": "note", "x": other})
            except NclabError:
                continue
    look(chance, root)
    return True


def _written(value: Any, sealed: bool) -> bytes:
    """Return a line as a writer would append it, without the writer's checks."""
    if sealed and isinstance(value, dict):
        known = {name: one for name, one in value.items() if name != "check"}
        try:
            return dump_checked_json(known)
        except ValueError:  # a number that is not finite
            pass
    return json.dumps(value).replace("Infinity", "1e999").encode()


def mutated(chance: random.Random, value: Any) -> Any:
    """Return a copy with one to three parts missing, moved, deeply nested or of other types."""
    whole = [copy.deepcopy(value)]
    for _ in range(chance.choice((1, 1, 2, 3))):
        place, key = _somewhere(chance, whole)
        kind = chance.randrange(6)
        if kind == 0 and place is not whole:
            del place[key]
        elif kind == 1:
            place[key] = [place[key]]
        elif kind == 2:
            place[key] = {chance.choice(NAMES): place[key]}
        elif kind == 3 and isinstance(place, dict):
            place[chance.choice(NAMES)] = place.pop(key)
        elif kind == 4:
            other, its = _somewhere(chance, whole)
            place[key] = copy.deepcopy(other[its])
        else:
            place[key] = copy.deepcopy(chance.choice(WRONG))
    return whole[0]


def _somewhere(chance: random.Random, whole: list[Any]) -> tuple[Any, Any]:
    """Return a random list or object within a value, and one of its keys."""
    place: Any = whole
    key: Any = 0
    while isinstance(place[key], dict | list) and place[key] and chance.random() < 0.75:
        place = place[key]
        key = (
            chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        )
    return place, key


_watchers: dict[Path, Watcher] = {}


def look(chance: random.Random, root: Path) -> None:
    """Render some of the views of a folder; errors of other kinds than ours are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NclabWarning)
        _watchers.clear()
        for view in chance.sample(VIEWS, 3):
            view(root)
        if chance.random() < REPORTED:
            write_report(root)


def listed(root: Path) -> None:
    done = call("runs", root)
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    assert done.out.count("fleet"), "one bad entry hides the others"


def listed_for_machines(root: Path) -> None:
    done = call("runs", root, "--json")
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    json.loads(done.out)


def read_whole(root: Path) -> None:
    for folder in (root / SPOILED, root / "fleet" / "seed-0"):
        try:
            view = read_run(folder)
        except NclabError:
            continue
        view.to_frame()


def watcher_of(root: Path) -> Watcher:
    """Return the watcher of the live page, shared by all views of one attack."""
    if root in _watchers:
        return _watchers[root]
    watcher = _watchers[root] = Watcher(root)
    watcher.refresh()
    table = compact_json(watcher.table())
    assert "seed-1" in table or "seed-0" in table, "one bad entry hides the others"
    return watcher


def pages_of(watcher: Watcher) -> Pages:
    return Pages(watcher.content, watcher.runs, watcher.table(), plotly=True, live=True)


def compared(root: Path) -> None:
    """Make what the live page draws of all runs."""
    watcher = watcher_of(root)
    compact_json(watcher.list_runs())
    for selection in (Selection("min_intra"), Selection("loss", "every", "step", ("cdnv",))):
        compact_json(watcher.curves(selection, {}))
    for name in ("index.html", "runs.html"):
        assert pages_of(watcher).render(name)


def each_run(root: Path) -> None:
    """Render the pages of runs."""
    watcher = watcher_of(root)
    for slug in watcher.runs:
        compact_json(watcher.run(slug))
        assert pages_of(watcher).render(f"runs/{slug}.html")


def papers(root: Path) -> None:
    """Render the pages of papers and claims, and make the files behind them."""
    watcher = watcher_of(root)
    for name in ("claims.html", *(f"papers/{key}.html" for key in watcher.content.papers)):
        assert pages_of(watcher).render(name)
    assert data_files(watcher.content)


VIEWS = [
    listed,
    listed_for_machines,
    read_whole,
    compared,
    each_run,
    papers,
    verify_folder,
    lambda root: write_results(root / "fleet"),
]

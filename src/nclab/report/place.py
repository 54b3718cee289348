"""Where a report goes: a folder of its own, in which nothing of others can be lost."""

from pathlib import Path

from nclab.errors import NclabError
from nclab.folder_marks import Mark
from nclab.folders import real_place
from nclab.records.checkpoints import FOLDER as CHECKPOINTS
from nclab.records.heartbeat import FILE as STATE
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lock import FILE as LOCK
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.places import holds_run
from nclab.records.results import CLAIMS, NUMBERS, SKIPPED
from nclab.report.content import IMAGES

DATA = ("data/curves", "data/figures", "data/numbers", "data/runs")
MARK = Mark(
    "report.json",
    {"format": "nclab report"},
    folders=("assets", *DATA, "papers", "runs"),
    endings=(".html", ".js", ".css", ".json", ".csv", *IMAGES),
)
TAKEN = (CHECKPOINTS, STATE, JOURNAL, LOCK, MANIFEST, CLAIMS, NUMBERS, SKIPPED)
"""Names that mean something else in a folder of runs."""


def checked_place(target: Path, root: Path) -> Path:
    """The folder for the report of these runs: new, empty or an earlier report; no other is taken.

    It may lie in the folder of runs, as it does by default, but in no run and above none.
    """
    place, runs = real_place(target), real_place(root)
    if real_place(target.parent) == runs and target.is_symlink():  # not asked for: it was found
        raise NclabError(
            f"Expected a folder, but {target} is a link. Delete it, or pass another --out."
        )
    if runs.is_relative_to(place):
        relation = "is" if runs == place else "contains"
        raise NclabError(
            f"Expected a folder of its own for the report, got {target}, which {relation} the "
            f"folder of runs {root}. Pass another folder with --out."
        )
    inside = [one for one in (place, *place.parents) if one != runs and one.is_relative_to(runs)]
    if inside and (place.name in TAKEN or any(map(holds_run, inside))):
        raise NclabError(
            f"Expected a folder for the report that is no part of a run, got {target}. "
            "Pass another folder with --out."
        )
    shown = place if ".." in target.parts else target  # `new/..` leads nowhere
    MARK.check(shown)
    return shown

"""The folder that a report is written to."""

import os
from pathlib import Path

from nclab.errors import NclabError
from nclab.folders import FolderMark
from nclab.records.checkpoints import CHECKPOINTS
from nclab.records.journal import JOURNAL
from nclab.records.manifest import MANIFEST
from nclab.records.read import find_runs
from nclab.records.results import CLAIMS, NUMBERS, SKIPPED
from nclab.records.run import holds_run
from nclab.records.state import LOCK, STATE

MARK = FolderMark(
    "report.json",
    {"format": "nclab report"},
    folders=(
        "assets",
        *(f"data/{name}" for name in ("curves", "figures", "numbers", "runs")),
        "papers",
        "runs",
    ),
    pages=("index.html", "claims.html", "runs.html", "formulas.html"),
)
TAKEN = (CHECKPOINTS, STATE, JOURNAL, LOCK, MANIFEST, CLAIMS, NUMBERS, SKIPPED)
"""Names that mean something else in a folder of runs."""


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
    if above and (folder.name in TAKEN or any(map(holds_run, above))):
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

"""Runs on disk: manifest, journal, checkpoints; written so that nothing is lost."""

from nclab.records.checkpoints import Checkpoint
from nclab.records.manifest import Manifest
from nclab.records.read import RunView, find_runs, glance, read_run
from nclab.records.run import Run, open_run
from nclab.records.tail import Tail

__all__ = [
    "Checkpoint",
    "Manifest",
    "Run",
    "RunView",
    "Tail",
    "find_runs",
    "glance",
    "open_run",
    "read_run",
]

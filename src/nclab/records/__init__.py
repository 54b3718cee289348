"""Runs on disk: a manifest, a journal of records and checkpoints that survive crashes."""

from nclab.records.journal import JournalReader
from nclab.records.manifest import Checkpoint, Manifest
from nclab.records.read import RunView, find_runs, glance, read_run
from nclab.records.run import Run, open_run
from nclab.records.verify import verify_run

__all__ = [
    "Checkpoint",
    "JournalReader",
    "Manifest",
    "Run",
    "RunView",
    "find_runs",
    "glance",
    "open_run",
    "read_run",
    "verify_run",
]

"""Networks of recorded evidence: what is left of each once its weights are gone.

Evidence at a paper's size takes longer than one machine may be there. So what the experiments read
of a trained network is kept in the paper's folder, one line a network, and can be laid out as
finished runs wherever the rest is trained: `nclab reproduce … --recorded`.
"""

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from nclab.claims.recorded import FOLDER
from nclab.claims.registry import contents, packages
from nclab.errors import RecordError
from nclab.files import write_whole
from nclab.records import find_runs, read_run
from nclab.records.journal import FILE as JOURNAL
from nclab.records.journal import JournalWriter
from nclab.records.lines import to_json
from nclab.records.manifest import FILE as MANIFEST
from nclab.records.manifest import Manifest, write_manifest
from nclab.records.schema import END, MEASUREMENT

FILE = "networks.jsonl"
REDUCED = "quick"
"""The preset of networks that are no evidence."""

Network = dict[str, Any]


class Kept(NamedTuple):
    """Which networks of a paper are kept, and what of them; its modules have one, or none."""

    folder: str
    """Where they lie in a folder of experiments."""
    numbers: tuple[str, ...]
    """Of every layer that was measured; the end of a run is kept whole."""
    every: bool = False
    """All measurements, not the last alone."""


def networks_file(paper: str) -> Path:
    """Where the networks of a paper are kept, or would be."""
    return Path(str(packages()[paper].__file__)).parent / FOLDER / FILE


def recorded_networks(paper: str) -> dict[str, Network]:
    """The networks that are kept of a paper, by the names of their runs."""
    file = networks_file(paper)
    if not file.exists():
        return {}
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {one["manifest"]["name"]: one for one in found}


def keep_networks(paper: str, runs: Path) -> int:
    """Add the finished networks of a paper's size in a folder to those that are kept; how many."""
    known = recorded_networks(paper)
    kept = [value for value in contents(paper) if isinstance(value, Kept)]
    fresh = {one["manifest"]["name"]: one for own in kept for one in _finished(own, runs)}
    fresh = {name: one for name, one in fresh.items() if name not in known}
    if not fresh:
        return 0
    whole = {**known, **fresh}
    lines = [to_json(whole[name]) for name in sorted(whole)]
    networks_file(paper).parent.mkdir(exist_ok=True)
    write_whole(networks_file(paper), "".join(f"{line}\n" for line in lines).encode())
    return len(fresh)


def lay_out_networks(paper: str, runs: Path) -> int:
    """Make finished runs of the networks that are kept and not there yet; how many."""
    count = 0
    for name, network in recorded_networks(paper).items():
        folder = runs / network["folder"] / name
        if not (folder / MANIFEST).exists():
            _lay_out(network, folder)
            count += 1
    return count


def _lay_out(network: Network, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).unlink(missing_ok=True)  # of a lay-out that was interrupted
    manifest = Manifest(**network["manifest"])
    journal = JournalWriter(folder / JOURNAL, manifest.identity)
    try:
        for measurement in network["measurements"]:
            journal.append(measurement)
        journal.append(network["end"])
        journal.flush()
    finally:
        journal.close()
    begun = datetime.fromisoformat(manifest.created).timestamp()
    ended = begun + 3600 * network["hours"]  # by which the hours of the evidence are counted
    os.utime(folder / JOURNAL, (ended, ended))
    write_manifest(folder, manifest)  # last: a folder without one is no run


def _finished(kept: Kept, runs: Path) -> Iterator[Network]:
    for folder in find_runs(runs / kept.folder):
        view = read_run(folder, kinds=(MEASUREMENT, END))
        measured, end = view.of_kind(MEASUREMENT), view.end
        if end is None or not measured or not _is_evidence(view.manifest):
            continue
        if view.problem:
            raise RecordError(f"Expected a sound journal in {folder}, got: {view.problem}")
        begun = datetime.fromisoformat(view.manifest.created).timestamp()
        yield {
            "folder": kept.folder,
            "manifest": _anywhere(view.manifest),
            "hours": round(((folder / JOURNAL).stat().st_mtime - begun) / 3600, 4),
            "measurements": [
                {**one, "layers": [_part(layer, kept.numbers) for layer in one["layers"]]}
                for one in measured[0 if kept.every else -1 :]
            ],
            "end": end,
        }


def _is_evidence(manifest: Manifest) -> bool:
    """Whether the command of a network names a preset that is not the reduced one.

    The ladder of ji2022 has a preset for every rung.
    """
    _, named, preset = manifest.command.replace("=", " ").partition("--preset ")
    return bool(named) and not preset.startswith(REDUCED)


def _part(layer: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: layer[name] for name in ("layer", *names) if name in layer}


def _anywhere(manifest: Manifest) -> dict[str, Any]:
    """A manifest without what belongs to one machine alone: its name and its paths."""
    _, _, words = manifest.command.partition(" ")
    command = re.sub(r" --out[ =]\S+", "", f"nclab {words}")
    return {**manifest.to_dict(), "command": command, "machine": manifest.machine.split("-")[0]}

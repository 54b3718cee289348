"""Recorded evidence: numbers and networks of experiments as large as those in a paper.

Verdicts on experiments come from recorded evidence. Experiments that run on this machine, usually
at a smaller size, are judged as well, and both verdicts are shown. The measurements of the trained
networks are recorded without the weights, one line per network. `nclab reproduce … --recorded`
writes these lines as finished runs, so that a user who adds seeds trains only the new networks.
"""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from nclab.claims.registry import experiments, packages
from nclab.records.journal import JOURNAL, JournalWriter
from nclab.records.manifest import MANIFEST, Manifest, write_manifest
from nclab.text import counted

FOLDER = "evidence"
NETWORKS = "networks.jsonl"
SIZES = ("classes", "layers", "width", "samples", "epochs", "batch", "per_class", "dim")
"""Fields of a configuration that describe its size."""

Network = dict[str, Any]


def evidence_file(name: str) -> Path:
    """Return the path of the evidence of an experiment, whether it exists or not."""
    module = experiments()[name]
    return Path(str(module.__file__)).parent / FOLDER / f"{name}.json"  # type: ignore[attr-defined]


@cache
def read_evidence(name: str) -> dict[str, Any] | None:
    """Return the recorded numbers of an experiment; None if there are none."""
    file = evidence_file(name)
    if not file.exists():
        return None
    numbers: dict[str, Any] = json.loads(file.read_text())
    return numbers


def evidence_digests() -> dict[str, str]:
    """Return the SHA-256 of every file of evidence, by experiment."""
    files = {name: evidence_file(name) for name in experiments()}
    return {
        name: sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file.exists()
    }


def best_evidence(name: str) -> dict[str, Any] | None:
    """Return the recorded numbers of an experiment, or of a smaller experiment that replaces it.

    An experiment may be too large to run. Another module can then run a series of smaller sizes.
    This module names the large experiment in `LEADS_TO`. Its function `furthest` returns the
    numbers of the largest size of the series, in the format of the large experiment. Return None
    if nothing is recorded.
    """
    numbers = read_evidence(name)
    for series_name, module in experiments().items() if numbers is None else ():
        leads_here = getattr(module, "LEADS_TO", None) == name
        series = read_evidence(series_name) if leads_here else None
        if series is not None:
            return module.furthest(series)  # type: ignore[attr-defined]
    return numbers


def describe_size(numbers: Mapping[str, Any]) -> str:
    """Return preset, size and number of seeds of an experiment as a short text.

    The numbers may state their `size`; otherwise it is read from the configuration.

    >>> describe_size({"preset": "paper", "config": {"width": 300, "layers": 6}, "seeds": [0, 1]})
    'preset paper: layers 6, width 300; 2 seeds'
    """
    config, seeds = numbers.get("config"), numbers.get("seeds")
    config = config if isinstance(config, dict) else {}  # a file may contain anything
    if isinstance(config.get("network"), dict):
        config = {**config, **config["network"]}
    sizes = [f"{name} {config[name]}" for name in SIZES if isinstance(config.get(name), int)]
    sizes = [str(numbers["size"])] if "size" in numbers else sizes
    preset = numbers.get("preset")
    text = f"preset {preset}" if isinstance(preset, str) else "unknown preset"
    text += f": {', '.join(sizes)}" if sizes else ""
    return text + (f"; {counted(len(seeds), 'seed')}" if isinstance(seeds, list) and seeds else "")


class RecordedNetworks(NamedTuple):
    """Settings that say which networks and measurements of a paper are recorded."""

    folder: str
    """Folder of the networks inside the folder of the experiments."""
    numbers: tuple[str, ...]
    """Names of the recorded numbers of every measured layer."""
    all_measurements: bool = False
    """Whether all measurements of a run are recorded, not only the last."""


def networks_file(paper: str) -> Path:
    """Return the path of the recorded networks of a paper, whether it exists or not."""
    return Path(str(packages()[paper].__file__)).parent / FOLDER / NETWORKS


def read_networks(paper: str) -> dict[str, Network]:
    """Return the recorded networks of a paper by the names of their runs."""
    file = networks_file(paper)
    if not file.exists():
        return {}
    networks = [json.loads(line) for line in file.read_text().splitlines()]
    return {network["manifest"]["name"]: network for network in networks}


def restore_networks(paper: str, runs: Path) -> int:
    """Recreate missing runs from the recorded networks; return the number of recreated runs."""
    count = 0
    for name, network in read_networks(paper).items():
        folder = runs / network["folder"] / name
        if not (folder / MANIFEST).exists():
            _restore(network, folder)
            count += 1
    return count


def _restore(network: Network, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).unlink(missing_ok=True)  # left by an interrupted restoration
    manifest = Manifest(**network["manifest"])
    journal = JournalWriter(folder, manifest.identity)
    try:
        for measurement in network["measurements"]:
            journal.append(measurement)
        journal.append(network["end"])
        journal.flush()
    finally:
        journal.close()
    started = datetime.fromisoformat(manifest.created).timestamp()
    ended = started + 3600 * network["hours"]  # the training time is read from the file's time
    os.utime(folder / JOURNAL, (ended, ended))
    write_manifest(folder, manifest)  # last, because a folder without a manifest is no run

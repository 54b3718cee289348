"""Recomputation confirms right numbers and detects wrong ones with a valid checksum."""

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from nclab.claims.reproduce import recompute_run
from nclab.records import find_runs, open_run, read_run
from nclab.records.manifest import read_checkpoint, write_checkpoint
from nclab.training.sweep import train_sweep
from tests.cli.runner import call
from tests.training.sweep.small import small


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run of a sweep with held-out samples."""
    out = tmp_path_factory.mktemp("sweep")
    config = small(norms=("affine",), weight_decays=(1e-3,))
    selection = dataclasses.replace(config.selection, test_share=0.2, imbalance=2.0)
    train_sweep(dataclasses.replace(config, selection=selection), out, workers=0)
    return find_runs(out)[0]


def forged(run: Path, folder: Path, change: Any) -> Path:
    """Write a run with other numbers, such that all checksums are valid."""
    view = read_run(run)
    manifest = view.manifest
    about: dict[str, Any] = {
        "kind": manifest.kind,
        "config": manifest.config,
        "seed": manifest.seed,
    }
    copy = open_run(folder / run.name, **about)
    with copy:
        for record in view.records:
            copy.append(change(json.loads(json.dumps(record))))
    journal = (folder / run.name / "journal.jsonl").read_bytes()
    for file in (run / "checkpoints").iterdir():
        checkpoint = dataclasses.replace(read_checkpoint(file), journal_length=len(journal))
        checkpoint = dataclasses.replace(checkpoint, journal_checksum=zlib.crc32(journal))
        write_checkpoint(folder / run.name, checkpoint)
    return folder / run.name


def states(run: Path) -> dict[str, str]:
    return {result.file: result.state for result in recompute_run(run)}


def test_the_numbers_of_a_run_are_recomputed(trained: Path) -> None:
    results = {result.file: result for result in recompute_run(trained)}
    assert {name: result.state for name, result in results.items()} == {"network": "good"}
    assert "measured again at epoch 8" in results["network"].message
    done = call("verify", trained)
    assert (done.code, done.err) == (0, "")
    assert "and 1 recomputed result" in done.out
    assert "recomputed result" not in call("verify", trained.parent).out  # of many, when asked
    assert "recomputed result" in call("verify", trained.parent, "--numbers").out


@pytest.mark.parametrize("name", ["min_intra", "nc1_trace_ratio"])
def test_a_wrong_number_with_a_valid_checksum_is_detected(
    trained: Path, tmp_path: Path, name: str
) -> None:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        for layer in record.get("layers", ()):
            layer[name] += 0.01
        return record

    run = forged(trained, tmp_path, change)
    assert states(run) == {"network": "differs"}
    done = call("verify", run)
    assert done.code == 1
    assert name in done.out


def test_a_network_without_checkpoint_is_unchecked(trained: Path, tmp_path: Path) -> None:
    run = forged(trained, tmp_path, lambda record: record)
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    network = next(result for result in recompute_run(run) if result.file == "network")
    assert (network.state, network.message) == (
        "unchecked",
        "it cannot be measured again: the run has no checkpoint",
    )

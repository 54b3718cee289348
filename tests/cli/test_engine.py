"""`--engine` and `--address` on the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nclab
from nclab.records import find_runs
from nclab.records.journal import is_locked
from nclab.training.sweep import train
from nclab_papers.findings import tour
from nclab_papers.pan2023 import norms
from tests.cli.runner import call
from tests.engine import jobs
from tests.nclab_papers.pan2023.tiny import TINY
from tests.training.sweep.small import contents
from tests.training.sweep.test_kills import environment

OPTIONS = "--samples 130 --inputs 8 --layers 3 --width 8 --norm affine,none --epochs 60 --batch 32"
OPTIONS += " --weight-decay 1e-3 --moments 3 --json --out"
SWEEP = ("sweep", *OPTIONS.split())


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_on_ray_continues_after_a_kill(tmp_path: Path) -> None:
    undisturbed = call(*SWEEP, tmp_path / "undisturbed", "--workers", 1)
    command = [sys.executable, "-m", "nclab", *SWEEP, str(tmp_path / "killed"), "--engine", "ray"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, env=environment(), **quiet)
    while started.poll() is None and not list((tmp_path / "killed").rglob("journal.jsonl")):
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL
    while any(is_locked(run) for run in find_runs(tmp_path / "killed")):
        time.sleep(0.01)  # its workers are on their way out
    address = os.environ["RAY_ADDRESS"]
    resumed = call(*SWEEP, tmp_path / "killed", "--engine", "ray", "--address", address)
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out) == json.loads(undisturbed.out)
    assert contents(tmp_path / "killed") == contents(tmp_path / "undisturbed")


def test_reproduce_on_ray_survives_a_lost_worker(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = norms.Config(networks=TINY, layers=4, weight_decays=(1e-3, 1e-2))
    monkeypatch.setitem(norms.PRESETS, "quick", config)
    monkeypatch.setattr(norms, "pictures", lambda _: [])
    command = ("reproduce", "pan2023_norms", "--seeds", 2, "--json", "--out")
    alone = call(*command, tmp_path / "alone")
    assert alone.code == 0, alone.err
    several = replace(config, networks=replace(TINY, workers=None))
    monkeypatch.setitem(norms.PRESETS, "quick", several)
    monkeypatch.setattr(train, "train_group", jobs.train_but_die_once)
    ray = ("--engine", "ray", "--address", ray_cluster.address)
    remote = call(*command, tmp_path / "remote", *ray)
    assert remote.code == 0, remote.err
    assert (tmp_path / "remote" / "died").exists()
    assert remote.out.startswith("{"), remote.out[:500]
    ray_numbers, local_numbers = (
        json.loads(done.out)["experiments"]["pan2023_norms"] for done in (remote, alone)
    )
    assert ray_numbers["rows"] == local_numbers["rows"]
    files, expected = (contents(tmp_path / name / "fleet") for name in ("remote", "alone"))
    assert files == expected


@pytest.mark.parametrize("command", ["sweep", "reproduce"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--address", "head:6379"), "Expected --address only with --engine ray, got 'head:6379'"),
        (("--engine", "dask"), "'dask'"),
    ],
)
def test_engines_are_checked(
    tmp_path: Path, command: str, options: tuple[str, ...], message: str
) -> None:
    done = call(command, "--out", tmp_path / "runs", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--address", "127.0.0.1:1"),
            "a Ray cluster at 127.0.0.1:1, but nothing answers",
        ),
        (
            ("--address", "ray://head:10001"),
            "host:port of a Ray cluster, or local, got 'ray://head:10001'",
        ),
        (("--workers", "1", "--address", "head"), "got 'head'"),
    ],
)
def test_a_missing_cluster_is_one_line(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    done = call(*SWEEP, tmp_path / "runs", "--engine", "ray", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", [("sweep",), ("reproduce", "tour")])
def test_without_ray_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "nclab.engine.ray", raising=False)
    done = call(*command, "--engine", "ray", "--out", tmp_path / "runs")
    assert done.code == 2
    assert done.err == "nclab: The Ray engine needs ray. Run `pip install nclab[ray]`.\n"


def test_experiments_get_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    locations = []

    def run(config: Any, **options: Any) -> dict[str, Any]:
        locations.append(options["engine"].here)
        raise nclab.NclabError("Seen enough.")

    monkeypatch.setattr(tour, "run", run)
    for engine in ("local", "ray"):
        done = call("reproduce", "tour", "--out", tmp_path, "--engine", engine)
        assert done.err == "nclab: Seen enough.\n"
    assert locations == [True, False]

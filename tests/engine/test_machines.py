"""Two machines with their own addresses and file systems, and one folder that they share."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nclab
from nclab.training.sweep import train_sweep
from tests.clouds import cloud
from tests.engine import machines
from tests.measurement.test_shards import same_numbers
from tests.torchrun import environment
from tests.training.sweep.small import contents, small

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.slow  # test_ray.py has the same on one machine


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that both machines see as /mnt."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def output(shared: Path) -> Iterator[dict[str, Any]]:
    """Output of `two_nodes.py` on the first machine."""
    if (why := machines.reason_without()) is not None:
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch, machines.two_machines(shared) as both:
        for name, value in environment().items():
            patch.setenv(name, value)
        for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
            patch.delenv(name, raising=False)
        machines.start_ray(both)
        done = both[0].run(sys.executable, "-m", "tests.engine.two_nodes", seconds=300)
        assert done.returncode == 0, done.stderr[-4000:]
        yield json.loads(done.stdout.splitlines()[-1])


def test_jobs_run_on_both(output: dict[str, Any]) -> None:
    both = ["nclab-a", "nclab-b"]
    assert output["slots"] == 2
    assert output["met"] == output["rounds"] == output["trained"] == both


def test_files_in_the_shared_folder_arrive_complete_and_soon(output: dict[str, Any]) -> None:
    reads, torn, late = output["watched"]
    assert reads > 1  # it was replaced while it was read
    assert torn == 0
    from nclab.engine.ray import ATTEMPTS, PAUSE_SECONDS

    assert late < ATTEMPTS * PAUSE_SECONDS


def test_shards_give_the_numbers_of_one_process(output: dict[str, Any]) -> None:
    same_numbers(output["measured"], nclab.measure_features(*cloud()).to_dict())


def test_a_sweep_leaves_the_bytes_of_one_process(
    output: dict[str, Any], shared: Path, tmp_path: Path
) -> None:
    assert output["trained"]
    train_sweep(small(), tmp_path, workers=0)
    assert contents(shared / "runs") == contents(tmp_path)


def test_folders_that_are_not_shared_raise(output: dict[str, Any]) -> None:
    assert output["unshared runs"].startswith("Expected /tmp/runs to be the same folder on every")
    assert "nclab-b has a different folder there" in output["unshared runs"]
    assert output["unshared shards"].startswith("Expected every machine to see /tmp/shards/part-")
    assert "but nclab-b does not" in output["unshared shards"]
    assert not any("\n" in output[f"unshared {key}"] for key in ("runs", "shards"))


def test_no_marker_files_remain(output: dict[str, Any]) -> None:
    assert output
    assert not any(name.startswith("cable") for name in os.listdir("/sys/class/net"))
    assert not Path("/tmp/runs").exists()

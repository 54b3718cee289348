"""Set up all tests: one thread per process, fixtures for clusters, groups of tests."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

import nclab
from nclab.engine import local
from tests import forked

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for child processes
# Ray reads these when it is imported; without a token it writes one into the home folder.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", uuid4().hex)
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")  # as nclab.engine.ray does


PROCESSES = (
    "tests/engine/",
    "cli/test_engine.py",
    "measurement/test_ranks.py",
    "measurement/test_shards.py",
    "test_kills.py",
    "_in_browser.py",
    "test_docs_site.py",
    "[sweep_ray]",
)
"""Tests that start a cluster, a browser or programs to kill. They never run at the same time."""


def group_of(nodeid: str) -> str:
    """Return the group of a test; one process runs all tests of a group.

    >>> group_of("tests/engine/test_ray.py::test_bad_numbers_are_refused")
    'processes'
    >>> group_of("tests/test_text.py::test_dashes")
    'tests/test_text.py'
    """
    return "processes" if any(part in nodeid for part in PROCESSES) else nodeid.split("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute groups to processes; pytest 9.2 hides the marks of `--dist loadgroup`."""
    from xdist.scheduler import LoadScopeScheduling

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = group_of
    return scheduling


@pytest.fixture(scope="session")
def ray_head() -> Iterator[tuple[Any, dict[str, str]]]:
    """Start a Ray cluster with two cores; yield it with the environment variables that it needs."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="nc", dir="/tmp"))  # short: names of sockets are limited
    paths = (Path(nclab.__file__).parents[1], Path(__file__).parents[1])
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    small = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for last in (False, False, True):  # Ray gives up after 30 seconds on a busy machine
            try:
                cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=small)
                break
            except Exception:
                if last:
                    raise
    yield cluster, environment
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the workers of the local engine, so that they do not import torch again."""
    monkeypatch.setattr(local, "get_context", lambda _: forked.context())


@pytest.fixture
def ray_cluster(ray_head: tuple[Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set RAY_ADDRESS to the test cluster and return the cluster."""
    cluster, environment = ray_head
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return cluster

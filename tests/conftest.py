"""Shared by all tests: one thread, so that sums are reproducible and machines stay usable.

`make test` has two processes. What starts clusters, browsers or programs to kill is in the group
"processes", whose tests never run beside each other.
"""

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

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that start from here
# Ray reads these when it is imported; without a token it would write one into the home folder.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", uuid4().hex)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture for longer than one test are a group: it is made once."""
    for item in items:
        found: Any = getattr(item, "_fixtureinfo", None)
        if found is None or item.get_closest_marker("xdist_group"):
            continue
        for definition in (one for every in found.name2fixturedefs.values() for one in every):
            if definition.scope != "function" and definition.baseid:  # pytest's own have none
                item.add_marker(pytest.mark.xdist_group(Path(definition.baseid).stem))
                break


@pytest.fixture(scope="session")
def ray_head() -> Iterator[tuple[Any, dict[str, str]]]:
    """A Ray cluster of two cores, and what the environment must say to use it."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
    folder = Path(tempfile.mkdtemp(prefix="nc", dir="/tmp"))  # short, as the names of sockets are
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
def ray_cluster(ray_head: tuple[Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster that RAY_ADDRESS names."""
    cluster, environment = ray_head
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return cluster

"""Tests that start processes or browsers are in one group and never run at the same time."""

from pathlib import Path

from tests.conftest import group_of

BUSY = ("ray_cluster", "chromium()", "SIGKILL")
ONE_ALONE = "test_docs.py"
"""File of which only one test, the example on Ray, needs the cluster."""


def test_clusters_browsers_and_kills_are_one_group() -> None:
    found = 0
    for file in Path(__file__).parent.rglob("test_*.py"):
        busy = any(word in file.read_text() for word in BUSY)
        if busy and file.name not in (ONE_ALONE, Path(__file__).name):
            found += 1
            assert group_of(f"{file}::test") == "processes", file
    assert found > 4
    assert group_of(f"tests/{ONE_ALONE}::test_examples_run[sweep_ray]") == "processes"

"""Tests that keep the machine busy or share what they compute say so, and stay in one process."""

from pathlib import Path

SHARED = ("ray_cluster", "chromium()", "SIGKILL", "@cache")


def test_what_is_shared_or_disturbs_others_is_in_a_group() -> None:
    for file in Path(__file__).parent.rglob("test_*.py"):
        text = file.read_text()
        if file != Path(__file__) and any(word in text for word in SHARED):
            assert "xdist_group" in text, file

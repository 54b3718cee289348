"""`nclab doctor`: good, missing and wrong items."""

import json
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from tests.cli.runner import call


def checks(*arguments: object) -> dict[str, dict[str, str]]:
    rows = json.loads(call("doctor", *arguments, "--json").out)["checks"]
    return {row["item"]: row for row in rows}


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide FashionMNIST, because checking its files takes seconds."""
    monkeypatch.setattr("nclab.training.data.fashion_mnist_files.find_folder", lambda files: None)


def test_every_check_is_listed(tmp_path: Path) -> None:
    rows = checks(tmp_path / "runs")
    assert rows["torch"]["result"] == metadata.version("torch") == torch.__version__
    assert {"python", "nclab", "cores", "threads", "CUDA"} <= set(rows)
    assert {"extra fast", "extra plot", "extra log", "extra serve"} <= set(rows)
    assert rows[f"writing to {tmp_path / 'runs'}"]["state"] == "good"
    assert rows["FashionMNIST"]["state"] == "missing"
    assert "NCLAB_DATA" in rows["FashionMNIST"]["advice"]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    done = call("doctor", tmp_path)
    assert done.code == 0
    assert "Nothing is wrong." in done.out


def test_missing_packages_have_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def without(name: str) -> str:
        if name == "tensorboard":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without)
    row = checks()["extra log"]
    assert (row["state"], row["advice"]) == ("missing", "pip install nclab[log]")
    assert row["result"].startswith("without tensorboard")


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    runs = tmp_path / "file" / "runs"
    done = call("doctor", runs)
    assert done.code == 1
    assert "1 of these are wrong" in done.out
    row = checks(runs)[f"writing to {runs}"]  # the table wraps the reason after a long path
    assert (row["state"], row["result"]) == ("wrong", f"{tmp_path / 'file'}: Not a directory")
    row = checks("/proc/nclab-runs")[f"writing to {Path('/proc/nclab-runs')}"]
    assert row["state"] == "wrong"

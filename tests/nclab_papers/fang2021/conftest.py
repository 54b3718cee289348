"""Fixtures: a small data set in place of FashionMNIST."""

from pathlib import Path

import pytest

from nclab.training.data.fashion_mnist_files import FILES
from tests.training.data.idx_files import write_small


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the published files by 100 random images."""
    folder = tmp_path / "images"
    for key, file in write_small(folder, zipped=False, size=100).items():
        monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(folder))

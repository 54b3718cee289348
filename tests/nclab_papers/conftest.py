"""A small data set in place of FashionMNIST."""

from pathlib import Path

import pytest

from nclab.training.data.fashion_mnist_files import FILES
from tests.training.data.idx_files import write_small


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the published files by 100 random images for training and 100 for testing."""
    folder = tmp_path / "images"
    for part in ("train", "test"):
        for key, file in write_small(folder, zipped=True, size=100, part=part).items():
            monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(folder))

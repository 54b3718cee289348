"""A small data set in place of FashionMNIST, for training and testing."""

from pathlib import Path

import pytest

from nclab.training.data.fashion_mnist_files import FILES
from tests.training.data.idx_files import write_small


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 random images of each part under the real names."""
    for part in ("train", "test"):
        for key, file in write_small(tmp_path / "data", zipped=True, size=40, part=part).items():
            monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(tmp_path / "data"))

"""FashionMNIST as samples: pixels and principal components."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nclab.errors import DataError
from nclab.training.data.fashion_mnist_files import FILES
from nclab.training.data.fashion_mnist_samples import GRID, FashionMNIST, principal_components
from tests.training.data.idx_files import write_small


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty images of noise in place of the published files."""
    for key, file in write_small(tmp_path, zipped=False, size=40).items():
        monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(tmp_path))


def test_pixels_are_normalised_and_balanced() -> None:
    samples = FashionMNIST(samples=20).draw()
    assert samples.inputs.shape == (20, 784)
    assert samples.counts == [2] * 10
    assert FashionMNIST().label == "fashion"
    raw = (samples.inputs * 0.3530 + 0.2860) * 255
    torch.testing.assert_close(raw, raw.round(), atol=1e-3, rtol=0)


def test_components_are_those_of_a_singular_value_decomposition() -> None:
    pixels = torch.randint(0, 256, (50, 12), generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([3, 8, 40])
    found = principal_components(pixels.to(torch.uint8), rows, 4).numpy()
    table = pixels.numpy().astype(float)
    centred = table - table.mean(0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred[[3, 8, 40]] @ directions[:4].T / np.sqrt((values[:4] ** 2 / 50).mean())
    assert np.abs(np.abs(found) - np.abs(expected)).max() <= GRID
    for column, direction in enumerate(directions[:4]):
        sign = np.sign(direction[np.abs(direction).argmax()])
        assert np.abs(found[:, column] - sign * expected[:, column]).max() <= GRID


def test_components_of_the_images() -> None:
    data = FashionMNIST(samples=40, components=5)
    samples = data.draw()
    assert data.label == "fashion5"
    assert samples.inputs.shape == (40, 5)
    assert float(samples.inputs.square().mean()) == pytest.approx(1, abs=0.01)
    assert samples.digest() == data.draw().digest()


@pytest.mark.parametrize("components", [0, 785])
def test_bad_numbers_of_components_are_one_line(components: int) -> None:
    with pytest.raises(DataError, match=f"1 to 784 components.* got {components}"):
        FashionMNIST(components=components)


def test_the_first_classes_alone() -> None:
    samples = FashionMNIST(samples=12, components=3, classes=4).draw()
    assert samples.counts == [3] * 4
    whole = FashionMNIST(samples=40, components=3).draw()
    rows = {tuple(row) for row in whole.inputs.tolist()}
    assert {tuple(row) for row in samples.inputs.tolist()} <= rows, "components of all images"
    with pytest.raises(DataError, match="2 to 10 classes, got 11"):
        FashionMNIST(classes=11)

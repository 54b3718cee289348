"""FashionMNIST: search, checks and download of the files, balanced subsets, components."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from nclab.errors import DataError, MissingData
from nclab.training.data import fashion_mnist, fashion_mnist_files
from nclab.training.data.fashion_mnist import (
    GRID,
    FashionMNIST,
    balanced_subset,
    load,
    principal_components,
    to_inputs,
)
from nclab.training.data.fashion_mnist_files import FILES, File, find_folder
from tests.training.data.idx_files import idx_bytes, write_small

TRAIN = [FILES["train", "images"], FILES["train", "labels"]]


@pytest.fixture
def clean_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the data set: no package, an empty cache, no $NCLAB_DATA."""
    monkeypatch.setattr(fashion_mnist_files, "PACKAGE_FOLDER", tmp_path / "no-package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NCLAB_DATA", raising=False)
    return tmp_path


def accept_as_published(
    monkeypatch: pytest.MonkeyPatch, described: Mapping[tuple[str, str], File]
) -> None:
    """Make nclab accept small files as the published ones."""
    for key, file in described.items():
        monkeypatch.setitem(FILES, key, file)


@pytest.mark.parametrize("zipped", [False, True])
def test_files_are_found_in_every_folder(
    clean_machine: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    named, below = clean_machine / "named", clean_machine / "above" / "fashion-mnist"
    package, cache = clean_machine / "no-package", fashion_mnist_files.cache_folder()
    for folder in (named, below, package, cache):
        accept_as_published(monkeypatch, write_small(folder, zipped=zipped))
    assert find_folder(TRAIN) == package
    monkeypatch.setenv("NCLAB_DATA", str(below.parent))
    assert find_folder(TRAIN) == below
    monkeypatch.setenv("NCLAB_DATA", str(named))
    assert find_folder(TRAIN) == named
    images = load()
    assert images.labels.tolist() == [*range(10)] * 2
    assert images.pixels.dtype == torch.uint8
    assert images.pixels.shape == (20, 28, 28)


def test_the_cache_folder_is_searched_last(clean_machine: Path) -> None:
    assert find_folder(TRAIN) is None
    write_small(fashion_mnist_files.cache_folder(), zipped=True)
    assert find_folder(TRAIN) == clean_machine / "cache" / "nclab" / "fashion-mnist"


def test_missing_files_raise_with_advice(clean_machine: Path) -> None:
    with pytest.raises(MissingData, match="dataset-fashion-mnist") as caught:
        load(fetch=False)
    assert "\n" not in str(caught.value)


def test_damaged_files_raise_with_advice(
    clean_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clean_machine / "files"
    monkeypatch.setenv("NCLAB_DATA", str(folder))
    accept_as_published(monkeypatch, write_small(folder, zipped=True))
    images = folder / "train-images-idx3-ubyte.gz"
    content = images.read_bytes()

    images.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"is damaged .* Delete it and fetch it again"):
        load()

    array = np.frombuffer(gzip.decompress(content), np.uint8)[16:].reshape(20, 28, 28).copy()
    array[3, 5, 5] ^= 1
    images.write_bytes(gzip.compress(idx_bytes(array)))
    with pytest.raises(DataError, match="checksum differs"):
        load()

    images.write_bytes(gzip.compress(idx_bytes(array[:19])))
    with pytest.raises(DataError, match="checksum differs"):
        load()


def test_fetched_from_an_address_and_checked(
    clean_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(clean_machine))  # without apt-get
    server, target = clean_machine / "server", clean_machine / "target"
    described = list(write_small(server, zipped=True).values())
    wrong, absent = clean_machine / "wrong", clean_machine / "absent"
    write_small(wrong, zipped=True, size=30)
    addresses = [folder.as_uri() for folder in (absent, wrong, server)]
    folder = fashion_mnist_files.fetch_files(described, target, addresses=addresses)
    assert folder == target
    assert sorted(path.name for path in target.iterdir()) == [f"{f.name}.gz" for f in described]
    for file in described:
        assert fashion_mnist_files.read_checked(target, file).shape == file.shape

    with pytest.raises(MissingData, match="cannot be fetched") as caught:
        fashion_mnist_files.fetch_files(described, clean_machine / "new", addresses=addresses[:2])
    message = str(caught.value)
    assert "\n" not in message
    assert "no apt-get and dpkg on this machine" in message
    assert "checksum differs" in message
    assert message.count("Install Debian's package") == 1
    assert not list((clean_machine / "new").iterdir())


def test_balanced_subset_depends_on_the_seed_alone() -> None:
    labels = torch.randint(10, (2000,), generator=torch.Generator().manual_seed(0))
    first = balanced_subset(labels, size=500, seed=1)
    assert labels[first].bincount().tolist() == [50] * 10
    assert first.unique().tolist() == first.tolist()
    torch.manual_seed(99)
    assert torch.equal(first, balanced_subset(labels, size=500, seed=1))
    assert not torch.equal(first, balanced_subset(labels, size=500, seed=2))


@pytest.mark.parametrize("size", [0, 15, 30_000])
def test_impossible_subsets_raise(size: int) -> None:
    with pytest.raises(DataError, match=f"got (size )?{size}"):
        balanced_subset(torch.arange(1000) % 10, size=size, seed=0)


def test_padding_is_black_and_the_picture_stays_in_the_middle() -> None:
    pixels = torch.randint(1, 256, (2, 28, 28), dtype=torch.uint8)
    inputs = to_inputs(pixels)
    back = (inputs * fashion_mnist.STD + fashion_mnist.MEAN) * 255
    assert torch.equal(back[:, 0, 2:30, 2:30].round().to(torch.uint8), pixels)
    back[:, :, 2:30, 2:30] = 0
    assert back.abs().max() < 1e-3
    with pytest.raises(DataError, match="at least 28"):
        to_inputs(pixels, side=27)


def test_the_published_files() -> None:
    if find_folder(list(FILES.values())) is None:
        pytest.skip("FashionMNIST is not on this machine")
    train, test = load(fetch=False), load(part="test", fetch=False)
    assert train.labels.bincount().tolist() == [6000] * 10
    assert test.labels.bincount().tolist() == [1000] * 10
    values = train.pixels.double() / 255
    assert float(values.mean()) == pytest.approx(fashion_mnist.MEAN, abs=1e-4)
    assert float(values.std()) == pytest.approx(fashion_mnist.STD, abs=1e-4)
    with pytest.raises(DataError, match="'train' or 'test'"):
        load(part="valid")


@pytest.fixture
def small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty images of noise in the place of the published files."""
    for key, file in write_small(tmp_path, zipped=False, size=40).items():
        monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(tmp_path))


@pytest.mark.usefixtures("small_files")
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
    components = principal_components(pixels.to(torch.uint8), rows, 4).numpy()
    table = pixels.numpy().astype(float)
    centred = table - table.mean(0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred[[3, 8, 40]] @ directions[:4].T / np.sqrt((values[:4] ** 2 / 50).mean())
    assert np.abs(np.abs(components) - np.abs(expected)).max() <= GRID
    for column, direction in enumerate(directions[:4]):
        sign = np.sign(direction[np.abs(direction).argmax()])
        assert np.abs(components[:, column] - sign * expected[:, column]).max() <= GRID


@pytest.mark.usefixtures("small_files")
def test_components_of_the_images() -> None:
    data = FashionMNIST(samples=40, components=5)
    samples = data.draw()
    assert data.label == "fashion5"
    assert samples.inputs.shape == (40, 5)
    assert float(samples.inputs.square().mean()) == pytest.approx(1, abs=0.01)
    assert samples.digest() == data.draw().digest()


@pytest.mark.parametrize("components", [0, 785])
def test_bad_numbers_of_components_raise(components: int) -> None:
    with pytest.raises(DataError, match=f"1 to 784 components.* got {components}"):
        FashionMNIST(components=components)


@pytest.mark.usefixtures("small_files")
def test_classes_selects_the_first_classes() -> None:
    samples = FashionMNIST(samples=12, components=3, classes=4).draw()
    assert samples.counts == [3] * 4
    all_classes = FashionMNIST(samples=40, components=3).draw()
    rows = {tuple(row) for row in all_classes.inputs.tolist()}
    assert {tuple(row) for row in samples.inputs.tolist()} <= rows, "components of all images"
    with pytest.raises(DataError, match="2 to 10 classes, got 11"):
        FashionMNIST(classes=11)

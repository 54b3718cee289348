"""FashionMNIST: found, checked, fetched, cut to a balanced subset."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from nclab.errors import DataError, MissingData
from nclab.training.data import fashion_mnist, fashion_mnist_fetch, fashion_mnist_files
from nclab.training.data.fashion_mnist import balanced_subset, load, to_inputs
from nclab.training.data.fashion_mnist_files import FILES, File, find_folder
from tests.training.data.idx_files import idx_bytes, write_small

TRAIN = [FILES["train", "images"], FILES["train", "labels"]]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the data set: no package, an empty cache, no $NCLAB_DATA."""
    monkeypatch.setattr(fashion_mnist_files, "PACKAGE_FOLDER", tmp_path / "no-package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NCLAB_DATA", raising=False)
    return tmp_path


def believe(monkeypatch: pytest.MonkeyPatch, described: Mapping[tuple[str, str], File]) -> None:
    """Let small files pass for the published ones."""
    for key, file in described.items():
        monkeypatch.setitem(FILES, key, file)


@pytest.mark.parametrize("zipped", [False, True])
def test_found_in_every_place(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    named, below = elsewhere / "named", elsewhere / "above" / "fashion-mnist"
    package, cache = elsewhere / "no-package", fashion_mnist_files.cache_folder()
    for folder in (named, below, package, cache):
        believe(monkeypatch, write_small(folder, zipped=zipped))
    assert load(folder=named).pixels.shape == (20, 28, 28)
    assert find_folder(TRAIN) == package
    monkeypatch.setenv("NCLAB_DATA", str(below.parent))
    assert find_folder(TRAIN) == below
    monkeypatch.setenv("NCLAB_DATA", str(named))
    assert find_folder(TRAIN) == named
    images = load()
    assert images.labels.tolist() == [*range(10)] * 2
    assert images.pixels.dtype == torch.uint8


def test_cache_folder_is_the_last_place(elsewhere: Path) -> None:
    assert find_folder(TRAIN) is None
    write_small(fashion_mnist_files.cache_folder(), zipped=True)
    assert find_folder(TRAIN) == elsewhere / "cache" / "nclab" / "fashion-mnist"


def test_absent_says_how_to_get_it(elsewhere: Path) -> None:
    for folder in (None, elsewhere):
        with pytest.raises(MissingData, match="dataset-fashion-mnist") as caught:
            load(folder=folder, fetch=False)
        assert "\n" not in str(caught.value)


def test_damaged_files_say_so(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = elsewhere / "files"
    believe(monkeypatch, write_small(folder, zipped=True))
    images = folder / "train-images-idx3-ubyte.gz"
    content = images.read_bytes()

    images.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"is damaged .* Delete it and fetch it again"):
        load(folder=folder)

    array = np.frombuffer(gzip.decompress(content), np.uint8)[16:].reshape(20, 28, 28).copy()
    array[3, 5, 5] ^= 1
    images.write_bytes(gzip.compress(idx_bytes(array)))
    with pytest.raises(DataError, match="checksum differs"):
        load(folder=folder)

    images.write_bytes(gzip.compress(idx_bytes(array[:19])))
    with pytest.raises(DataError, match=r"got \(19, 28, 28\) uint8: not FashionMNIST"):
        load(folder=folder)


def test_fetched_from_an_address_and_checked(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(elsewhere))  # without apt-get
    server, target = elsewhere / "server", elsewhere / "target"
    described = list(write_small(server, zipped=True).values())
    wrong, absent = elsewhere / "wrong", elsewhere / "absent"
    write_small(wrong, zipped=True, size=30)
    addresses = [folder.as_uri() for folder in (absent, wrong, server)]
    found = fashion_mnist_fetch.fetch_files(described, target, addresses=addresses)
    assert found == target
    assert sorted(path.name for path in target.iterdir()) == [f"{f.name}.gz" for f in described]
    for file in described:
        assert fashion_mnist_files.read_checked(target, file).shape == file.shape

    with pytest.raises(MissingData, match="cannot be fetched") as caught:
        fashion_mnist_fetch.fetch_files(described, elsewhere / "new", addresses=addresses[:2])
    message = str(caught.value)
    assert "\n" not in message
    assert "no apt-get and dpkg" in message
    assert "not FashionMNIST" in message
    assert message.count("Install Debian's package") == 1
    assert not list((elsewhere / "new").iterdir())


def test_balanced_subset_depends_on_the_seed_alone() -> None:
    labels = torch.randint(10, (2000,), generator=torch.Generator().manual_seed(0))
    first = balanced_subset(labels, size=500, seed=1)
    assert labels[first].bincount().tolist() == [50] * 10
    assert first.unique().tolist() == first.tolist()
    torch.manual_seed(99)
    assert torch.equal(first, balanced_subset(labels, size=500, seed=1))
    assert not torch.equal(first, balanced_subset(labels, size=500, seed=2))


@pytest.mark.parametrize("size", [0, 15, 30_000])
def test_impossible_subsets_are_refused(size: int) -> None:
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

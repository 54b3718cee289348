"""Samples from arrays and files, and errors for bad ones."""

import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import nclab
from nclab.training.data.samples import SampleFile, Samples, read_samples

GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("inputs", "labels", "pattern"),
    [
        (np.where(GOOD == 5, np.nan, GOOD), [0, 1] * 3, "got nan in row 2, column 1"),
        (np.where(GOOD == 5, 1e300, GOOD), [0, 1] * 3, "got 1e\\+300 in row 2, column 1"),
        (GOOD, [0] * 6, "at least 2 classes, got only class 0"),
        (GOOD.reshape(6, 2, 1), [0, 1] * 3, "got \\(6, 2, 1\\). Flatten"),
        (GOOD, [0, 1, 2, 3, 4, 7], "got class 7 instead of 5"),
        (GOOD, [0, 1, 3, 3, 1, 0], "got class 3 instead of 2"),
        (GOOD, [-1, 1, 0, 1, 0, 1], "got class -1 instead of 0"),
        (GOOD, [0.0, 1.0] * 3, "integer label .* got torch.float64"),
        (GOOD, [0, 1, 0], "each of 6 samples"),
        (GOOD, np.eye(6, dtype=int), "of shape .6, 6."),
        (GOOD[:0], [], "got .0, 2."),
        (GOOD.astype(str), [0, 1] * 3, "numeric inputs"),
        (GOOD + 1j, [0, 1] * 3, "numeric inputs"),
        (GOOD, ["a", "b"] * 3, "numeric labels"),
    ],
)
def test_bad_samples_raise_one_clear_line(inputs: Any, labels: Any, pattern: str) -> None:
    with pytest.raises(nclab.NclabError, match=pattern) as caught:
        Samples.checked(inputs, labels)
    assert "\n" not in str(caught.value)


def test_files_of_both_kinds_give_the_same_samples(tmp_path: Path) -> None:
    labels = np.array([0, 1, 2, 0, 1, 2])
    np.savez(tmp_path / "a.npz", inputs=GOOD.astype(">f8"), targets=labels.astype("u1"))
    tensors = {"X": torch.from_numpy(GOOD), "y": torch.from_numpy(labels)}
    save_file(tensors, tmp_path / "a.safetensors")
    first, second = read_samples(tmp_path / "a.npz"), read_samples(tmp_path / "a.safetensors")
    assert first.digest() == second.digest()
    assert first.inputs.dtype == torch.float32
    assert first.labels.tolist() == labels.tolist()


def test_labels_that_are_names_are_numbered(tmp_path: Path) -> None:
    rows, names = np.arange(8.0).reshape(4, 2), np.array(["fox", "cat", "fox", "dog"])
    np.savez(tmp_path / "a.npz", X=rows, y=names)
    lines = [f"{x0:g},{x1:g},{name}\n" for (x0, x1), name in zip(rows, names, strict=True)]
    (tmp_path / "a.csv").write_text("".join(lines))
    for file in ("a.npz", "a.csv"):
        assert read_samples(tmp_path / file).labels.tolist() == [2, 0, 2, 1]


def test_standardised_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "my data.npz", X=np.c_[GOOD, np.ones(6)], y=[0, 1] * 3)
    source = SampleFile(str(tmp_path / "my data.npz"), standardise=True)
    inputs = source.draw().inputs
    assert source.label == "my-data"
    assert torch.allclose(inputs.mean(0), torch.zeros(3), atol=1e-6)
    assert torch.allclose(inputs.var(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-6)


def test_the_digest_depends_on_every_number_and_the_shape() -> None:
    inputs, labels = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1] * 3)
    other = inputs.clone()
    other[5, 1] = torch.nextafter(other[5, 1], torch.tensor(99.0))
    digests = {
        Samples(inputs, labels).digest(),
        Samples(other, labels).digest(),
        Samples(inputs, 1 - labels).digest(),
        Samples(inputs.reshape(6, 2).T.reshape(6, 2), labels).digest(),
        Samples(inputs.reshape(3, 4), labels).digest(),
    }
    assert len(digests) == 5


def test_samples_are_pickled_as_bytes_not_shared_memory() -> None:
    samples = Samples.checked(np.random.default_rng(0).standard_normal((500, 4)), [0, 1] * 250)
    sent = bytes(ForkingPickler.dumps(samples))
    assert len(sent) > samples.inputs.nbytes
    assert pickle.loads(sent).digest() == samples.digest()


def test_a_file_may_have_a_name_and_give_its_first_rows(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    X = np.random.default_rng(0).standard_normal((9, 2))
    np.savez(file, X=X, y=np.arange(9) % 2)
    assert SampleFile(str(file)).label == "mine"
    source = SampleFile(str(file), name="other data", rows=4)
    assert source.label == "other-data"
    assert source.draw().inputs.equal(SampleFile(str(file)).draw().inputs[:4])
    assert len(SampleFile(str(file), rows=100).draw()) == 9
    with pytest.raises(nclab.DataError, match="at least 2, got -1"):
        SampleFile(str(file), rows=-1)

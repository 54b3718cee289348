"""Reading .npz, .safetensors, .npy and .csv files, good and bad."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import nclab
from nclab.array_files import FEATURES, pick, read_arrays, read_tree, write_tree
from nclab.errors import DataError
from nclab.training.data.samples import read_samples
from tests.monitor.loops import batches, network


def test_both_formats_round_trip(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    np.savez_compressed(tmp_path / "a.npz", X=features)
    save_file({"X": torch.from_numpy(features).bfloat16()}, tmp_path / "a.safetensors")
    assert np.array_equal(read_arrays(tmp_path / "a.npz")["X"], features)
    assert read_arrays(tmp_path / "a.safetensors")["X"].dtype == torch.bfloat16


class Trap:
    """An object that writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return Path.write_text, ("trapped", "sprung")  # pragma: no cover


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Return files that must raise an error, with a pattern of its message."""
    (folder / "text.npz").write_text("hello")
    (folder / "text.safetensors").write_text("hello")
    (folder / "points.tsv").write_text("1,2")
    (folder / "words.csv").write_text("1,two,0\n3,4,1\n")
    (folder / "empty.npz").write_bytes(b"")
    np.savez(folder / "pickled.npz", features=np.array([Trap()], dtype=object))
    np.savez(folder / "whole.npz", features=np.zeros((50, 50)))
    content = (folder / "whole.npz").read_bytes()
    (folder / "torn.npz").write_bytes(content[: len(content) // 2])
    flipped = bytearray(content)
    flipped[500] ^= 0xFF
    (folder / "flipped.npz").write_bytes(bytes(flipped))
    save_file({"X": torch.zeros(50, 50)}, folder / "torn.safetensors")
    torn = (folder / "torn.safetensors").read_bytes()
    (folder / "torn.safetensors").write_bytes(torn[:200])
    names = {
        "text.npz": "is not one",
        "text.safetensors": "is damaged",
        "points.tsv": "got points.tsv",
        "words.csv": "Cannot read .*words.csv",
        "empty.npz": "is not one",
        "pickled.npz": "holds Python objects",
        "torn.npz": "is not one",
        "flipped.npz": "damaged",
        "torn.safetensors": "is damaged",
        "nothing.npz": "does not exist",
        ".": "is not a file",
    }
    return {name: (folder / name, pattern) for name, pattern in names.items()}


def test_bad_files_give_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, (path, pattern) in bad_files(tmp_path).items():
        with pytest.raises(nclab.NclabError, match=pattern) as caught:
            read_arrays(path)["features"]
        assert "\n" not in str(caught.value), name
    assert not Path("trapped").exists()


def test_a_missing_name_lists_what_is_there() -> None:
    with pytest.raises(nclab.NclabError, match=r"features or X or inputs in f\.npz, got a, b"):
        pick({"b": 1, "a": 2}, FEATURES, "f.npz")


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2,0\n3,4,1\n",
        "a,b,c\n1.5,2,0\n3,4,1\n",
        "class,a,b\n0,1.5,2\n1,3,4\n",
        '\ufeff"a","y","b"\r\n1.5,0,2\r\n3,1.0,4\r\n',
    ],
)
def test_the_label_is_last_or_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.csv").write_text(text, encoding="utf-8", newline="")
    samples = read_samples(tmp_path / "mine.csv")
    assert samples.inputs.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert samples.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("1,2,0\n3,x,1\n", "expected numbers in column 2, got 'x'"),
        ("1,2,0\n3,1\n", "Expected a label in column 3 .* got none in row 1"),
        ("1,2,0.5\n3,1,1\n", "integer labels in column 3 .* got 0.5 in row 0"),
        ("0\n1\n", "got 2 rows of 1"),
        ("", "got 0 rows of 1"),
        ("\n\n", "got 0 rows of 1"),
        ("1,2,9223372036854775808\n3,1,1\n", "integer labels .* got 9.22337e.18 in row 0"),
        ("1,2,inf\n3,1,1\n", "integer labels .* got inf"),
        ("nan,2,0\n3,1,1\n", "got nan in row 0, column 0"),
        ("1,2,nan\n3,1,1\n", "Expected a label in column 3 .* got none in row 0"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_bad_csv_files_give_one_clear_line(tmp_path: Path, text: str, pattern: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=pattern) as caught:
        read_samples(tmp_path / "mine.csv")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="does not exist"):
        read_samples(tmp_path / "other.csv")


def test_a_monitor_goes_on_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with nclab.Monitor(network(norm=False), preset="full") as whole:
        for number, (inputs, labels) in enumerate(batches()):
            whole.observe(labels)
            whole.model(inputs)
            if number == 2:
                write_tree(file, whole.state_dict())
        whole.epoch_end()
    with nclab.Monitor(network(norm=False), preset="full") as again:
        again.load_state_dict(read_tree(file))
        for inputs, labels in batches()[3:]:
            again.observe(labels)
            again.model(inputs)
        again.epoch_end()
    for ours, theirs in zip(again.history.rows, whole.history.rows, strict=True):
        assert ours["samples"] == theirs["samples"] == 60
        assert ours["cdnv"] == pytest.approx(theirs["cdnv"], rel=1e-10)


def test_layers_of_any_name_survive(tmp_path: Path) -> None:
    state = {"layers": {"tensor": {"tensor": [1, None, "x"]}}, "empty": {}}
    write_tree(tmp_path / "state", state)
    assert read_tree(tmp_path / "state") == state


@pytest.mark.parametrize("content", [b"", b"not tensors", b"\x08" + bytes(7) + b"{}      "])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(nclab.NclabError, match=r"state of a measurement in .*state, got a damaged"):
        read_tree(tmp_path / "state")

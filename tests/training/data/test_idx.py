"""IDX files are read as they were written; damaged files raise."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from nclab.errors import DataError
from nclab.training.data.idx import read_idx
from tests.training.data.idx_files import idx_bytes


@pytest.mark.parametrize("kind", ["u1", "i2", "f4"])
@pytest.mark.parametrize("zipped", [False, True])
def test_reads_what_was_written(tmp_path: Path, kind: str, zipped: bool) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    content = idx_bytes(array)
    file = tmp_path / "any-name"
    file.write_bytes(gzip.compress(content, mtime=0) if zipped else content)
    read = read_idx(file)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype
    assert read.flags.writeable


GOOD = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x07\x01" + bytes(8), "starts with 00 00 07 01"),
        (b"PK\x03\x04" + bytes(8), "starts with 50 4b 03 04"),
        (b"\x00\x00\x08\x00", "starts with 00 00 08 00"),
        (GOOD[:10], "cut short"),
        (GOOD[:-1], r"Expected 12 bytes .* found 11"),
        (GOOD + b"!", r"Expected 12 bytes .* found more"),
        (b"\x00\x00\x08\x02" + b"\xff" * 8, "its header says"),
        (gzip.compress(GOOD, mtime=0)[:-9], "is damaged"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "is damaged"),
        (b"\x1f\x8bnonsense, but not gzip", "is damaged"),
        (b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 2 + b"\0\0\0\0", "empty shape"),
    ],
)
def test_damaged_files_raise(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "data-idx.gz"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_missing_files_and_folders_raise(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_idx(tmp_path / "absent")
    with pytest.raises(DataError, match="directory"):
        read_idx(tmp_path)

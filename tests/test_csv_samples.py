"""Samples in .csv files, good and bad."""

from pathlib import Path

import pytest

from nclab.errors import DataError
from nclab.training.data.samples import read_samples


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
        ("1,2,0\n3,x,1\n", "could not convert string 'x'"),
        ("1,2,0\n3,1\n", "column index 2 at row 2"),
        ("1,2,0.5\n3,1,1\n", "integer labels in column 3 .* got 0.5 in row 0"),
        ("0\n1\n", "got 2 rows of 1"),
        ("", "got 0 rows of 1"),
        ("\n\n", "got 0 rows of 1"),
        ("1,2,9223372036854775808\n3,1,1\n", "integer labels .* got 9.22337e.18 in row 0"),
        ("1,2,inf\n3,1,1\n", "integer labels .* got inf"),
        ("nan,2,0\n3,1,1\n", "got nan in row 0, column 0"),
        ("1,2,nan\n3,1,1\n", "got nan in row 0"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_bad_files_are_one_line(tmp_path: Path, text: str, pattern: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=pattern) as caught:
        read_samples(tmp_path / "mine.csv")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="does not exist"):
        read_samples(tmp_path / "other.csv")

"""A short stretch of every campaign; `make fuzz` goes on for as long as you like."""

import random
from pathlib import Path

from tests.fuzz import files


def test_damaged_files_are_refused_in_our_own_words(tmp_path: Path) -> None:
    attack = files.campaign(tmp_path)
    assert sum(attack(random.Random(number)) for number in range(1000)) > 400


def test_the_good_files_are_good(tmp_path: Path) -> None:
    for name, content in files.originals().items():
        (tmp_path / name).write_bytes(content)
        files.use(tmp_path / name)

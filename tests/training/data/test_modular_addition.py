"""Modular addition, sample by sample."""

import pytest

from nclab.errors import DataError
from nclab.training.data.modular_addition import ModularAddition


def test_every_pair_once_with_its_sum() -> None:
    data = ModularAddition(7)
    samples = data.draw()
    assert data.label == "mod7"
    assert samples.counts == [7] * 7
    seen = set()
    for row, label in zip(samples.inputs.tolist(), samples.labels.tolist(), strict=True):
        a, b = row[:7].index(1.0), row[7:].index(1.0)
        assert sum(row) == 2
        assert label == (a + b) % 7
        seen.add((a, b))
    assert len(seen) == 49


@pytest.mark.parametrize("modulus", [1, 513])
def test_bad_moduli_are_one_line(modulus: int) -> None:
    with pytest.raises(DataError, match=f"from 2 to 512, got {modulus}"):
        ModularAddition(modulus)

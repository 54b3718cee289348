"""Threads and denormal numbers are restored, and a broken numba is replaced by slower code."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from nclab.compute import no_denormals, one_thread

BROKEN_NUMBA = """
import sys, warnings
sys.path.insert(0, {folder!r})
import torch, nclab
from nclab.compute import has_numba

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    features = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    first = nclab.measure_features(features, torch.arange(4096) % 4)
    second = nclab.measure_features(features, torch.arange(4096) % 4)
lines = [str(warning.message) for warning in caught if "numba" in str(warning.message)]
print(len(lines), has_numba(), lines[0], first.mean_intra == second.mean_intra, sep="|")
"""


def has_denormals() -> bool:
    """Whether the CPU computes with denormal numbers at the moment."""
    return bool(torch.tensor(2e-38) / 4 > 0)


@pytest.mark.parametrize("before", [True, False])
def test_denormals_are_restored(before: bool) -> None:
    torch.set_flush_denormal(not before)
    try:
        with no_denormals():
            assert not has_denormals()
        assert has_denormals() is before
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("context", [no_denormals, one_thread])
def test_settings_are_restored_after_an_error(
    context: Callable[[], AbstractContextManager[None]],
) -> None:
    threads = torch.get_num_threads()
    with pytest.raises(KeyError), context():
        raise KeyError
    assert has_denormals()
    assert torch.get_num_threads() == threads


def test_a_broken_numba_gives_one_warning(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise SystemError('built for\\nanother numpy')\n")
    script = BROKEN_NUMBA.format(folder=str(tmp_path))
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    count, available, line, same = process.stdout.strip().split("|")
    assert (count, available, same) == ("1", "False", "True")
    assert "cannot be imported (SystemError: built for another numpy)" in line
    assert "pip install nclab[fast]" in line

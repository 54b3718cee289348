"""A numba that is there and cannot be imported: one line, and the same numbers without it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, warnings
sys.path.insert(0, {shadow!r})
import torch, nclab
from nclab.training.fleet.backend import choose_backend
from nclab.ulpm.steppers import kernel_available

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    rows = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    found = nclab.measure_features(rows, torch.arange(4096) % 4)
    again = nclab.measure_features(rows, torch.arange(4096) % 4)
    backend = choose_backend("auto", torch.device("cpu")), kernel_available()
lines = [str(one.message) for one in told if "numba" in str(one.message)]
print(len(lines), backend, lines[0], found.mean_intra == again.mean_intra, sep="|")
"""


def test_a_broken_numba_is_told_of_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise SystemError('built for\\nanother numpy')\n")
    script = SCRIPT.format(shadow=str(tmp_path))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    count, backend, line, same = run.stdout.strip().split("|")
    assert (count, backend, same) == ("1", "('torch', False)", "True")
    assert "cannot be imported (SystemError: built for another numpy)" in line
    assert "pip install nclab[fast]" in line

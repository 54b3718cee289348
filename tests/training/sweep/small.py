"""A sweep small enough for tests."""

from pathlib import Path
from typing import Any

from nclab.records import find_runs
from nclab.training.data.artificial import Teacher
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import SweepConfig


def small(**changes: Any) -> SweepConfig:
    """Return a sweep of two norms and two weight decays, with a last batch of two samples."""
    options: dict[str, Any] = {
        "data": Teacher(samples=130, width=10, inputs=8),
        "shape": Shape(layers=3, width=8),
        "norms": ("affine", "none"),
        "weight_decays": (1e-3, 1e-2),
        "recipe": Recipe(epochs=8, batch=32),
        "moments": 3,
        "checkpoint_every": 2,
    }
    return SweepConfig(**{**options, **changes})


def contents(out: Path) -> dict[str, bytes]:
    """Return journals and checkpoints of every run, which must be equal bit for bit."""
    files = [run / "journal.jsonl" for run in find_runs(out)]
    files += [file for run in find_runs(out) for file in (run / "checkpoints").iterdir()]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}

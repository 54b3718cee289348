"""A sweep small enough for tests."""

from pathlib import Path
from typing import Any

from nclab.records import find_runs
from nclab.training.data.artificial import Teacher
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import SweepConfig


def small(**changes: Any) -> SweepConfig:
    """Two norms, two weight decays, eight epochs of 130 samples: a last batch of two."""
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
    """Journals and checkpoints of every run: what must be the same bit for bit."""
    files = [run / "journal.jsonl" for run in find_runs(out)]
    files += [file for run in find_runs(out) for file in (run / "checkpoints").iterdir()]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}

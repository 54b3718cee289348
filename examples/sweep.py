"""Train a small sweep: with affine batch norm, more weight decay gives more collapse."""

import tempfile
from pathlib import Path

from nclab.training.data.artificial import ConicHull
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import SweepConfig, train_sweep

config = SweepConfig(
    data=ConicHull(samples=500, inputs=4),
    shape=Shape(layers=4, width=32),
    norms=("affine",),
    weight_decays=(1e-4, 1e-2),
    recipe=Recipe(epochs=40, batch=50),
)
for row in train_sweep(config, Path(tempfile.mkdtemp()), workers=0):
    gap = row["min_intra"] - row["max_inter"]
    print(f"weight decay {row['weight_decay']:g}: accuracy {row['accuracy']:.3f}, gap {gap:.2f}")

"""A sweep on a Ray cluster: the one of RAY_ADDRESS, or that runs here, else this machine alone.

The machines must share the folder; the runs are the same as without Ray, byte for byte.
"""

import tempfile
from pathlib import Path

from nclab.engine.ray import Cluster
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
with Cluster() as cluster:
    print(f"{cluster.slots()} cores")
    for row in train_sweep(config, Path(tempfile.mkdtemp()), engine=cluster):
        gap = row["min_intra"] - row["max_inter"]
        print(f"weight decay {row['weight_decay']:g}: gap {gap:.2f}")

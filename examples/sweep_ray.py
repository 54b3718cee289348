"""Run a sweep on the Ray cluster of RAY_ADDRESS, on a running cluster, or on this machine.

The machines must share the folder. The runs are byte for byte the same as without Ray.
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

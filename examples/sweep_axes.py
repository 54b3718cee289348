"""Train two optimisers at two widths with three seeds each, and return one table."""

import tempfile
from pathlib import Path

from nclab.training.data.artificial import ConicHull
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import Axes, SweepConfig, plan_sweep, train_plan, write_results

config = SweepConfig(
    data=ConicHull(samples=300, inputs=4),
    shape=Shape(layers=3),
    norms=("affine",),
    weight_decays=(1e-3,),
    seeds=(0, 1, 2),
    recipe=Recipe(epochs=20, batch=50, rate=0.01),
)
axes = Axes(config, {"recipe.optimizer": ("sgd", "adamw"), "shape.width": (16, 32)})
plan = plan_sweep(axes, Path(tempfile.mkdtemp()))
print(plan)
for row in train_plan(plan, workers=0):
    gap = row["min_intra"] - row["max_inter"]
    print(f"{row['optimizer']}, width {row['width']}, seed {row['seed']}: gap {gap:.2f}")
print(", ".join(file.name for file in write_results(plan.out)))

"""Use the layer-peeled model in four calls: descent, accelerated descent, flow and certificate."""

from nclab import ulpm

problem = ulpm.Problem(num_classes=5, per_class=10, dim=20)
runs = {
    "descent, 1000 steps": ulpm.descend(problem, steps=1000),
    "normalised descent, 12 steps": ulpm.normalised_descent(problem, steps=12),
    "flow to log t = 100": ulpm.flow(problem, log_time=100.0),
}
for name, run in runs.items():
    gap = ulpm.certify(problem, run.theta).gap
    print(
        f"{name:30} margin {run.last.margin:7.2f}, within-class variation "
        f"{run.last.nc1_within_variation:.4f}, {gap:.1%} above the least norm for its margin"
    )

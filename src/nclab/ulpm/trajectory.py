"""Samples (measurements of single points) and trajectories (runs with their samples)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nclab.errors import NclabError
from nclab.metrics.catalogue import BY_NAME
from nclab.metrics.view import View
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass
from nclab.text import as_frame
from nclab.ulpm.problem import (
    Array,
    Invariants,
    Problem,
    invariant_drift,
    invariants,
    optimal_log_loss,
)
from nclab.ulpm.separation import approximate_kkt

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.matplotlib_renderer import Drawing

QUANTITIES = (
    "nc2_norm_variation_means",
    "nc2_norm_variation_weights",
    "nc1_within_variation",
    "nc2_equiangularity_means",
    "nc2_equiangularity_weights",
    "nc3_self_duality",
)
"""Metrics that are the four quantities of ji2022, Sec. 4. Norm variation and equiangularity are
measured for class means and for classifier rows."""


@dataclass(frozen=True)
class Sample:
    """Measurements of one point of a run: loss, margin, distances from collapse and a KKT point."""

    step: int
    """Number of steps of descent or of the integrator."""
    log_time: float
    """Logarithm of the time of the flow, or of the sum of the step sizes; -inf at the start."""
    log_loss: float
    margin: float
    normalised_margin: float
    alignment: float
    """Cosine beta between the point and minus the gradient of the loss."""
    nc2_norm_variation_means: float
    nc2_norm_variation_weights: float
    nc1_within_variation: float
    nc2_equiangularity_means: float
    nc2_equiangularity_weights: float
    nc3_self_duality: float
    kkt_epsilon: float
    """Distance from stationarity in problem (5) of ji2022; nan before the classes are separated."""
    kkt_delta: float
    """Largest product of multiplier and slack in problem (5) of ji2022; nan before the classes
    are separated."""
    weight_norm: float
    feature_norm: float
    log_gap: float
    """Logarithm of the ratio of the loss to the smallest one for this norm (ji2022, Thm 3.3)."""
    invariant_drift: float
    """Relative change, since the start, of the quantities that gradient flow conserves."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; numbers that are not finite become None."""
        return {
            name: value if math.isfinite(value) else None for name, value in asdict(self).items()
        }


def quantities(problem: Problem, theta: Array) -> dict[str, float]:
    """Return margin, normalised margin and the four quantities of ji2022, Sec. 4."""
    weight, features = (torch.from_numpy(part) for part in problem.split(theta))
    labels = torch.from_numpy(problem.labels)
    moments = ClassMoments(problem.num_classes, problem.dim)
    moments.add_checked(features, labels)
    second_pass = SecondPass(moments)
    second_pass.add_checked(features, labels, None)
    logits = LogitStatistics(problem.num_classes)
    logits.add_checked(features @ weight.T, labels)
    view = View(moments, torch.arange(problem.num_classes), weight, logits, second_pass)
    names = ("margin", "normalised_margin", *QUANTITIES)
    return {name: view(BY_NAME[name].function) for name in names}


def take_sample(
    problem: Problem, theta: Array, start: Invariants, *, step: int, log_time: float
) -> Sample:
    """Measure a point of a run; `start` are the invariants at the beginning of the run."""
    kkt = approximate_kkt(problem, theta)
    weight, features = problem.split(theta)
    square = float(np.vdot(theta, theta))
    return Sample(
        step=step,
        log_time=log_time,
        log_loss=kkt.log_loss,
        alignment=kkt.alignment,
        kkt_epsilon=kkt.epsilon,
        kkt_delta=kkt.delta,
        weight_norm=float(np.linalg.norm(weight)),
        feature_norm=float(np.linalg.norm(features)),
        log_gap=kkt.log_loss - optimal_log_loss(problem, square),
        invariant_drift=invariant_drift(start, invariants(problem, theta)),
        **quantities(problem, theta),
    )


class Outcome(StrEnum):
    """The way in which a run ended; divergence is a result, not an exception."""

    finished = "finished"
    diverged = "diverged"
    stalled = "stalled"


@dataclass(frozen=True, repr=False)
class Trajectory:
    """A run: its samples, its last finite point and its outcome."""

    problem: Problem
    method: str
    backend: str
    samples: tuple[Sample, ...]
    theta: Array
    """(C + CN, d) point of the last sample."""
    outcome: Outcome
    message: str
    """One line about the end of the run."""

    def __repr__(self) -> str:
        sizes = f"C={self.problem.num_classes}, N={self.problem.per_class}, d={self.problem.dim}"
        end = f"{self.outcome.value}: {self.message}"
        margin = f"normalised margin {self.last.normalised_margin:.4g}"
        count = len(self.samples)
        return f"<Trajectory: {self.method} of {sizes}, {count} samples, {end}, {margin}>"

    def to_frame(self) -> "DataFrame":
        """Return a pandas table with one row per sample."""
        return as_frame(asdict(sample) for sample in self.samples)

    def plot(self, dark: bool = False) -> "Drawing":
        """Plot the four quantities of ji2022, Fig. 2, against log t, with the claimed rate."""
        from nclab.figures.matplotlib_renderer import plot
        from nclab.figures.ulpm import quantities_picture

        return plot(quantities_picture([sample.to_dict() for sample in self.samples]), dark)

    @property
    def last(self) -> Sample:
        """The last sample."""
        return self.samples[-1]

    def column(self, name: str) -> Array:
        """Return one field of every sample."""
        if name not in (names := [field.name for field in fields(Sample)]):
            raise NclabError(
                f"Expected a field of Sample, got {name!r}. Choose from {', '.join(names)}."
            )
        return np.array([getattr(sample, name) for sample in self.samples], dtype=np.float64)


def log_schedule(last: int, *, per_decade: int = 12) -> list[int]:
    """Return 0, 1, 2, ... and then about `per_decade` steps per decade, including the last step."""
    if last < 1:
        return [0]
    count = max(2, math.ceil(per_decade * math.log10(last)) + 1)
    points = np.geomspace(1, last, count).round().astype(int)
    return [0, *(int(step) for step in np.unique(points))]


def slope(log_times: Sequence[float] | Array, values: Sequence[float] | Array) -> float:
    r"""Return the exponent of a power law in log t: the slope of log(value) against log(log t).

    $$\frac{d\log v}{d\log\log t}$$

    Source: ji2022, Fig. 2 (the slope on its axes)
    Range: (-inf, inf); -1 for a quantity that falls like 1 / log t.

    >>> round(slope([10.0, 100.0, 1000.0], [0.5, 0.05, 0.005]), 12)
    -1.0
    """
    x, y = np.log(np.asarray(log_times)), np.log(np.asarray(values))
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))

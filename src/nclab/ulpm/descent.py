"""Gradient descent on the layer-peeled model: with fixed rate, noisy, stochastic or normalised."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from nclab.compute import has_numba
from nclab.errors import NclabError
from nclab.progress import track
from nclab.ulpm.problem import TINY_LOG, Array, Problem, invariants, logit_gradient
from nclab.ulpm.trajectory import Outcome, Sample, Trajectory, log_schedule, take_sample

Backend = Literal["auto", "kernel", "numpy", "torch", "cuda"]
KERNEL_WORK = 250_000
"""Largest number of multiplications C * CN * d in a step for which the compiled kernel, on one
core, is faster than torch."""
KERNEL_STEPS = 20_000
"""Smallest number of steps for which nclab loads the compiled kernel. Loading takes half a second,
or some seconds the first time."""


class Advance(NamedTuple):
    """Result of some steps of descent."""

    steps: int
    """Number of steps taken; fewer than requested if the last step made the point non-finite."""
    log_time: float
    """Logarithm of the sum of the step sizes."""
    finite: bool
    """Whether all entries of the point are finite."""


class Stepper(Protocol):
    """A point (W, H) of the model, with a method that takes steps of gradient descent."""

    name: str
    problem: Problem
    rate: float

    def advance(self, steps: int, share: Array) -> Advance:
        """Take steps and return their result; `share` (CN,) are the sample weights in the loss."""

    def move(self, by: Array) -> None:
        """Add an array to the point."""

    def theta(self) -> Array:
        """Return a copy of the point."""


@dataclass(frozen=True)
class Disturbance:
    """Options for noisy or stochastic descent; every backend draws the same random numbers."""

    noise: float = 0.0
    """Standard deviation of Gaussian noise that every step adds to each entry of the gradient."""
    batch: int | None = None
    """Number of samples drawn without replacement in every step; None uses all samples."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise NclabError(f"Expected noise >= 0, got {self.noise}.")
        if self.batch is not None and self.batch < 1:
            raise NclabError(f"Expected a batch of at least 1 sample, got {self.batch}.")


def descend(
    problem: Problem,
    start: Array | None = None,
    *,
    steps: int,
    rate: float = 5.0,
    disturbance: Disturbance | None = None,
    sample_at: Sequence[int] | None = None,
    backend: Backend = "auto",
) -> Trajectory:
    r"""Run gradient descent with a fixed learning rate, and measure some of its points.

    $$\theta \leftarrow \theta - \eta\nabla L(\theta)$$

    Source: ji2022, Sec. 4 (rate 5, on the mean loss)

    Args:
        start: a point; by default Gaussian numbers with standard deviation 0.1 and seed 0.
        rate: the learning rate $\eta$.
        sample_at: the steps to measure, by default 12 per decade; the first and the last step are
            always measured.
        backend: `auto` uses torch for large problems and the compiled kernel for small ones, or
            numpy if the run is short or numba is missing; `cuda` is torch on a GPU.

    >>> run = descend(Problem(3, 2, 2), steps=100)
    >>> run.outcome.value, run.last.margin > 0
    ('finished', True)
    """
    stepper = _stepper(problem, start, rate, steps, normalised=False, backend=backend)
    return _run(stepper, "descent", steps, disturbance, sample_at)


def normalised_descent(
    problem: Problem,
    start: Array | None = None,
    *,
    steps: int,
    rate: float = 300.0,
    sample_at: Sequence[int] | None = None,
    backend: Backend = "auto",
) -> Trajectory:
    r"""Run descent with a learning rate proportional to 1/L, so that the margin grows linearly.

    $$\theta \leftarrow \theta - c\,\frac{\nabla L(\theta)}{L(\theta)\,\|\theta\|^2}$$

    Source: ji2022, Sec. 5.3 (the loss-dependent rate it asks for)

    The arguments are those of `descend`; c is `rate`. For (C, N, d) = (5, 10, 20) rates up to 300
    are stable. Without the norm in the denominator, descent would approach the edge of stability.

    >>> run = normalised_descent(Problem(3, 2, 2), steps=100, rate=20.0)
    >>> run.last.log_time > 30
    True
    """
    stepper = _stepper(problem, start, rate, steps, normalised=True, backend=backend)
    return _run(stepper, "normalised", steps, None, sample_at)


def _run(
    stepper: Stepper,
    method: str,
    steps: int,
    disturbance: Disturbance | None,
    sample_at: Sequence[int] | None,
) -> Trajectory:
    problem = stepper.problem
    if steps < 1:
        raise NclabError(f"Expected at least 1 step, got {steps}.")
    sample_at = log_schedule(steps) if sample_at is None else sample_at
    schedule = sorted({0, steps, *(step for step in sample_at if 0 < step < steps)})
    theta = stepper.theta()
    start = invariants(problem, theta)
    samples: list[Sample] = [take_sample(problem, theta, start, step=0, log_time=-math.inf)]
    outcome, message = Outcome.finished, f"{steps} steps"
    log_time = -math.inf
    advance = _between_samples(stepper, disturbance)
    for before, after in track(list(pairwise(schedule)), method):
        progress = advance(after - before)
        log_time = float(np.logaddexp(log_time, progress.log_time))
        point = stepper.theta()
        # The invariants need finite fourth powers.
        if not (progress.finite and np.abs(point).max() < 1e70):
            outcome = Outcome.diverged
            message = (
                f"the point is no longer finite at step {before + progress.steps}; the rate "
                f"{stepper.rate:g} is too large for the {problem.reduction} loss"
            )
            break
        theta = point
        samples.append(take_sample(problem, theta, start, step=after, log_time=log_time))
    return Trajectory(problem, method, stepper.name, tuple(samples), theta, outcome, message)


def _between_samples(stepper: Stepper, disturbance: Disturbance | None) -> Callable[[int], Advance]:
    """Return a function step(n) that takes n steps, from one measured point to the next.

    With noise or batches, the function draws random numbers for every step.
    """
    problem = stepper.problem
    share = np.full(problem.samples, problem.share)
    if disturbance is None:
        return lambda steps: stepper.advance(steps, share)
    noise, batch = disturbance.noise, disturbance.batch
    generator = np.random.default_rng(disturbance.seed)
    if batch is not None and batch > problem.samples:
        raise NclabError(f"Expected a batch of at most {problem.samples} samples, got {batch}.")

    def draw_weights() -> Array:
        """Return (CN,) the weights of the samples in one step.

        Samples outside the batch have weight 0; the sum of all weights is always the same.
        """
        if batch is None:
            return share
        weights = np.zeros_like(share)
        drawn = generator.choice(problem.samples, batch, replace=False)
        weights[drawn] = problem.share * problem.samples / batch
        return weights

    def advance(steps: int) -> Advance:
        log_time = -math.inf
        for step in range(1, steps + 1):
            progress = stepper.advance(1, draw_weights())
            if noise > 0:
                stepper.move(-stepper.rate * noise * generator.standard_normal(problem.shape))
            log_time = float(np.logaddexp(log_time, progress.log_time))
            if not progress.finite:
                return Advance(step, log_time, False)
        return Advance(steps, log_time, True)

    return advance


def _stepper(
    problem: Problem,
    start: Array | None,
    rate: float,
    steps: int,
    *,
    normalised: bool,
    backend: Backend,
) -> Stepper:
    if not (math.isfinite(rate) and rate > 0):
        raise NclabError(f"Expected a positive rate, got {rate}.")
    theta = problem.initial() if start is None else problem.checked(start).copy()
    if normalised and not theta.any():
        raise NclabError("Expected a start other than zero: normalised descent divides by |theta|.")
    if backend == "auto":
        backend = "kernel" if steps >= KERNEL_STEPS and has_numba() else "numpy"
        if problem.num_classes * problem.samples * problem.dim > KERNEL_WORK:
            backend = "torch"
    if backend == "kernel":
        return KernelStepper(problem, theta, rate, normalised=normalised)
    if backend == "numpy":
        return NumpyStepper(problem, theta, rate, normalised=normalised)
    if backend in ("torch", "cuda"):
        return TorchStepper(problem, theta, rate, normalised=normalised, device=backend)
    raise NclabError(f"Expected backend auto, kernel, numpy, torch or cuda, got {backend!r}.")


class NumpyStepper(Stepper):
    """Descent steps in numpy, which need no other package."""

    name = "numpy"

    def __init__(self, problem: Problem, theta: Array, rate: float, *, normalised: bool) -> None:
        self.problem, self.rate, self.normalised = problem, rate, normalised
        self._theta = theta

    def advance(self, steps: int, share: Array) -> Advance:
        problem, theta = self.problem, self._theta
        W, H = problem.split(theta)
        log_time = -math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(1, steps + 1):
                log_loss, weights = logit_gradient(problem, theta, share)
                if self.normalised:
                    size = self.rate / float(np.vdot(theta, theta))
                    log_time = float(np.logaddexp(log_time, math.log(size) - log_loss))
                else:
                    size = self.rate * math.exp(min(log_loss, 709.0))
                weights *= size
                gradient = weights.T @ H
                H -= weights @ W
                W -= gradient
                if not math.isfinite(float(W.sum())):
                    return Advance(step, log_time, False)
        return Advance(steps, log_time if self.normalised else _log_time(self.rate, steps), True)

    def move(self, by: Array) -> None:
        self._theta += by

    def theta(self) -> Array:
        return self._theta.copy()


class KernelStepper(Stepper):
    """Descent steps compiled by numba, for small problems on one core."""

    name = "kernel"

    def __init__(self, problem: Problem, theta: Array, rate: float, *, normalised: bool) -> None:
        if not has_numba():
            raise NclabError(
                "The compiled kernel needs numba, which is not installed. Run "
                "`pip install nclab[fast]`, or pass backend='numpy'."
            )
        from nclab.ulpm import kernel

        self.problem, self.rate, self.normalised = problem, rate, normalised
        self._run = kernel.run
        W, H = problem.split(theta)
        self._W = W.copy()
        self._Ht = np.ascontiguousarray(H.T)  # (d, CN)

    def advance(self, steps: int, share: Array) -> Advance:
        done, log_time, finite = self._run(
            self._W, self._Ht, share, float(self.rate), steps, self.normalised
        )
        return Advance(done, log_time if self.normalised else _log_time(self.rate, steps), finite)

    def move(self, by: Array) -> None:
        dW, dH = self.problem.split(by)
        self._W += dW
        self._Ht += dH.T

    def theta(self) -> Array:
        return np.concatenate([self._W, self._Ht.T])


class TorchStepper(Stepper):
    """Descent steps in torch on CPU or GPU, for large problems; a step is three matrix products."""

    def __init__(
        self, problem: Problem, theta: Array, rate: float, *, normalised: bool, device: str
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise NclabError("Expected a CUDA device, got none. Pass backend='torch'.")
        self.problem, self.rate, self.normalised = problem, rate, normalised
        self.name = device if device == "cuda" else "torch"
        self._device = torch.device("cuda" if device == "cuda" else "cpu")
        self._W, self._H = (torch.tensor(part).to(self._device) for part in problem.split(theta))
        self._logits = self._H.new_empty(problem.samples, problem.num_classes)
        self._gradient = torch.empty_like(self._W)

    @torch.no_grad()
    def advance(self, steps: int, share: Array) -> Advance:
        shares = torch.from_numpy(share).to(self._device)[:, None]
        log_time = -math.inf
        for step in range(1, steps + 1):
            size = self._step(shares)
            if self.normalised:
                log_time = float(np.logaddexp(log_time, size))
            if not math.isfinite(float(self._W.sum())):
                return Advance(step, log_time, False)
        return Advance(steps, log_time if self.normalised else _log_time(self.rate, steps), True)

    def _step(self, shares: Tensor) -> float:
        """Take one step; return the log of its size if descent is normalised, else 0."""
        problem, W, H, weights = self.problem, self._W, self._H, self._logits
        torch.mm(H, W.T, out=weights)
        per_class = weights.view(problem.num_classes, problem.per_class, problem.num_classes)
        label = per_class.diagonal(dim1=0, dim2=2).T  # (C, N) logits of the labels
        label_logits = label.clone().view(-1, 1)
        label.fill_(-torch.inf)
        top = weights.amax(1, keepdim=True)
        weights.sub_(top).exp_()
        sums = weights.sum(1, keepdim=True)
        size, log_size = self.rate, 0.0
        if self.normalised:
            factor, log_loss = _normalised_factor(top - label_logits, sums, shares)
            size /= float(W.square().sum() + H.square().sum())
            log_size = math.log(size) - log_loss
        else:
            factor = shares / (sums + (label_logits - top).exp_())
        weights.mul_(factor)
        label.copy_(-(sums * factor).view_as(label))
        torch.mm(weights.T, H, out=self._gradient)
        H.addmm_(weights, W, alpha=-size)
        W.sub_(self._gradient, alpha=size)
        return log_size

    def move(self, by: Array) -> None:
        dW, dH = self.problem.split(by)
        self._W += torch.from_numpy(dW).to(self._device)
        self._H += torch.from_numpy(dH).to(self._device)

    def theta(self) -> Array:
        theta: Array = torch.cat([self._W, self._H]).cpu().numpy()
        return theta


def _normalised_factor(top: Tensor, sums: Tensor, shares: Tensor) -> tuple[Tensor, float]:
    """Return the factor that turns e^{z_j - z_y - top} into d log L / dz_j, and log L.

    z are the logits of a sample, y its label, and `top` the largest z_j - z_y.
    """
    log_odds = top + sums.log()
    losses = torch.nn.functional.softplus(log_odds, threshold=100.0)
    small = log_odds < TINY_LOG
    log_losses = torch.where(small, log_odds, losses.clamp_min(math.exp(TINY_LOG)).log())
    log_loss = torch.logsumexp(log_losses + shares.log(), dim=(0, 1))
    factor = shares * (log_odds - losses - log_loss).exp_() / sums
    return factor, float(log_loss)


def _log_time(rate: float, steps: int) -> float:
    return math.log(rate) + math.log(steps)

"""A point that takes descent steps: in numpy, in the compiled kernel, in torch."""

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from nclab.compute import has_numba
from nclab.errors import NclabError
from nclab.ulpm.problem import TINY_LOG, Array, Problem, pull


class Advance(NamedTuple):
    """How far a run of steps came."""

    steps: int
    """Fewer than asked for when the point stopped being finite: the last one made it so."""
    log_time: float
    """log of the sum of the step sizes."""
    finite: bool


class Stepper(Protocol):
    """A point that can take steps of one kind."""

    name: str
    problem: Problem
    rate: float

    def advance(self, steps: int, share: Array) -> Advance:
        """Take steps, `share` (CN,) being the weight of each sample in the loss."""

    def move(self, by: Array) -> None:
        """Add to the point."""

    def theta(self) -> Array:
        """A copy of the point."""


class NumpyStepper(Stepper):
    """The portable way: the formulas of `problem`, step by step."""

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
                log_loss, weights = pull(problem, theta, share)
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


def kernel_available() -> bool:
    """Whether numba, the extra `fast`, is there.

    >>> isinstance(kernel_available(), bool)
    True
    """
    return has_numba()


class KernelStepper(Stepper):
    """Small problems on one core, compiled by numba."""

    name = "kernel"

    def __init__(self, problem: Problem, theta: Array, rate: float, *, normalised: bool) -> None:
        if not kernel_available():
            raise NclabError(
                "The compiled kernel needs numba. Run `pip install nclab[fast]`, "
                "or take backend='numpy'."
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
    """Large problems: three GEMMs and a few passes over the logits a step, on CPU or GPU."""

    def __init__(
        self, problem: Problem, theta: Array, rate: float, *, normalised: bool, device: str
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise NclabError("Expected a CUDA device, got none. Take backend='torch'.")
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
        """One step; returns the log of its size where it is normalised."""
        problem, W, H, weights = self.problem, self._W, self._H, self._logits
        torch.mm(H, W.T, out=weights)
        per_class = weights.view(problem.num_classes, problem.per_class, problem.num_classes)
        label = per_class.diagonal(dim1=0, dim2=2).T  # (C, N), the logit of the label
        own = label.clone().view(-1, 1)
        label.fill_(-torch.inf)
        top = weights.amax(1, keepdim=True)
        weights.sub_(top).exp_()
        sums = weights.sum(1, keepdim=True)
        size, log_size = self.rate, 0.0
        if self.normalised:
            factor, log_loss = _normalised_factor(top - own, sums, shares)
            size /= float(W.square().sum() + H.square().sum())
            log_size = math.log(size) - log_loss
        else:
            factor = shares / (sums + (own - top).exp_())
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
    """What turns e^{z_j - z_y - top} into d log L / dz_j, and log L."""
    log_odds = top + sums.log()
    losses = torch.nn.functional.softplus(log_odds, threshold=100.0)
    small = log_odds < TINY_LOG
    log_losses = torch.where(small, log_odds, losses.clamp_min(math.exp(TINY_LOG)).log())
    log_loss = torch.logsumexp(log_losses + shares.log(), dim=(0, 1))
    factor = shares * (log_odds - losses - log_loss).exp_() / sums
    return factor, float(log_loss)


def _log_time(rate: float, steps: int) -> float:
    return math.log(rate) + math.log(steps)

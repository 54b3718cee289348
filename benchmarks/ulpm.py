"""Compare the methods of the layer-peeled model with plain implementations, on one thread.

Time per step of descent by the compiled kernel, by numpy and by torch without a graph. Beside them:
a plain torch autograd loop and a numpy loop of the closed-form gradient, which share no code with
nclab. Then the steps and seconds that each method needs to reach the loss of plain descent after
100,000 steps, and the cost as C, N and d grow, beside that of the three matrix products of a step.

    python benchmarks/ulpm.py [--json] [--rounds 5] [--quick]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nclab.ulpm import Problem, Sample, Trajectory, descend, flow, normalised_descent
from nclab.ulpm.descent import KernelStepper, NumpyStepper, Stepper, TorchStepper
from nclab.ulpm.problem import Array

RATE = 5.0
LEVELS = ("nc1_within_variation", "nc2_equiangularity_means", "nc3_self_duality")
GROWTH = ((5, 10, 20), (10, 10, 20), (10, 50, 20), (20, 20, 64), (50, 50, 64), (100, 50, 128))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def autograd_loop(problem: Problem, start: Array) -> Callable[[int], None]:
    """Do steps with autograd: cross_entropy, backward, subtract."""
    W, H = (torch.tensor(part, requires_grad=True) for part in problem.split(start))
    labels = torch.from_numpy(problem.labels)

    def steps(count: int) -> None:
        for _ in range(count):
            loss = torch.nn.functional.cross_entropy(H @ W.T, labels)
            gradient_W, gradient_H = torch.autograd.grad(loss, (W, H))
            with torch.no_grad():
                W.sub_(gradient_W, alpha=RATE)
                H.sub_(gradient_H, alpha=RATE)

    return steps


def numpy_loop(problem: Problem, start: Array) -> Callable[[int], None]:
    """Do steps in numpy with the closed-form gradient: softmax minus one-hot labels."""
    W, H = (part.copy() for part in problem.split(start))
    onehot = np.eye(problem.num_classes)[problem.labels]

    def steps(count: int) -> None:
        for _ in range(count):
            logits = H @ W.T
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p -= onehot
            p *= RATE / problem.samples
            gradient = p.T @ H
            H[...] -= p @ W
            W[...] -= gradient

    return steps


def stepping(stepper: Stepper) -> Callable[[int], None]:
    """Return nclab's own steps by backend."""
    share = np.full(stepper.problem.samples, stepper.problem.share)

    def steps(count: int) -> None:
        stepper.advance(count, share)

    return steps


def per_step(problem: Problem, rounds: int) -> dict[str, float]:
    """Return microseconds per step, best of rounds that alternate between the methods."""
    start = problem.initial()
    loops: dict[str, tuple[Callable[[int], None], int]] = {
        "autograd": (autograd_loop(problem, start), 2_000),
        "numpy_closed_form": (numpy_loop(problem, start), 3_000),
        "numpy": (stepping(NumpyStepper(problem, start.copy(), RATE, normalised=False)), 3_000),
        "torch": (
            stepping(TorchStepper(problem, start, RATE, normalised=False, device="torch")),
            3_000,
        ),
        "kernel": (stepping(KernelStepper(problem, start, RATE, normalised=False)), 20_000),
        "kernel_normalised": (
            stepping(KernelStepper(problem, start, 300.0, normalised=True)),
            10_000,
        ),
    }
    best = dict.fromkeys(loops, float("inf"))
    for loop, _ in loops.values():
        loop(10)
    for _ in range(rounds):
        for name, (loop, count) in loops.items():
            best[name] = min(best[name], cpu_seconds(lambda: loop(count)) / count * 1e6)  # noqa: B023
    return best


def to_level(problem: Problem, us_autograd: float) -> dict[str, Any]:
    """Return steps and seconds of each method to the state of plain descent after 100,000 steps."""
    works: dict[str, Callable[[], Trajectory]] = {
        "descent": lambda: descend(problem, steps=100_000),
        "normalised": lambda: normalised_descent(problem, steps=20, sample_at=range(20)),
        "flow_level": lambda: flow(problem, log_time=18.0),
        "flow_1000": lambda: flow(problem, log_time=1000.0),
    }
    runs = {name: work() for name, work in works.items()}
    seconds = {name: min(cpu_seconds(work) for _ in range(2)) for name, work in works.items()}
    level = runs["descent"].last
    found: dict[str, Any] = {"autograd_100k_s": us_autograd * 0.1}
    for name in ("descent", "normalised", "flow_level"):
        samples = runs[name].samples
        steps = next((sample.step for sample in samples if passes(sample, level)), None)
        found[name] = {"steps": steps, "cpu_s": seconds[name]}
    drift = runs["flow_1000"].last.invariant_drift
    found["flow_1000"] = {"cpu_s": seconds["flow_1000"], "invariant_drift": drift}
    found["descent_100k_over_autograd"] = seconds["descent"] / found["autograd_100k_s"]
    found["flow_1000_over_autograd_100k"] = seconds["flow_1000"] / found["autograd_100k_s"]
    return found


def passes(sample: Sample, level: Sample) -> bool:
    """Return whether margin, within-class variation, cosines and self-duality are all as good."""
    return sample.margin >= level.margin and all(
        getattr(sample, name) <= getattr(level, name) for name in LEVELS
    )


def products(problem: Problem) -> Callable[[int], None]:
    """Do the three matrix products of a step and nothing else."""
    W, H = (torch.tensor(part) for part in problem.split(problem.initial()))
    logits = H @ W.T
    gradient = torch.empty_like(W)

    def steps(count: int) -> None:
        for _ in range(count):
            torch.mm(H, W.T, out=logits)
            torch.mm(logits.T, H, out=gradient)
            H.addmm_(logits, W, alpha=0.0)

    return steps


def growth(sizes: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Return the time per step as the problem grows, beside its matrix products."""
    problem = Problem(*sizes)
    start = problem.initial()
    work = problem.num_classes * problem.samples * problem.dim
    count = max(3, min(3_000, 300_000_000 // work // 10))
    loops = {
        "gemm": products(problem),
        "torch": stepping(TorchStepper(problem, start, RATE, normalised=False, device="torch")),
        "kernel": stepping(KernelStepper(problem, start, RATE, normalised=False)),
        "autograd": autograd_loop(problem, start),
    }
    best = dict.fromkeys(loops, float("inf"))
    for loop in loops.values():
        loop(2)
    for _ in range(rounds):
        for name, loop in loops.items():
            best[name] = min(best[name], cpu_seconds(lambda: loop(count)) / count * 1e6)  # noqa: B023
    return {
        "C": sizes[0],
        "N": sizes[1],
        "d": sizes[2],
        **{f"{name}_us": round(value, 2) for name, value in best.items()},
        "torch_over_gemm": round(best["torch"] / best["gemm"], 3),
    }


def main() -> None:
    """Run everything on one thread in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, best is kept")
    parser.add_argument("--quick", action="store_true", help="only the time per step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    problem = Problem(num_classes=5, per_class=10, dim=20)
    times = per_step(problem, options.rounds)
    result: dict[str, Any] = {
        "us_per_step": {name: round(value, 3) for name, value in times.items()},
        "ratio_autograd": round(times["autograd"] / times["kernel"], 2),
        "ratios": {name: round(times["autograd"] / value, 2) for name, value in times.items()},
    }
    if not options.quick:
        result["to_level"] = to_level(problem, times["autograd"])
        result["growth"] = [growth(sizes, min(3, options.rounds)) for sizes in GROWTH]
    if options.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{'method':>20} {'us/step':>9} {'autograd / it':>14}   (C, N, d) = (5, 10, 20)")
    for name, value in result["us_per_step"].items():
        print(f"{name:>20} {value:>9.2f} {result['ratios'][name]:>14.2f}")
    for name, value in result.get("to_level", {}).items():
        print(f"{name:>32} {value}")
    for row in result.get("growth", []):
        print(row)


if __name__ == "__main__":
    main()

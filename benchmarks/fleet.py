"""Compare the CPU time of a fleet's training step with plain PyTorch loops on one thread.

The baselines are nn.Sequential, autograd and torch.optim. They get their batches (a) from
DataLoader(TensorDataset, batch_size=128, shuffle=True) and (b) by indexing with a random
permutation. The loops alternate epoch by epoch, and the best epoch of each counts. The peak of
sgemm is the higher rate of two: the matrix products of the step, and a product of 1024 x 1024
matrices, both in the same run. torch.optim has no decoupled SGD and no sign of the momentum; these
are compared with SGD, its cheapest optimiser.

    python benchmarks/fleet.py [--json] [--rounds 5] [--norm affine] [--backend auto]
    python benchmarks/fleet.py --recipes [--json]    # every optimiser and loss, 6 layers
    python benchmarks/fleet.py --blas [--json]    # compare the libraries of matrix products
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nclab.training.fleet import Fleet, Member, Recipe
from nclab.training.fleet.fleet import Backend
from nclab.training.fleet.recipe import Loss, Optimizer
from nclab.training.models.mlp import Norm, Shape

SIZES = ((64, 6), (300, 6), (64, 15), (300, 15))
SAMPLES = 10_000
BATCH = 128
OTHERS = [
    *({"optimizer": name} for name in get_args(Optimizer) if name != "sgd"),
    {"nesterov": True},
    *({"loss": name} for name in get_args(Loss) if name != "cross_entropy"),
]
"""Other recipes, each compared with SGD on cross-entropy."""
MEMBERS = 3
"""Number of networks in a fleet. They compete for the caches, as in a sweep."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def samples() -> tuple[Tensor, Tensor]:
    """Draw normal inputs and label them by the sides of two random planes."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 16, generator=generator)
    sides = (inputs @ torch.randn(16, 2, generator=generator) > 0).long()
    return inputs, sides[:, 0] + 2 * sides[:, 1]


def plain_loss(recipe: Recipe) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss as written in a plain training loop."""
    if recipe.loss == "focal":

        def focal(logits: Tensor, labels: Tensor) -> Tensor:
            surprise = nn.functional.cross_entropy(logits, labels, reduction="none")
            return ((1 - torch.exp(-surprise)) ** recipe.focal_gamma * surprise).mean()

        return focal
    if recipe.loss == "mse":
        squares = nn.MSELoss()
        return lambda logits, labels: squares(
            logits, nn.functional.one_hot(labels, logits.shape[1]).float()
        )
    smoothing = recipe.smoothing if recipe.loss == "label_smoothing" else 0.0
    return nn.CrossEntropyLoss(label_smoothing=smoothing)


def plain_optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return torch's optimiser of this name, or SGD if torch has none."""
    options: Any = {"lr": recipe.rate, "weight_decay": 1e-3}
    if recipe.rule == "adam":
        kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
        return kind(network.parameters(), **options)
    options |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
    return torch.optim.SGD(network.parameters(), **options)


def plain_loop(
    shape: Shape, norm: Norm, recipe: Recipe, batches: Callable[[], Iterator[Any]]
) -> Callable[[], None]:
    """Train one epoch with a plain loop."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(shape.widths[:-1]):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
        if norm != "none":
            modules.append(nn.BatchNorm1d(outputs, affine=norm == "affine"))
    network = nn.Sequential(*modules, nn.Linear(shape.widths[-2], shape.classes))
    optimiser, measure = plain_optimizer(network, recipe), plain_loss(recipe)

    def epoch() -> None:
        for inputs, labels in batches():
            loss = measure(network(inputs), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return epoch


def by_loader(inputs: Tensor, labels: Tensor) -> Callable[[], Iterator[Any]]:
    """Yield the batches of a DataLoader."""
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)
    return lambda: iter(loader)


def by_index(inputs: Tensor, labels: Tensor) -> Callable[[], Iterator[Any]]:
    """Yield batches by a random permutation."""

    def batches() -> Iterator[Any]:
        for rows in torch.randperm(len(inputs)).split(BATCH):
            yield inputs[rows], labels[rows]

    return batches


def products(shape: Shape) -> tuple[Callable[[], None], float]:
    """Return the matrix products of a step as a function, and their operations."""
    calls: list[tuple[Tensor, Tensor, Tensor]] = []
    work = 0.0
    for index, (inputs, outputs) in enumerate(pairwise(shape.widths)):
        H, W, G = (
            torch.randn(*size) for size in ((inputs, BATCH), (outputs, inputs), (outputs, BATCH))
        )
        calls += [(W, H, torch.empty_like(G)), (G, H.T, torch.empty_like(W))]
        if index:
            calls.append((W.T, G, torch.empty_like(H)))
        work += 2.0 * inputs * outputs * BATCH * (3 if index else 2)

    def step() -> None:
        for left, right, out in calls:
            torch.mm(left, right, out=out)

    return step, work


def compare(
    shape: Shape, norm: Norm, backend: Backend, rounds: int, other: dict[str, Any]
) -> dict[str, Any]:
    """Return milliseconds per step and network of each loop, ratios, share of the peak."""
    inputs, labels = samples()
    # The sign of the momentum moves every weight by a full step, so the rate is small.
    small: dict[str, Any] = {"rate": 1e-3} if other.get("optimizer", "sgd")[:3] != "sgd" else {}
    recipe = Recipe(batch=BATCH, **small, **other)
    members = [Member(norm, 1e-3, seed) for seed in range(MEMBERS)]
    fleet = Fleet(shape, members, recipe, inputs, labels, backend=backend)
    step, work = products(shape)
    left, right, out = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.empty(1024, 1024)
    steps = recipe.steps(SAMPLES)
    ways: dict[str, tuple[Callable[[], object], float]] = {
        "dataloader": (plain_loop(shape, norm, recipe, by_loader(inputs, labels)), steps),
        "index": (plain_loop(shape, norm, recipe, by_index(inputs, labels)), steps),
        "fleet": (fleet.train_epoch, steps * MEMBERS),
        "products": (lambda: [step() for _ in range(steps)], steps),
        "square": (lambda: torch.mm(left, right, out=out), 2 * 1024.0**3 / work),
    }
    best = dict.fromkeys(ways, float("inf"))
    for epoch, _ in ways.values():
        epoch()
    for _ in range(rounds):
        for name, (epoch, count) in ways.items():
            best[name] = min(best[name], cpu_seconds(epoch) / count)
    peak = min(best["products"], best["square"])
    return {
        "width": shape.width,
        "layers": shape.layers,
        **other,
        "ratio_dataloader": round(best["dataloader"] / best["fleet"], 2),
        "ratio_index": round(best["index"] / best["fleet"], 2),
        "sgemm_share": round(peak / best["fleet"], 3),
        "ms_dataloader": round(1e3 * best["dataloader"], 4),
        "ms_index": round(1e3 * best["index"], 4),
        "ms_fleet": round(1e3 * best["fleet"], 4),
        "ms_products": round(1e3 * best["products"], 4),
        "gflops_peak": round(work / peak / 1e9, 1),
    }


def compare_blas(width: int, rounds: int) -> list[dict[str, Any]]:
    """Time a hidden layer's three products by library and memory order; return microseconds."""
    from nclab.training.fleet.epoch_kernel import PLAIN, TRANSPOSED, multiply
    from nclab.training.fleet.kernel_backend import scipy_gemm, torch_gemm

    W, V = (torch.randn(width, width).numpy() for _ in range(2))
    ways: dict[tuple[str, str, str], Callable[[], object]] = {}
    for library, address in (("torch", torch_gemm("sgemm")), ("scipy", scipy_gemm("sgemm"))):
        for order, size in (("(width, n)", (width, BATCH)), ("(n, width)", (BATCH, width))):
            H, G, out = (torch.randn(*size).numpy() for _ in range(3))
            if order == "(width, n)":
                calls = {
                    "forward": (W, PLAIN, H, PLAIN, 0.0, out),
                    "backward": (W, TRANSPOSED, G, PLAIN, 0.0, out),
                    "weights": (G, PLAIN, H, TRANSPOSED, 1.0, V),
                }
            else:
                calls = {
                    "forward": (H, PLAIN, W, TRANSPOSED, 0.0, out),
                    "backward": (G, PLAIN, W, PLAIN, 0.0, out),
                    "weights": (G, TRANSPOSED, H, PLAIN, 1.0, V),
                }
            for name, call in calls.items():
                if address is not None:
                    ways[library, order, name] = partial(multiply, address, *call)
    best = dict.fromkeys(ways, float("inf"))
    count = 20 * 300 // width
    for _ in range(rounds * 10):
        for key, way in ways.items():
            way()
            seconds = cpu_seconds(lambda: [way() for _ in range(count)])  # noqa: B023
            best[key] = min(best[key], 1e6 * seconds / count)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for (library, order, name), value in best.items():
        row = {"width": width, "library": library, "features": order}
        rows.setdefault((library, order), row)[name] = round(value, 1)
    return list(rows.values())


def show(row: dict[str, Any]) -> None:
    """Print a row as soon as it is known."""
    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def main() -> None:
    """Run all cases on one thread in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each; the best counts")
    parser.add_argument("--norm", choices=get_args(Norm), default="affine")
    parser.add_argument("--backend", choices=get_args(Backend), default="auto")
    parser.add_argument("--recipes", action="store_true", help="every optimiser and loss")
    parser.add_argument("--blas", action="store_true", help="compare libraries and orders instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if options.blas:
        rows = [row for width in (64, 300) for row in compare_blas(width, options.rounds)]
    sizes = () if options.blas else SIZES[:2] if options.recipes else SIZES
    for width, layers in sizes:
        for other in OTHERS if options.recipes else ({},):
            shape = Shape(width=width, layers=layers)
            rows.append(compare(shape, options.norm, options.backend, options.rounds, other))
            if not options.json:
                show(rows[-1])
    if options.json:
        print(json.dumps(rows, indent=1))
    elif options.blas:
        for row in rows:
            show(row)


if __name__ == "__main__":
    main()

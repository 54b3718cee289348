"""Overhead of the monitor: the CPU time of a training loop with it, as a percentage of without.

The thesis's network (6 layers of width 300, batch 128) and a narrow VGG-13 (width 0.125, batch
50, 32 x 32), on random data, one thread. Economy watches what the classifier reads, full every
layer, both on the training batches and with a measurement at the end of each epoch. The three
loops take turns at every step, in rotating order, so that all meet the same moments of a shared
machine. Each step of the epoch, and its end, counts with its median over the rounds.

    python benchmarks/monitor.py [--json] [--rounds 15]
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

import nclab
from nclab.models.mlp import MLP, Shape
from nclab.models.vgg import VGG13, VGGShape

WAYS = ("plain", "economy", "full")
Batches = list[tuple[Tensor, Tensor]]


class Case(NamedTuple):
    """A model and the batches of an epoch."""

    name: str
    model: nn.Module
    loader: Batches


def cases() -> list[Case]:
    """The thesis's network and the quick VGG."""
    torch.manual_seed(0)
    mlp = MLP(Shape(inputs=16, classes=4, layers=6, width=300))
    vectors = [(torch.randn(128, 16), torch.randint(4, (128,))) for _ in range(79)]
    vgg = VGG13(VGGShape(width=0.125))
    images = [(torch.randn(50, 1, 32, 32), torch.randint(10, (50,))) for _ in range(20)]
    return [Case("MLP 6 x 300", mlp, vectors), Case("VGG-13 x 0.125", vgg, images)]


def epochs_of(case: Case, way: str) -> Iterator[None]:
    """Training of a copy of the model, watched or not: a pause after each step and each epoch."""
    model = deepcopy(case.model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    monitor = None if way == "plain" else nclab.Monitor(model, preset=way)
    while True:
        watched = case.loader if monitor is None else monitor.watch(case.loader)
        for inputs, labels in watched:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            yield
        yield


def run(case: Case, rounds: int) -> dict[str, object]:
    """Take turns; compare."""
    loops = {way: epochs_of(case, way) for way in WAYS}
    turns = len(case.loader) + 1
    seconds = {way: [[0.0] * turns for _ in range(rounds)] for way in WAYS}
    for number in range(-1, rounds):  # the first epoch warms up: imports, the traced first pass
        for turn in range(turns):
            for place in range(len(WAYS)):
                way = WAYS[(number + turn + place) % len(WAYS)]
                started = time.process_time()
                next(loops[way])
                seconds[way][number][turn] = time.process_time() - started
    typical = {
        way: sum(statistics.median(turn) for turn in zip(*seconds[way], strict=True))
        for way in WAYS
    }
    return {
        "model": case.name,
        **{
            f"{way}_percent": round(100 * (typical[way] / typical["plain"] - 1), 2)
            for way in WAYS[1:]
        },
        "plain_step_ms": round(1e3 * typical["plain"] / len(case.loader), 3),
    }


def main() -> None:
    """Both models, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each loop")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [run(case, options.rounds) for case in cases()]
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'model':<16} {'step':>9} {'economy':>9} {'full':>9}")
    for result in results:
        print(
            f"{result['model']:<16} {result['plain_step_ms']:>7} ms "
            f"{result['economy_percent']:>7} % {result['full_percent']:>7} %"
        )


if __name__ == "__main__":
    main()

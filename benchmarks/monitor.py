"""Measure the overhead of the monitor in per cent of a training loop's CPU time.

The models are the thesis's network (6 layers of width 300, batch 128) and a narrow VGG-13 (width
0.125, batch 50, 32 x 32), on random data and one thread. The preset economy observes the input of
the classifier, full observes every layer; both observe the training batches and measure at the end
of each epoch. The three loops alternate at every step in rotating order, so that all meet the same
moments of a shared machine. For each step, and for the end of the epoch, the median over the rounds
counts.

The byte-pair language model of `examples/` (vocabulary 1,024, 1,024 tokens a batch, AdamW) is
observed at its last layer in two ways: sampled as in the example (256 rows of 5 batches in 20 and a
measurement of them), and with every token of every batch and a measurement after each 20 batches.

    python benchmarks/monitor.py [--json] [--rounds 15] [--only tokens]
"""

import argparse
import json
import runpy
import statistics
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import nclab
from nclab.monitor import Every
from nclab.training.models.mlp import MLP, Shape
from nclab.training.models.vgg import VGG13, VGGShape

Ways = dict[str, dict[str, Any] | None]
WAYS: Ways = {"plain": None, "economy": {"preset": "economy"}, "full": {"preset": "full"}}
"""Options of the monitor for each way to train; None for training without a monitor."""
LAST = {"preset": "economy", "labels": "next", "min_count": 2}
TOKENS: Ways = {
    "plain": None,
    "sampled": {**LAST, "every": Every(20, "steps", window=5), "rows": 256},
    "every token": {**LAST, "every": "20 steps"},
}
Batches = list[tuple[Tensor, Tensor]]


class Case(NamedTuple):
    """Model and batches of an epoch."""

    name: str
    model: nn.Module
    loader: Batches
    ways: Ways = WAYS


def cases() -> list[Case]:
    """Return the thesis's network, the small VGG and the language model."""
    torch.manual_seed(0)
    mlp = MLP(Shape(inputs=16, classes=4, layers=6, width=300))
    vectors = [(torch.randn(128, 16), torch.randint(4, (128,))) for _ in range(79)]
    vgg = VGG13(VGGShape(width=0.125))
    images = [(torch.randn(50, 1, 32, 32), torch.randint(10, (50,))) for _ in range(20)]
    plain = [Case("MLP 6 x 300", mlp, vectors), Case("VGG-13 x 0.125", vgg, images)]
    return [*plain, language_model()]


def language_model() -> Case:
    """Return the model of the example and tokens whose frequencies are as uneven as in a text."""
    file = Path(__file__).parents[1] / "examples" / "language_model_byte_pairs.py"
    model = runpy.run_path(str(file), run_name="example")["LanguageModel"](1024)
    chances = 1 / torch.arange(1, 1025).double()
    drawn = chances.multinomial(20 * 1024, replacement=True).view(20, 16, 64)
    return Case("byte-pair model", model, [(x, x) for x in drawn], TOKENS)


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy; if every token has a label, that of the next tokens."""
    logits = model(inputs)
    if labels.ndim == 2:
        logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return nn.functional.cross_entropy(logits, labels)


def epochs_of(case: Case, way: str) -> Iterator[None]:
    """Train a copy of the model; pause after each step and each epoch."""
    model = deepcopy(case.model)
    optimiser: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if case.ways is TOKENS:
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    options = case.ways[way]
    monitor = None if options is None else nclab.Monitor(model, **options)
    while True:
        watched = case.loader if monitor is None else monitor.watch(case.loader)
        for inputs, labels in watched:
            optimiser.zero_grad()
            loss_of(model, inputs, labels).backward()
            optimiser.step()
            yield
        yield


def run(case: Case, rounds: int) -> dict[str, object]:
    """Alternate between the ways to train and compare their times."""
    ways = list(case.ways)
    loops = {way: epochs_of(case, way) for way in ways}
    turns = len(case.loader) + 1
    seconds = {way: [[0.0] * turns for _ in range(rounds)] for way in ways}
    for number in range(-1, rounds):  # the first epoch warms up: imports, the traced first pass
        for turn in range(turns):
            for place in range(len(ways)):
                way = ways[(number + turn + place) % len(ways)]
                started = time.process_time()
                next(loops[way])
                seconds[way][number][turn] = time.process_time() - started
    typical = {
        way: sum(statistics.median(turn) for turn in zip(*seconds[way], strict=True))
        for way in ways
    }
    return {
        "model": case.name,
        **{
            f"{way}_percent": round(100 * (typical[way] / typical["plain"] - 1), 2)
            for way in ways[1:]
        },
        "plain_step_ms": round(1e3 * typical["plain"] / len(case.loader), 3),
    }


def main() -> None:
    """Run all models, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each loop")
    parser.add_argument("--only", choices=["tokens"], help="the language model alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = cases()[-1:] if options.only else cases()
    results = [run(case, options.rounds) for case in chosen]
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for result in results:
        parts = [
            f"{name.removesuffix('_percent')} {value} %"
            for name, value in result.items()
            if name.endswith("_percent")
        ]
        print(f"{result['model']:<16} {result['plain_step_ms']:>7} ms a step, {', '.join(parts)}")


if __name__ == "__main__":
    main()

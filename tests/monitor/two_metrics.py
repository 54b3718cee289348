"""One of two processes that compute torchmetrics together; prints the results as JSON."""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

CLASSES, DIM = 3, 5


def cloud() -> tuple[Tensor, Tensor]:
    """Return features far from the origin, with labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randperm(90, generator=generator) % CLASSES
    centres = torch.randn(CLASSES, DIM, generator=generator)
    return centres[labels] + 0.1 * torch.randn(90, DIM, generator=generator) + 10, labels


def parts() -> list[tuple[Tensor, Tensor]]:
    """Return the data of each process: of different sizes, the second without class 0."""
    features, labels = cloud()
    second = (labels > 0) & (torch.arange(90) % 3 == 0)
    return [(features[~second], labels[~second]), (features[second], labels[second])]


def main(rank: int, meeting: str) -> dict[str, Any]:
    """Compute together, then each process alone."""
    from nclab.monitor.torchmetrics import NeuralCollapse

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    metric = NeuralCollapse(CLASSES, DIM).to(torch.float32)
    features, labels = parts()[rank]
    for rows, classes in zip(features.split(9), labels.split(9), strict=True):
        metric.update(rows, classes)
    together = {name: float(value) for name, value in metric.compute().items()}
    dist.destroy_process_group()
    alone = NeuralCollapse(CLASSES, DIM)
    alone.merge_state(metric)  # local sums stay local
    return {
        "together": together,
        "alone": {name: float(value) for name, value in alone.compute().items()},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))  # noqa: T201

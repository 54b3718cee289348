"""One of two processes that train and measure together; prints the results as JSON."""

import json
import sys
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import nclab
from tests.monitor.loops import batches, network

Batches = list[tuple[Tensor, Tensor]]


def parts() -> list[Batches]:
    """Return the data of each process: of different sizes, the second without class 0."""
    loader = [(inputs.double(), labels) for inputs, labels in batches()]
    without_first = [(inputs[labels > 0], labels[labels > 0]) for inputs, labels in loader[4:]]
    return [loader[:4], without_first]


def resting() -> nn.Module:
    """Return a model whose features do not depend on the batches."""
    return network(norm=False).double()


def trained(model: nn.Module, monitor: nclab.Monitor | None, loader: Batches) -> list[Tensor]:
    """Train for two epochs on two processes; return the weights."""
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(2):
        for inputs, labels in loader if monitor is None else monitor.watch(loader):
            optimiser.zero_grad()
            nn.functional.cross_entropy(parallel(inputs), labels).backward()
            optimiser.step()
    return list(model.state_dict().values())


def main(rank: int, meeting: str) -> dict[str, Any]:
    """Train with and without the monitor, then measure constant weights in both ways."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    model, loader = network(dropout=0.2), batches()[rank::2]
    torch.manual_seed(rank)
    plain = trained(deepcopy(model), None, loader)
    torch.manual_seed(rank)
    wrote: list[int] = []
    with nclab.Monitor(model, sinks=lambda event: wrote.append(event.step)) as monitor:
        ours = trained(model, monitor, loader)
    same = all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))

    still, loader = resting(), parts()[rank]
    with nclab.Monitor(still, preset="full") as monitor:
        for inputs, _ in monitor.watch(loader):
            still(inputs)
        assert monitor.last is not None
        estimate = [collapse.to_dict() for collapse in monitor.last.layers]
        report = monitor.measure(loader)
        exact = [collapse.to_dict() for collapse in report.layers]
        other = [(inputs + 0.3, labels) for inputs, labels in loader]
        test = monitor.measure(other, split="test", reference=report)
        held_out = [collapse.to_dict() for collapse in test.layers]
        try:
            monitor.measure(loader if rank == 0 else [])
            refused = ""
        except nclab.DataError as error:
            refused = str(error)
    with nclab.Monitor(still) as idle:
        idle.epoch_end()
    dist.destroy_process_group()
    return {
        "same": same,
        "wrote": wrote,
        "estimate": estimate,
        "exact": exact,
        "held_out": held_out,
        "refused": refused,
        "idle": [idle.epochs, len(idle.history.rows)],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))  # noqa: T201

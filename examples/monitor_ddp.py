"""Monitor distributed training: each process reads its part, and the numbers are those of all data.

The script starts two processes on this machine; `torchrun --nproc-per-node 2` works as well.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import nclab


def main() -> None:
    """Train and monitor in one process of the group."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs = torch.randn(1200, 10)
    labels = (inputs[:, :2] > 0).long() @ torch.tensor([1, 2])
    data = TensorDataset(inputs, labels)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=50, sampler=sampler)
    network = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.BatchNorm1d(48), nn.Linear(48, 4))
    model = DistributedDataParallel(network)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=3e-3)

    def show(event: nclab.monitor.Event) -> None:  # called in the first process only
        last = event.report.last
        print(f"epoch {event.epoch:2.0f}: {last.samples} samples, min_intra {last.min_intra:.3f}")

    with nclab.Monitor(model, every=4, sinks=show) as monitor:
        for epoch in range(8):
            sampler.set_epoch(epoch)
            for x, y in monitor.watch(loader):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
        report = monitor.measure(loader)  # in every process, each with its part
    if dist.get_rank() == 0:
        print("exact, both parts together:", report.samples, "samples,", report.classifier)


def start(rank: int, meeting: str) -> None:
    """Start one of the two processes."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    main()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # under torchrun
        dist.init_process_group("gloo")
        main()
        dist.destroy_process_group()
    else:
        with tempfile.TemporaryDirectory() as folder:
            spawn(start, args=(f"{folder}/meeting",), nprocs=2)

"""What anyone would write: nn.Sequential, autograd and torch.optim.SGD; no code of nclab."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def plain_network(widths: Sequence[int], norm: str, *, bias: bool = True) -> nn.Sequential:
    """Linear, ReLU, batch norm for every hidden layer, then linear."""
    modules: list[nn.Module] = []
    for width, following in pairwise(widths[:-1]):
        modules += [nn.Linear(width, following, bias=bias), nn.ReLU()]
        if norm != "none":
            modules.append(nn.BatchNorm1d(following, affine=norm == "affine"))
    return nn.Sequential(*modules, nn.Linear(widths[-2], widths[-1], bias=bias))


def plain_training(
    network: nn.Sequential,
    inputs: Tensor,
    labels: Tensor,
    batches: Sequence[Sequence[Tensor]],
    *,
    rate: float,
    milestones: Sequence[int],
    weight_decay: float,
) -> list[float]:
    """Train on the rows of each epoch's batches; the mean loss of every epoch."""
    optimiser = torch.optim.SGD(
        network.parameters(), lr=rate, momentum=0.9, weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, list(milestones), gamma=0.1)
    means = []
    for epoch in batches:
        total = 0.0
        for rows in epoch:
            loss = nn.functional.cross_entropy(network(inputs[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        means.append(total / sum(len(rows) for rows in epoch))
        schedule.step()
    return means

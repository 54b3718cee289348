"""Losses of many classes in single precision, for logits that come in it while a model trains.

Only the sum of exponentials is single, relative to 1e-6; what is made of it, and all sums over
samples, are double.
"""

import torch
from torch import Tensor

from nclab.statistics.logits import LogitStatistics

WIDE = 256
"""Classes from which on a training's logits are not copied to double precision."""
BLOCK = 2**17
"""Logits in a block, so that it stays in the cache."""


def is_wide(logits: Tensor) -> bool:
    """Whether `add_wide` is meant for such logits."""
    return logits.shape[1] >= WIDE and logits.dtype != torch.float64


def add_wide(statistics: LogitStatistics, logits: Tensor, classes: Tensor) -> None:
    """Add finite (B, C) logits with classes in [0, C), as `LogitStatistics.update` does.

    >>> statistics = LogitStatistics(2)
    >>> add_wide(statistics, torch.tensor([[50.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> [f"{loss:.6g}" for loss in statistics.loss_sums.tolist()], statistics.correct.tolist()
    (['1.92875e-22', '1.31326'], [1, 0])
    """
    size, device = statistics.num_classes, statistics.counts.device
    statistics.residuals = None  # those of every sample, or none
    step = max(1, BLOCK // size)
    scratch = logits.new_empty(min(step, len(logits)), size, dtype=torch.float32)
    here, count = classes.to(logits.device), len(logits)
    mine, best, rest = (logits.new_empty(count, dtype=torch.float32) for _ in range(3))
    for start in range(0, count, step):
        part = slice(start, start + step)
        z = logits[part].float()
        room = scratch[: len(z)]
        torch.amax(z, 1, out=best[part])
        torch.sub(z, best[part, None], out=room).exp_()
        torch.sum(room, 1, out=rest[part])
        torch.gather(z, 1, here[part, None], out=mine[part, None])
    gaps = mine.double() - best.double()
    losses = rest.double().log_() - gaps  # the label's share is in it, and harmless below a half
    right = torch.zeros_like(here, dtype=torch.bool)
    for leading in (gaps == 0).nonzero().flatten().split(step):
        lead, own, first = _leading(logits[leading].float(), here[leading])
        gaps[leading], losses[leading], right[leading] = lead, own, first
    gaps, losses, right = gaps.to(device), losses.to(device), right.to(device)
    classes = classes.to(device)
    statistics.counts += classes.bincount(minlength=size)
    statistics.correct += classes[right].bincount(minlength=size)
    statistics.loss_sums.index_add_(0, classes, losses)
    statistics.margins.scatter_reduce_(0, classes, gaps, reduce="amin")


def _leading(z: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of rows whose label has a largest logit: by how much, the loss, whether it is the first.

    log(1 + sum_j exp(z_j - z_y)) over the others keeps the digits of a small loss.
    """
    mine = z.gather(1, own[:, None])
    first = z.argmax(1) == own
    second = z.scatter_(1, own[:, None], -torch.inf).amax(1, keepdim=True)
    rest = z.sub_(second).exp_().sum(1).double().log_()
    lead = (mine.double() - second.double())[:, 0]
    return lead, torch.logaddexp(lead.new_zeros(()), rest - lead), first

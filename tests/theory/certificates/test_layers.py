"""What weight decay forces on hidden layers, on random and trained networks."""

from typing import Any

import numpy as np
import pytest
import torch

from nclab.errors import DataError
from nclab.theory.certificates.layers import (
    balancedness,
    hidden_spread_bound,
    rank_tail,
    rank_tail_bound,
)


def within_trace(rows: torch.Tensor, labels: torch.Tensor) -> float:
    """Mean squared distance of rows to their class mean, class by class."""
    total = 0.0
    for c in labels.unique():
        own = rows[labels == c]
        total += float((own - own.mean(0)).square().sum())
    return total / len(rows)


def network(seed: int, *, steps: int = 0, decay: float = 0.02, width: int = 9) -> Any:
    """A net whose last two layers are linear, some steps into its training."""
    torch.manual_seed(seed)
    data = torch.randn(60, 5, dtype=torch.float64)
    labels = torch.arange(60) % 3
    layers = (torch.nn.Linear(5, 12), torch.nn.Tanh(), torch.nn.Linear(12, width, bias=False))
    net = torch.nn.Sequential(*layers, torch.nn.Linear(width, 3, bias=False)).double()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2, weight_decay=decay)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(data), labels).backward()
        optimiser.step()
    return net, data, labels


@pytest.mark.parametrize("steps", [0, 30, 300])
@pytest.mark.parametrize("seed", range(4))
def test_the_tail_of_the_rank_stays_below_its_bound(seed: int, steps: int) -> None:
    decay = 0.02
    net, data, labels = network(seed, steps=steps, decay=decay)
    inputs = net[:2](data).detach()
    hidden = net[2](inputs)
    hidden.retain_grad()
    loss = torch.nn.functional.cross_entropy(net[3](hidden), labels)
    net.zero_grad()
    loss.backward()
    layer = net[2]
    # The gradient of the mean holds 1/N of each sample's own.
    own = hidden.grad * len(data)
    bound = rank_tail_bound(
        layer.weight.grad.numpy(),
        layer.weight.detach().numpy(),
        decay,
        backprop_rms=float(own.square().sum(1).mean().sqrt()),
        within_trace=within_trace(inputs, labels),
    )
    assert rank_tail(layer.weight.detach().numpy(), 3) <= bound


def test_the_rank_bound_bites_once_the_features_have_collapsed() -> None:
    """Inputs that are their class means: at an optimum of the decay nothing but rank C is left."""
    torch.manual_seed(0)
    means, labels = torch.randn(3, 8, dtype=torch.float64), torch.arange(30) % 3
    inputs, decay = means[labels], 0.05
    weight = torch.randn(7, 8, dtype=torch.float64, requires_grad=True)
    head = torch.randn(3, 7, dtype=torch.float64)
    optimiser = torch.optim.SGD([weight], lr=0.3, weight_decay=decay)
    for _ in range(1500):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(inputs @ weight.T @ head.T, labels).backward()
        optimiser.step()
    hidden: Any = (inputs @ weight.T).detach().requires_grad_()
    torch.nn.functional.cross_entropy(hidden @ head.T, labels).backward()
    gradient = hidden.grad.T @ inputs
    rms = float((hidden.grad * 30).square().sum(1).mean().sqrt())
    bound = rank_tail_bound(
        gradient.numpy(), weight.detach().numpy(), decay, backprop_rms=rms, within_trace=0.0
    )
    assert rank_tail(weight.detach().numpy(), 3) <= bound < 1e-8
    assert rank_tail(weight.detach().numpy(), 0) > 0.1


@pytest.mark.parametrize("width", [2, 3, 9])
@pytest.mark.parametrize("steps", [0, 300])
def test_the_hidden_spread_stays_below_its_bound(width: int, steps: int) -> None:
    for seed in range(5):
        net, data, labels = network(seed, steps=steps, width=width)
        with torch.no_grad():
            inputs = net[:2](data)
            hidden = net[2](inputs)
            logits = net[3](hidden)
        bound = hidden_spread_bound(
            net[2].weight.detach().numpy(),
            net[3].weight.detach().numpy(),
            input_trace=within_trace(inputs, labels),
            logit_trace=within_trace(logits, labels),
        )
        assert within_trace(hidden, labels) <= bound * (1 + 1e-12)


def test_the_hidden_bound_is_the_spread_of_balanced_layers() -> None:
    """B = 0 and W_2 with orthonormal rows: the logits show all of the spread."""
    generator = np.random.default_rng(0)
    turn = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    first, second = turn[:, :3] @ np.eye(3), turn[:, :3].T
    assert np.abs(balancedness(first, second)).max() < 1e-14
    rows, labels = torch.from_numpy(generator.normal(size=(40, 3))), torch.arange(40) % 3
    hidden = rows @ torch.from_numpy(first).T
    logits = hidden @ torch.from_numpy(second).T
    bound = hidden_spread_bound(
        first,
        second,
        input_trace=within_trace(rows, labels),
        logit_trace=within_trace(logits, labels),
    )
    assert bound == pytest.approx(within_trace(hidden, labels), rel=1e-12)


def test_bad_input_is_one_line() -> None:
    with pytest.raises(DataError, match=r"consecutive layers.*got \(2, 3\) and \(4, 5\)"):
        balancedness(np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises(DataError, match="weight decay above 0, got 0"):
        rank_tail_bound(np.ones((1, 1)), np.ones((1, 1)), 0, backprop_rms=1, within_trace=1)
    with pytest.raises(DataError, match="shape of the weight"):
        rank_tail_bound(np.ones((1, 2)), np.ones((1, 1)), 1, backprop_rms=1, within_trace=1)

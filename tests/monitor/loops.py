"""Small networks, data and a plain training loop for the tests of the monitor."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nclab

CLASSES = 3


def batches(*, samples: int = 60, size: int = 10, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return batches of three Gaussian clouds."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(samples, generator=generator) % CLASSES
    centres = 2 * torch.randn(CLASSES, 4, generator=generator)
    inputs = centres[labels] + torch.randn(samples, 4, generator=generator)
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def network(*, norm: bool = True, dropout: float = 0.0, seed: int = 0) -> nn.Sequential:
    """Return a network of two hidden layers and a classifier."""
    torch.manual_seed(seed)
    hidden: list[nn.Module] = []
    for width in (4, 8):
        hidden += [nn.Linear(width, 8), nn.ReLU(inplace=True)]
        hidden += [nn.BatchNorm1d(8)] if norm else []
        hidden += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*hidden, nn.Linear(8, CLASSES))


def train(
    model: nn.Module,
    monitor: nclab.Monitor | None,
    *,
    epochs: int = 2,
    forward: Callable[[nn.Module, Tensor], Tensor] | None = None,
    accumulate: int = 1,
    bfloat16: bool = False,
) -> dict[str, Tensor]:
    """Train by SGD from a fixed random state, with or without a monitor; return the weights."""
    torch.manual_seed(1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = batches()
    for _ in range(epochs):
        watched: Iterable[Any] = loader if monitor is None else monitor.watch(loader)
        for number, (inputs, labels) in enumerate(watched, start=1):
            with torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext():
                logits = model(inputs) if forward is None else forward(model, inputs)
                loss = nn.functional.cross_entropy(logits, labels) / accumulate
            loss.backward()
            if number % accumulate == 0:
                optimiser.step()
                optimiser.zero_grad()
    torch.rand(1)
    return {**model.state_dict(), "random": torch.get_rng_state()}


def assert_same(ours: dict[str, Tensor], plain: dict[str, Tensor]) -> None:
    """Assert that all tensors are equal bit for bit."""
    assert ours.keys() == plain.keys()
    for name in plain:
        assert torch.equal(ours[name], plain[name]), name


def assert_alike(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Assert that two histories agree up to the rounding of logits in single precision."""
    assert len(ours) == len(theirs)
    for row, other in zip(ours, theirs, strict=True):
        numbers = {name for name, value in other.items() if isinstance(value, float)}
        assert {name: row[name] for name in numbers} == pytest.approx(
            {name: other[name] for name in numbers}, rel=1e-7, abs=1e-12
        )
        assert {name: row[name] for name in row if name not in numbers} == {
            name: other[name] for name in other if name not in numbers
        }

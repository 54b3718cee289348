"""Training of one network: the steps of torch's SGD, resumed to the same bits."""

import pytest
import torch
from torch import Tensor, nn

from nclab.errors import NclabError
from nclab.records import Checkpoint
from nclab.training.models.vgg import VGGShape, vgg13
from nclab_papers.ji2022.vgg_training import Config, Trainer


def images() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20) % 4
    return torch.randn(20, 1, 32, 32, generator=generator) + labels.view(-1, 1, 1, 1), labels


def trainer(config: Config, *, seed: int = 0) -> Trainer:
    network = vgg13(VGGShape(width=0.05, classes=4), seed=seed)
    return Trainer(network, config, *images(), seed=seed)


def same(left: Trainer, right: Trainer) -> bool:
    first, second = left.tensors(), right.tensors()
    if first.keys() != second.keys():
        return False
    return all(torch.equal(first[name], second[name]) for name in first)


def checkpoint(trainer: Trainer) -> Checkpoint:
    return Checkpoint(trainer.steps, trainer.tensors(), {"epoch": trainer.epoch})


def test_resumed_training_gives_the_same_bits() -> None:
    config = Config(batch=8)
    complete, first, second = trainer(config), trainer(config), trainer(config, seed=7)
    for _ in range(2):
        complete.train_epoch()
        first.train_epoch()
    second.load(checkpoint(first))
    assert second.epoch == 2
    assert second.steps == 6
    for _ in range(3):
        assert complete.train_epoch() == second.train_epoch()
    assert same(complete, second)
    first.train_epoch()
    assert not same(complete, first)


def test_a_state_before_the_first_step_can_be_loaded() -> None:
    initial, other = trainer(Config(batch=8)), trainer(Config(batch=8), seed=3)
    other.load(checkpoint(initial))
    assert initial.train_epoch() == other.train_epoch()
    assert same(initial, other)


def test_steps_equal_those_of_torch() -> None:
    config = Config(batch=8, rate=0.02, momentum=0.8)
    inputs, labels = torch.randn(20, 6), torch.arange(20) % 3
    network = nn.Linear(6, 3)
    expected = nn.Linear(6, 3)
    expected.load_state_dict(network.state_dict())
    Trainer(network, config, inputs, labels, seed=4).train_epoch()
    optimiser = torch.optim.SGD(expected.parameters(), lr=0.02, momentum=0.8)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(4))
    for rows in order.split(8):
        optimiser.zero_grad()
        nn.functional.cross_entropy(expected(inputs[rows]), labels[rows]).backward()
        optimiser.step()
    assert torch.equal(network.weight, expected.weight)


def test_no_weight_decay() -> None:
    """A weight without any input never changes."""
    network = nn.Linear(6, 3)
    before = network.weight[:, 5].clone()
    inputs = torch.randn(20, 6)
    inputs[:, 5] = 0
    training = Trainer(network, Config(batch=5, rate=0.5), inputs, torch.arange(20) % 3, seed=0)
    for _ in range(3):
        training.train_epoch()
    assert torch.equal(network.weight[:, 5], before)


def test_an_infinite_loss_raises() -> None:
    inputs = torch.full((4, 2), float("nan"))
    training = Trainer(nn.Linear(2, 2), Config(), inputs, torch.arange(4) % 2, seed=0)
    with pytest.raises(NclabError, match="smaller learning rate"):
        training.train_epoch()

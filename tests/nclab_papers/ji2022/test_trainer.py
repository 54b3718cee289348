"""Training of one network: the steps of torch's SGD, resumed to the same bits."""

import pytest
import torch
from torch import Tensor, nn

from nclab.errors import NclabError
from nclab.training.models.vgg import VGGShape, vgg13
from nclab_papers.ji2022.vgg_training import Config, Trainer

ACCELERATED = Config(batch=8, rate=0.05, clip=1.0, power=0.5, most=4.0)


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


@pytest.mark.parametrize("config", [Config(batch=8), ACCELERATED], ids=["plain", "accelerated"])
def test_resumed_training_gives_the_same_bits(config: Config) -> None:
    complete, first, second = trainer(config), trainer(config), trainer(config, seed=7)
    for _ in range(2):
        complete.train_epoch()
        first.train_epoch()
    second.load(first.tensors(), first.extra())
    assert second.epoch == 2
    assert second.steps == 6
    for _ in range(3):
        assert complete.train_epoch() == second.train_epoch()
    assert same(complete, second)
    first.train_epoch()
    assert not same(complete, first)


def test_a_state_before_the_first_step_can_be_loaded() -> None:
    initial, other = trainer(Config(batch=8)), trainer(Config(batch=8), seed=3)
    other.load(initial.tensors(), initial.extra())
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


def test_clipping_bounds_the_step() -> None:
    moved = []
    for clip in (None, 1e-3):
        network = nn.Linear(6, 3)
        before = torch.cat([p.detach().flatten() for p in network.parameters()])
        config = Config(batch=20, rate=1.0, clip=clip)
        Trainer(
            network, config, 10 * torch.randn(20, 6), torch.arange(20) % 3, seed=0
        ).train_epoch()
        after = torch.cat([p.detach().flatten() for p in network.parameters()])
        moved.append(float((after - before).norm()))
    assert moved[0] > 0.1
    assert moved[1] == pytest.approx(1e-3, rel=1e-2)


def test_the_learning_rate_follows_the_loss() -> None:
    training = trainer(ACCELERATED)
    rates = []
    for loss in (float("inf"), 0.25, 1e-6):
        training.loss = loss
        rates.append(training.train_epoch()["rate"])
    assert rates == pytest.approx([0.05, 0.1, 0.2])


def test_mixed_precision_trains_float32_weights() -> None:
    training = trainer(Config(batch=8, precision="bfloat16"))
    stats = [training.train_epoch() for _ in range(5)]
    assert stats[-1]["loss"] < stats[0]["loss"]
    assert all(p.dtype == torch.float32 for p in training.model.parameters())


def test_an_infinite_loss_raises() -> None:
    inputs = torch.full((4, 2), float("nan"))
    training = Trainer(nn.Linear(2, 2), Config(), inputs, torch.arange(4) % 2, seed=0)
    with pytest.raises(NclabError, match="smaller learning rate"):
        training.train_epoch()

"""Members that autograd trains: the same steps as the fleet's own code, resumed bit for bit."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nclab import plugins
from nclab.errors import NclabError
from nclab.training.fleet import Fleet, Member, ModuleFleet, Recipe, fleet_for
from nclab.training.fleet.backend import choose_backend
from nclab.training.models.mlp import Shape

SHAPE = Shape(inputs=5, classes=3, layers=3, width=8)
MEMBERS = [Member("affine", 1e-2, seed=1), Member("none", 1e-3, seed=2)]


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(48, 5, generator=generator), torch.arange(48) % 3


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(epochs=4, batch=16, rate=0.05, nesterov=True),
        Recipe(epochs=4, batch=16, rate=0.05, optimizer="sgdw", loss="focal"),
        Recipe(epochs=4, batch=16, rate=1e-2, optimizer="adam", loss="mse"),
        Recipe(epochs=4, batch=16, rate=1e-2, optimizer="adamw", loss="label_smoothing"),
    ],
    ids=lambda recipe: f"{recipe.optimizer}-{recipe.loss}",
)
def test_autograd_takes_the_steps_of_the_fleet(recipe: Recipe) -> None:
    ours = Fleet(SHAPE, MEMBERS, recipe, *data(), backend="torch")
    theirs = ModuleFleet(SHAPE, MEMBERS, recipe, *data())
    for _ in range(recipe.epochs):
        for own, other in zip(ours.train_epoch(), theirs.train_epoch(), strict=True):
            assert other.loss == pytest.approx(own.loss, rel=1e-4)
            assert other.accuracy == own.accuracy
    for index in range(2):
        again = theirs.model(index).state_dict()
        for name, value in ours.model(index).state_dict().items():
            if "num_batches" not in name:
                assert torch.allclose(value, again[name], atol=1e-4), name


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network, a loss and an optimiser of somebody else's."""

    def wide(inputs: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, classes))

    def shifted(logits: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, labels) + 0.5

    def rmsprop(parameters: Any, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=lr, weight_decay=weight_decay, momentum=0.5)

    def constant(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.ones(())

    there: dict[str, dict[str, Any]] = {
        "models": {"wide": wide},
        "losses": {"shifted": shifted, "constant": constant},
        "optimizers": {"rmsprop": rmsprop},
    }
    monkeypatch.setattr(plugins, "plugins", lambda kind: there.get(kind, {}))
    monkeypatch.setattr(plugins, "names", lambda kind: tuple(there.get(kind, {})))


def made(**options: Any) -> Any:
    return Recipe(**{"epochs": 4, "batch": 16, "rate": 1e-2, **options})


@pytest.mark.usefixtures("plugged")
def test_a_plugin_goes_on_bit_for_bit() -> None:
    shape = Shape(inputs=5, classes=3, model="wide")  # type: ignore[arg-type]
    recipe = made(optimizer="rmsprop", loss="shifted")
    whole = fleet_for(shape, MEMBERS, recipe, *data())
    assert isinstance(whole, ModuleFleet)
    losses = [[stats.loss for stats in whole.train_epoch()] for _ in range(4)]
    assert losses[-1] < losses[0]
    assert min(losses[-1]) > 0.5  # what the loss adds
    first = fleet_for(shape, MEMBERS, recipe, *data())
    for _ in range(2):
        first.train_epoch()
    again = fleet_for(shape, MEMBERS, recipe, *data())
    for index in range(2):
        again.load(index, first.tensors(index), 2)
    rest = [[stats.loss for stats in again.train_epoch()] for _ in range(2)]
    assert rest == losses[2:]
    for index in range(2):
        own, other = whole.tensors(index), again.tensors(index)
        assert own.keys() == other.keys()
        assert all(torch.equal(own[name], other[name]) for name in own)


@pytest.mark.usefixtures("plugged")
def test_a_loss_of_a_plugin_is_trained_by_plain_torch() -> None:
    recipe = made(loss="shifted", rate=0.05)
    cpu = torch.device("cpu")
    assert choose_backend("auto", cpu, recipe) == "torch"
    with pytest.raises(NclabError, match="loss of ours for the kernel, got the plugin's 'shifted'"):
        Fleet(SHAPE, MEMBERS, recipe, *data(), backend="kernel")
    usual = dataclasses.replace(recipe, loss="cross_entropy")
    fleets = [Fleet(SHAPE, MEMBERS, one, *data(), backend="torch") for one in (recipe, usual)]
    for _ in range(3):
        for own, other in zip(*(fleet.train_epoch() for fleet in fleets), strict=True):
            assert own.loss == pytest.approx(other.loss + 0.5, rel=1e-5)


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ({}, {"loss": "constant"}, "depends on the logits"),
        ({"model": "wide"}, {"optimizer": "signum"}, "sgd, sgdw, adam, adamw or a plugin's"),
        ({"model": "wide"}, {"head_bias_decay": 0.1}, "head_bias_decay with our own networks"),
        ({"model": "tall"}, {}, "model among 'mlp', 'wide'; got 'tall'"),
        ({}, {"optimizer": "lion"}, "optimizer among .*'rmsprop'; got 'lion'"),
    ],
)
def test_what_a_plugin_cannot_do_is_one_line(shape: Any, options: Any, words: str) -> None:
    def train() -> None:
        network = Shape(inputs=5, classes=3, **shape)
        fleet_for(network, MEMBERS, made(**options), *data()).train_epoch()

    with pytest.raises(NclabError, match=words):
        train()


@pytest.mark.usefixtures("plugged")
def test_a_member_that_diverges_keeps_its_last_state() -> None:
    shape = Shape(inputs=5, classes=3, model="wide")  # type: ignore[arg-type]
    fleet = fleet_for(shape, MEMBERS, made(loss="mse", optimizer="sgd", rate=1e30), *data())
    before = fleet.tensors(0)
    stats = fleet.train_epoch()
    assert not stats[0].alive
    assert "the state after epoch 0 is kept" in stats[0].why
    after = fleet.tensors(0)
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("model."))

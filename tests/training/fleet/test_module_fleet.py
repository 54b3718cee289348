"""Networks of plugins, trained by autograd: the same steps as a fleet, resumed bit for bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nclab import plugins
from nclab.errors import NclabError
from nclab.training.fleet import Fleet, Member, ModuleFleet, Recipe, make_fleet
from nclab.training.models import Shape

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
def test_autograd_takes_the_steps_of_a_fleet(recipe: Recipe) -> None:
    fleet = Fleet(SHAPE, MEMBERS, recipe, *data(), backend="torch")
    module_fleet = ModuleFleet(SHAPE, MEMBERS, recipe, *data())
    for _ in range(recipe.epochs):
        pairs = zip(fleet.train_epoch(), module_fleet.train_epoch(), strict=True)
        for stats, module_stats in pairs:
            assert module_stats.loss == pytest.approx(stats.loss, rel=1e-4)
            assert module_stats.accuracy == stats.accuracy
    for index in range(2):
        weights = module_fleet.model(index).state_dict()
        for name, value in fleet.model(index).state_dict().items():
            if "num_batches" not in name:
                assert torch.allclose(value, weights[name], atol=1e-4), name


@pytest.fixture
def wide_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with a network called wide."""

    def wide(inputs: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, classes))

    installed: dict[str, dict[str, Any]] = {"models": {"wide": wide}}
    monkeypatch.setattr(plugins, "plugins", lambda kind: installed.get(kind, {}))
    monkeypatch.setattr(plugins, "names", lambda kind: tuple(installed.get(kind, {})))


def recipe_with(**options: Any) -> Recipe:
    return Recipe(**{"epochs": 4, "batch": 16, "rate": 1e-2, **options})


@pytest.mark.usefixtures("wide_network")
@pytest.mark.parametrize(
    "options",
    [{"optimizer": "adam", "loss": "focal"}, {"optimizer": "sgd"}, {"momentum": 0.0}],
    ids=str,
)
def test_a_plugin_network_resumes_bit_for_bit(options: dict[str, Any]) -> None:
    shape = Shape(inputs=5, classes=3, model="wide")  # type: ignore[arg-type]
    recipe = recipe_with(**options)
    undisturbed = make_fleet(shape, MEMBERS, recipe, *data())
    assert isinstance(undisturbed, ModuleFleet)
    losses = [[stats.loss for stats in undisturbed.train_epoch()] for _ in range(4)]
    assert losses[-1] < losses[0]
    stopped = make_fleet(shape, MEMBERS, recipe, *data())
    for _ in range(2):
        stopped.train_epoch()
    resumed = make_fleet(shape, MEMBERS, recipe, *data())
    for index in range(2):
        resumed.load(index, stopped.tensors(index), 2)
    assert [[stats.loss for stats in resumed.train_epoch()] for _ in range(2)] == losses[2:]
    for index in range(2):
        expected, tensors = undisturbed.tensors(index), resumed.tensors(index)
        assert expected.keys() == tensors.keys()
        assert all(torch.equal(expected[name], tensors[name]) for name in expected)


@pytest.mark.usefixtures("wide_network")
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ({"model": "wide"}, {"optimizer": "signum"}, "sgd, sgdw, adam or adamw .*got 'signum'"),
        ({"model": "wide"}, {"head_bias_decay": 0.1}, "only with the networks of nclab, got 0.1"),
        ({"model": "tall"}, {}, "model as one of 'mlp', 'wide'; got 'tall'"),
    ],
)
def test_options_without_plugin_support_are_rejected(
    shape: Any, options: Any, message: str
) -> None:
    def train() -> None:
        network = Shape(inputs=5, classes=3, **shape)
        make_fleet(network, MEMBERS, recipe_with(**options), *data()).train_epoch()

    with pytest.raises(NclabError, match=message):
        train()


@pytest.mark.usefixtures("wide_network")
def test_a_diverged_member_keeps_its_last_state() -> None:
    shape = Shape(inputs=5, classes=3, model="wide")  # type: ignore[arg-type]
    fleet = make_fleet(shape, MEMBERS, recipe_with(loss="mse", rate=1e30), *data())
    before = fleet.tensors(0)
    stats = fleet.train_epoch()
    assert not stats[0].alive
    assert "the state after epoch 0 is kept" in stats[0].why
    after = fleet.tensors(0)
    assert all(torch.equal(before[n], after[n]) for n in before if n.startswith("model."))

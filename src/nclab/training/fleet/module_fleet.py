"""A fleet of any modules, by autograd: for networks and optimisers that plugins bring.

Slower than the fleet's own code, which knows its one kind of network by heart; the numbers of a
member are those of an ordinary training loop.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nclab import plugins
from nclab.errors import ModelError, NclabError
from nclab.training.fleet.course import Course, EpochStats
from nclab.training.fleet.fleet import Fleet, Statistics
from nclab.training.fleet.fleet_checks import check_batches, check_data
from nclab.training.fleet.losses import mean_loss
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.models.mlp import MLP, Shape

MODEL, OPTIMIZER, GENERATOR = "model.", "optimizer.", "generator"
"""Beginnings of the names under which a checkpoint keeps its tensors."""
NUMBER = "#number"
"""Behind the name of what is a number in an optimiser's state."""


class ModuleFleet:
    """Members that are modules, each with an optimiser of its own; used as a `Fleet` is."""

    def __init__(
        self,
        shape: Shape,
        members: Sequence[Member],
        recipe: Recipe,
        inputs: Any,
        labels: Any,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape, self.members, self.recipe = shape, tuple(members), recipe
        where = torch.device(device)
        self.inputs, self.labels = check_data(inputs, labels, shape, where, torch.float32)
        check_batches(len(self.inputs), recipe, self.members)
        if recipe.head_bias_decay is not None:
            raise NclabError(
                "Expected head_bias_decay with our own networks and optimisers only, got "
                f"{recipe.head_bias_decay:g} beside a plugin's."
            )
        self._modules: list[nn.Module] = []
        self._generators: list[torch.Generator] = []
        for member in self.members:
            module, generator = _seeded(shape, member)
            self._modules.append(module.to(where))
            self._generators.append(generator)
        pairs = zip(self._modules, self.members, strict=True)
        self._optimizers = [_optimizer(recipe, module, member) for module, member in pairs]
        self._course = Course(self.members, recipe)

    @property
    def epoch(self) -> int:
        """Epochs done; the members must be at the same one."""
        return self._course.epoch

    def train_epoch(self) -> list[EpochStats]:
        """One epoch of every member."""
        return self._course.train_epoch(self._train)

    def _train(self, index: int, _: int, rate: float) -> EpochStats:
        before = self.tensors(index)
        module, optimizer = self._modules[index].train(), self._optimizers[index]
        for group in optimizer.param_groups:
            group["lr"] = rate
        order = torch.randperm(len(self.inputs), generator=self._generators[index])
        order = order[: self.recipe.steps(len(order)) * self.recipe.batch].to(self.inputs.device)
        total, hits = 0.0, 0
        for rows in order.split(self.recipe.batch):
            loss, hit = self._step(index, self.inputs[rows], self.labels[rows], rate)
            total, hits = total + loss * len(rows), hits + hit
        finite = math.isfinite(total) and all(bool(p.isfinite().all()) for p in module.parameters())
        if not finite:
            self._restore(index, before)
            return self._course.dies(index, "loss or weights became infinite", rate)
        return EpochStats(total / len(order), hits / len(order), True, "")

    def _step(self, index: int, inputs: Tensor, labels: Tensor, rate: float) -> tuple[float, int]:
        module, optimizer = self._modules[index], self._optimizers[index]
        optimizer.zero_grad()
        logits = module(inputs)
        if not isinstance(logits, Tensor) or logits.shape != (len(labels), self.shape.classes):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"Expected logits of shape ({len(labels)}, {self.shape.classes}) of the network "
                f"{self.shape.model!r}, got {got}."
            )
        loss, G = mean_loss(logits.detach().T.clone(), labels, self.recipe)
        logits.backward(G.T)
        if not self.recipe.plugged_optimizer and self.recipe.optimizer == "sgdw":
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.mul_(1 - rate * self.members[index].weight_decay)
        optimizer.step()
        return float(loss), int((logits.argmax(1) == labels).sum())

    def model(self, index: int, *, statistics: Statistics = "running") -> nn.Module:
        """A copy of one member in evaluation mode."""
        module = copy.deepcopy(self._modules[index]).eval()
        if statistics == "running":
            return module
        if not isinstance(module, MLP):
            raise NclabError(
                f"Expected statistics 'running' for the network {self.shape.model!r} of a plugin, "
                f"got {statistics!r}."
            )
        return module.with_full_statistics(self.inputs)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Copies of what one member needs to go on bit for bit, for `load`."""
        found = {MODEL + name: one for name, one in self._modules[index].state_dict().items()}
        for place, own in self._optimizers[index].state_dict()["state"].items():
            for name, value in own.items():
                key = f"{OPTIMIZER}{place}.{name}"
                if isinstance(value, Tensor):
                    found[key] = value
                elif isinstance(value, (bool, int, float)):
                    found[key + NUMBER] = torch.tensor(float(value), dtype=torch.float64)
                elif value is not None:
                    raise NclabError(
                        f"Expected tensors and numbers in the state of the optimiser "
                        f"{self.recipe.optimizer!r}, got a {type(value).__name__} as {name}."
                    )
        found[GENERATOR] = self._generators[index].get_state()
        return {name: one.detach().cpu().clone().contiguous() for name, one in found.items()}

    def load(self, index: int, tensors: Mapping[str, Tensor], epoch: int, why: str = "") -> None:
        """Put one member back to where `tensors` found it, at the end of that epoch."""
        self._restore(index, tensors)
        self._course.put(index, epoch, why)

    def _restore(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        optimizer = self._optimizers[index]
        own = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
        state: dict[int, dict[str, Any]] = {}
        for key, value in tensors.items():
            if key.startswith(OPTIMIZER):
                place, _, name = key.removeprefix(OPTIMIZER).partition(".")
                number = name.endswith(NUMBER)
                told = float(value) if number else value.clone()
                state.setdefault(int(place), {})[name.removesuffix(NUMBER)] = told
        try:
            self._modules[index].load_state_dict(own)
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
            self._generators[index].set_state(tensors[GENERATOR])
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"Expected a checkpoint of this network and optimiser, got another ({reason})."
            ) from error


def fleet_for(
    shape: Shape,
    members: Sequence[Member],
    recipe: Recipe,
    inputs: Any,
    labels: Any,
    *,
    device: torch.device | str = "cpu",
) -> Fleet | ModuleFleet:
    """The fleet that can train this: our own code, or autograd where a plugin is asked for."""
    kind = ModuleFleet if needs_autograd(shape, recipe) else Fleet
    return kind(shape, members, recipe, inputs, labels, device=device)


def needs_autograd(shape: Shape, recipe: Recipe) -> bool:
    """Whether the network or the optimiser is a plugin's.

    >>> needs_autograd(Shape(), Recipe())
    False
    """
    return shape.plugged or recipe.plugged_optimizer


def _seeded(shape: Shape, member: Member) -> tuple[nn.Module, torch.Generator]:
    """The module as a script builds it after `torch.manual_seed(seed)`, and the batch order."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(member.seed)
        if shape.plugged:
            module = plugins.plugin("models", shape.model)(shape.inputs, shape.classes)
            if not isinstance(module, nn.Module):
                raise ModelError(
                    f"Expected the plugin {shape.model!r} to return a torch.nn.Module, got a "
                    f"{type(module).__name__}."
                )
        else:
            module = MLP(shape, member.norm)
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
    return module, generator


def _optimizer(recipe: Recipe, module: nn.Module, member: Member) -> torch.optim.Optimizer:
    decay, ours = member.weight_decay, list(module.parameters())
    if recipe.plugged_optimizer:
        make = plugins.plugin("optimizers", recipe.optimizer)
        made = make(ours, lr=recipe.rate, weight_decay=decay)
        if not isinstance(made, torch.optim.Optimizer):
            raise NclabError(
                f"Expected the plugin {recipe.optimizer!r} to return a torch.optim.Optimizer, got "
                f"a {type(made).__name__}."
            )
        return made
    if recipe.rule == "sgd":
        own = 0.0 if recipe.decoupled else decay
        return torch.optim.SGD(
            ours, recipe.rate, recipe.momentum, weight_decay=own, nesterov=recipe.nesterov
        )
    if recipe.rule == "adam":
        kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
        betas = (recipe.beta1, recipe.beta2)
        return kind(ours, recipe.rate, betas, recipe.epsilon, weight_decay=decay)
    raise NclabError(
        "Expected the optimiser sgd, sgdw, adam, adamw or a plugin's for a plugin's network, got "
        f"{recipe.optimizer!r}."
    )

"""A fleet of arbitrary modules, trained by autograd, for networks of plugins.

It is slower than `Fleet`, whose code is written for one kind of network. The numbers of a member
are those of an ordinary training loop.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nclab import plugins
from nclab.errors import ModelError, NclabError
from nclab.training.fleet.base import BaseFleet, EpochStats, Statistics
from nclab.training.fleet.fleet import Fleet
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.fleet.torch_backend import mean_loss
from nclab.training.models.mlp import MLP, Shape

MODEL, OPTIMIZER, GENERATOR = "model.", "optimizer.", "generator"
"""Prefixes of the names of tensors in a checkpoint."""


class ModuleFleet(BaseFleet):
    """Members that are modules, each with its own optimiser of `torch.optim`."""

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
        super().__init__(shape, members, recipe, inputs, labels, device=device, dtype=torch.float32)
        if recipe.head_bias_decay is not None:
            raise NclabError(
                "Expected head_bias_decay only with the networks of nclab, got "
                f"{recipe.head_bias_decay:g} with the plugin network {shape.model!r}."
            )
        self._modules: list[nn.Module] = []
        self._generators: list[torch.Generator] = []
        for member in self.members:
            module, generator = _seeded(shape, member)
            self._modules.append(module.to(device))
            self._generators.append(generator)
        pairs = zip(self._modules, self.members, strict=True)
        self._optimizers = [_optimizer(recipe, module, member) for module, member in pairs]

    def _train(self, index: int, epoch: int, rate: float) -> EpochStats:
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
            return self._fail(index, "loss or weights became infinite", rate)
        return EpochStats(total / len(order), hits / len(order), True, "")

    def _step(self, index: int, inputs: Tensor, labels: Tensor, rate: float) -> tuple[float, int]:
        module, optimizer = self._modules[index], self._optimizers[index]
        optimizer.zero_grad()
        logits = module(inputs)
        if not isinstance(logits, Tensor) or logits.shape != (len(labels), self.shape.classes):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"Expected the network {self.shape.model!r} to return logits of shape "
                f"({len(labels)}, {self.shape.classes}), got {got}."
            )
        loss, gradient = mean_loss(logits.detach().T.clone(), labels, self.recipe)
        logits.backward(gradient.T)
        if self.recipe.optimizer == "sgdw":
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.mul_(1 - rate * self.members[index].weight_decay)
        optimizer.step()
        return float(loss), int((logits.argmax(1) == labels).sum())

    def model(self, index: int, *, statistics: Statistics = "running") -> nn.Module:
        """Return a copy of one member in evaluation mode."""
        module = copy.deepcopy(self._modules[index]).eval()
        if statistics == "running":
            return module
        if not isinstance(module, MLP):
            raise NclabError(
                f"Expected statistics 'running' for the plugin network {self.shape.model!r}, "
                f"got {statistics!r}."
            )
        return module.with_full_statistics(self.inputs)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Return copies of all that one member needs to continue bit for bit, for `load`."""
        weights = self._modules[index].state_dict()
        tensors = {MODEL + name: value for name, value in weights.items()}
        for number, state in self._optimizers[index].state_dict()["state"].items():
            for name, value in state.items():
                if value is not None:  # the momentum buffer of SGD without momentum
                    tensors[f"{OPTIMIZER}{number}.{name}"] = value
        tensors[GENERATOR] = self._generators[index].get_state()
        return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}

    def _restore(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        optimizer = self._optimizers[index]
        weights = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith(OPTIMIZER):
                number, _, name = key.removeprefix(OPTIMIZER).partition(".")
                state.setdefault(int(number), {})[name] = value.clone()
        try:
            self._modules[index].load_state_dict(weights)
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
            self._generators[index].set_state(tensors[GENERATOR])
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"Expected a checkpoint of this network and optimiser, got another ({reason})."
            ) from error


def make_fleet(
    shape: Shape,
    members: Sequence[Member],
    recipe: Recipe,
    inputs: Any,
    labels: Any,
    *,
    device: torch.device | str = "cpu",
) -> Fleet | ModuleFleet:
    """Return a `Fleet` for the networks of nclab, a `ModuleFleet` for those of plugins."""
    kind = ModuleFleet if shape.from_plugin else Fleet
    return kind(shape, members, recipe, inputs, labels, device=device)


def _seeded(shape: Shape, member: Member) -> tuple[nn.Module, torch.Generator]:
    """Return the module built after `torch.manual_seed(seed)`, and the generator of its batches."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(member.seed)
        if shape.from_plugin:
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
    decay, parameters = member.weight_decay, list(module.parameters())
    if recipe.rule == "sgd":
        coupled = 0.0 if recipe.decoupled else decay
        return torch.optim.SGD(
            parameters, recipe.rate, recipe.momentum, weight_decay=coupled, nesterov=recipe.nesterov
        )
    if recipe.rule == "adam":
        kind = torch.optim.AdamW if recipe.decoupled else torch.optim.Adam
        betas = (recipe.beta1, recipe.beta2)
        return kind(parameters, recipe.rate, betas, recipe.epsilon, weight_decay=decay)
    raise NclabError(
        "Expected optimizer sgd, sgdw, adam or adamw for the network of a plugin, got "
        f"{recipe.optimizer!r}."
    )

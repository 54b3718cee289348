"""The training state of one member: flat vectors with named views."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import ModelError
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.models.mlp import MLP, Norm, Shape

ALIGNMENT = 16
"""Every parameter begins at a multiple of this number of entries, which are 64 bytes in float32, so
that the processor loads whole vectors."""


class LayerTensors(NamedTuple):
    """Views of a flat vector for the parameters of one layer; None for those it lacks."""

    weight: Tensor
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None


@dataclass(eq=False)
class State:
    """Parameters, optimiser moments, running statistics and random generator of one member.

    Flat vectors let an optimiser update all parameters with a few operations.
    """

    shape: Shape
    norm: Norm
    parameters: Tensor
    momenta: Tensor
    """Momenta, or Adam's running mean of the gradient."""
    squares: Tensor
    """Adam's running mean of the squared gradient; empty for other optimisers."""
    statistics: Tensor
    """Running means and variances, (hidden layers, 2, neurons of the widest layer)."""
    generator: torch.Generator
    """Generator of the batch order, on the CPU, so that every device trains on equal batches."""

    @classmethod
    def start(
        cls, shape: Shape, member: Member, recipe: Recipe, device: torch.device, dtype: torch.dtype
    ) -> "State":
        """Return the initial state, as a script builds it after `torch.manual_seed(seed)`."""
        norm = member.norm
        model, random_state = MLP.seeded(shape, norm, seed=member.seed)
        generator = torch.Generator()
        generator.set_state(random_state)
        zeros = partial(torch.zeros, device=device, dtype=dtype)
        size = _layout(shape, norm)[-1].end
        squares = zeros(size if recipe.rule == "adam" else 0)
        statistics = zeros(shape.layers - 1, 2, max(shape.hidden, default=0))
        state = cls(shape, norm, zeros(size), zeros(size), squares, statistics, generator)
        values = model.state_dict()
        for name, view in state.named().items():
            view.copy_(values[name])
        return state

    def named(self) -> dict[str, Tensor]:
        """Return views by the names of the model's `state_dict`, without batch counters."""
        views = named_views(self.parameters, self.shape, self.norm)
        for index in range(self.shape.first_norm(self.norm), self.shape.layers - 1):
            mean, variance = self.statistics[index, :, : self.shape.hidden[index]]
            views[f"hidden.{index}.norm.running_mean"] = mean
            views[f"hidden.{index}.norm.running_var"] = variance
        return views

    def layers(self, gradients: Tensor) -> list[tuple[LayerTensors, LayerTensors]]:
        """Return parameters and gradients of every layer, from the first to the classifier."""

        def of(vector: Tensor) -> list[LayerTensors]:
            views = named_views(vector, self.shape, self.norm)
            return [LayerTensors(*map(views.get, names)) for names in _names(self.shape)]  # type: ignore[arg-type]

        return list(zip(of(self.parameters), of(gradients), strict=True))

    def model(self) -> MLP:
        """Return a copy as a module in evaluation mode."""
        model, _ = MLP.seeded(self.shape, self.norm, seed=0)
        model.to(device=self.parameters.device, dtype=self.parameters.dtype)
        values = model.state_dict()
        for name, view in self.named().items():
            values[name].copy_(view)
        return model.eval()

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all that is needed to continue bit for bit."""
        views = {name: view.clone() for name, view in self._views().items()}
        return {**views, "generator": self.generator.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the state to what `tensors` returned."""
        views = self._views()
        for name, view in {**views, "generator": self.generator.get_state()}.items():
            value = tensors.get(name)
            if value is None or value.shape != view.shape or value.dtype != view.dtype:
                got = "none" if value is None else f"{tuple(value.shape)} {value.dtype}"
                raise ModelError(
                    f"Expected {name} as {tuple(view.shape)} {view.dtype}, got {got}. Load tensors "
                    "of a fleet of the same shape, norm, optimizer and dtype."
                )
        for name, view in views.items():
            view.copy_(tensors[name])
        self.generator.set_state(tensors["generator"].cpu())

    def copy(self) -> "State":
        """Return a state with its own memory and generator."""
        generator = torch.Generator()
        generator.set_state(self.generator.get_state())
        names = ("parameters", "momenta", "squares", "statistics")
        vectors = {name: getattr(self, name).clone() for name in names}
        return replace(self, generator=generator, **vectors)

    def _views(self) -> dict[str, Tensor]:
        views = {f"model.{name}": view for name, view in self.named().items()}
        for prefix, vector in (("momentum", self.momenta), ("square", self.squares)):
            if len(vector):
                moments = named_views(vector, self.shape, self.norm)
                views |= {f"{prefix}.{name}": view for name, view in moments.items()}
        return views


def named_views(flat: Tensor, shape: Shape, norm: Norm) -> dict[str, Tensor]:
    """Return views of a flat vector by the names of the module's parameters."""
    return {
        block.name: flat[block.start : block.start + math.prod(block.size)].view(block.size)
        for block in _layout(shape, norm)
    }


class _Block(NamedTuple):
    """Position of one parameter in the flat vector; `end` includes padding."""

    name: str
    size: tuple[int, ...]
    start: int
    end: int


@cache
def _layout(shape: Shape, norm: Norm) -> list[_Block]:
    """Return the positions of a model's parameters in the flat vector."""
    with torch.device("meta"):
        model = MLP(shape, norm)
    blocks: list[_Block] = []
    start = 0
    for name, value in model.named_parameters():
        end = start + -(-value.numel() // ALIGNMENT) * ALIGNMENT
        blocks.append(_Block(name, tuple(value.shape), start, end))
        start = end
    return blocks


@cache
def layout_table(shape: Shape, norm: Norm) -> Tensor:
    """Return a row of eight integers for each layer, from the first to the classifier.

    They are: outputs, inputs, the starts of weight, bias, scale and shift (-1 without one), the
    end of the parameters with the common weight decay, and the end of all parameters. The two ends
    differ for the classifier, whose bias may have a different weight decay.
    """
    known = {block.name: block for block in _layout(shape, norm)}
    rows = []
    for names in _names(shape):
        parts = [known[name] for name in names if name in known]
        starts = [known[name].start if name in known else -1 for name in names]
        rows.append([*parts[0].size, *starts, parts[-1].end, parts[-1].end])
    rows[-1][6] = known["classifier.weight"].end
    return torch.tensor(rows)


def _names(shape: Shape) -> list[tuple[str, str, str, str]]:
    """Return the names of weight, bias, scale and shift of every layer; some may not exist."""
    prefixes = [f"hidden.{index}." for index in range(shape.layers - 1)]
    pairs = [(f"{prefix}linear", f"{prefix}norm") for prefix in prefixes]
    return [
        (f"{linear}.weight", f"{linear}.bias", f"{norm}.weight", f"{norm}.bias")
        for linear, norm in [*pairs, ("classifier", "none")]
    ]

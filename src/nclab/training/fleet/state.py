"""Everything that changes while one member trains, in flat vectors with named views."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import ModelError
from nclab.training.fleet.recipe import Member, Recipe
from nclab.training.models.mlp import MLP, Norm, Shape

ALIGNMENT = 16
"""Every parameter begins at a multiple of this, for aligned vector loads: 64 bytes in float32."""


class LayerTensors(NamedTuple):
    """The parameters of one layer, or what goes with them: views of a flat vector."""

    weight: Tensor
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None


@dataclass(eq=False)
class State:
    """Parameters, moments and running statistics of one member, and its random generator.

    The updates of an optimiser then are operations on whole vectors.
    """

    shape: Shape
    norm: Norm
    parameters: Tensor
    momenta: Tensor
    """Momentum, or Adam's running mean of the gradient."""
    squares: Tensor
    """Adam's running mean of the squared gradient; empty for other optimisers."""
    statistics: Tensor
    """Running means and variances, (hidden layers, 2, neurons of the widest)."""
    generator: torch.Generator
    """Draws the batch order; always on the CPU, so that every device trains on the same batches."""

    def __post_init__(self) -> None:
        self._kept: list[Tensor] = []

    @classmethod
    def start(
        cls,
        shape: Shape,
        member: Member,
        recipe: Recipe,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "State":
        """The model of a seed, as a script would build it after `torch.manual_seed(seed)`."""
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
        """Views under the names of the model's own `state_dict`, without the batch counters."""
        views = named_views(self.parameters, self.shape, self.norm)
        if self.norm != "none":
            for index, width in enumerate(self.shape.hidden):
                mean, variance = self.statistics[index, :, :width]
                views[f"hidden.{index}.norm.running_mean"] = mean
                views[f"hidden.{index}.norm.running_var"] = variance
        return views

    def layers(self, sums: Tensor) -> list[tuple[LayerTensors, LayerTensors]]:
        """Parameters of every layer, from the first to the classifier, and their part of `sums`."""

        def of(vector: Tensor) -> list[LayerTensors]:
            views = named_views(vector, self.shape, self.norm)
            return [LayerTensors(*map(views.get, names)) for names in _names(self.shape)]  # type: ignore[arg-type]

        return list(zip(of(self.parameters), of(sums), strict=True))

    def model(self) -> MLP:
        """A copy as a module in evaluation mode."""
        model, _ = MLP.seeded(self.shape, self.norm, seed=0)
        model.to(device=self.parameters.device, dtype=self.parameters.dtype)
        own = model.state_dict()
        for name, view in self.named().items():
            own[name].copy_(view)
        return model.eval()

    def tensors(self) -> dict[str, Tensor]:
        """Copies of everything that is needed to go on bit for bit."""
        views = {name: view.clone() for name, view in self._views().items()}
        return {**views, "generator": self.generator.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        views = self._views()
        for name, own in {**views, "generator": self.generator.get_state()}.items():
            got = tensors.get(name)
            if got is None or got.shape != own.shape or got.dtype != own.dtype:
                what = "none" if got is None else f"{tuple(got.shape)} {got.dtype}"
                raise ModelError(
                    f"Expected {name} as {tuple(own.shape)} {own.dtype}, got {what}. Load what "
                    "a fleet of the same shape, norm, optimizer and dtype saved."
                )
        for name, view in views.items():
            view.copy_(tensors[name])
        self.generator.set_state(tensors["generator"].cpu())

    def keep(self) -> None:
        """Remember this state, for `restore`, in memory that is taken only once."""
        if not self._kept:
            self._kept = [torch.empty_like(vector) for vector in self._vectors()]
        for copy, vector in zip(self._kept, self._vectors(), strict=True):
            copy.copy_(vector)
        self._kept_generator = self.generator.get_state()

    def restore(self) -> None:
        """Go back to what `keep` remembered."""
        for copy, vector in zip(self._kept, self._vectors(), strict=True):
            vector.copy_(copy)
        self.generator.set_state(self._kept_generator)

    def _vectors(self) -> tuple[Tensor, ...]:
        return self.parameters, self.momenta, self.squares, self.statistics

    def _views(self) -> dict[str, Tensor]:
        views = {f"model.{name}": view for name, view in self.named().items()}
        for what, vector in (("momentum", self.momenta), ("square", self.squares)):
            if len(vector):
                own = named_views(vector, self.shape, self.norm)
                views |= {f"{what}.{name}": view for name, view in own.items()}
        return views


def named_views(flat: Tensor, shape: Shape, norm: Norm) -> dict[str, Tensor]:
    """The parameters that a flat vector holds, by the names of the module's parameters."""
    return {
        place.name: flat[place.start : place.start + math.prod(place.size)].view(place.size)
        for place in _layout(shape, norm)
    }


class _Place(NamedTuple):
    name: str
    size: tuple[int, ...]
    start: int
    end: int


@cache
def _layout(shape: Shape, norm: Norm) -> list[_Place]:
    """Where the parameters of such a model lie in the flat vector."""
    with torch.device("meta"):
        model = MLP(shape, norm)
    places: list[_Place] = []
    start = 0
    for name, value in model.named_parameters():
        end = start + -(-value.numel() // ALIGNMENT) * ALIGNMENT
        places.append(_Place(name, tuple(value.shape), start, end))
        start = end
    return places


@cache
def places(shape: Shape, norm: Norm) -> Tensor:
    """By layer: outputs, inputs, where weight, bias, scale and shift start (or -1), its ends.

    The first end is that of what has the weight decay of all, the second that of what has its own:
    the classifier's bias.
    """
    known = {place.name: place for place in _layout(shape, norm)}
    rows = []
    for names in _names(shape):
        parts = [known[name] for name in names if name in known]
        starts = [known[name].start if name in known else -1 for name in names]
        rows.append([*parts[0].size, *starts, parts[-1].end, parts[-1].end])
    rows[-1][6] = known["classifier.weight"].end
    return torch.tensor(rows)


def _names(shape: Shape) -> list[tuple[str, str, str, str]]:
    """Names of weight, bias, scale and shift of every layer; not every model has them all."""
    prefixes = [f"hidden.{index}." for index in range(shape.layers - 1)]
    pairs = [(f"{prefix}linear", f"{prefix}norm") for prefix in prefixes]
    return [
        (f"{linear}.weight", f"{linear}.bias", f"{norm}.weight", f"{norm}.bias")
        for linear, norm in [*pairs, ("classifier", "none")]
    ]

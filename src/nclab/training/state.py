"""Everything that changes while one member trains, in flat vectors with named views."""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.errors import ModelError
from nclab.models.mlp import MLP, Norm, Shape

ALIGNMENT = 16
"""Every parameter begins at a multiple of this, for aligned vector loads: 64 bytes in float32."""


class Layer(NamedTuple):
    """The parameters of one layer, or their momenta: views of a flat vector."""

    weight: Tensor
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None


@dataclass(eq=False)
class State:
    """Parameters, momenta and running statistics of one member, and its random generator.

    The updates of stochastic gradient descent then are operations on whole vectors.
    """

    shape: Shape
    norm: Norm
    parameters: Tensor
    momenta: Tensor
    statistics: Tensor
    """Running means and variances, (hidden layers, 2, width)."""
    generator: torch.Generator
    """Draws the batch order; always on the CPU, so that every device trains on the same batches."""

    @classmethod
    def start(
        cls, shape: Shape, norm: Norm, seed: int, device: torch.device, dtype: torch.dtype
    ) -> "State":
        """The model of a seed, as a script would build it after `torch.manual_seed(seed)`."""
        model, random_state = MLP.seeded(shape, norm, seed=seed)
        generator = torch.Generator()
        generator.set_state(random_state)
        size = _layout(shape, norm)[-1].end
        state = cls(
            shape=shape,
            norm=norm,
            parameters=torch.zeros(size, device=device, dtype=dtype),
            momenta=torch.zeros(size, device=device, dtype=dtype),
            statistics=torch.zeros(shape.layers - 1, 2, shape.width, device=device, dtype=dtype),
            generator=generator,
        )
        values = model.state_dict()
        for name, view in state.named().items():
            view.copy_(values[name])
        return state

    def named(self) -> dict[str, Tensor]:
        """Views under the names of the model's own `state_dict`, without the batch counters."""
        views = named_views(self.parameters, self.shape, self.norm)
        if self.norm != "none":
            for index, (mean, variance) in enumerate(self.statistics):
                views[f"hidden.{index}.norm.running_mean"] = mean
                views[f"hidden.{index}.norm.running_var"] = variance
        return views

    def layers(self) -> list[tuple[Layer, Layer]]:
        """Parameters and momenta of every layer, from the first to the classifier."""
        parameters = named_views(self.parameters, self.shape, self.norm)
        momenta = named_views(self.momenta, self.shape, self.norm)
        prefixes = [f"hidden.{index}." for index in range(self.shape.layers - 1)]
        return [(_layer(parameters, key), _layer(momenta, key)) for key in [*prefixes, ""]]

    def places(self) -> Tensor:
        """Outputs, inputs, starts of weight, bias, scale and shift (or -1), and end, by layer."""
        base = self.parameters.data_ptr()
        size = self.parameters.element_size()
        rows, end = [], self.parameters.numel()
        for layer, _ in reversed(self.layers()):
            starts = [-1 if part is None else (part.data_ptr() - base) // size for part in layer]
            rows.append([*layer.weight.shape, *starts, end])
            end = starts[0]
        return torch.tensor(rows[::-1])

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

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        views = self._views()
        for name, own in {**views, "generator": self.generator.get_state()}.items():
            got = tensors.get(name)
            if got is None or got.shape != own.shape or got.dtype != own.dtype:
                what = "none" if got is None else f"{tuple(got.shape)} {got.dtype}"
                raise ModelError(
                    f"Expected {name} as {tuple(own.shape)} {own.dtype}, got {what}. Load what "
                    "a fleet of the same shape, norm and dtype saved."
                )
        for name, view in views.items():
            view.copy_(tensors[name])
        self.generator.set_state(tensors["generator"].cpu())

    def snapshot(self) -> tuple[Tensor, ...]:
        """A cheap copy, for `restore`."""
        vectors = (self.parameters, self.momenta, self.statistics)
        return (*(vector.clone() for vector in vectors), self.generator.get_state())

    def restore(self, snapshot: tuple[Tensor, ...]) -> None:
        """Go back to a snapshot."""
        vectors = (self.parameters, self.momenta, self.statistics)
        for vector, copy in zip(vectors, snapshot, strict=False):
            vector.copy_(copy)
        self.generator.set_state(snapshot[-1])

    def _views(self) -> dict[str, Tensor]:
        momenta = named_views(self.momenta, self.shape, self.norm)
        return {
            **{f"model.{name}": view for name, view in self.named().items()},
            **{f"momentum.{name}": view for name, view in momenta.items()},
        }


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


def _layer(views: dict[str, Tensor], prefix: str) -> Layer:
    linear = f"{prefix}linear" if prefix else "classifier"
    return Layer(
        weight=views[f"{linear}.weight"],
        bias=views.get(f"{linear}.bias"),
        scale=views.get(f"{prefix}norm.weight"),
        shift=views.get(f"{prefix}norm.bias"),
    )

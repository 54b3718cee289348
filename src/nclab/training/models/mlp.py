"""The thesis's multi-layer perceptron: linear, activation, batch norm, in that order, per layer."""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from nclab import plugins
from nclab.errors import ModelError

Norm = Literal["affine", "plain", "none"]
"""Batch norm with scale and shift, batch norm without them, or no batch norm."""
Activation = Literal["relu", "gelu", "tanh"]
"""As `nn.ReLU`, `nn.GELU` (the exact one, by erf) and `nn.Tanh`."""
Model = Literal["mlp"]
"""The network; plugins bring others."""
MODULES: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes and the activation of an MLP; the defaults are those of pan2023.

    >>> Shape(layers=3, width=8).widths, Shape(layers=3, width=8, features=2).widths
    ((16, 8, 8, 4), (16, 8, 2, 4))
    """

    inputs: int = 16
    """Dimension of the inputs."""
    classes: int = 4
    """Number of classes, the dimension of the logits."""
    layers: int = 6
    """Linear layers, the classifier included."""
    width: int = 300
    """Neurons of each hidden layer."""
    bias: bool = True
    """Whether linear layers have a bias."""
    features: int | None = None
    """Neurons of the last hidden layer, d, fewer than the classes or more; `width` by default."""
    activation: Activation = "relu"
    """Between a linear layer and its batch norm."""
    head_bias: bool = True
    """Whether the classifier has a bias, where linear layers have one."""
    model: Model = "mlp"
    """The network; one of a plugin is made from inputs and classes alone."""

    def __post_init__(self) -> None:
        lowest_sizes = {"inputs": 1, "classes": 2, "layers": 1, "width": 1, "features": 1}
        for name, lowest in lowest_sizes.items():
            value = getattr(self, name)
            if name == "features" and value is None:
                continue
            if not isinstance(value, int) or value < lowest:
                raise ModelError(
                    f"Expected {name} to be an integer of at least {lowest}, got {value!r}."
                )
        if self.features is not None and self.layers == 1:
            raise ModelError(f"Expected 2 layers or more for {self.features} features, got 1.")
        if self.activation not in MODULES:
            raise ModelError(
                f"Expected activation 'relu', 'gelu' or 'tanh', got {self.activation!r}."
            )

        networks = (*get_args(Model), *plugins.names("models"))
        if self.model not in networks:
            known = ", ".join(map(repr, networks))
            raise ModelError(f"Expected model among {known}; got {self.model!r}.")

    @property
    def plugged(self) -> bool:
        """Whether the network is a plugin's."""
        return self.model not in get_args(Model)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Neurons of every hidden layer."""
        if self.layers == 1:
            return ()
        return (*[self.width] * (self.layers - 2), self.features or self.width)

    @property
    def widths(self) -> tuple[int, ...]:
        """Dimensions from the input to the logits."""
        return (self.inputs, *self.hidden, self.classes)


class MLP(nn.Module):
    """Hidden blocks of linear, activation and batch norm, then a linear classifier.

    What a layer's features are is what the next linear map reads: the output of its batch norm.
    `nclab.measure(model, loader, layers="all")` takes the same.

    Source: pan2023, Sec. 3.1.1

    >>> model = MLP(Shape(inputs=2, layers=3, width=8), norm="plain")
    >>> [tuple(feature.shape) for feature in model.features(torch.zeros(5, 2))]
    [(5, 8), (5, 8)]
    >>> model(torch.zeros(5, 2)).shape
    torch.Size([5, 4])
    """

    def __init__(self, shape: Shape, norm: Norm = "affine") -> None:
        super().__init__()
        if norm not in get_args(Norm):
            raise ModelError(f"Expected norm 'affine', 'plain' or 'none', got {norm!r}.")
        self.shape = shape
        self.norm = norm
        pairs = list(zip(shape.widths, shape.widths[1:], strict=False))
        self.hidden = nn.ModuleList(_block(*pair, norm, shape) for pair in pairs[:-1])
        self.classifier = nn.Linear(*pairs[-1], bias=shape.bias and shape.head_bias)

    @classmethod
    def seeded(cls, shape: Shape, norm: Norm = "affine", *, seed: int) -> tuple[Self, Tensor]:
        """The model built after `torch.manual_seed(seed)`, and the random state it leaves.

        The caller's random state stays as it was. Equal seeds give equal linear layers whatever
        the norm, as batch norm draws nothing.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(shape, norm), torch.get_rng_state()

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits (n, C)."""
        for block in self.hidden:
            inputs = block(inputs)
        logits: Tensor = self.classifier(inputs)
        return logits

    def features(self, inputs: Tensor) -> list[Tensor]:
        """The features (n, neurons) of every hidden layer, after batch norm where there is one."""
        features = []
        for block in self.hidden:
            inputs = block(inputs)
            features.append(inputs)
        return features

    def with_full_statistics(self, inputs: Tensor, *, batch: int = 4096) -> Self:
        """A copy in evaluation mode whose batch norms use the statistics of all these inputs.

        Layer by layer, so that each sees what the exact layers below return: the same outputs as
        training mode with the whole data as one batch. Sums are taken in float64.
        """
        model = copy.deepcopy(self).eval()
        with torch.no_grad():
            for block in model.hidden:
                linear, activation, *norms = block.children()
                parts = [activation(linear(part)) for part in inputs.split(batch)]
                for norm in norms:
                    assert isinstance(norm, nn.BatchNorm1d)
                    _set_statistics(norm, parts)
                    parts = [norm(part) for part in parts]
                inputs = torch.cat(parts)
        return model


def _block(inputs: int, outputs: int, norm: Norm, shape: Shape) -> nn.Sequential:
    block = OrderedDict[str, nn.Module](linear=nn.Linear(inputs, outputs, shape.bias))
    block[shape.activation] = MODULES[shape.activation]()
    if norm != "none":
        block["norm"] = nn.BatchNorm1d(outputs, affine=norm == "affine")
    return nn.Sequential(block)


def _set_statistics(norm: nn.BatchNorm1d, parts: list[Tensor]) -> None:
    count = sum(len(part) for part in parts)
    mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / count
    squares = torch.stack([(part.double() - mean).square().sum(0) for part in parts])
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(squares.sum(0) / count)

"""The multi-layer perceptron of pan2023: linear, activation and batch norm in every layer."""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from nclab.errors import ModelError

Norm = Literal["affine", "plain", "none", "last"]
"""Batch norm after every hidden layer, with scale and shift (affine) or without them (plain); no
batch norm (none); or affine batch norm after the last hidden layer only (last)."""
Activation = Literal["relu", "gelu", "tanh"]
"""Activation: `nn.ReLU`, `nn.GELU` (the exact one, by erf) or `nn.Tanh`."""
MODULES: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes and activation of an MLP; the defaults are those of pan2023.

    >>> Shape(layers=3, width=8).widths, Shape(layers=3, width=8, features=2).widths
    ((16, 8, 8, 4), (16, 8, 2, 4))
    """

    inputs: int = 16
    """Dimension of the inputs."""
    classes: int = 4
    """Number of classes, the dimension of the logits."""
    layers: int = 6
    """Number of linear layers, including the classifier."""
    width: int = 300
    """Number of neurons in each hidden layer."""
    bias: bool = True
    """Whether linear layers have a bias."""
    features: int | None = None
    """Number of neurons in the last hidden layer, d; `width` by default."""
    activation: Activation = "relu"
    """Activation between a linear layer and its batch norm."""
    head_bias: bool = True
    """Whether the classifier has a bias; ignored if the linear layers have none."""

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
            raise ModelError(f"Expected 2 layers or more with features={self.features}, got 1.")
        if self.activation not in MODULES:
            raise ModelError(
                f"Expected activation 'relu', 'gelu' or 'tanh', got {self.activation!r}."
            )

    @property
    def hidden(self) -> tuple[int, ...]:
        """Number of neurons in every hidden layer."""
        if self.layers == 1:
            return ()
        return (*[self.width] * (self.layers - 2), self.features or self.width)

    @property
    def widths(self) -> tuple[int, ...]:
        """Dimensions from the input to the logits."""
        return (self.inputs, *self.hidden, self.classes)

    def first_norm(self, norm: Norm) -> int:
        """Return the index of the first hidden layer with batch norm; all later ones have it.

        >>> [Shape(layers=4).first_norm(norm) for norm in ("affine", "plain", "last", "none")]
        [0, 0, 2, 3]
        """
        hidden = self.layers - 1
        return {"last": max(hidden - 1, 0), "none": hidden}.get(norm, 0)


class MLP(nn.Module):
    """Hidden blocks of linear, activation and batch norm, then a linear classifier.

    The features of a layer are what the next linear map reads, the output of its batch norm.
    `nclab.measure(model, loader, layers="all")` measures the same features.

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
            raise ModelError(f"Expected norm 'affine', 'plain', 'none' or 'last', got {norm!r}.")
        self.shape = shape
        self.norm = norm
        pairs = list(zip(shape.widths, shape.widths[1:], strict=False))
        self.hidden = nn.ModuleList()
        first_norm = shape.first_norm(norm)
        for index, (inputs, outputs) in enumerate(pairs[:-1]):
            block = OrderedDict[str, nn.Module](linear=nn.Linear(inputs, outputs, shape.bias))
            block[shape.activation] = MODULES[shape.activation]()
            if index >= first_norm:
                block["norm"] = nn.BatchNorm1d(outputs, affine=norm != "plain")
            self.hidden.append(nn.Sequential(block))
        self.classifier = nn.Linear(*pairs[-1], bias=shape.bias and shape.head_bias)

    @classmethod
    def seeded(cls, shape: Shape, norm: Norm = "affine", *, seed: int) -> tuple[Self, Tensor]:
        """Return the model built after `torch.manual_seed(seed)`, and the random state after it.

        The caller's random state does not change. Equal seeds give equal linear layers for every
        norm, because batch norm draws no random numbers.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(shape, norm), torch.get_rng_state()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (n, C)."""
        for block in self.hidden:
            inputs = block(inputs)
        logits: Tensor = self.classifier(inputs)
        return logits

    def features(self, inputs: Tensor) -> list[Tensor]:
        """Return the features (n, neurons) of every hidden layer, after its batch norm if any."""
        features = []
        for block in self.hidden:
            inputs = block(inputs)
            features.append(inputs)
        return features

    def with_full_statistics(self, inputs: Tensor, *, batch: int = 4096) -> Self:
        """Return a copy in evaluation mode whose batch norms use the statistics of all inputs.

        The copy returns the outputs of training mode with all inputs as one batch. The statistics
        are set layer by layer, because those of a layer depend on the layers below. Sums are in
        float64.
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


def _set_statistics(norm: nn.BatchNorm1d, parts: list[Tensor]) -> None:
    count = sum(len(part) for part in parts)
    mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / count
    squares = torch.stack([(part.double() - mean).square().sum(0) for part in parts])
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(squares.sum(0) / count)

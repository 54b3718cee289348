"""VGG-13 for images of 32 × 32 pixels, with a single linear classifier."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nclab.errors import ModelError

BLOCKS = (64, 128, 256, 512, 512)
"""Channels of the five blocks, each of two convolutions and a pooling that halves the image."""
SIDE = 2 ** len(BLOCKS)
"""Height and width of an image."""


@dataclass(frozen=True)
class VGGShape:
    """Sizes of a VGG-13."""

    classes: int = 10
    """Number of classes."""
    channels: int = 1
    """Number of channels of the images."""
    width: float = 1.0
    """Factor that multiplies the number of channels of every layer; 1 is the published network."""
    batch_norm: bool = True
    """Whether batch norm with scale and bias follows every convolution."""
    dense: int = 0
    """Size of two fully connected layers before the classifier, to be multiplied by `width`; 4096
    in the published network, 0 for no such layers."""

    def __post_init__(self) -> None:
        if not BLOCKS[0] * self.width >= 1:
            raise ModelError(
                f"Expected a width of at least 1/{BLOCKS[0]}, so that the first layer has a "
                f"channel; got {self.width:g}."
            )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Channels of the five blocks at this width.

        >>> VGGShape(width=0.125).blocks
        (8, 16, 32, 64, 64)
        """
        return tuple(int(channels * self.width) for channels in BLOCKS)


class VGG13(nn.Module):
    """Ten convolutions of 3 × 3 in five blocks, then one linear map.

    The published network has two hidden linear layers of size 4096 for images of 224 × 224. Small
    images usually need none, so this network has them only with `dense`, without dropout. A 32 × 32
    image becomes 1 × 1 after the last pooling, so flattening equals global pooling. The classifier
    reads the last convolution after batch norm, ReLU and pooling, or the last dense layer after
    its ReLU.

    Initialisation: PyTorch's default for every layer, uniform with variance 1/(3 fan in). Without
    batch norm the signal would vanish in ten layers. The weights of the convolutions are then
    He-normal, with variance 2/(fan out), and their biases are zero. With batch norm the
    convolutions have no bias, because batch norm would subtract it.

    >>> network = VGG13(VGGShape(width=0.125))
    >>> network(torch.zeros(2, 1, 32, 32)).shape, network.features(torch.zeros(2, 1, 32, 32)).shape
    (torch.Size([2, 10]), torch.Size([2, 64]))
    """

    def __init__(self, shape: VGGShape | None = None) -> None:
        super().__init__()
        self.shape = shape or VGGShape()
        channels = self.shape.channels
        layers: list[nn.Module] = []
        for width in self.shape.blocks:
            for source in (channels, width):
                layers.append(
                    nn.Conv2d(source, width, 3, padding=1, bias=not self.shape.batch_norm)
                )
                layers += [nn.BatchNorm2d(width)] if self.shape.batch_norm else []
                layers.append(nn.ReLU())
            layers.append(nn.MaxPool2d(2))
            channels = width
        layers.append(nn.Flatten())
        if self.shape.dense:
            hidden = int(self.shape.dense * self.shape.width)
            for source in (channels, hidden):
                layers += [nn.Linear(source, hidden), nn.ReLU()]
            channels = hidden
        self.body = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, self.shape.classes)
        convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        for convolution in convolutions if not self.shape.batch_norm else ():
            # He-normal weights keep the size of the signal from layer to layer.
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, d) that the classifier reads."""
        expected = (self.shape.channels, SIDE, SIDE)
        if tuple(images.shape[1:]) != expected:
            raise ModelError(
                f"Expected images of shape (n, {', '.join(map(str, expected))}), "
                f"got {tuple(images.shape)}. Pad smaller images."
            )
        result: Tensor = self.body(images)
        return result

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (n, C)."""
        result: Tensor = self.classifier(self.features(images))
        return result


def vgg13(shape: VGGShape | None = None, *, seed: int) -> VGG13:
    """Return a VGG-13 initialised from a seed; the global random state does not change.

    >>> first, second = vgg13(VGGShape(width=0.1), seed=3), vgg13(VGGShape(width=0.1), seed=3)
    >>> torch.equal(first.classifier.weight, second.classifier.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VGG13(shape)

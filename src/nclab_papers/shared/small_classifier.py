"""A small classifier with batch norm that trains in seconds."""

from dataclasses import dataclass

import torch
from torch import nn

from nclab.errors import NclabError
from nclab.progress import track
from nclab.training.data.samples import Samples
from nclab.training.models.mlp import MLP, Shape


@dataclass(frozen=True)
class NetworkConfig:
    """Settings of data, network and training."""

    num_classes: int = 4
    """Number of classes C, a power of two. Classes are the cones between log2(C) random planes."""
    inputs: int = 16
    """Dimension of the inputs."""
    width: int = 64
    """Width of the hidden layers."""
    depth: int = 3
    """Number of hidden layers; each consists of a linear map, ReLU and affine batch norm."""
    samples: int = 2000
    """Number of training samples."""
    epochs: int = 100
    """Number of training epochs."""
    weight_decay: float = 5e-3
    """Weight decay of all parameters, including batch norm. It makes features collapse."""
    rate: float = 0.1
    """Initial learning rate of SGD with momentum 0.9 and a cosine schedule."""
    batch: int = 128
    """Batch size; the last batch is smaller."""

    @property
    def shape(self) -> Shape:
        """Sizes of the network."""
        return Shape(
            inputs=self.inputs, classes=self.num_classes, layers=self.depth + 1, width=self.width
        )


def train_perfectly(config: NetworkConfig, generator: torch.Generator) -> tuple[nn.Module, Samples]:
    """Train a network as `train` does; raise if its training accuracy is below 1."""
    network, samples = train(config, generator)
    with torch.no_grad():
        accuracy = float((network(samples.inputs).argmax(1) == samples.labels).double().mean())
    if accuracy < 1:
        raise NclabError(
            f"Expected the network to reach accuracy 1, got {accuracy:.4f} after "
            f"{config.epochs} epochs at weight decay {config.weight_decay:g}. Try another --seed."
        )
    return network, samples


def train(config: NetworkConfig, generator: torch.Generator) -> tuple[nn.Module, Samples]:
    """Train a network; return it in evaluation mode with its samples.

    The state of the generator determines the network.
    """
    inputs, targets = samples = cones(config, generator)
    model, _ = MLP.seeded(config.shape, seed=int(torch.randint(2**31, (), generator=generator)))
    network = nn.Sequential(*model.hidden, model.classifier)  # the layers are named by index
    optimiser = torch.optim.SGD(
        network.parameters(), lr=config.rate, momentum=0.9, weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    for _ in track(range(config.epochs), f"training, weight decay {config.weight_decay:g}"):
        order = torch.randperm(config.samples, generator=generator)
        for batch in order.split(config.batch):
            loss = nn.functional.cross_entropy(network(inputs[batch]), targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return network.eval(), samples


def cones(config: NetworkConfig, generator: torch.Generator) -> Samples:
    """Draw normal inputs, labelled by their sides of log2 C random planes through the origin."""
    planes = (config.num_classes - 1).bit_length()
    inputs = torch.randn(config.samples, config.inputs, generator=generator)
    normals = torch.randn(config.inputs, planes, generator=generator)
    sides = (inputs @ normals > 0).long()
    return Samples(inputs, (sides << torch.arange(planes)).sum(1) % config.num_classes)

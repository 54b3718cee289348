"""A small batch-normalised network that trains in seconds, for experiments that need a real one."""

from dataclasses import dataclass

import torch
from torch import nn

from nclab.errors import NclabError
from nclab.progress import track
from nclab.training.data.samples import Samples
from nclab.training.models.mlp import MLP, Shape


@dataclass(frozen=True)
class NetworkConfig:
    """Data, network and training."""

    num_classes: int = 4
    """A power of two: the classes are the cones that log2 C random planes cut out."""
    inputs: int = 16
    """Dimension of the inputs."""
    width: int = 64
    """Width of the hidden layers."""
    depth: int = 3
    """Hidden layers, each linear, ReLU, batch norm with scale and bias."""
    samples: int = 2000
    """Training samples."""
    epochs: int = 100
    """Training stops here."""
    weight_decay: float = 5e-3
    """On every parameter, batch norm included: that is what makes the features collapse."""
    rate: float = 0.1
    """First learning rate of SGD with momentum 0.9 and a cosine schedule."""
    batch: int = 128
    """Batch size; the last batch is smaller."""

    @property
    def shape(self) -> Shape:
        """The sizes of the network."""
        return Shape(
            inputs=self.inputs, classes=self.num_classes, layers=self.depth + 1, width=self.width
        )


def train_perfectly(config: NetworkConfig, generator: torch.Generator) -> tuple[nn.Module, Samples]:
    """A network like that of `train`; one without accuracy 1 on its samples is refused."""
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
    """A network in evaluation mode and its samples, cones cut out by random planes.

    The same network for the same generator state.
    """
    inputs, targets = samples = cones(config, generator)
    model, _ = MLP.seeded(config.shape, seed=int(torch.randint(2**31, (), generator=generator)))
    network = nn.Sequential(*model.hidden, model.classifier)  # layers named by their places
    optimiser = torch.optim.SGD(
        network.parameters(), lr=config.rate, momentum=0.9, weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    for _ in track(range(config.epochs), f"training, weight decay {config.weight_decay:g}"):
        order = torch.randperm(config.samples, generator=generator)
        for rows in order.split(config.batch):
            loss = nn.functional.cross_entropy(network(inputs[rows]), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return network.eval(), samples


def cones(config: NetworkConfig, generator: torch.Generator) -> Samples:
    """Normal inputs, labelled by their sides of log2 C random planes through the origin."""
    planes = (config.num_classes - 1).bit_length()
    inputs = torch.randn(config.samples, config.inputs, generator=generator)
    normals = torch.randn(config.inputs, planes, generator=generator)
    sides = (inputs @ normals > 0).long()
    return Samples(inputs, (sides << torch.arange(planes)).sum(1) % config.num_classes)

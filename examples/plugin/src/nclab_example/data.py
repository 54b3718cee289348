"""A data set: a frozen dataclass whose fields become options of `nclab sweep`."""

from dataclasses import dataclass

import torch

from nclab.training.data import Samples


@dataclass(frozen=True)
class Rings:
    """Classes that are rings around one centre, which no linear classifier can separate."""

    classes: int = 3
    """Number of rings."""
    samples: int = 300
    """Number of points of all rings together."""
    noise: float = 0.05
    """Standard deviation around each ring."""
    seed: int = 0
    """Seed of the points."""

    @property
    def label(self) -> str:
        """Short name of the data, for tables and folders."""
        return f"rings{self.classes}"

    def draw(self) -> Samples:
        """Return the samples of the seed."""
        generator = torch.Generator().manual_seed(self.seed)
        labels = torch.arange(self.samples) % self.classes
        angles = torch.rand(self.samples, generator=generator) * 2 * torch.pi
        noise = torch.randn(self.samples, generator=generator) * self.noise
        radii = (labels + 1) / self.classes + noise
        inputs = torch.stack([radii * angles.cos(), radii * angles.sin()], 1)
        return Samples.checked(inputs, labels)

"""Modular addition: all pairs of residues, labelled by their sum."""

from dataclasses import dataclass

import torch

from nclab.errors import DataError
from nclab.training.data.samples import Samples

LARGEST = 512
"""Its p^2 inputs of 2p numbers take a gigabyte."""


@dataclass(frozen=True)
class ModularAddition:
    """(a, b) as two one-hot vectors, class (a + b) mod p: small data on which networks may learn
    the training samples long before the others.

    >>> inputs, labels = ModularAddition(3).draw()
    >>> inputs[5].tolist(), labels.tolist()
    ([0.0, 1.0, 0.0, 0.0, 0.0, 1.0], [0, 1, 2, 1, 2, 0, 2, 0, 1])
    """

    modulus: int = 23
    """The number p of residues, which are the classes; p^2 samples of dimension 2p."""

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= LARGEST:
            raise DataError(f"Expected modulus from 2 to {LARGEST}, got {self.modulus}.")

    @property
    def label(self) -> str:
        """A short name."""
        return f"mod{self.modulus}"

    def draw(self) -> Samples:
        """The samples, b running fastest."""
        numbers = torch.arange(self.modulus)
        pairs = torch.cartesian_prod(numbers, numbers)
        inputs = torch.nn.functional.one_hot(pairs, self.modulus).flatten(1).float()
        return Samples(inputs, pairs.sum(1) % self.modulus)

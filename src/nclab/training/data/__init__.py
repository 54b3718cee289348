"""Data to train on: artificial samples, FashionMNIST, files, and the selection of samples."""

from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.data.fashion_mnist import FashionMNIST
from nclab.training.data.samples import SampleFile, Samples, read_samples
from nclab.training.data.selection import SampleSelection, Split

__all__ = [
    "ConicHull",
    "FashionMNIST",
    "SampleFile",
    "SampleSelection",
    "Samples",
    "Split",
    "Teacher",
    "read_samples",
]

"""Measure a small residual network on long-tailed FashionMNIST, with error bars and test data.

python examples/long_tail.py [--largest 300] [--epochs 3] [--out long_tail.html]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nclab
from nclab.errors import MissingData
from nclab.training.data import fashion_mnist

NAMES = [
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
]
RATIO = 20
"""Ratio of the largest to the smallest number of images per class."""


class Residual(nn.Module):
    """Residual block with two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the output of the convolutions."""
        return torch.relu(x + self.body(x))


def network(width: int = 16) -> nn.Module:
    """Return a network with two stages, a mean over positions and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, stride=2, padding=1),
        nn.ReLU(),
        Residual(width),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        Residual(2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, len(NAMES)),
    )


def images(part: str, counts: list[int]) -> TensorDataset:
    """Return the first images of each class, as many as the class should have."""
    found = fashion_mnist.load(part=part, fetch=False)
    rows = [(found.labels == c).nonzero().flatten()[:count] for c, count in enumerate(counts)]
    chosen = torch.cat(rows)
    pixels = found.pixels[chosen].float() / 255
    return TensorDataset(
        ((pixels - fashion_mnist.MEAN) / fashion_mnist.STD)[:, None], found.labels[chosen]
    )


def main() -> None:
    """Train, measure and write a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=300, help="images of the first class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()) / "long_tail.html")
    options = parser.parse_args()
    torch.manual_seed(0)
    try:
        tail = [max(10, round(options.largest * RATIO ** (-c / 9))) for c in range(10)]
        train, test = images("train", tail), images("test", [100] * 10)
    except MissingData as missing:
        print(missing)
        return
    model, loader = network(), DataLoader(train, batch_size=64, shuffle=True)

    monitor = nclab.Monitor(model, class_names=NAMES)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for _ in range(options.epochs):
        model.train()
        for inputs, labels in monitor.watch(loader):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    monitor.close()

    whole = DataLoader(train, batch_size=256)
    held_out = DataLoader(test, batch_size=256)
    report = nclab.measure(model, whole, test=held_out, intervals=True, class_names=NAMES)
    print(report)
    report.to_html(options.out)
    print(f"page: {options.out}")


if __name__ == "__main__":
    main()

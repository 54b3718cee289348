"""The tour: what the metrics say of four known cases, from exact collapse to none."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nclab.errors import NclabError
from nclab.measurement import Report, measure, measure_features
from nclab.measurement.collapse import Collapse
from nclab.measurement.table import side_by_side
from nclab.metrics import simplex_etf
from nclab.progress import track

WEIGHT_DECAY = 5e-3


@dataclass(frozen=True)
class Config:
    """Sizes of the tour."""

    num_classes: int = 4
    """A power of two: the classes are the cones that log2 C random planes cut out."""
    dim: int = 64
    """Width of the hidden layers and dimension of the three clouds."""
    inputs: int = 16
    """Dimension of the classifier's inputs."""
    samples: int = 2000
    """Training samples, and samples of each cloud."""
    epochs: int = 100
    """Training stops here even without accuracy 1, and that is an error."""
    noise: float = 1e-3
    """Spread of the nearly collapsed cloud, relative to the norm of its means."""


PRESETS = {"quick": Config(), "paper": Config(samples=10_000, dim=300)}


@dataclass(frozen=True)
class TourResult:
    """Four measurements side by side, and the layers of the trained classifier."""

    collapses: dict[str, Collapse]
    report: Report
    epochs: int

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return {
            "cases": {name: collapse.to_dict() for name, collapse in self.collapses.items()},
            "layers": self.report.to_dicts(),
            "effective_depth": self.report.effective_depth(),
            "epochs": self.epochs,
        }

    def show(self) -> list[Any]:
        """Two tables."""
        return [
            "Four cases, from exact collapse to none:",
            side_by_side(list(self.collapses.values()), titles=list(self.collapses)),
            f"\nEvery layer of the classifier, trained {self.epochs} epochs to accuracy 1:",
            self.report,
        ]


def run(*, preset: Literal["quick", "paper"] = "quick", seed: int = 0) -> TourResult:
    """Measure an exact simplex ETF, a nearly collapsed cloud, a random one and a classifier."""
    return tour(PRESETS[preset], seed=seed)


def tour(config: Config, *, seed: int = 0) -> TourResult:
    """The tour at any size, on one thread: the same numbers for the same seed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are small: more threads would only wait
    try:
        return _tour(config, seed)
    finally:
        torch.set_num_threads(threads)


def _tour(config: Config, seed: int) -> TourResult:
    generator = torch.Generator().manual_seed(seed)
    etf = simplex_etf(config.num_classes, config.dim, generator=generator)
    labels = torch.arange(config.samples) % config.num_classes
    spread = torch.randn(config.samples, config.dim, generator=generator, dtype=torch.float64)
    stray = torch.randn(config.num_classes, config.dim, generator=generator, dtype=torch.float64)
    near = etf[labels] + config.noise / config.dim**0.5 * spread
    near_weight = etf + config.noise / config.dim**0.5 * stray
    network, inputs, targets, epochs = train(config, generator)
    report = measure(network, [(inputs, targets)], layers="all")
    collapses = {
        "exact ETF": measure_features(etf[labels], labels, weight=etf),
        "nearly collapsed": measure_features(near, labels, weight=near_weight),
        "random cloud": measure_features(spread, labels, weight=stray),
        "trained classifier": report.last,
    }
    return TourResult(collapses, report, epochs)


def train(config: Config, generator: torch.Generator) -> tuple[nn.Module, Tensor, Tensor, int]:
    """A batch-normalised MLP trained past accuracy 1 on cones cut out by random planes."""
    planes = (config.num_classes - 1).bit_length()
    inputs = torch.randn(config.samples, config.inputs, generator=generator)
    normals = torch.randn(config.inputs, planes, generator=generator)
    sides = (inputs @ normals > 0).long()
    targets = (sides << torch.arange(planes)).sum(1) % config.num_classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        network = mlp(config)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=0.1, momentum=0.9, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    network.train()
    for _ in track(range(config.epochs), "training"):
        order = torch.randperm(config.samples, generator=generator)
        for rows in order.split(128):
            loss = nn.functional.cross_entropy(network(inputs[rows]), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    network.eval()
    with torch.no_grad():
        accuracy = float((network(inputs).argmax(1) == targets).double().mean())
    if accuracy < 1:
        raise NclabError(
            f"Expected the tour's classifier to reach accuracy 1, got {accuracy:.4f} after "
            f"{config.epochs} epochs. Try another --seed."
        )
    return network, inputs, targets, config.epochs


def mlp(config: Config) -> nn.Module:
    """Three hidden layers, each linear, ReLU, batch norm, as in pan2023, Sec. 3.1.1."""
    layers: list[nn.Module] = []
    width = config.inputs
    for _ in range(3):
        block = (nn.Linear(width, config.dim), nn.ReLU(), nn.BatchNorm1d(config.dim))
        layers.append(nn.Sequential(*block))
        width = config.dim
    return nn.Sequential(*layers, nn.Linear(width, config.num_classes))

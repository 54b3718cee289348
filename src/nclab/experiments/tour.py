"""The tour: what the metrics say of four known cases, from exact collapse to none."""

from dataclasses import dataclass, field
from typing import Any

import torch

from nclab.experiments.small_network import NetworkConfig, train
from nclab.measurement import Report, measure, measure_features
from nclab.measurement.collapse import Collapse
from nclab.measurement.table import side_by_side
from nclab.metrics import simplex_etf
from nclab.threads import one_thread


@dataclass(frozen=True)
class Config:
    """Sizes of the tour."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The classifier; the three clouds have its classes, samples and width."""
    noise: float = 1e-3
    """Spread of the nearly collapsed cloud, relative to the norm of its means."""


PRESETS = {
    "quick": Config(),
    "paper": Config(NetworkConfig(samples=10_000, width=300)),
}


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

    def figures(self) -> dict[str, Any]:
        """The tour is told in tables."""
        return {}


def run(*, preset: str = "quick", seed: int = 0) -> TourResult:
    """Measure an exact simplex ETF, a nearly collapsed cloud, a random one and a classifier."""
    return tour(PRESETS[preset], seed=seed)


def tour(config: Config, *, seed: int = 0) -> TourResult:
    """The tour at any size; the same numbers for the same seed."""
    with one_thread():
        return _tour(config, seed)


def _tour(config: Config, seed: int) -> TourResult:
    network = config.network
    generator = torch.Generator().manual_seed(seed)
    etf = simplex_etf(network.num_classes, network.width, generator=generator)
    labels = torch.arange(network.samples) % network.num_classes
    shape = (network.samples, network.width)
    spread = torch.randn(*shape, generator=generator, dtype=torch.float64)
    stray = torch.randn(etf.shape, generator=generator, dtype=torch.float64)
    size = config.noise / network.width**0.5
    trained = train(network, generator)
    report = measure(trained.network, [(trained.inputs, trained.targets)], layers="all")
    near = measure_features(etf[labels] + size * spread, labels, weight=etf + size * stray)
    collapses = {
        "exact ETF": measure_features(etf[labels], labels, weight=etf),
        "nearly collapsed": near,
        "random cloud": measure_features(spread, labels, weight=stray),
        "trained classifier": report.last,
    }
    return TourResult(collapses, report, network.epochs)

"""The tour: what the metrics say of four known cases, from exact collapse to none.

An exact simplex, one with noise, features without any structure and a small network that was
trained are measured side by side; what the tables should say of the first is known by hand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.measurement import measure, measure_features
from nclab.measurement.display import layer_table, metric_table
from nclab.metrics import simplex_etf
from nclab_papers.shared.small_network import NetworkConfig, train_perfectly

NAME = "tour"


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


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Measure an exact simplex ETF, a nearly collapsed cloud, a random one and a classifier.

    One seed is enough: the first is used.
    """
    with one_thread():
        return _tour(config, seeds[0])


def tables(numbers: Mapping[str, Any]) -> list[Any]:
    """Four cases side by side, and every layer of the classifier."""
    return [
        "Four cases, from exact collapse to none:",
        metric_table(list(numbers["cases"].values()), titles=list(numbers["cases"])),
        f"\nEvery layer of the classifier, trained {numbers['epochs']} epochs to accuracy 1:",
        layer_table(numbers["layers"]),
        *numbers["remarks"],
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The tour is told in tables."""
    return []


def _tour(config: Config, seed: int) -> dict[str, Any]:
    network = config.network
    generator = torch.Generator().manual_seed(seed)
    etf = simplex_etf(network.num_classes, network.width, generator=generator)
    labels = torch.arange(network.samples) % network.num_classes
    shape = (network.samples, network.width)
    spread = torch.randn(*shape, generator=generator, dtype=torch.float64)
    stray = torch.randn(etf.shape, generator=generator, dtype=torch.float64)
    size = config.noise / network.width**0.5
    model, samples = train_perfectly(network, generator)
    report = measure(model, [tuple(samples)], layers="all")
    near = measure_features(etf[labels] + size * spread, labels, weight=etf + size * stray)
    cases = {
        "exact ETF": measure_features(etf[labels], labels, weight=etf),
        "nearly collapsed": near,
        "random cloud": measure_features(spread, labels, weight=stray),
        "trained classifier": report.last,
    }
    return {
        "config": asdict(config),
        "cases": {name: collapse.to_dict() for name, collapse in cases.items()},
        "layers": [collapse.to_dict() for collapse in report.layers],
        "effective_depth": report.effective_depth(),
        "epochs": network.epochs,
        "remarks": report.summary(),
    }

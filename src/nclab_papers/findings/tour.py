"""Tour of the metrics on four known cases, from exact collapse to none.

The cases are an exact simplex, a simplex with noise, random features and a small trained network.
The metrics of the exact simplex can be computed by hand.
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
from nclab_papers.shared.small_classifier import NetworkConfig, train_perfectly

NAME = "tour"


@dataclass(frozen=True)
class Config:
    """Sizes of the tour."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Settings of the classifier; the other cases have the same numbers of classes and samples,
    and the same width."""
    noise: float = 1e-3
    """Standard deviation of the noise on the simplex, relative to the norm of its class means."""


PRESETS = {"quick": Config(), "paper": Config(NetworkConfig(samples=10_000, width=300))}


@one_thread()
def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Measure an exact simplex ETF, one with noise, random features and a trained network.

    Only the first seed is used.
    """
    network = config.network
    generator = torch.Generator().manual_seed(seeds[0])
    etf = simplex_etf(network.num_classes, network.width, generator=generator)
    labels = torch.arange(network.samples) % network.num_classes
    shape = (network.samples, network.width)
    spread = torch.randn(*shape, generator=generator, dtype=torch.float64)
    weight_noise = torch.randn(etf.shape, generator=generator, dtype=torch.float64)
    size = config.noise / network.width**0.5
    model, samples = train_perfectly(network, generator)
    report = measure(model, [tuple(samples)], layers="all")
    nearly_collapsed = measure_features(
        etf[labels] + size * spread, labels, weight=etf + size * weight_noise
    )
    cases = {
        "exact ETF": measure_features(etf[labels], labels, weight=etf),
        "nearly collapsed": nearly_collapsed,
        "random cloud": measure_features(spread, labels, weight=weight_noise),
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


def tables(numbers: Mapping[str, Any]) -> list[Any]:
    """Return two tables: metrics of four sets of features, and of every layer of a network."""
    return [
        "Four cases, from exact collapse to none:",
        metric_table(list(numbers["cases"].values()), titles=list(numbers["cases"])),
        f"\nEvery layer of the classifier, trained {numbers['epochs']} epochs to accuracy 1:",
        layer_table(numbers["layers"]),
        *numbers["remarks"],
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return no picture; the tour consists of tables."""
    return []

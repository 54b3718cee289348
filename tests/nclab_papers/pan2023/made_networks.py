"""Made-up networks, layer by layer, for the smallest e of the conjectures to be computed from."""

from typing import Any, NamedTuple

from nclab_papers.pan2023.conjectures import smallest, worst_of_seeds
from tests.nclab_papers.pan2023.thesis_rows import SEEDS

DECAYS = (1e-3, 1e-2)
PLACES = [(data, layers) for data in ("conic", "teacher") for layers in (6, 15)]


class Network(NamedTuple):
    """What is measured in each of three layers of a network."""

    gaps: tuple[float, float, float]
    accuracies: tuple[float, float, float]


Pair = tuple[Network, Network]
"""The networks of both weight decays."""
LAYER_BY_LAYER: Pair = (
    Network((0.1, 0.2, 0.3), (0.8, 0.9, 1.0)),
    Network((0.1, 0.3, 0.6), (0.9, 1.0, 1.0)),
)
"""As the conjectures say: no e is needed."""


def needing(e: float) -> Pair:
    """Networks that need just this e, for each conjecture."""
    fall = 2.302585092994046 * e  # of the last layers over one decade
    return (
        Network((0.2, 0.6 + e, 0.6), (1 - e / 2, 1.0, 1.0)),
        Network((0.2, 0.6 + e - fall, 0.6 - fall), (1 - e, 1 - e / 2, 1.0)),
    )


def conjectured(pair: Pair, *, backwards: str = "") -> dict[str, Any]:
    """The smallest e of every seed, computed by nclab from the same two networks in all seeds.

    Args:
        backwards: weight_decay or measured, what runs backwards in every other seed.
    """
    rows = []
    for data, layers in PLACES:
        for seed in SEEDS:
            turned = backwards if seed % 2 else ""
            where = {"data": data, "layers": layers, "seed": seed}
            rows += [{**where, **row} for row in smallest(_networks(pair, turned))]
    return {"worst": worst_of_seeds(rows)}


def _networks(pair: Pair, turned: str) -> list[dict[str, Any]]:
    decays = DECAYS[::-1] if turned == "weight_decay" else DECAYS
    found = []
    for decay, network in zip(decays, pair, strict=True):
        measured = [
            {"min_intra": gap, "max_inter": 0.0, "nc4_ncc_accuracy": accuracy}
            for gap, accuracy in zip(*network, strict=True)
        ]
        if turned == "measured":
            measured.reverse()
        end = {"weight_decay": decay, "accuracy": 1.0, **measured[-1]}
        found.append({**end, "measured": measured})
    return found

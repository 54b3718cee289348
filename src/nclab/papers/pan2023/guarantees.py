"""What near-optimal loss guarantees: curves against the true worst case, and real networks.

Claim: a loss near its optimum forces neural collapse, the more so the larger the weight decay.
Source: pan2023, Thm 2.3.1
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.measurement import measure
from nclab.papers.pan2023 import pictures_guarantees as theory
from nclab.papers.small_network import NetworkConfig, train
from nclab.progress import track
from nclab.theory.certificates.certificate import certify
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.statements.worst_case import worst_inter, worst_intra
from nclab.threads import one_thread

TELLING = 3e-3
"""Weight decay from which on the certificates of trained networks say a lot."""


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    num_classes: int = 4
    """Classes of the guarantee curves."""
    product: float = 3.0
    """alpha * beta of the guarantee curves."""
    relative_excess: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
    """Excess losses of the curves, in units of the optimal loss."""
    starts: int = 4
    """Starts of every search for the worst case."""
    weight_decays: tuple[float, ...] = (5e-4, 1e-3, 3e-3, 5e-3)
    """Weight decays of the trained networks."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The networks but for their weight decay."""


PRESETS = {
    "quick": Config(),
    "paper": Config(
        num_classes=10,
        product=5.0,
        weight_decays=(3e-4, 5e-4, 1e-3, 3e-3, 5e-3),
        network=NetworkConfig(samples=10_000, width=300, depth=5),
    ),
}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return guarantees(PRESETS[preset], seeds=seeds)


def guarantees(config: Config, *, seeds: Sequence[int] = (0,)) -> dict[str, Any]:
    """The experiment at any size: the curves once, the networks for every seed."""
    with one_thread():
        curve = [
            curve_row(config, relative, seeds[0])
            for relative in track(config.relative_excess, "worst cases")
        ]
        networks = [
            network_row(config, decay, seed) for seed in seeds for decay in config.weight_decays
        ]
    low, high = min(config.weight_decays) / 2, max(config.weight_decays) * 2
    optima = [
        regularised_optimum(config.network.num_classes, float(decay)).to_dict()
        for decay in np.geomspace(low, high, 40)
    ]
    numbers = {"config": asdict(config), "curve": curve, "networks": networks, "optima": optima}
    return {**numbers, "checks": checks(numbers)}


def checks(numbers: Mapping[str, Any]) -> dict[str, bool]:
    """The claims, judged from the numbers."""
    networks = numbers["networks"]
    measured = [np.array(row["intra_cosine"]) for row in networks]
    promised = [np.array(row["class_intra_lower"]) for row in networks]
    neighbours = [
        (before.mean(), after.mean())
        for (one, before), (two, after) in pairwise(zip(networks, promised, strict=True))
        if one["seed"] == two["seed"]
    ]
    return {
        "no worst case violates the certificate": all(
            _at_least(row["true_intra"], row["intra_lower"])
            and _at_least(row["inter_upper"], row["true_inter"])
            for row in numbers["curve"]
        ),
        "no network violates its certificate": all(
            (m >= p).all() for m, p in zip(measured, promised, strict=True)
        ),
        "the guarantee grows with weight decay": all(one <= two for one, two in neighbours),
        f"its average is at least 0.5 from weight decay {TELLING:g} on": all(
            row["mean_guaranteed"] >= 0.5 for row in networks if row["weight_decay"] >= TELLING
        ),
        "the thesis's explicit constants are vacuous there": all(
            row["thesis_intra_lower"] <= 0 for row in networks
        ),
    }


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The curve, the networks, the checks."""
    curve = _table(
        numbers["curve"],
        {
            "excess_loss": "ε",
            "thesis_intra_lower": "thesis intra ≥",
            "intra_lower": "nclab intra ≥",
            "true_intra": "true min intra",
            "inter_upper": "nclab inter ≤",
            "true_inter": "true max inter",
        },
    )
    networks = _table(
        numbers["networks"],
        {
            "weight_decay": "weight decay",
            "seed": "seed",
            "alpha": "α",
            "predicted_alpha": "α*",
            "beta": "β",
            "predicted_beta": "β*",
            "loss": "loss",
            "min_intra": "min intra",
            "min_guaranteed": "guaranteed",
            "mean_guaranteed": "on average",
            "thesis_intra_lower": "thesis",
        },
    )
    config = numbers["config"]
    return [
        f"What the loss guarantees, C = {config['num_classes']}, αβ = {config['product']:g}:",
        curve,
        "\nTrained networks: norms beside the optimum (*), guaranteed beside measured:",
        networks,
        *(f"{'✓' if ok else '✗'} {claim}" for claim, ok in numbers["checks"].items()),
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Guarantee curves and the networks against weight decay."""
    config = numbers["config"]
    sizes = {"num_classes": config["num_classes"], "product": config["product"]}
    first = [row for row in numbers["networks"] if row["seed"] == numbers["networks"][0]["seed"]]
    return [
        theory.guarantees_picture(theory.guarantee_panels(numbers["curve"], **sizes)),
        theory.networks_picture(theory.network_panels(first, numbers["optima"])),
    ]


def curve_row(config: Config, relative: float, seed: int) -> dict[str, float | None]:
    """Guaranteed and true deviations at one excess loss."""
    root = math.sqrt(config.product)
    best = certify(config.num_classes, root, root, math.log(config.num_classes)).optimal_loss
    excess = relative * best
    certificate = certify(config.num_classes, root, root, best + excess)
    sizes = (config.num_classes, config.product, excess)
    return {
        "excess_loss": excess,
        "intra_lower": certificate.intra_lower.value,
        "inter_upper": certificate.inter_upper.value,
        "thesis_intra_lower": certificate.thesis_intra_lower.value,
        "thesis_inter_upper": certificate.thesis_inter_upper.value,
        "true_intra": worst_intra(*sizes, starts=config.starts, seed=seed).value,
        "true_inter": worst_inter(*sizes, starts=config.starts, seed=seed).value,
    }


def network_row(config: Config, weight_decay: float, seed: int) -> dict[str, Any]:
    """A trained network: norms, loss, cosines measured and guaranteed."""
    generator = torch.Generator().manual_seed(seed)
    trained = train(replace(config.network, weight_decay=weight_decay), generator)
    collapse = measure(trained.network, [(trained.inputs, trained.targets)]).last
    certificate = collapse.certificate()
    optimum = regularised_optimum(config.network.num_classes, weight_decay)
    assert certificate.class_intra_lower is not None
    guaranteed = certificate.class_intra_lower
    return {
        "weight_decay": weight_decay,
        "seed": seed,
        "alpha": collapse.alpha,
        "beta": collapse.beta,
        "product": certificate.alpha * certificate.beta,
        "loss": collapse.balanced_loss,
        "excess_loss": certificate.excess_loss,
        "accuracy": collapse.accuracy,
        "predicted_alpha": optimum.alpha,
        "predicted_beta": optimum.beta,
        "predicted_loss": optimum.optimal_loss,
        "intra_cosine": collapse.intra_cosine.tolist(),
        "class_intra_lower": guaranteed.tolist(),
        "min_intra": collapse.min_intra,
        "min_guaranteed": float(guaranteed.min()),
        "mean_guaranteed": float(guaranteed.mean()),
        "thesis_intra_lower": certificate.thesis_printed_intra_lower.value,
    }


def _at_least(larger: float | None, smaller: float | None) -> bool:
    return larger is None or smaller is None or larger >= smaller - 1e-9


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> Any:
    from rich.table import Table

    from nclab.text import number

    table = Table(header_style="bold")
    for title in columns.values():
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*(number(row[key]) for key in columns))
    return table

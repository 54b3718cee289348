"""What every metric of `Collapse` promises, checked on all of them at once."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import nclab
from nclab.metrics.catalogue import METRICS
from tests.clouds import Cloud

Scalars = Mapping[str, float | None]

NEVER = frozenset[str]()
COSINES = {m.name for m in METRICS if m.group == "cosine" and not m.name.startswith("centred")}
NORMS = {"alpha", "beta", "loss", "balanced_loss", "optimal_loss", "excess_loss"}
MARGINS = {"margin", "normalised_margin"}
DECISIONS = {"accuracy", "nc4_agreement", "nc4_cosine_agreement"}
ALIGNMENT = {"nc3_alignment_min", "nc3_alignment_mean"}

VARIES_UNDER: Mapping[str, set[str]] = {
    "rotation of both": set(),
    "translation of the features": COSINES
    | NORMS - {"beta"}
    | MARGINS
    | DECISIONS
    | ALIGNMENT
    | {"nc4_cosine_accuracy"},
    "scale of the features": NORMS - {"beta"} | MARGINS | DECISIONS,
    "scale of the weights": NORMS - {"alpha"} | MARGINS | DECISIONS,
    "order of the samples": set(),
}
"""What may change; everything else must not."""


def measure(cloud: Cloud, *, bias: bool = True) -> Scalars:
    """All scalars of a cloud."""
    return nclab.measure_features(
        cloud.features, cloud.labels, cloud.weight, cloud.bias if bias else None
    ).scalars()


def transforms(cloud: Cloud) -> dict[str, Cloud]:
    """The cloud, changed in ways that leave most metrics alone."""
    dim = cloud.features.shape[1]
    generator = torch.Generator().manual_seed(7)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    order = torch.randperm(len(cloud.labels), generator=generator)
    return {
        "rotation of both": cloud._replace(
            features=cloud.features @ turn, weight=cloud.weight @ turn
        ),
        "translation of the features": cloud._replace(features=cloud.features + 3.0),
        "scale of the features": cloud._replace(features=cloud.features * 17.0),
        "scale of the weights": cloud._replace(weight=cloud.weight * 0.01, bias=cloud.bias * 0.01),
        "order of the samples": cloud._replace(
            features=cloud.features[order], labels=cloud.labels[order]
        ),
    }


def assert_same(
    found: Scalars,
    expected: Scalars,
    *,
    relative: float,
    absolute: float = 1e-14,
    leaving_out: set[str] | frozenset[str] = NEVER,
) -> None:
    """Every scalar agrees, and is there or not there in both."""
    for name, value in expected.items():
        if name in leaving_out:
            continue
        other = found[name]
        assert (other is None) == (value is None), name
        if value is not None and other is not None:
            close = math.isclose(other, value, rel_tol=relative, abs_tol=absolute)
            assert close, f"{name}: {other!r} is not {value!r}"


def streamed(cloud: Cloud, cut: Callable[[Tensor], list[Tensor]], *, head: bool = True) -> Scalars:
    """All scalars when the rows come in the given batches."""
    rows = cut(torch.arange(len(cloud.labels)))
    batches = [(cloud.features[part], cloud.labels[part]) for part in rows]
    weight, bias = (cloud.weight, cloud.bias) if head else (None, None)
    return nclab.measure_features(batches, weight=weight, bias=bias).scalars()

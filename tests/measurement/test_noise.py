"""What noise scores, against noise."""

import pytest
import torch

import nclab
from nclab.measurement.diagnosis import (
    noise_nc1_trace_pinv,
    noise_nc1_trace_ratio,
    noise_ncc_accuracy,
)


@pytest.mark.parametrize(
    ("num_classes", "per_class", "dim"),
    [(10, 4, 2000), (5, 6, 40), (10, 20, 60), (40, 5, 12), (3, 2, 300)],
)
def test_formulas_agree_with_simulated_noise(num_classes: int, per_class: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_classes * per_class) % num_classes
    found: dict[str, list[float]] = {}
    for _ in range(12):
        rows = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
        values = nclab.measure_features(rows, labels).values
        for name in ("nc1_trace_pinv", "nc1_trace_ratio", "nc4_ncc_accuracy"):
            found.setdefault(name, []).append(values[name] or 0.0)
    mean = {name: sum(values) / len(values) for name, values in found.items()}
    expected = noise_nc1_trace_pinv(num_classes, per_class, dim)
    assert mean["nc1_trace_pinv"] == pytest.approx(expected, rel=0.15)
    expected = noise_nc1_trace_ratio(num_classes, per_class)
    assert mean["nc1_trace_ratio"] == pytest.approx(expected, rel=0.1)
    expected = noise_ncc_accuracy(num_classes, per_class, dim)
    assert mean["nc4_ncc_accuracy"] == pytest.approx(expected, abs=0.05)

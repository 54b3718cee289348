"""Tests that every metric has its ideal value at an exact simplex ETF."""

import pytest
import torch

import nclab
from nclab.metrics import simplex_etf
from nclab.metrics.catalogue import EXTRAS, METRICS

CLASSES = (2, 3, 10, 200)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("extra", [0, 1, 5])
@pytest.mark.parametrize("moved", [False, True], ids=["unchanged", "rotated and scaled"])
def test_metrics_have_their_ideal_values(num_classes: int, extra: int, moved: bool) -> None:
    dim = num_classes - 1 + extra
    generator = torch.Generator().manual_seed(num_classes + extra)
    etf = simplex_etf(num_classes, dim, generator=generator if moved else None)
    per_class = 3
    features = etf.repeat(per_class, 1) * (37.5 if moved else 1.0)
    labels = torch.arange(num_classes).repeat(per_class)
    # The weights equal the means up to a common factor.
    collapse = nclab.measure_features(
        features, labels, weight=etf * (0.2 if moved else 1.0), metrics="all"
    )
    for metric in (*METRICS, *EXTRAS):
        if metric.ideal is not None and metric.name != "minority_cosine":  # No class is small.
            value = getattr(collapse, metric.name)
            assert value == pytest.approx(metric.ideal(num_classes), abs=1e-12), metric.name
    assert collapse.optimal_loss == pytest.approx(collapse.loss, rel=1e-12)
    off = collapse.inter_cosine[~torch.eye(num_classes, dtype=torch.bool)]
    assert float((off + 1 / (num_classes - 1)).abs().max()) < 1e-12
    assert float((collapse.intra_cosine - 1).abs().max()) < 1e-12
    assert collapse.nc3_alignment is not None
    assert float((collapse.nc3_alignment - 1).abs().max()) < 1e-12
    assert collapse.warnings == ()


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("per_class", [1, 4])
def test_margin_is_the_largest_possible_when_norms_balance(
    num_classes: int, per_class: int
) -> None:
    etf = simplex_etf(num_classes, num_classes)
    labels = torch.arange(num_classes).repeat(per_class)
    # |W|_F = |H|_F: ji2022, Lemma 3.1 holds with equality.
    collapse = nclab.measure_features(etf[labels], labels, weight=etf * per_class**0.5)
    assert collapse.normalised_margin == pytest.approx(1.0, abs=1e-12)
    assert collapse.margin == pytest.approx(per_class**0.5 * num_classes / (num_classes - 1))


def test_a_bias_does_not_let_the_loss_fall_below_its_optimum() -> None:
    """The centred bias sums to zero over classes, so m needs no correction."""
    generator = torch.Generator().manual_seed(0)
    worst = float("inf")
    for trial in range(300):
        num_classes = 2 + trial % 6
        etf = simplex_etf(num_classes, 6)
        size = 10 ** float(torch.rand((), generator=generator) * 4 - 5)
        noise = torch.randn(num_classes, 6, generator=generator, dtype=torch.float64)
        weight = 2 * etf + size * noise
        bias = size * torch.randn(num_classes, generator=generator, dtype=torch.float64)
        sizes = torch.randint(1, 6, (num_classes,), generator=generator)
        labels = torch.repeat_interleave(torch.arange(num_classes), sizes)
        collapse = nclab.measure_features(
            2 * etf[labels], labels, weight, bias, second_pass=False, scatter=False
        )
        assert collapse.excess_loss is not None
        worst = min(worst, collapse.excess_loss)
    assert worst > -1e-15


def test_simplex_etf_needs_enough_dimensions() -> None:
    with pytest.raises(nclab.NclabError, match="dimension 4 or more"):
        simplex_etf(5, 3)

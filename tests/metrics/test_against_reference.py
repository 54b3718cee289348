"""Tests of every metric against the slow loops of tests/reference."""

import numpy as np
import pytest
import torch

import nclab
from nclab import metrics
from nclab.metrics import view
from tests.clouds import cloud
from tests.contract import assert_same, measure
from tests.reference.slow import slow_metrics

CASES = {
    "balanced": cloud(),
    "unbalanced": cloud(balanced=False, seed=1),
    "many classes": cloud(num_classes=11, dim=5, per_class=4, seed=2),
    "two classes": cloud(num_classes=2, dim=3, per_class=8, seed=3),
    "hardly collapsed": cloud(noise=5.0, seed=4),
    "nearly collapsed": cloud(noise=1e-5, seed=5),
}


@pytest.mark.parametrize("name", CASES)
def test_all_metrics_agree_with_slow_loops(name: str) -> None:
    data = CASES[name]
    expected = slow_metrics(data.features, data.labels, data.weight, data.bias)
    values = measure(data)
    assert set(expected) == set(values)
    assert_same(values, expected, relative=1e-9, absolute=1e-13)


def test_metrics_without_a_bias_agree_with_slow_loops() -> None:
    data = CASES["balanced"]
    expected = slow_metrics(data.features, data.labels, data.weight)
    assert_same(measure(data, bias=False), expected, relative=1e-9, absolute=1e-13)


def test_tiles_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are full and partial tiles, on and off the diagonal."""
    data = cloud(num_classes=23, dim=6, per_class=3, seed=6)
    untiled = nclab.measure_features(data.features, data.labels, data.weight)
    monkeypatch.setattr(view, "TILE", 5)
    tiled = nclab.measure_features(data.features, data.labels, data.weight)
    assert_same(tiled.scalars(), untiled.scalars(), relative=1e-12)
    assert tiled.max_inter_pair == untiled.max_inter_pair


def test_max_inter_pair_is_the_pair_with_the_largest_cosine() -> None:
    data = cloud(num_classes=23, dim=6, per_class=3, seed=6)
    collapse = nclab.measure_features(data.features, data.labels)
    cosines = collapse.inter_cosine.clone().fill_diagonal_(-2)
    index = divmod(int(cosines.argmax()), 23)
    assert collapse.max_inter_pair == tuple(sorted(index))
    assert collapse.max_inter == pytest.approx(float(cosines.max()), rel=1e-13)


def test_scalars_are_means_and_maxima_of_pair_arrays() -> None:
    data = CASES["unbalanced"]
    collapse = nclab.measure_features(data.features, data.labels)
    above = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert float(collapse.cdnv_pairs[above].mean()) == pytest.approx(collapse.cdnv, rel=1e-13)
    assert torch.allclose(collapse.cdnv_pairs, collapse.cdnv_pairs.T, rtol=1e-14)
    assert float(collapse.inter_cosine[above].mean()) == pytest.approx(
        collapse.mean_inter, rel=1e-12
    )
    assert float(collapse.centred_inter_cosine[above].max()) == pytest.approx(
        collapse.centred_max_inter, rel=1e-12
    )
    assert torch.allclose(collapse.inter_cosine.diagonal(), collapse.intra_cosine, rtol=1e-14)


def test_offdiagonal_cosine_excludes_pairs_of_a_sample_with_itself() -> None:
    data = CASES["unbalanced"]
    moments = nclab.ClassMoments(5, 7)
    moments.update(data.features, data.labels)
    values = metrics.intra_cosine_offdiagonal(moments)
    for c in range(5):
        rows = torch.nn.functional.normalize(data.features[data.labels == c], dim=1)
        cosines = rows @ rows.T
        off = cosines[~torch.eye(len(rows), dtype=torch.bool)]
        assert float(values[c]) == pytest.approx(float(off.mean()), rel=1e-11)


def test_variants_of_published_codes() -> None:
    """Variants without centring agree with their definitions."""
    data = CASES["unbalanced"]
    moments = nclab.ClassMoments(5, 7, scatter=True)
    moments.update(data.features, data.labels)
    h, y = data.features.numpy(), data.labels.numpy()
    means = np.array([h[y == c].mean(0) for c in range(5)])
    w = data.weight.numpy()
    for rows, values in (
        (means, metrics.nc2_equiangularity_means_uncentred(moments)),
        (w, metrics.nc2_equiangularity_weights_uncentred(data.weight)),
    ):
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        off = (units @ units.T)[~np.eye(5, dtype=bool)]
        assert values == pytest.approx(np.mean(np.abs(off + 0.25)), rel=1e-11)
    raw = [w[c] @ means[c] / np.linalg.norm(w[c]) / np.linalg.norm(means[c]) for c in range(5)]
    assert metrics.nc3_alignment_raw(moments, data.weight).tolist() == pytest.approx(raw)


def test_snr_spectrum_has_the_singular_values_of_whitened_means() -> None:
    data = CASES["balanced"]
    moments = nclab.ClassMoments(5, 7, scatter=True)
    moments.update(data.features, data.labels)
    within = (moments.within_scatter / moments.total).numpy()
    root = np.linalg.inv(np.linalg.cholesky(within))
    expected = np.linalg.svd(moments.centred_means.numpy() @ root.T, compute_uv=False)
    values = metrics.snr_spectrum(moments).numpy()
    assert values[:4] == pytest.approx(expected[:4], rel=1e-9)


def test_metrics_on_request_are_named() -> None:
    data = CASES["unbalanced"]
    collapse = nclab.measure_features(data.features, data.labels)
    with pytest.raises(AttributeError, match="Measure with metrics='all'"):
        _ = collapse.rankme
    with pytest.raises(nclab.NclabError, match=r"or names among .*rankme.*, got 'rankmee'"):
        nclab.measure_features(data.features, data.labels, metrics="rankmee")


def test_the_conversions_of_the_docs_hold() -> None:
    """The conversions to other codes in docs/metrics.md are correct."""
    data = CASES["unbalanced"]
    h, y = data.features.numpy(), data.labels.numpy()
    collapse = nclab.measure_features(data.features, data.labels, metrics="all")
    moments = collapse.moments
    means = np.array([h[y == c].mean(0) for c in range(5)])
    about_samples = np.sum((means - h.mean(0)) ** 2) / 5
    shift = (moments.global_mean - moments.sample_mean).square().sum()
    expected = moments.centred_means.square().sum() / 5 + shift
    assert about_samples == pytest.approx(float(expected), rel=1e-12)
    weighted = np.mean([h[y == c].var(0).sum() for c in range(5)])
    assert weighted == pytest.approx(float(collapse.variances.mean()), rel=1e-12)
    sizes = collapse.counts.double()
    unbiased = collapse.variances * sizes / (sizes - 1)
    assert h[y == 2].var(0, ddof=1).sum() == pytest.approx(float(unbiased[2]), rel=1e-12)


def test_centring_by_the_sample_mean_hides_an_exact_collapse() -> None:
    """Centred by the mean of all samples, collapsed classes of unequal size are misaligned."""
    etf = metrics.simplex_etf(4, 6)
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([50, 10, 5, 5]))
    collapse = nclab.measure_features(etf[labels], labels, weight=etf)
    assert collapse.nc3_self_duality == pytest.approx(0.0, abs=1e-12)
    moved = torch.nn.functional.normalize(etf - etf[labels].mean(0), dim=1)
    assert float((moved - etf).norm(dim=1).mean()) > 0.3

"""Distance of a measurement to a target, and to the simplex ETF."""

import math

import pytest
import torch

import nclab
from nclab.errors import DataError
from nclab.theory.targets.distance import distance_to


def network(target: nclab.Target, *, noise: float = 0.0) -> nclab.Collapse:
    """Return a measured network whose Gram matrices and logits are those of a target."""
    roots = target.counts.sqrt()
    U, s, V = torch.linalg.svd(target.logits * roots)
    share = math.sqrt(float(target.classifier_gram.trace()) / float(s.sum()))
    W, means = U * s.sqrt() * share, (V.T * s.sqrt()) / roots[:, None] / share
    labels = torch.repeat_interleave(torch.arange(len(roots)), target.counts.long())
    generator = torch.Generator().manual_seed(0)
    H = means[labels] + noise * torch.randn(len(labels), W.shape[1], generator=generator).double()
    return nclab.measure_features(H, labels, weight=W)


def test_a_network_at_its_target() -> None:
    target = nclab.target(counts=[40, 40, 8, 2, 2], weight_decay=(0.01, 0.004))
    collapse = network(target)
    distance = collapse.distance_to(target)
    for value in (distance.means, distance.means_raw, distance.classifier, distance.classifier_raw):
        assert value == pytest.approx(0, abs=1e-7)
    assert distance.excess_loss == pytest.approx(0, abs=1e-12)
    assert distance.mean_norm_ratios.tolist() == pytest.approx([1.0] * 5, rel=1e-6)
    assert distance.nearer == "target"
    assert distance.etf["means"] is not None
    assert distance.etf["means"] > 0.05
    # Its own target is this one, from norms and from the weight decay of the classifier alone.
    for own in (collapse.target(), collapse.target(weight_decay=0.01)):
        assert torch.allclose(own.logits, target.logits, atol=1e-4)
    inferred = collapse.target(weight_decay=0.01)
    assert "inferred from the balance of norms: 0.004" in inferred.notes[0]


def test_a_balanced_network_is_equally_far_from_target_and_etf() -> None:
    collapse = network(nclab.target(counts=[10] * 4, weight_decay=0.01), noise=0.1)
    distance = collapse.distance_to(collapse.target())
    assert collapse.target().geometry == "simplex ETF"
    assert distance.means == pytest.approx(distance.etf["means"])
    assert distance.excess_loss == pytest.approx(collapse.excess_loss, rel=0.1)
    assert "the same distance to the simplex ETF" in str(distance).replace("\n", " ")


def test_excess_loss_over_the_target_is_never_negative() -> None:
    target = nclab.target(counts=[30, 10, 3], weight_decay=0.01)
    for noise in (1e-3, 0.1, 1.0):
        collapse = network(target, noise=noise)
        excess = collapse.distance_to(collapse.target()).excess_loss
        assert excess is not None
        assert excess > -1e-12


def test_a_target_of_zero_has_no_distance() -> None:
    distance = distance_to(nclab.target(3, weight_decay=1.0), torch.eye(3), torch.eye(3))
    assert distance.means is None
    assert "no distance" in str(distance)
    assert distance.to_dict()["mean_norm_ratios"] == [None] * 3


def test_notes_on_limits_and_other_counts() -> None:
    collapse = network(nclab.target(counts=[30, 10, 3], weight_decay=0.001))
    distance = collapse.distance_to(nclab.target(counts=[30, 10, 3], weight_decay=0))
    assert distance.excess_loss is None
    assert float(distance.mean_norm_ratios.mean()) == pytest.approx(1.0)
    assert "is a limit" in str(distance)
    other = collapse.distance_to(nclab.target(counts=[3, 10, 30], weight_decay=0.001))
    assert "other counts than the network" in " ".join(str(other).split())
    twice = collapse.distance_to(nclab.target(counts=[60, 20, 6], weight_decay=0.001))
    assert twice.notes == ()


def test_wrong_numbers_of_classes_raise() -> None:
    with pytest.raises(
        DataError, match="Expected a target with 3 classes, like the network, got a target with 4"
    ):
        distance_to(nclab.target(4, weight_decay=0.1), torch.eye(3))
    bare = nclab.measure_features(torch.eye(3), [0, 1, 2])
    with pytest.raises(DataError, match="with a classifier"):
        bare.target()

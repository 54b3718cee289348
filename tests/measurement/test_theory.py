"""Targets of a measurement and its distance to the optimum."""

import pytest
import torch

import nclab
from nclab.metrics.catalogue import TARGET_MEANINGS
from tests.theory.targets.test_distance import network

LONG_TAILED = nclab.target(counts=[40, 40, 8, 2, 2], weight_decay=(0.01, 0.004))


def test_optimum_distance_equals_distance_to_the_target() -> None:
    collapse = network(LONG_TAILED, noise=0.02)
    exact = collapse.distance_to(collapse.target())
    row = collapse.to_row()
    assert set(TARGET_MEANINGS) <= set(row)
    assert row["target_distance"] == pytest.approx(exact.means, abs=2e-3)
    assert row["target_distance_weights"] == pytest.approx(exact.classifier, abs=2e-3)
    assert row["etf_distance"] == exact.etf["means"]
    assert exact.excess_loss is not None
    assert row["target_excess_loss"] >= exact.excess_loss - 1e-12
    assert row["target_excess_loss"] == pytest.approx(exact.excess_loss, abs=0.01)
    record = collapse.to_dict()
    assert record["own_target"]["geometry"] == "between simplex ETF and SELI"
    # The weight decays whose optimum it is, from the norms alone.
    assert record["own_target"]["weight_decay"] == pytest.approx([0.01, 0.004], rel=0.15)
    assert collapse.optimum_distance is not None


def test_the_optimum_of_a_balanced_network_is_the_etf() -> None:
    collapse = network(nclab.target(counts=[10] * 4, weight_decay=0.01), noise=0.1)
    assert collapse.optimum_distance is not None
    assert collapse.optimum_distance.distance.apart == pytest.approx(0, abs=1e-3)
    assert len(collapse.summary()) == 1
    assert collapse.to_row()["target_distance"] == pytest.approx(collapse.to_row()["etf_distance"])


def test_to_dict_notes_why_the_optimum_is_missing() -> None:
    torch.manual_seed(0)
    labels, rows = torch.arange(40) % 5, torch.randn(40, 3)
    collapse = nclab.measure_features(rows, labels, weight=torch.randn(5, 3))
    assert collapse.optimum_distance is None
    assert "d = 3 < C - 1" in collapse.to_dict()["notes"]["target_distance"]
    assert "target_distance" not in nclab.measure_features(rows, labels).to_dict()["notes"]


def test_the_monitor_reports_the_distance_to_the_optimum() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([0] * 40 + [1] * 12 + [2] * 4)
    inputs = 2 * torch.randn(3, 6)[labels] + 0.3 * torch.randn(56, 6)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=5e-3)
    events: list[nclab.monitor.Event] = []
    with nclab.Monitor(net, every=20, sinks=events.append) as monitor:
        for _ in range(60):
            for batch in monitor.watch([(inputs, labels)]):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()
                optimiser.step()
    assert "nc/0/target_distance" in events[-1].scalars()
    epochs, distances = monitor.history.series("target_distance")
    assert epochs == [20, 40, 60]
    assert all(0 < one < 2 for one in distances)
    assert "of the way to its target" in monitor.history.progress()


@pytest.mark.parametrize("given", ["x", (1e-3,), (1e-3, 1e-3, 1.0)])
def test_a_wrong_weight_decay_raises(given: object) -> None:
    with pytest.raises(nclab.NclabError, match="weight_decay"):
        network(LONG_TAILED).target(weight_decay=given)  # type: ignore[arg-type]


def test_zero_norms_raise_if_the_weight_decay_must_be_inferred() -> None:
    """The error is about the norms, not about the weight decay."""
    for features, weight in (
        (torch.zeros(5, 3), torch.eye(3)),
        (torch.rand(5, 3), 0 * torch.eye(3)),
    ):
        collapse = nclab.measure_features(features, torch.tensor([0, 0, 0, 1, 2]), weight=weight)
        with pytest.raises(nclab.DataError, match="that are not zero") as raised:
            collapse.target(weight_decay=0.01)
        assert "\n" not in str(raised.value)

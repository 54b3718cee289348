"""Tests that every alarm is raised once, and only when its condition holds."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.monitor import (
    Alarm,
    CollapseLost,
    CollapseReached,
    DeadFeatures,
    Event,
    MinorityCollapse,
    NotFinite,
)
from nclab.monitor.event import AlarmRule, raised

CORNERS = torch.eye(4) - 0.25


def cloud(noise: float, *, classes: Sequence[int] = (0, 1, 2, 3), scale: float = 1.0) -> Tensor:
    """Return forty features around the corners of a simplex, one corner for each class."""
    generator = torch.Generator().manual_seed(0)
    corners = CORNERS[list(classes)].repeat(10, 1)
    return scale * corners + noise * torch.randn(40, 4, generator=generator)


LABELS = torch.arange(4).repeat(10)


def watched(rule: AlarmRule, *features: Tensor) -> list[list[Alarm]]:
    """Return the alarms of each epoch in which the classifier reads these features."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 4))
    events: list[Event] = []
    with nclab.Monitor(model, alarms=[rule], sinks=events.append) as monitor:
        for rows in features:
            for inputs, _ in monitor.watch([(rows, LABELS)]):
                model(inputs)
    assert monitor.alarms == [alarm for event in events for alarm in event.alarms]
    return [list(event.alarms) for event in events]


def test_collapse_reached() -> None:
    first, second, third = watched(CollapseReached(), cloud(0.5), cloud(0.01), cloud(0.001))
    assert first == third == []
    assert [(alarm.name, alarm.layer, alarm.severe) for alarm in second] == [
        ("collapse reached", "0", False)
    ]
    assert 0 < second[0].value < 0.1


def test_collapse_reached_with_other_thresholds() -> None:
    strict = CollapseReached({"min_intra": 1e-6, "max_inter": 1e-3})
    assert watched(strict, cloud(0.01), cloud(1e-5))[0] == []
    assert len(watched(strict, cloud(0.01), cloud(1e-5))[1]) == 1


@pytest.mark.parametrize("alarm", [CollapseReached, CollapseLost])
@pytest.mark.parametrize(
    ("thresholds", "text"),
    [
        ({}, "got none"),
        ({"loss": 0.1}, "got loss"),
        ({"no_such_metric": 0.1}, "got no_such_metric"),
        ({"cdnv": -1.0}, r"cdnv in \[0, inf\), got -1.0"),
        ({"cdnv": math.nan}, r"cdnv in \[0, inf\), got nan"),
    ],
)
def test_unusable_thresholds_raise(
    alarm: type[CollapseReached | CollapseLost], thresholds: dict[str, float], text: str
) -> None:
    with pytest.raises(nclab.NclabError, match=text) as raised_error:
        alarm(thresholds)
    assert "\n" not in str(raised_error.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CollapseLost(factor=0.5), r"factor in \[1, inf\), got 0.5"),
        (lambda: CollapseLost(factor=math.nan), "factor .* got nan"),
        (lambda: MinorityCollapse(distance=-0.1), r"distance in \[0, 1\), got -0.1"),
        (lambda: DeadFeatures(share=5), r"share in \[0, 1\), got 5"),
    ],
)
def test_numbers_outside_their_range_raise(make: Callable[[], object], text: str) -> None:
    with pytest.raises(nclab.NclabError, match=text):
        make()


@pytest.mark.parametrize("name", ["nc1_trace_ratio", "nc2_equiangularity_means"])
def test_a_metric_that_is_nan_is_infinitely_far_from_collapse(name: str) -> None:
    event = _event(cloud(0.01))
    assert [alarm.name for alarm in raised(CollapseReached(), event)] == ["collapse reached"]
    [layer] = event.layers
    changed = replace(layer, values={**layer.values, name: math.nan})
    broken = replace(event.report, layers=(changed,))
    fired = frozenset({("collapse reached", layer.layer or "", ())})
    event = replace(event, report=broken, fired=fired)
    assert raised(CollapseReached(), event) == []
    assert [alarm.value for alarm in raised(CollapseLost(), event)] == [math.inf]


def both(event: Event) -> list[Alarm]:
    return [*CollapseReached()(event), *CollapseLost()(event)]


def test_collapse_lost() -> None:
    epochs = watched(both, cloud(0.01), cloud(0.5), cloud(0.6))
    assert [[alarm.name for alarm in alarms] for alarms in epochs] == [
        ["collapse reached"],
        ["collapse lost"],
        [],
    ]
    assert "nc1_trace_ratio" in epochs[1][0].message


def test_collapse_must_be_reached_before_it_is_lost() -> None:
    assert watched(both, cloud(0.5), cloud(0.6)) == [[], []]
    assert watched(CollapseLost(), cloud(0.01), cloud(0.5)) == [[], []]


def test_collapse_near_the_threshold_is_not_lost() -> None:
    rule = CollapseReached()
    reached, wavering = cloud(0.08), cloud(0.1)
    assert raised(rule, _event(reached))
    assert not raised(rule, _event(wavering))
    assert watched(both, reached, wavering)[1] == []


def _event(features: Tensor) -> Event:
    collapse = replace(nclab.measure_features(features, LABELS), layer="0")
    report = nclab.Report((collapse,), "fc", 40, {}, ())
    return Event(1, 1.0, "loader", report)


def test_minority_collapse() -> None:
    epochs = watched(
        MinorityCollapse(), cloud(0.02), cloud(0.02, classes=(0, 1, 2, 2)), cloud(0.02)
    )
    assert [[(a.name, a.classes) for a in alarms] for alarms in epochs] == [
        [],
        [("minority collapse", (2, 3))],
        [],
    ]
    assert epochs[1][0].value < 0.1
    assert "classes 2, 3" in str(epochs[1][0])


def test_minority_collapse_names_one_new_pair_at_a_time() -> None:
    merged = cloud(0.01, classes=(0, 0, 2, 2))
    epochs = watched(MinorityCollapse(), merged, merged, merged)
    assert sorted(alarms[0].classes for alarms in epochs[:2]) == [(0, 1), (2, 3)]
    assert epochs[2] == []


def test_no_minority_collapse_if_all_classes_are_near() -> None:
    assert watched(MinorityCollapse(), cloud(1e-6, scale=1e-3)) == [[]]
    assert watched(MinorityCollapse(), torch.zeros(40, 4)) == [[]]


def test_dead_features() -> None:
    dying = cloud(0.1)
    dying[LABELS == 1] = 0.0
    epochs = watched(DeadFeatures(), cloud(0.1), dying, dying)
    assert epochs[0] == epochs[2] == []
    assert [(a.name, a.layer, a.classes, a.value) for a in epochs[1]] == [
        ("dead features", "0", (1,), 1.0)
    ]


def test_a_few_dead_features_are_allowed() -> None:
    features = cloud(0.1)
    features[0] = 0.0
    assert watched(DeadFeatures(share=0.2), features) == [[]]
    assert len(watched(DeadFeatures(share=0.05), features)[0]) == 1


def test_not_finite() -> None:
    broken = cloud(0.1)
    broken[[2, 6]] = torch.nan
    broken[3] = torch.inf
    epochs = watched(NotFinite(), cloud(0.1), broken, broken)
    assert epochs[0] == epochs[2] == []
    assert [(a.name, a.layer, a.classes, a.value) for a in epochs[1]] == [
        ("not finite", "0", (2,), 2.0)
    ]


def test_a_diverging_training_is_reported_and_not_stopped() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    with nclab.Monitor(model, preset="full") as monitor:
        for rate in (0.01, 1e30):
            optimiser = torch.optim.SGD(model.parameters(), lr=rate)
            for inputs, labels in monitor.watch([(cloud(0.1), LABELS)] * 3):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimiser.step()
    assert monitor.epochs == 2
    assert "not finite" in {alarm.name for alarm in monitor.alarms}
    assert monitor.last is not None
    assert monitor.last.epoch == 2


def test_alarms_are_logged_once_and_rules_may_be_added(caplog: pytest.LogCaptureFixture) -> None:
    def too_confident(event: Event) -> Alarm | None:
        value = event.layers[-1].accuracy or 0.0
        return Alarm("guess", "0", (), value, "it guesses") if value < 2 else None

    with caplog.at_level(logging.INFO, "nclab"):
        assert len(watched(too_confident, cloud(0.5), cloud(0.5))[0]) == 1
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "epoch 1, 0: it guesses")
    ]

"""What every metric promises: its function alone, its place in `Collapse`, its docstring."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import nclab
from nclab import metrics
from nclab.metrics.catalogue import EXTRAS, METRICS
from nclab.metrics.view import parameters
from nclab.statistics import DirectionalSpread
from tests.clouds import Cloud

Scalars = Mapping[str, float | None]
Function = Callable[..., Any]

NEVER = frozenset[str]()
FEATURES = frozenset({"moments", "statistics", "second_pass", "spread"})
CLASSIFIER = frozenset({"weight", "classes"})
STATISTICS = FEATURES | CLASSIFIER | {"logits"}
"""Names of the parameters of metrics, by what they see of a cloud; logits see both."""
COMPARE = {metric.function for metric in METRICS if metric.needs == "both"}
"""Metrics of a second pass that see the classifier's decisions too."""


def functions() -> dict[str, Function]:
    """Every public metric, and every row of the catalogue, by name."""
    public = {name: getattr(metrics, name) for name in metrics.__all__}
    measured = {name: f for name, f in public.items() if parameters(f) <= STATISTICS}
    return measured | {metric.name: metric.function for metric in (*METRICS, *EXTRAS)}


def statistics(cloud: Cloud) -> dict[str, Any]:
    """What metrics are functions of, under the names of their parameters."""
    classes = cloud.labels.unique()
    shape = cloud.weight.shape
    moments = nclab.ClassMoments(*shape, scatter=True)
    moments.update(cloud.features, cloud.labels)
    logits = nclab.LogitStatistics(len(cloud.weight))
    outputs = torch.addmm(cloud.bias, cloud.features, cloud.weight.T)
    predicted = logits.update(outputs, cloud.labels)
    second_pass = nclab.SecondPass(moments)
    second_pass.update(cloud.features, cloud.labels, predicted)
    spread = DirectionalSpread(moments)
    spread.update(cloud.features, cloud.labels)
    moments = moments if len(classes) == len(cloud.weight) else moments.select(classes)
    return {
        "moments": moments,
        "statistics": moments,
        "second_pass": second_pass,
        "spread": spread,
        "logits": logits,
        "weight": cloud.weight,
        "classes": classes,
    }


def alone(function: Function, given: Mapping[str, Any]) -> list[float]:
    """The numbers of a metric that is called by itself."""
    found = function(*(given[name] for name in parameters(function)))
    value = torch.as_tensor(found, dtype=torch.float64)
    return [float(number) for number in value.flatten()]


def measure(cloud: Cloud, *, bias: bool = True, extras: str = "all") -> Scalars:
    """All scalars of a cloud."""
    return nclab.measure_features(
        *(cloud.features, cloud.labels, cloud.weight, cloud.bias if bias else None),
        metrics=extras,
    ).scalars()


def changes(cloud: Cloud) -> dict[str, Cloud]:
    """The cloud, changed in every way that a docstring may declare a metric invariant to."""
    features, labels, weight, bias = cloud
    generator = torch.Generator().manual_seed(7)
    dim = features.shape[1]
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    sizes = 0.5 + torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)
    step = torch.randn(dim, generator=generator, dtype=torch.float64)
    return {
        "rotation of both": Cloud(features @ turn, labels, weight @ turn, bias),
        "translation of the features": cloud._replace(features=features + 3.0),
        "translation of the classifier": cloud._replace(weight=weight + step, bias=bias + 2.0),
        "scale of the features": cloud._replace(features=features * 17.0),
        "scale of the classifier": cloud._replace(weight=weight * 0.01, bias=bias * 0.01),
        "scale of every single feature": cloud._replace(features=features * sizes),
        "a common scale of W and H": Cloud(features * 3.0, labels, weight * 3.0, bias * 9.0),
    }


SIDES = ("of the features", "of the classifier")
WORDS: Mapping[str, tuple[str, ...]] = {
    "rotation of both": ("rotation of both",),
    "rotation": ("rotation of both",),
    **{
        f"{what}{whose}": tuple(f"{what} {side}" for side in SIDES)
        for what in ("translation", "scale")
        for whose in ("", " of either")
    },
    **{
        f"{what} {side}": (f"{what} {side}",) for what in ("translation", "scale") for side in SIDES
    },
    "scale of every single feature": ("scale of every single feature", "scale of the features"),
    "a common scale of W and H": ("a common scale of W and H",),
}
"""What a docstring may say -> the changes that it means. Without a side: of what it sees."""


def declared(function: Function) -> frozenset[str]:
    """The changes that the docstring of a metric says it is invariant to."""
    line = re.search(r"^ *Invariant to: ([^.]+)\.$", function.__doc__ or "", re.MULTILINE)
    assert line, f"{function.__name__} does not say what it is invariant to"
    words = [" ".join(part.split()) for part in line[1].split(",")]
    unknown = [word for word in words if word not in WORDS]
    assert not unknown, f"{function.__name__} is invariant to {unknown}, which nothing tests"
    found = frozenset(change for word in words for change in WORDS[word])
    if {f"scale {side}" for side in SIDES} <= found:
        found |= {"a common scale of W and H"}
    return found


def sees(function: Function, change: str) -> bool:
    """Whether a change concerns what a metric is computed from."""
    names = parameters(function)
    both = "logits" in names or function in COMPARE
    of_features, of_classifier = (both or bool(names & side) for side in (FEATURES, CLASSIFIER))
    if change.endswith("of the classifier"):
        return of_classifier
    if change == "a common scale of W and H":
        return of_features and of_classifier
    return of_features or change == "rotation of both"


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
    return nclab.measure_features(batches, weight=weight, bias=bias, metrics="all").scalars()

"""The contract of metrics: their functions, their values in `Collapse`, and their docstrings."""

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
from tests.clouds import Cloud

Scalars = Mapping[str, float | None]
Function = Callable[..., Any]

NEVER = frozenset[str]()
FEATURES = frozenset({"moments", "statistics", "second_pass"})
CLASSIFIER = frozenset({"weight", "classes"})
STATISTICS = FEATURES | CLASSIFIER | {"logits"}
"""Names of metrics' parameters, by the data they depend on; logits depend on both."""
COMPARE = {metric.function for metric in METRICS if metric.needs == "both"}
"""Metrics of a second pass that also depend on the classifier's predictions."""


def functions() -> dict[str, Function]:
    """Return every public metric and every row of the catalogue by name."""
    public = {name: getattr(metrics, name) for name in metrics.__all__}
    measured = {name: f for name, f in public.items() if parameters(f) <= STATISTICS}
    return measured | {metric.name: metric.function for metric in (*METRICS, *EXTRAS)}


def statistics(cloud: Cloud) -> dict[str, Any]:
    """Return the statistics of a cloud under the names of metrics' parameters."""
    classes = cloud.labels.unique()
    shape = cloud.weight.shape
    moments = nclab.ClassMoments(*shape, scatter=True)
    moments.update(cloud.features, cloud.labels)
    logits = nclab.LogitStatistics(len(cloud.weight))
    outputs = torch.addmm(cloud.bias, cloud.features, cloud.weight.T)
    predicted = logits.update(outputs, cloud.labels)
    second_pass = nclab.SecondPass(moments)
    second_pass.update(cloud.features, cloud.labels, predicted)
    moments = moments if len(classes) == len(cloud.weight) else moments.select(classes)
    return {
        "moments": moments,
        "statistics": moments,
        "second_pass": second_pass,
        "logits": logits,
        "weight": cloud.weight,
        "classes": classes,
    }


def alone(function: Function, inputs: Mapping[str, Any]) -> list[float]:
    """Return the numbers of a metric called without a view."""
    values = function(*(inputs[name] for name in parameters(function)))
    value = torch.as_tensor(values, dtype=torch.float64)
    return [float(number) for number in value.flatten()]


def measure(cloud: Cloud, *, bias: bool = True, extras: str = "all") -> Scalars:
    """Return all scalars of a cloud."""
    return nclab.measure_features(
        *(cloud.features, cloud.labels, cloud.weight, cloud.bias if bias else None),
        metrics=extras,
    ).scalars()


def changes(cloud: Cloud) -> dict[str, Cloud]:
    """Return the cloud after each change that a docstring may declare a metric invariant to."""
    features, labels, weight, bias = cloud
    generator = torch.Generator().manual_seed(7)
    dim = features.shape[1]
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    sizes = 0.5 + torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)
    step = torch.randn(dim, generator=generator, dtype=torch.float64)
    return {
        "rotation of both": Cloud(features @ rotation, labels, weight @ rotation, bias),
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
        f"{transformation}{whose}": tuple(f"{transformation} {side}" for side in SIDES)
        for transformation in ("translation", "scale")
        for whose in ("", " of either")
    },
    **{
        f"{transformation} {side}": (f"{transformation} {side}",)
        for transformation in ("translation", "scale")
        for side in SIDES
    },
    "scale of every single feature": ("scale of every single feature", "scale of the features"),
    "a common scale of W and H": ("a common scale of W and H",),
}
"""Words of a docstring and the changes they mean.
Without a side, they mean all data that the metric depends on."""


def declared(function: Function) -> frozenset[str]:
    """Return the changes that the docstring of a metric declares it invariant to."""
    line = re.search(r"^ *Invariant to: ([^.]+)\.$", function.__doc__ or "", re.MULTILINE)
    assert line, f"{function.__name__} has no line 'Invariant to:'"
    words = [" ".join(part.split()) for part in line[1].split(",")]
    unknown = [word for word in words if word not in WORDS]
    assert not unknown, f"{function.__name__} is invariant to {unknown}, which no test covers"
    values = frozenset(change for word in words for change in WORDS[word])
    if {f"scale {side}" for side in SIDES} <= values:
        values |= {"a common scale of W and H"}
    return values


def depends_on(function: Function, change: str) -> bool:
    """Whether a change affects the data that a metric depends on."""
    names = parameters(function)
    both = "logits" in names or function in COMPARE
    of_features, of_classifier = (both or bool(names & side) for side in (FEATURES, CLASSIFIER))
    if change.endswith("of the classifier"):
        return of_classifier
    if change == "a common scale of W and H":
        return of_features and of_classifier
    return of_features or change == "rotation of both"


def assert_same(
    values: Scalars,
    expected: Scalars,
    *,
    relative: float,
    absolute: float = 1e-14,
    leaving_out: set[str] | frozenset[str] = NEVER,
) -> None:
    """Assert that all scalars agree, including those that are None."""
    for name, value in expected.items():
        if name in leaving_out:
            continue
        other = values[name]
        assert (other is None) == (value is None), name
        if value is not None and other is not None:
            close = math.isclose(other, value, rel_tol=relative, abs_tol=absolute)
            assert close, f"{name}: {other!r} is not {value!r}"


def streamed(cloud: Cloud, cut: Callable[[Tensor], list[Tensor]], *, head: bool = True) -> Scalars:
    """Return all scalars of a cloud that is read in the given batches."""
    rows = cut(torch.arange(len(cloud.labels)))
    batches = [(cloud.features[part], cloud.labels[part]) for part in rows]
    weight, bias = (cloud.weight, cloud.bias) if head else (None, None)
    return nclab.measure_features(batches, weight=weight, bias=bias, metrics="all").scalars()

"""A view of one layer: the statistics that metrics are computed from, with shared results.

A metric is a plain function of statistics. Called alone, it computes everything it needs. Called
through a view, every function marked `shared` is computed once for all metrics.
"""

import warnings
from collections.abc import Callable, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from nclab.errors import NclabWarning
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class View:
    """The statistics of one layer; the fields have the names of the metrics' parameters.

    >>> from nclab.metrics import max_inter, nc3_frobenius
    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 5.0]], [0, 1])
    >>> view = View(moments, classes=(moments.counts > 0).nonzero().flatten())
    >>> view(max_inter), view.allows(nc3_frobenius)
    (0.8, False)
    """

    moments: ClassMoments
    """Moments of the k classes with samples."""
    classes: Tensor
    """(k,) the rows of the classifier that belong to these classes."""
    weight: Tensor | None = None
    """(C, d) classifier of all classes."""
    logits: LogitStatistics | None = None
    second_pass: SecondPass | None = None
    remarks: list[str] = field(default_factory=list)
    """Warnings of the metrics about their numbers."""
    _results: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)

    @property
    def statistics(self) -> ClassMoments:
        """The moments, for metrics that accept anything with mean unit features."""
        return self.moments

    def allows(self, metric: Callable[..., object]) -> bool:
        """Whether all statistics that the metric needs are available.

        A metric that compares moments with the classifier selects the rows of the classes with
        samples by its parameter `classes`. Without this parameter, such a metric needs samples of
        all classes.
        """
        names = parameters(metric)
        if any(getattr(self, name) is None for name in names):
            return False
        complete = self.weight is None or len(self.weight) == len(self.classes)
        return complete or "classes" in names or not {"moments", "weight"} <= names

    def __call__(self, metric: Callable[..., Value]) -> Value:
        """Compute a metric from the statistics that its parameters name."""
        outer = _CURRENT.set(self)
        try:
            return metric(*(getattr(self, name) for name in parameters(metric)))
        finally:
            _CURRENT.reset(outer)


_CURRENT: ContextVar[View | None] = ContextVar("view", default=None)


@lru_cache
def parameters(metric: Callable[..., object]) -> Set[str]:
    """Return the names of the statistics that a metric is a function of, in its order."""
    return signature(metric).parameters.keys()


def shared(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Decorate a function so that all metrics of a view share one result for equal arguments.

    Use it for functions that cost a matrix product or a pass over C x d numbers.
    """

    @wraps(function)
    def once(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        view = _CURRENT.get()
        if view is None or kwargs:
            return function(*args, **kwargs)
        key = (function, *map(id, args))
        if key not in view._results:
            # Keep the arguments, so that no other object can reuse their ids.
            view._results[key] = args, function(*args, **kwargs)
        result: Value = view._results[key][1]
        return result

    return once


def remark(text: str | None) -> None:
    """Report a warning about the number of a metric, if there is one.

    A measurement collects the warnings of its metrics; a metric called alone issues them.
    """
    view = _CURRENT.get()
    if text is not None and view is not None:
        view.remarks.append(text)
    elif text is not None:
        warnings.warn(text, NclabWarning, stacklevel=3)

"""A view of one layer: the statistics that metrics are functions of, and what they share.

A metric is a plain function of statistics and, called alone, computes whatever it needs. Through
a view, what several metrics need is computed once: every function marked `shared`.
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
from nclab.statistics import ClassMoments, DirectionalSpread, LogitStatistics, SecondPass

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class View:
    """The statistics of one layer, under the names that metrics have for their parameters.

    >>> from nclab.metrics import max_inter, nc3_frobenius
    >>> moments = ClassMoments(2, 2)
    >>> moments.update([[3.0, 4.0], [0.0, 5.0]], [0, 1])
    >>> view = View(moments, classes=(moments.counts > 0).nonzero().flatten())
    >>> view(max_inter), view.allows(nc3_frobenius)
    (0.8, False)
    """

    moments: ClassMoments
    """Of the classes that have samples."""
    classes: Tensor
    """(k,) the rows of the classifier that belong to them."""
    weight: Tensor | None = None
    """(C, d) classifier of all classes."""
    logits: LogitStatistics | None = None
    look: SecondPass | None = None
    spread: DirectionalSpread | None = None
    remarks: list[str] = field(default_factory=list)
    """What metrics had to say about their numbers."""
    _results: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)

    @property
    def statistics(self) -> ClassMoments:
        """The moments, for metrics that take anything with unit means."""
        return self.moments

    def allows(self, metric: Callable[..., object]) -> bool:
        """Whether all that the metric takes is there.

        A metric that compares moments with the classifier finds the rows of their classes in
        `classes`. One that does not take it is defined only when every class has samples.
        """
        names = parameters(metric)
        if any(getattr(self, name) is None for name in names):
            return False
        complete = self.weight is None or len(self.weight) == len(self.classes)
        return complete or "classes" in names or not {"moments", "weight"} <= names

    def __call__(self, metric: Callable[..., Value]) -> Value:
        """The metric of the statistics that its parameters name."""
        outer = _CURRENT.set(self)
        try:
            return metric(*(getattr(self, name) for name in parameters(metric)))
        finally:
            _CURRENT.reset(outer)


_CURRENT: ContextVar[View | None] = ContextVar("view", default=None)


@lru_cache
def parameters(metric: Callable[..., object]) -> Set[str]:
    """Names of the statistics that a metric is a function of, in its order."""
    return signature(metric).parameters.keys()


def shared(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Let the metrics of one view compute this function once for the same statistics.

    For what costs a product or a pass over C x d numbers; a few numbers are not worth it.
    """

    @wraps(function)
    def once(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        view = _CURRENT.get()
        if view is None or kwargs:
            return function(*args, **kwargs)
        key = (function, *map(id, args))
        if key not in view._results:
            # The arguments are kept, so that nothing else can come to have their ids.
            view._results[key] = args, function(*args, **kwargs)
        result: Value = view._results[key][1]
        return result

    return once


def remark(text: str | None) -> None:
    """What a reader of a metric's number should know, if there is something.

    The measurement shows it; a metric called alone warns.
    """
    view = _CURRENT.get()
    if text is not None and view is not None:
        view.remarks.append(text)
    elif text is not None:
        warnings.warn(text, NclabWarning, stacklevel=3)

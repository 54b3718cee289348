"""NeuralCollapse: the metrics of one layer as a torchmetrics Metric."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nclab.errors import MissingExtra
from nclab.measurement.layer_stream import LayerStream
from nclab.measurement.options import SCATTER_LIMIT, MeasureOptions
from nclab.metrics.catalogue import METRICS, plugin_metrics
from nclab.statistics import ClassMoments
from nclab.statistics.blocks import device_with_float64
from nclab.statistics.checks import IGNORE_INDEX, check_sizes

try:
    from torchmetrics import Metric
except ImportError as error:
    raise MissingExtra("The metric NeuralCollapse", package="torchmetrics") from error

REASONS = {
    "second pass": "a metric sees each feature once; use nclab.measure_features",
    "scatter": "the d x d scatter is not kept; pass scatter=True",
    "weight": "a metric of features has no classifier",
}


@dataclass(frozen=True)
class Layout:
    """Positions of the parts of `ClassMoments` in a row of float64 numbers, which processes merge.

    >>> layout = Layout(num_classes=2, dim=2, scatter=False, ignore_index=None)
    >>> rows = torch.zeros(2, layout.size, dtype=torch.float64)
    >>> for row, feature in zip(rows, ([1.0, 0.0], [3.0, 0.0])):
    ...     layout.update(row, [feature, [0.0, 1.0]], [0, 1])
    >>> layout.moments(layout(rows)).means.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    num_classes: int
    dim: int
    scatter: bool
    ignore_index: int | None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each part of the row, in order."""
        classes, dim = self.num_classes, self.dim
        shapes: dict[str, tuple[int, ...]] = {
            "seen": (2,),
            "count": (classes,),
            "zeros": (classes,),
            "residual_square": (classes,),
            "pivot": (classes, dim),
            "residual_sum": (classes, dim),
            "unit_sum": (classes, dim),
        }
        return shapes | ({"residual_scatter": (dim, dim)} if self.scatter else {})

    @property
    def size(self) -> int:
        """Number of entries in the row."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, row: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the parts of a row by name, sharing its memory."""
        start = 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            yield name, row[start:stop].view(shape)
            start = stop

    def moments(self, row: Tensor) -> ClassMoments:
        """Return the `ClassMoments` of a row; both share memory, so updates change the row."""
        parts = dict(self.views(row))
        seen = parts.pop("seen").tolist()
        parts |= {name: parts[name].long() for name in ("count", "zeros")}
        moments = ClassMoments.over(parts, ignore_index=self.ignore_index)
        moments.ignored, moments.rows_seen = int(seen[0]), int(seen[1])
        moments.unit = max(moments.unit, seen[0] % 1.0)
        return moments

    def update(self, row: Tensor, features: Any, labels: Any) -> None:
        """Add a batch to a row."""
        moments = self.moments(row)
        moments.update(features, labels)
        self._write(row, moments, {"count": moments.counts, "zeros": moments.zero_counts})

    def __call__(self, rows: Tensor) -> Tensor:
        """Merge (processes, size) rows into one row, as `ClassMoments.merge` does."""
        total = self.moments(rows[0])
        for row in rows[1:]:
            total.merge(self.moments(row))
        merged = torch.empty_like(rows[0])
        self._write(merged, total, total.state_dict())
        return merged

    def _write(self, row: Tensor, moments: ClassMoments, state: Mapping[str, Tensor]) -> None:
        for name, view in self.views(row):
            if name == "seen":
                # The fraction stores the rounding unit, a power of two far below 1.
                view[0], view[1] = moments.ignored + moments.unit, moments.rows_seen
            elif name in state:
                view.copy_(state[name])


class NeuralCollapse(Metric):
    """Every one-pass metric of a layer's features, as a dict of float64 scalars.

    `update` takes features (B, d) and labels; `compute()` returns `min_intra`, `nc1_trace_ratio`,
    `cdnv` and so on, named `nc/<layer>/<metric>` if `layer` is given. Under torch.distributed the
    sums of all processes are merged exactly. The state stays float64 when the dtype of the
    surrounding model changes. Classes without samples are skipped; an undefined value, as with
    fewer than two classes, is nan.

    Args:
        layer: name of the layer, for the names of the results.
        scatter: whether to keep the d x d scatter, which `nc1_trace_pinv` needs; by default up to
            d = 4096.
        ignore_index: label of rows to skip.
        kwargs: options of every torchmetrics Metric, such as `sync_on_compute`.

    >>> metric = NeuralCollapse(num_classes=2, dim=2)
    >>> metric.update(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0]))
    >>> metric.update(torch.tensor([[-2.0, 0.0]]), torch.tensor([1]))
    >>> float(metric.compute()["max_inter"])
    -1.0
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    sums: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        layer: str | None = None,
        scatter: bool | None = None,
        ignore_index: int | None = IGNORE_INDEX,
        **kwargs: Any,
    ) -> None:
        check_sizes(num_classes, dim)
        super().__init__(**kwargs)
        keep = dim <= SCATTER_LIMIT if scatter is None else scatter
        self.layout = Layout(num_classes, dim, keep, ignore_index)
        self.layer = layer
        blank = torch.zeros(self.layout.size, dtype=torch.float64)
        self.add_state("sums", blank, dist_reduce_fx=self.layout)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics that one pass over features gives."""
        known = ("features", "scatter") if self.layout.scatter else ("features",)
        metrics = (*METRICS, *plugin_metrics())
        return tuple(metric.name for metric in metrics if metric.needs in known)

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch of features (B, d) and labels (B,)."""
        if self.sums.is_inference() and not torch.is_inference_mode_enabled():
            self.sums = self.sums.clone()
        with torch.no_grad():
            self.layout.update(self.sums, features, labels)

    def compute(self) -> dict[str, Tensor]:
        """Return the metrics of all batches."""
        moments = self.layout.moments(self.sums.clone())
        scalars: dict[str, float | None] = {}
        if int((moments.counts > 0).sum()) >= 2:
            classes, scatter = self.layout.num_classes, self.layout.scatter
            stream = LayerStream(MeasureOptions(num_classes=classes, scatter=scatter))
            stream.restore(moments)
            scalars = stream.collapse(REASONS).scalars()
        prefix = "" if self.layer is None else f"nc/{self.layer}/"
        result = {}
        for name in self.names:
            value = scalars.get(name)
            result[prefix + name] = self.sums.new_tensor(math.nan if value is None else value)
        return result

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = ()) -> nn.Module:
        # `.to(torch.float32)` of a surrounding model would round the sums: change the device only.
        this = super()._apply(fn, exclude_state=(*exclude_state, "sums"))
        device = device_with_float64(self.device)
        self.sums = self.sums.to(device)
        default = self._defaults["sums"]
        assert isinstance(default, Tensor)
        self._defaults["sums"] = default.to(device)
        self._computed = self._forward_cache = None
        return this

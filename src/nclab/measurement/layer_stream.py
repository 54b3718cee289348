"""LayerStream: all that is accumulated about one layer, over one pass or two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.asked import NOTHING_MORE, Asked, Beside
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import gather
from nclab.measurement.held_out import compared
from nclab.measurement.intervals import group_bytes
from nclab.measurement.kept_points import KeptPoints
from nclab.measurement.memory import Budget, Sizes, reference_bytes
from nclab.measurement.rare import Rare
from nclab.measurement.soft_labels import without_bounds
from nclab.progress import track
from nclab.statistics import ClassMoments, DirectionalSpread, LogitStatistics, SecondPass
from nclab.statistics.blocks import compiles
from nclab.statistics.checks import (
    HUGE,
    IGNORE_INDEX,
    as_features,
    as_labels,
    as_tensor,
    check_sizes,
    finite_rows,
)
from nclab.statistics.logits import is_wide, logit_blocks
from nclab.statistics.residuals import MOST_ASKED, MOST_CLASSES, MOST_SOFT
from nclab.statistics.second_pass import ReferencePass

SCATTER_LIMIT = 4096
"""Up to this dimension the d x d scatter is kept unless the caller says otherwise (128 MiB)."""
CACHE_BYTES = 2**30
"""Default memory for features kept for the second pass."""
NO_SCATTER = "min_count leaves classes out, whose part of the scatter only a second pass shows"


@dataclass(frozen=True)
class Head:
    """The linear classifier that reads a layer: logits = W h + b, in float64."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def checked(cls, weight: Any, bias: Any, num_classes: int | None) -> "Head":
        """Accept (C, d) weights and (C,) biases, or say what is wrong with them."""
        rows = _matrix(weight, "weight", "(classes, dimension)", ndim=2)
        if len(rows) < 2:
            raise DataError(
                f"Expected weight with one row per class, got {len(rows)}. A sigmoid classifier "
                "with weight w is that of the rows 0 and w."
            )
        if num_classes is not None and len(rows) != num_classes:
            raise DataError(
                f"Expected weight with one row per class, {num_classes}, got {len(rows)}. "
                "A (dimension, classes) matrix must be transposed."
            )
        if bias is None:
            return cls(rows, None)
        offset = _matrix(bias, "bias", "(classes,)", ndim=1)
        if len(offset) != len(rows):
            raise DataError(f"Expected bias of shape ({len(rows)},), got ({len(offset)},).")
        return cls(rows, offset)

    def check_dim(self, dim: int) -> None:
        """Refuse features that this classifier cannot read."""
        if self.weight.shape[1] != dim:
            raise DataError(
                f"Expected weight of shape (classes, {dim}) for features of dimension {dim}, "
                f"got {tuple(self.weight.shape)}. Transpose it or pass the layer it reads."
            )

    def to(self, device: torch.device) -> "Head":
        """The same on a device."""
        bias = None if self.bias is None else self.bias.to(device)
        return Head(self.weight.to(device), bias)

    def logits(self, block: Tensor) -> Tensor:
        """(B, C) logits of float64 rows."""
        if self.bias is None:
            return block @ self.weight.T
        return torch.addmm(self.bias, block, self.weight.T)


def _matrix(values: Any, what: str, shape: str, *, ndim: int) -> Tensor:
    """A finite float64 tensor of the given number of dimensions."""
    tensor = as_tensor(values, what)
    if tensor.dtype.is_complex:
        raise DataError(f"Expected real {what}, got complex numbers.")
    tensor = tensor.double()
    if tensor.ndim != ndim:
        raise DataError(f"Expected {what} of shape {shape}, got {tuple(tensor.shape)}.")
    if not torch.isfinite(tensor).all():
        place = [int(i) for i in (~torch.isfinite(tensor)).nonzero()[0]]
        raise DataError(f"Expected finite {what}, got {float(tensor[tuple(place)])} at {place}.")
    if tensor.numel() and float(tensor.abs().max()) > HUGE:
        raise DataError(f"Expected {what} below {HUGE:g} in size. Rescale features and weights.")
    return tensor


Kept = tuple[Tensor, Tensor, Tensor | None]
"""Rows, classes and predictions of a batch."""


@dataclass
class Cache:
    """Memory for the batches that are kept for the second pass, shared by all layers."""

    bytes_left: int


def check_cache(size: Any) -> None:
    """Refuse a size of a cache that is none."""
    if not isinstance(size, int) or size < 0:
        raise DataError(f"Expected cache_bytes of at least 0, got {size!r}.")


class LayerStream:
    """The statistics of one layer: moments, logits if its classifier is known, a second pass.

    `update` computes logits itself and refuses rows that are not finite. `add` is for a training
    under way: it is given the logits, and counts and leaves out such rows.

    Args:
        same_order: the second pass reads the rows in the order of the first, so that the
            classifier's decisions are kept instead of made again.
    """

    def __init__(
        self,
        *,
        num_classes: int | None,
        head: Head | None = None,
        ignore_index: int | None = IGNORE_INDEX,
        scatter: bool | None = None,
        cache: Cache | None = None,
        same_order: bool = False,
        layer: str | None = None,
        asked: Asked = NOTHING_MORE,
    ) -> None:
        self.layer = layer
        self.budget: Budget | None = None
        """What plans memory before it is used."""
        self.expected = 2
        """Classes to plan for where only labels will tell how many there are."""
        self.asked = asked
        self.head = head
        self.num_classes = num_classes if head is None else len(head.weight)
        self.ignore_index = ignore_index
        self.scatter = scatter
        self.cache = cache
        self._kept: list[Kept] | None = None if cache is None else []
        self._decided: list[Tensor] | None = [] if same_order else None
        self.moments: ClassMoments
        """Of all rows so far; there from the first of them on."""
        self.logits: LogitStatistics | None = None
        self.look: SecondPass | None = None
        self.spread: DirectionalSpread | None = None
        self.beside: list[Beside] = []
        """What sees every row that counts, for error bars and the null."""
        self.points: KeptPoints | None = None
        """Where some features are kept for a picture."""
        self.against: ReferencePass | None = None
        """Other data whose class means these features are compared with."""
        self.soft = False
        """Whether the loss is that of distributions over the classes."""
        self.nonfinite = torch.zeros(0, dtype=torch.int64)
        """(C,) rows that `add` has left out."""
        self._largest_label = -1
        self.rows_before = 0
        """Rows of other files, which an error about a row of this one does not count."""
        self.only_known = False
        """Whether rows of classes that `against` does not have are left out."""
        self.rare: Rare | None = None

    @property
    def started(self) -> bool:
        """Whether there are sums."""
        return hasattr(self, "moments")

    @property
    def cached(self) -> bool:
        """Whether the whole first pass has been kept for the second pass."""
        return self._kept is not None

    def start(self, dim: int, device: torch.device, *, logits: bool = False) -> None:
        """Open the sums; with `logits` also those of a classifier that is known only later."""
        if self.head is not None:
            self.head.check_dim(dim)
        scatter = dim <= SCATTER_LIMIT if self.scatter is None else self.scatter
        size = 2 if self.num_classes is None else self.num_classes
        self._plan(max(size, self.expected), dim, scatter=scatter)
        self.moments = ClassMoments(
            size, dim, scatter=scatter, ignore_index=self.ignore_index, device=device
        )
        here = self.moments.device
        self.nonfinite = torch.zeros(size, dtype=torch.int64, device=here)
        if self.head is not None:
            self.head = self.head.to(here)
        if self.head is not None or logits:
            self.logits = self.new_logits()
        self.beside = self.asked.beside(self.moments, self.head, self.num_classes)

    def new_logits(self) -> LogitStatistics:
        """Empty sums of logits, beside the moments."""
        size, device = self.moments.num_classes, self.moments.device
        usual = min(MOST_SOFT if self.soft else MOST_CLASSES, self.moments.dim)
        most = MOST_ASKED if self.asked.residuals else usual
        soft = self.soft if size <= most else None
        return LogitStatistics(size, ignore_index=self.ignore_index, device=device, residuals=soft)

    def update(
        self,
        features: Any,
        labels: Any,
        targets: Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """First pass: add a batch, computed in `dtype` if that is not the type of the rows.

        `targets` (B, C) are its labels where these are soft.
        """
        rows, classes = self._checked(features, labels)
        self.soft = targets is not None
        if not self.started:
            self.start(rows.shape[1], rows.device)
        if self.num_classes is None and len(classes):
            self._largest_label = max(self._largest_label, int(classes.max()))
            self.grow(self._largest_label + 1)
        self.moments.add_checked(rows, classes, dtype=dtype)
        if targets is not None and self.ignore_index is not None:
            targets = targets[(classes != self.ignore_index).to(targets.device)]
        rows, classes = self._counted(rows, classes)
        for one in self.beside:
            one.add(rows, classes.to(self.moments.device))
        self._keep_points(rows, classes)
        predicted = self._predict(rows, classes, targets=targets)
        if self._decided is not None and predicted is not None:
            self._decided.append(predicted)
        if self.against is not None:
            self.against.add(rows, classes, predicted)
        self._keep(rows, classes, predicted)

    def add(
        self,
        rows: Tensor,
        labels: Tensor,
        logits: Tensor | None,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """First pass over labels that are checked and, if all rows have them, their logits."""
        usable, own = finite_rows(rows), labels
        if usable is not None:
            out = labels[~usable]
            out = out if self.ignore_index is None else out[out != self.ignore_index]
            self.nonfinite += out.bincount(minlength=len(self.nonfinite))
            rows, own = rows[usable], labels[usable]
        self.moments.add_checked(rows, own, dtype=dtype)
        self._keep_points(rows, own)
        if self.logits is None or logits is None:
            return
        usable = finite_rows(logits)
        if usable is not None:
            logits, labels = logits[usable], labels[usable.to(labels.device)]
        if is_wide(logits):
            self.logits.add_wide(*self._counted(logits, labels))
        else:
            self.logits.update(logits, labels)

    def _keep_points(self, rows: Tensor, classes: Tensor) -> None:
        if self.points is not None and len(rows):
            if self.ignore_index is not None:
                classes = torch.where(classes == self.ignore_index, -1, classes)
            self.points.add(rows, classes, num_classes=self.moments.num_classes)

    def picture(self) -> dict[str, Any] | None:
        """Features, class means and classifier in 3-D, if some features were kept."""
        weight = None if self.head is None else self.head.weight
        found = None if self.points is None else self.points.picture(self.moments, weight)
        return None if found is None else {"layer": self.layer, **found}

    def grow(self, classes: int) -> None:
        """Make room for labels up to so many, where no classifier tells how many there are."""
        self._largest_label = max(self._largest_label, classes - 1)
        if classes > self.moments.num_classes:
            if classes > self.expected:
                self._plan(classes, self.moments.dim, scatter=self.moments.has_scatter)
            self.moments.grow(classes)
            self.nonfinite = torch.nn.functional.pad(
                self.nonfinite, (0, classes - len(self.nonfinite))
            )

    def _plan(self, classes: int, dim: int, *, scatter: bool) -> None:
        """Plan the memory of this layer, and leave the cache what remains."""
        if self.budget is None:
            return
        asked, directional = self.asked, self.asked.extras.directional
        sizes = Sizes(classes, dim, self.head is not None, scatter, directional=directional)
        again = sum(sizes.parts().values()) if asked.null else 0
        beside = again + group_bytes(classes, dim, asked.groups, scatter=scatter)
        if self.against is not None:
            beside += reference_bytes(len(self.against.classes), dim)
        self.budget.plan(self, sizes._replace(beside=beside))
        left = self.budget.left()
        if self.cache is not None and left is not None:
            self.cache.bytes_left = min(self.cache.bytes_left, left)

    def look_again(self, features: Any, labels: Any) -> None:
        """Second pass over the source: look at a batch once more."""
        rows, classes = self._counted(*self._checked(features, labels))
        if self._decided:
            predicted: Tensor | None = self._decided.pop(0)
        else:
            predicted = self._predict(rows, classes, count=False)
        self._look_at(rows, classes, predicted)

    def look_at_cache(self) -> None:
        """Second pass over what the first has kept."""
        kept = self._kept or []
        for _ in track(range(len(kept)), "second pass"):
            self._look_at(*kept.pop(0))  # let go as soon as it was seen

    def finish_second_pass(self) -> None:
        """After the second pass: refuse one that has seen other data than the first."""
        self.look = self.look or SecondPass(self.moments)
        self.look.require_same_data(self.moments)

    def require_classes(self, *, allow_missing: bool) -> None:
        """After the first pass: refuse no data, one class, or absent classes."""
        if self.started and self.moments.total == 0 and self.moments.ignored:
            raise DataError(
                f"Expected at least one sample, got none: all {self.moments.ignored} labels are "
                f"the ignored {self.ignore_index}, or of padded tokens."
            )
        if not self.started or self.moments.total == 0:
            raise DataError("Expected at least one sample, got none. Check the data source.")
        if self.num_classes is None:
            check_sizes(self._largest_label + 1, self.moments.dim)
        if not allow_missing:
            self.moments.require_all_classes()
        present = self.moments.num_classes - len(self.moments.missing)
        if present < 2:
            raise DataError(f"Expected samples of at least 2 classes, got {present}.")

    def leave_out(self, min_count: int, *, whole: bool = True) -> None:
        """After the first pass: forget classes with fewer samples.

        Their part of the d x d scatter is taken off by the second pass, if that sees the `whole`
        data; else the scatter is given up.
        """
        self.rare = Rare.forgotten(self.moments, self.logits, min_count)
        if self.rare is not None and not (whole and self.moments.has_scatter):
            self.rare.scatter = None

    def collapse(self, reasons: Mapping[str, str]) -> Collapse:
        """The measurement of this layer; `reasons` as for `gather`."""
        if self.rare is not None and self.rare.means is not None and self.moments.has_scatter:
            self.moments.subtract_scatter(None if self.look is None else self.rare.scatter)
            if not self.moments.has_scatter:
                reasons = {**reasons, "scatter": NO_SCATTER}
        if self.look is None:
            reasons = {"second pass": "not asked for (second_pass=False)", **reasons}
        if not self.moments.has_scatter:
            limit = (
                f"d = {self.moments.dim} is above {SCATTER_LIMIT}, too wide for a d x d scatter; "
                "measure_features(..., scatter=True) keeps one"
            )
            reasons = {"scatter": limit if self.scatter is None else "scatter=False", **reasons}
        logits = self.logits
        if logits is not None and not torch.equal(logits.counts, self.moments.counts):
            logits, reasons = None, {**reasons, "weight": "some logits are not finite"}
        collapse = gather(
            self.moments,
            weight=None if self.head is None else self.head.weight,
            bias=None if self.head is None else self.head.bias,
            logits=logits,
            look=self.look,
            layer=self.layer,
            reasons=reasons,
            extras=self.asked.extras._replace(spread=self.spread, rare=self.rare),
        )
        for one in self.beside:
            collapse = one.attached(collapse)
        if left_out := int(self.nonfinite.sum()):
            warning = f"Left out {left_out} feature vectors with nan or infinity."
            collapse = replace(collapse, warnings=(warning, *collapse.warnings))
        collapse = without_bounds(collapse) if self.soft else collapse
        return collapse if self.against is None else compared(collapse, self.against)

    def _checked(self, features: Any, labels: Any) -> tuple[Tensor, Tensor]:
        dim, seen = (self.moments.dim, self.moments.rows_seen) if self.started else (None, 0)
        rows = as_features(features, dim=dim, first_row=seen - self.rows_before)
        classes = as_labels(
            labels, rows=len(rows), ignore_index=self.ignore_index, num_classes=self.num_classes
        )
        if self.only_known and self.against is not None and self.ignore_index is not None:
            known = torch.isin(classes, self.against.classes.to(classes.device))
            classes = classes.masked_fill(~known, self.ignore_index)
        return rows, classes

    def _counted(self, rows: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Without the ignored rows."""
        if self.ignore_index is None:
            return rows, classes
        keep = classes != self.ignore_index
        return (rows, classes) if keep.all() else (rows[keep.to(rows.device)], classes[keep])

    def _predict(
        self,
        rows: Tensor,
        classes: Tensor,
        *,
        count: bool = True,
        targets: Tensor | None = None,
    ) -> Tensor | None:
        """The classifier's decisions, counted into the loss side in the first pass."""
        if self.head is None or self.logits is None:
            return None
        predicted = []
        device, done = self.moments.device, 0
        # No float32 logit overflows: features below 1e39 times weights below 1e150.
        compiled = rows.dtype != torch.float64 and compiles(rows, device)
        own_classes = classes.to(device)
        for logits, own in logit_blocks(rows, own_classes, self.head.weight, self.head.bias):
            if count:
                part = None if targets is None else targets[done : done + len(own)].to(logits)
                done += len(own)
                predicted.append(self.logits.add_checked(logits, own, part, compiled=compiled))
            else:
                predicted.append(logits.argmax(1))
        return torch.cat(predicted) if predicted else classes[:0]

    def _keep(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Keep a copy of a batch, or give up and free all of them once the memory is used up."""
        if self.cache is None or self._kept is None:
            return
        self._kept.append((rows, classes, predicted))
        self.cache.bytes_left -= _size(self._kept[-1:])
        if self.cache.bytes_left < 0:
            self.cache.bytes_left += _size(self._kept)
            self._kept = None
        else:
            self._kept[-1] = (rows.clone(), classes.clone(), predicted)

    def _look_at(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        self.look = self.look or SecondPass(self.moments)
        if self.rare is not None:
            rows, classes, predicted = self.rare.taken_off(rows, classes, predicted)
        self.look.add_checked(rows, classes, predicted)
        if self.asked.extras.directional:
            self.spread = self.spread or DirectionalSpread(self.moments)
            self.spread.add_checked(rows, classes)
        for one in self.beside:
            one.look(rows, classes.to(self.moments.device), predicted)


def _size(batches: Sequence[Kept]) -> int:
    return sum(part.nbytes for batch in batches for part in batch if part is not None)

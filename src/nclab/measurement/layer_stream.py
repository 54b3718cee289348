"""LayerStream: the statistics of one layer over one or two passes, in one or several processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import Extras, RareClasses, gather, with_reference
from nclab.measurement.geometry import PointSample
from nclab.measurement.options import SCATTER_LIMIT, Head, MeasureOptions
from nclab.measurement.resampling import GroupJackknife
from nclab.progress import track
from nclab.statistics import ClassMoments, LogitStatistics, SecondPass
from nclab.statistics.blocks import compiles
from nclab.statistics.checks import as_features, as_labels, check_sizes, finite_rows
from nclab.statistics.logits import MOST_ASKED, MOST_CLASSES, is_wide, logit_blocks
from nclab.statistics.process_group import Group, ProcessGroup, is_distributed
from nclab.statistics.second_pass import ReferencePass

NO_SCATTER = "min_count leaves classes out, and only a second pass can subtract their scatter"
NOT_REQUESTED = "not requested (second_pass=False)"

State = dict[str, Tensor]
Summed = TypeVar("Summed", LogitStatistics, SecondPass, ReferencePass)

Batch = tuple[Tensor, Tensor, Tensor | None]
"""Feature rows, class numbers and predicted classes of a batch."""


class Cache:
    """Memory for batches that are kept for the second pass, shared by all layers."""

    def __init__(self, size: int) -> None:
        self._bytes_left = size

    def take(self, size: int) -> bool:
        """Reserve `size` bytes for a batch; return False if the memory is used up."""
        self._bytes_left -= size
        return self._bytes_left >= 0

    def release(self, size: int) -> None:
        """Make `size` reserved bytes available again."""
        self._bytes_left += size


class LayerStream:
    """Statistics of one layer: moments, logit statistics, and the sums of a second pass.

    `update` adds a batch of the first pass, `update_second` one of the second pass. `collapse`
    computes the measurement.

    Args:
        head: the classifier that reads the layer, to compute its logits.
        cache: memory for batches that are kept for the second pass.
        same_order: whether the second pass reads the rows in the order of the first; then the
        predicted classes are kept instead of computed again.
        points: number of features to keep for the 3-D picture.
    """

    def __init__(
        self,
        options: MeasureOptions,
        *,
        head: Head | None = None,
        layer: str | None = None,
        cache: Cache | None = None,
        same_order: bool = False,
        points: int = 0,
    ) -> None:
        self.options, self.layer, self.head = options, layer, head
        self.num_classes = options.class_count(head)
        self.ignore_index = options.ignore_index
        self.moments: ClassMoments
        """Moments of all rows so far. They exist from the first batch on."""
        self.logits: LogitStatistics | None = None
        self.nonfinite = torch.zeros(0, dtype=torch.int64)
        """(C,) rows with nan or infinity that were skipped."""
        self._second_pass: SecondPass | None = None
        self._reference = options.reference_pass(layer)
        self._jackknife: GroupJackknife | None = None
        self._points = PointSample(points) if points else None
        self._rare: RareClasses | None = None
        self._cache = cache
        self._batches: list[Batch] | None = None if cache is None else []
        self._batch_bytes = 0
        self._predictions: list[Tensor] | None = [] if same_order else None
        self._largest_label = -1
        self._rows_of_other_files = 0

    @property
    def started(self) -> bool:
        """Whether any batch has been added."""
        return hasattr(self, "moments")

    @property
    def cached(self) -> bool:
        """Whether all batches of the first pass are kept for the second pass."""
        return self._batches is not None

    # First pass

    def start(self, dim: int, device: torch.device, *, logits: bool = False) -> None:
        """Create empty sums.

        If `logits` is true, logits are summed even if the classifier `head` is not known yet.
        """
        if self.head is not None:
            self.head.check_dim(dim)
        size = 2 if self.num_classes is None else self.num_classes
        self.options.check_memory(size, dim)
        self.moments = ClassMoments(
            *(size, dim),
            scatter=self.options.keeps_scatter(dim),
            ignore_index=self.ignore_index,
            device=device,
        )
        device = self.moments.device
        self.nonfinite = torch.zeros(size, dtype=torch.int64, device=device)
        if self.head is not None:
            self.head = self.head.to(device)
        if self.head is not None or logits:
            self.logits = self.new_logits()
        if self.options.groups:
            self._jackknife = GroupJackknife(self.moments, self.head, self.options)

    def new_logits(self) -> LogitStatistics:
        """Return empty statistics of logits."""
        size, device = self.moments.num_classes, self.moments.device
        usual = min(MOST_CLASSES, self.moments.dim)
        most = MOST_ASKED if self.options.all_residuals else usual
        return LogitStatistics(
            size, ignore_index=self.ignore_index, device=device, residuals=size <= most
        )

    def update(
        self,
        features: Any,
        labels: Any,
        *,
        logits: Tensor | None = None,
        dtype: torch.dtype | None = None,
        in_training: bool = False,
    ) -> None:
        """Add a batch of the first pass.

        Args:
            logits: outputs of the classifier during training; otherwise `head` computes them.
            dtype: type in which the rows were computed, if that is not their own type.
            in_training: True while a model trains: rows with nan or infinity are skipped and
                counted instead of raising an error, and nothing is kept for a second pass. The
                labels must have passed the checks.
        """
        if in_training:
            rows, classes = self._skip_nonfinite(features, labels)
        else:
            rows, classes = self._checked(features, labels)
        if not self.started:
            self.start(rows.shape[1], rows.device)
        if self.num_classes is None and len(classes):
            self.grow(int(classes.max()) + 1)
        self.moments.add_checked(rows, classes, dtype=dtype)
        if self._points is not None and len(rows):
            numbers = classes
            if self.ignore_index is not None:
                numbers = torch.where(classes == self.ignore_index, -1, classes)
            self._points.add(rows, numbers, num_classes=self.moments.num_classes)
        if in_training:
            if logits is not None:
                self._add_logits(logits, labels)
            return
        rows, classes = self._without_ignored(rows, classes)
        if self._jackknife is not None:
            self._jackknife.add(rows, classes.to(self.moments.device))
        predicted = self._predict(rows, classes)
        if self._predictions is not None and predicted is not None:
            self._predictions.append(predicted)
        if self._reference is not None:
            self._reference.add(rows, classes, predicted)
        self._keep(rows, classes, predicted)

    def _checked(self, features: Any, labels: Any) -> tuple[Tensor, Tensor]:
        dim, rows_seen = (self.moments.dim, self.moments.rows_seen) if self.started else (None, 0)
        first_row = rows_seen - self._rows_of_other_files
        rows = as_features(features, dim=dim, first_row=first_row)
        classes = as_labels(
            labels, rows=len(rows), ignore_index=self.ignore_index, num_classes=self.num_classes
        )
        reference, ignored = self._reference, self.ignore_index
        if self.options.min_count is not None and reference is not None and ignored is not None:
            known = torch.isin(classes, reference.classes.to(classes.device))
            classes = classes.masked_fill(~known, ignored)
        return rows, classes

    def _skip_nonfinite(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        usable = finite_rows(rows)
        if usable is None:
            return rows, labels
        skipped = labels[~usable]
        skipped = skipped if self.ignore_index is None else skipped[skipped != self.ignore_index]
        self.nonfinite += skipped.bincount(minlength=len(self.nonfinite))
        return rows[usable], labels[usable]

    def _add_logits(self, logits: Tensor, labels: Tensor) -> None:
        if self.logits is None:
            return
        usable = finite_rows(logits)
        if usable is not None:
            logits, labels = logits[usable], labels[usable.to(labels.device)]
        if is_wide(logits):
            self.logits.add_wide(*self._without_ignored(logits, labels))
        else:
            self.logits.update(logits, labels)

    def _without_ignored(self, rows: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        if self.ignore_index is None:
            return rows, classes
        keep = classes != self.ignore_index
        return (rows, classes) if keep.all() else (rows[keep.to(rows.device)], classes[keep])

    def _predict(self, rows: Tensor, classes: Tensor, *, count: bool = True) -> Tensor | None:
        """Return the predicted classes; if `count` is true, add the logits to the statistics."""
        if self.head is None or self.logits is None:
            return None
        predicted = []
        device = self.moments.device
        # No float32 logit overflows: features below 1e39 times weights below 1e150.
        compiled = rows.dtype != torch.float64 and compiles(rows, device)
        weight, bias = self.head
        for logits, labels in logit_blocks(rows, classes.to(device), weight, bias):
            if count:
                predicted.append(self.logits.add_checked(logits, labels, compiled=compiled))
            else:
                predicted.append(logits.argmax(1))
        return torch.cat(predicted) if predicted else classes[:0]

    def _keep(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        """Keep a copy of a batch; free all batches once the memory is used up."""
        if self._cache is None or self._batches is None:
            return
        size = sum(part.nbytes for part in (rows, classes, predicted) if part is not None)
        self._batch_bytes += size
        if self._cache.take(size):
            self._batches.append((rows.clone(), classes.clone(), predicted))
        else:
            self._cache.release(self._batch_bytes)
            self._batches = None

    def grow(self, classes: int) -> None:
        """Extend the sums to a larger number of classes, if no classifier determines it."""
        self._largest_label = max(self._largest_label, classes - 1)
        if classes > self.moments.num_classes:
            self.options.check_memory(classes, self.moments.dim)
            self.moments.grow(classes)
            self.nonfinite = torch.nn.functional.pad(
                self.nonfinite, (0, classes - len(self.nonfinite))
            )

    def start_file(self) -> None:
        """Begin another file: error messages count its rows from 0."""
        self._rows_of_other_files = self.moments.rows_seen if self.started else 0

    def count_ignored(self, rows: int) -> None:
        """Add rows that were skipped elsewhere to the number of ignored rows."""
        self.moments.ignored += rows

    def require_classes(self, *, allow_missing: bool = False) -> None:
        """Raise if there are no samples, fewer than two classes, or absent classes."""
        if self.started and self.moments.total == 0 and self.moments.ignored:
            raise DataError(
                f"Expected at least one sample, got none: all {self.moments.ignored} labels are "
                f"the ignored {self.ignore_index} or belong to padded tokens."
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

    def leave_out_rare(self, *, second_pass: bool = True) -> None:
        """Leave out classes with fewer than `min_count` samples, after the first pass.

        Data with a reference keep all classes of the reference. The second pass subtracts the rare
        classes from the d x d scatter; without a `second_pass` the scatter is dropped.
        """
        min_count = self.options.min_count
        if min_count is None or self._reference is not None:
            return
        scatter = second_pass and self.moments.has_scatter
        self._rare = RareClasses.removed_from(self.moments, self.logits, min_count, scatter=scatter)

    # Second pass

    def update_second(self, features: Any, labels: Any) -> None:
        """Add a batch of the second pass, read again from the source."""
        rows, classes = self._without_ignored(*self._checked(features, labels))
        if self._predictions:
            predicted: Tensor | None = self._predictions.pop(0)
        else:
            predicted = self._predict(rows, classes, count=False)
        self._add_second(rows, classes, predicted)

    def second_pass_from_cache(self) -> None:
        """Make the second pass over the batches that the first pass has kept."""
        batches = self._batches or []
        for _ in track(range(len(batches)), "second pass"):
            self._add_second(*batches.pop(0))  # frees its memory immediately

    def finish_second_pass(self) -> None:
        """Raise unless both passes read the same data."""
        if self._second_pass is None:
            self._second_pass = SecondPass(self.moments)
        self._second_pass.require_same_data(self.moments)

    def _add_second(self, rows: Tensor, classes: Tensor, predicted: Tensor | None) -> None:
        self._second_pass = self._second_pass or SecondPass(self.moments)
        if self._rare is not None:
            rows, classes, predicted = self._rare.filter(rows, classes, predicted)
        self._second_pass.add_checked(rows, classes, predicted)
        if self._jackknife is not None:
            self._jackknife.add_second(rows, classes.to(self.moments.device), predicted)

    # Results

    def collapse(self, reasons: Mapping[str, str], *, head: Head | None = None) -> Collapse:
        """Return the measurement of this layer.

        Args:
            reasons: why "scatter", "second pass" or "weight" is missing, as for `gather`.
            head: the classifier, if it was not known at the start.
        """
        if head is not None:
            self.head = head.to(self.moments.device)
        moments, second_pass, rare = self.moments, self._second_pass, self._rare
        if rare is not None and rare.means is not None and moments.has_scatter:
            moments.subtract_scatter(None if second_pass is None else rare.scatter)
            if not moments.has_scatter:
                reasons = {**reasons, "scatter": NO_SCATTER}
        if second_pass is None:
            reasons = {"second pass": NOT_REQUESTED, **reasons}
        if not moments.has_scatter:
            too_wide = (
                f"d = {moments.dim} is above {SCATTER_LIMIT}, too large for a d x d scatter; "
                "pass scatter=True to measure_features to keep it"
            )
            why = too_wide if self.options.scatter is None else "scatter=False"
            reasons = {"scatter": why, **reasons}
        logits = self.logits
        if logits is not None and not torch.equal(logits.counts, moments.counts):
            logits, reasons = None, {**reasons, "weight": "some logits are not finite"}
        collapse = gather(
            moments,
            weight=None if self.head is None else self.head.weight,
            bias=None if self.head is None else self.head.bias,
            logits=logits,
            second_pass=second_pass,
            layer=self.layer,
            reasons=reasons,
            extras=Extras(
                *(self.options.extra_metrics, rare, self.options.class_names),
                has_reference=self._reference is not None,
            ),
        )
        if self._jackknife is not None:
            collapse = self._jackknife.attach(collapse)
        if skipped := int(self.nonfinite.sum()):
            warning = f"Skipped {skipped} feature vectors with nan or infinity."
            collapse = replace(collapse, warnings=(warning, *collapse.warnings))
        return collapse if self._reference is None else with_reference(collapse, self._reference)

    def picture(self) -> dict[str, Any] | None:
        """Return features, class means and classifier in 3-D; None if no features were kept."""
        weight = None if self.head is None else self.head.weight
        picture = None if self._points is None else self._points.picture(self.moments, weight)
        return None if picture is None else {"layer": self.layer, **picture}

    # Sums of other processes

    def restore(
        self, moments: ClassMoments, *, nonfinite: Tensor | None = None, logits: State | None = None
    ) -> None:
        """Continue from stored sums."""
        if not self.started:
            self.start(moments.dim, moments.device)
        self.moments = moments
        if nonfinite is not None:
            self.nonfinite = nonfinite.clone()
        if self.logits is not None and logits is not None:
            self.logits.load_sums(logits)

    def leave_out(self, rare: RareClasses) -> None:
        """Report these classes as left out, and no longer count their rows as ignored."""
        self._rare = rare
        self.moments.ignored -= rare.samples

    def first_sums(self) -> dict[str, State]:
        """Return the sums of the first pass by name, for `add_sums` in another process."""
        sums = {"moments": self.moments.state_dict(copy=False)}
        if self.logits is not None:
            sums["logits"] = self.logits.sums()
        if self._reference is not None:
            sums["reference"] = self._reference.sums()
        return sums

    def second_sums(self) -> dict[str, State]:
        """Return the sums of the second pass by name, for `add_sums` in another process."""
        return {} if self._second_pass is None else {"second_pass": self._second_pass.sums()}

    def add_sums(self, sums: Mapping[str, State]) -> None:
        """Add the sums of another process over its part of the data."""
        is_first = not self.started
        if "moments" in sums:
            moments = ClassMoments.from_state_dict(sums["moments"], copy=False)
            if is_first:
                self.restore(moments)
            else:
                self.moments.merge(moments)
        if "logits" in sums:
            total = None if is_first else self.logits
            self.logits = _added(total, self.new_logits(), sums["logits"])
        if "reference" in sums and self._reference is not None:
            blank = ReferencePass(self._reference.moments, self._reference.classes)
            total_reference = None if is_first else self._reference
            self._reference = _added(total_reference, blank, sums["reference"])
        if "second_pass" in sums:
            second_pass = SecondPass(self.moments)
            self._second_pass = _added(self._second_pass, second_pass, sums["second_pass"])

    def all_reduce_first(self, ranks: ProcessGroup) -> None:
        """Replace the sums of the first pass by their totals over all processes of a group."""
        if self.num_classes is None:  # each process knows only the labels it has seen
            self.grow(int(ranks.gather([self.moments.num_classes]).max()))
        self.moments.all_reduce(ranks.group)
        ranks.reduce_(self.nonfinite)
        if self._reference is not None:
            self._reference.all_reduce(ranks.group)
        if self.logits is not None:
            self.logits.all_reduce(ranks.group)

    def all_reduce_second(self, ranks: ProcessGroup) -> None:
        """Replace the sums of the second pass by their totals over all processes of a group."""
        self._second_pass = self._second_pass or SecondPass(self.moments)
        self._second_pass.all_reduce(ranks.group)
        if self._rare is not None and self._rare.scatter is not None:
            ranks.reduce_(self._rare.scatter)

    def drop_second_pass(self) -> None:
        """Drop the sums of the second pass, because another process could not complete it."""
        self._second_pass = None


def _added(total: Summed | None, part: Summed, sums: State) -> Summed:
    """Load `sums` into the empty stream `part`, and return `total` after adding `part`."""
    part.load_sums(sums)
    if total is None:
        return part
    total.merge(part)
    return total


ProcessGroupChoice = Group | Literal["local"]
"""Processes that share the data: a group, None for all, "local" for this one alone."""
READY, FAILED = 1, -1


@dataclass(frozen=True)
class DistributedData:
    """Data of which each process of a torch.distributed group reads its own part.

    All processes get the same statistics.
    """

    ranks: ProcessGroup

    @classmethod
    def over(
        cls, process_group: ProcessGroupChoice, options: MeasureOptions | None = None
    ) -> "DistributedData | None":
        """Return the group of processes that share the data; None if this process is alone."""
        if isinstance(process_group, str):
            if process_group != "local":
                raise DataError(
                    "Expected process_group= a process group, None for all processes or 'local' "
                    f"for this one alone, got {process_group!r}."
                )
            return None
        if not is_distributed(process_group):
            return None
        if options is not None and options.groups:
            raise DataError(
                "Expected one process for intervals, got several that share the data. Omit them, "
                "or measure all data in one process with process_group='local'."
            )
        return cls(ProcessGroup(process_group))

    def begin(self) -> None:
        """Wait before the first pass until all processes are ready."""
        self.ranks.gather([READY])

    def report_failure(self) -> None:
        """Tell the other processes that this process could not complete its pass."""
        self.ranks.gather([FAILED, 0, 0])

    def join_first(self, streams: Sequence[LayerStream]) -> None:
        """Replace the sums of the first pass by their totals over all processes."""
        self._require_same_layers([stream.moments.dim for stream in streams])
        for stream in streams:
            stream.all_reduce_first(self.ranks)

    def join_second(self, streams: Sequence[LayerStream], *, complete: bool) -> bool:
        """Add up the sums of the second pass; drop them and return False if a process failed."""
        all_complete = bool(self._states([READY, int(complete), 0])[:, 1].all())
        for stream in streams:
            if all_complete:
                stream.all_reduce_second(self.ranks)
            else:
                stream.drop_second_pass()
        return all_complete

    def _require_same_layers(self, dims: Sequence[int]) -> None:
        """Raise unless every process measured the same layers, and at least one."""
        sizes = self._states([READY, len(dims), sum(dims)])
        if not bool((sizes == sizes[0]).all()) or not dims:
            idle = [rank for rank, row in enumerate(sizes.tolist()) if not row[1]]
            problem = f"processes {idle} saw no batch" if idle else "their layers differ"
            raise DataError(
                f"Expected every process to measure the same layers, but {problem}. Give each "
                "process batches of its own, and call the monitor in all of them."
            )

    def _states(self, state: Sequence[int]) -> Tensor:
        """Send three numbers to all processes, and return the (processes, 3) numbers of all.

        The first number is READY or FAILED; raise if a process sent FAILED.
        """
        states = self.ranks.gather(state)
        failed = (states[:, 0] == FAILED).nonzero().flatten().tolist()
        if failed:
            raise DataError(
                f"Expected every process to read its part of the data, but processes {failed} "
                "could not: their own messages say why."
            )
        return states

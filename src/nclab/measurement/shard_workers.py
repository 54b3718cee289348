"""The work of each process that reads shards, and how the results are merged."""

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nclab.engine import LOCAL, Engine, ReportStep
from nclab.errors import DataError, NclabError
from nclab.measurement.gather import RareClasses
from nclab.measurement.layer_stream import LayerStream
from nclab.measurement.memory import Budget, worker_bytes
from nclab.measurement.options import Head, MeasureOptions, check_labels
from nclab.measurement.resampling import State
from nclab.measurement.shard_files import open_shard
from nclab.progress import track
from nclab.statistics import ClassMoments
from nclab.statistics.blocks import COMPILED_SIZE, MANY_CLASSES
from nclab.statistics.checks import SOFT_LABELS_HINT, as_labels

FILES_COMPARED = 3
"""Files whose dimensions are compared, so that one wrong file does not set the dimension."""
ROWS_PER_CLASS = 8
"""Rows per class from which another process saves more time than sending its sums costs, if there
are many classes."""
PRODUCTS = 2**34
"""Products of rows and classes between two reports of progress: about a second."""

AddBatch = Callable[[Tensor, Tensor], None]
"""Function that adds features and labels of a batch."""


class ReadPart(NamedTuple):
    """The sums of one worker over its files in one pass."""

    bad: dict[str, str]
    """File that cannot be read -> why."""
    moments: State | None = None
    logits: State | None = None
    reference: State | None = None
    second_pass: State | None = None
    groups: Sequence[Any] = ()
    """Sums for the intervals, group by group."""


@dataclass
class Plan:
    """What every worker must know about the measurement."""

    head: Head | None
    options: MeasureOptions
    skip_bad: bool = False
    """Whether files that cannot be read are left out instead of raising an error."""
    bad: dict[str, str] = field(default_factory=dict)
    """File that is left out -> why."""
    before: dict[str, Tensor] = field(default_factory=dict)
    """File -> samples of every class in the files before it, if intervals are measured."""
    rare: RareClasses | None = None
    """Classes with fewer samples than `min_count`. No worker counts them."""
    dim: int | None = None
    """Dimension of the features; files with another dimension raise an error."""

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None before the labels are counted."""
        return self.options.class_count(self.head)

    def without_rare(self, labels: Tensor) -> Tensor:
        """Return labels with rare classes replaced by `ignore_index`."""
        if self.rare is None or self.options.ignore_index is None:
            return labels
        labels = labels.long()
        rare = torch.isin(labels, self.rare.classes)
        return labels.masked_fill(rare, self.options.ignore_index)

    def count_labels(self, paths: Sequence[Path]) -> dict[Path, int]:
        """Read all labels and return the rows of each file.

        Raise for files that cannot be read, absent classes and no samples.
        """
        options = self.options
        counts = torch.zeros(self.num_classes or 0, dtype=torch.int64)
        rows: dict[Path, int] = {}
        for path in track(paths, "reading labels"):
            try:
                with _error_names_file(path):
                    labels = open_shard(path).labels()
                    check_labels(options.class_names, labels, options.ignore_index)
                    labels = as_labels(
                        labels,
                        rows=len(labels),
                        ignore_index=options.ignore_index,
                        num_classes=self.num_classes,
                    )
                    before, counts = counts, _extended(counts, labels)
            except DataError as error:
                if not self.skip_bad:
                    raise
                self.bad[str(path)] = str(error)
                continue
            rows[path] = len(labels)
            if options.groups:
                self.before[str(path)] = before.clone()
            ignored = options.ignore_index
            used = labels if ignored is None else labels[labels != ignored]
            counts.index_add_(0, used, torch.ones_like(used))
        self._set_classes(counts)
        return rows

    def _set_classes(self, counts: Tensor) -> None:
        """Set number of classes and rare classes from (C,) counts; raise for absent classes."""
        options = self.options
        self.require_samples(int(counts.sum()))
        absent = len(counts) - int(counts.count_nonzero())
        if absent and not options.missing_allowed:
            raise DataError(
                f"Expected samples of all {len(counts)} classes, got none of {absent}, such "
                f"as class {int(counts.argmin())}. Pass allow_missing (--min-count 1) to leave "
                "them out."
            )
        self.options = replace(options, num_classes=len(counts))
        if options.min_count is not None and options.reference is None:
            self.rare = RareClasses.among(counts, options.min_count)
        if self.rare is not None and options.ignore_index is None:
            raise DataError("Expected an ignore_index together with min_count, got None.")
        for name, samples in self.before.items():
            self.before[name] = pad(samples, (0, len(counts) - len(samples)))

    def require_samples(self, total: int, bad: Mapping[str, str] | None = None) -> None:
        """Raise if there are no samples, with the fault of a file that was left out."""
        faults = [*self.bad.values(), *(bad or {}).values()]
        if not total and faults:
            raise DataError(f"Expected a shard that can be read, got none: {faults[0]}")
        if not total:
            raise DataError("Expected at least one sample, got none. Check the shards.")

    def plan_workers(
        self, shards: Mapping[Path, int], workers: int | None, engine: Engine | str
    ) -> int | None:
        """Return the number of worker processes; raise if not even this process fits into memory.

        Without a request, start only workers that save time and fit into memory.
        """
        assert self.num_classes is not None
        options = self.options
        dim = (self.dim or 1) if self.head is None else int(self.head.weight.shape[1])
        sizes = options.sizes(
            *(self.num_classes, dim),
            head=self.head is not None,
            reference_classes=0 if options.reference is None else self.num_classes,
        )
        budget = Budget(options.memory_limit)
        if engine not in ("local", LOCAL):  # its workers use the memory of other machines
            budget.plan("shards", sizes)
            return workers
        if workers is None:
            workers = LOCAL.slots()
            if self.num_classes > MANY_CLASSES:
                workers = min(workers, sum(shards.values()) // (ROWS_PER_CLASS * self.num_classes))
            needed = sum(sizes.parts().values())
            limit = budget.limit or math.inf
            while workers and needed + worker_bytes(sizes, workers) > limit:
                workers -= 1
            workers = 0 if workers == 1 else workers
        budget.plan("shards", sizes, elsewhere=worker_bytes(sizes, workers))
        return workers

    def find_dim(self, shards: Sequence[Path]) -> None:
        """Set the dimension that most of three files have, unless a classifier determines it."""
        if self.head is not None:
            return
        dims: list[int] = []
        middle = len(shards) // 2
        for path in dict.fromkeys([shards[0], shards[-1], *shards[middle:], *shards[:middle]]):
            try:
                dims.append(int(next(iter(open_shard(path).features())).shape[1]))
            except (DataError, IndexError, StopIteration):
                continue  # the first pass raises a clear error
            if len(dims) == FILES_COMPARED:
                break
        self.dim = mode(dims) if dims else None

    def join_first(self, parts: list[ReadPart]) -> LayerStream:
        """Return one stream with the sums of all parts; `parts` loses its moments."""
        stream = LayerStream(self.options, head=self.head)
        for index, part in enumerate(parts):
            if part.moments is None:
                continue
            moments = ClassMoments.from_state_dict(part.moments, copy=False)
            parts[index] = part._replace(moments=None)
            if not stream.started:
                stream.restore(moments)
            else:
                stream.moments.merge(moments)
        stream.join_first(
            _present(part.logits for part in parts),
            _present(part.reference for part in parts),
            self.rare,
        )
        bad = {path: why for part in parts for path, why in part.bad.items()}
        self.require_samples(stream.moments.total if stream.started else 0, bad)
        # A file may have been left out since the labels were counted.
        stream.require_classes(allow_missing=True)
        if not self.options.missing_allowed:
            stream.moments.require_all_classes()
        if stream.jackknife is not None:
            groups = [part.groups for part in parts if part.groups]
            stream.jackknife.join_first(stream.moments, groups)
        return stream

    def join_second(self, stream: LayerStream, parts: Sequence[ReadPart]) -> None:
        """Add the second passes of all parts to a stream."""
        stream.join_second(_present(part.second_pass for part in parts))
        if stream.jackknife is not None:
            stream.jackknife.join_second([part.groups for part in parts])


def _extended(counts: Tensor, labels: Tensor) -> Tensor:
    """Return counts for as many classes as the labels show; raise if they are too many."""
    classes = int(labels.max()) + 1 if len(labels) else 0
    if classes <= len(counts):
        return counts
    try:
        extended = torch.zeros(classes, dtype=torch.int64)
    except RuntimeError as error:
        raise DataError(
            f"Expected labels that are class numbers, got {classes - 1}. Labels that are ids must "
            "be mapped to 0, 1, 2, ..."
        ) from error
    extended[: len(counts)] = counts
    return extended


def _present(states: Iterable[State | None]) -> list[State]:
    return [state for state in states if state is not None]


@contextmanager
def _error_names_file(path: object) -> Iterator[None]:
    """Add the name of a file to its errors."""
    try:
        yield
    except DataError as error:  # soft labels need measure_features
        raise DataError(f"{path}: {str(error).replace(SOFT_LABELS_HINT, '')}") from error


def _read_file(path: str, add: AddBatch, report: ReportStep, done: int, plan: Plan) -> int:
    """Add all batches of a file, and return the number of rows done so far."""
    if not Path(path).exists():  # it existed when the labels were read
        raise NclabError(
            f"Expected every machine to see {path}, but {platform.node()} does not. Keep shards in "
            "a folder that all of them share under the same path."
        )
    with _error_names_file(path):
        for rows, labels in open_shard(path).batches():
            if plan.dim is not None and rows.shape[1] != plan.dim:
                raise DataError(f"Expected features of dimension {plan.dim}, got {rows.shape[1]}.")
            # Enough rows for the compiled kernel.
            step = (
                max(COMPILED_SIZE, PRODUCTS // (plan.num_classes or 1)) // max(1, rows.shape[1]) + 1
            )
            for some_rows, some_labels in zip(rows.split(step), labels.split(step), strict=True):
                add(some_rows, plan.without_rare(some_labels))
                done += len(some_rows)
                report(done)
    return done


def first_round(report: ReportStep, shards: Sequence[str], plan: Plan) -> ReadPart:
    """Make the first pass over some files; leave out files with errors if the plan says so."""
    bad: dict[str, str] = {}
    while True:
        stream, done = LayerStream(plan.options, head=plan.head), 0
        try:
            for path in shards:
                if path not in bad:
                    current = path
                    stream.start_file()
                    add = _with_groups(stream, plan.before.get(path), stream.update)
                    done = _read_file(path, add, report, done, plan)
        except DataError as error:
            if not plan.skip_bad:
                raise
            bad[current] = str(error)  # a part of it may be in the sums: start again
        else:
            break
    if not stream.started:
        return ReadPart(bad)
    return ReadPart(
        bad,
        moments=stream.moments.state_dict(copy=False),
        groups=() if stream.jackknife is None else stream.jackknife.first_sums(),
        **stream.all_sums(),
    )


def second_round(
    report: ReportStep,
    shards: Sequence[str],
    plan: Plan,
    moments: State,
    complements: Sequence[tuple[State, State | None]],
) -> ReadPart:
    """Make the second pass over some files.

    `moments` are those of all files, `complements` those of all groups of samples but one.
    """
    stream, done = LayerStream(plan.options, head=plan.head), 0
    stream.restore(ClassMoments.from_state_dict(moments, copy=False))
    if stream.jackknife is not None:
        stream.jackknife.start_second(stream.moments, complements)
    for path in shards:
        add = _with_groups(stream, plan.before.get(path), stream.update_second)
        done = _read_file(path, add, report, done, plan)
    groups = () if stream.jackknife is None else stream.jackknife.second_sums()
    return ReadPart({}, groups=groups, second_pass=stream.all_sums()["second_pass"])


def _with_groups(stream: LayerStream, before: Tensor | None, add: AddBatch) -> AddBatch:
    """Return `add` that assigns samples to groups as if the files before it had been read."""

    def add_in_order(rows: Tensor, labels: Tensor) -> None:
        nonlocal before
        if before is not None:
            if not stream.started:
                stream.start(rows.shape[1], rows.device)
            assert stream.jackknife is not None, "counts are kept for intervals only"
            stream.jackknife.continue_after(before)
            before = None
        add(rows, labels)

    return add_in_order

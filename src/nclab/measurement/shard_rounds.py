"""What is asked of every worker that reads shards, and how their answers become one."""

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mode
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nclab.engine import LOCAL, Engine, ReportStep
from nclab.errors import DataError, NclabError
from nclab.measurement.asked import Asked
from nclab.measurement.class_names import check_labels
from nclab.measurement.held_out import Reference, look_against
from nclab.measurement.intervals import Groups, State, group_bytes, summed
from nclab.measurement.layer_stream import SCATTER_LIMIT, Head, LayerStream
from nclab.measurement.memory import Budget, Sizes, reference_bytes, worker_bytes
from nclab.measurement.rare import Rare
from nclab.measurement.shard_files import open_shard
from nclab.progress import track
from nclab.statistics import ClassMoments, DirectionalSpread, SecondPass
from nclab.statistics.blocks import COMPILED_SIZE, MANY_CLASSES
from nclab.statistics.checks import SOFT_LABELS_HINT, as_labels

VOTES = 3
"""Files that tell the dimension, so that one odd file is not taken for the measure of all."""
WORTH = 8
"""Rows a class, of many classes, from which on another process is worth the sums it sends."""

PRODUCTS = 2**34
"""Of rows with all classes before progress is told again: about a second."""

Take = Callable[[Tensor, Tensor], None]
"""Selection features and labels of a batch."""


class ReadPart(NamedTuple):
    """What one worker has seen of its files in one round."""

    bad: dict[str, str]
    moments: State | None = None
    logits: State | None = None
    against: State | None = None
    look: State | None = None
    spread: State | None = None
    groups: Sequence[tuple[State, State | None]] = ()
    """For the intervals, of every group."""


@dataclass
class Plan:
    """What is asked of every worker."""

    head: Head | None
    num_classes: int | None
    ignore_index: int | None
    scatter: bool | None
    allow_missing: bool
    skip_bad: bool
    asked: Asked
    reference: Reference | None
    names: tuple[str, ...] | None
    min_count: int | None = None
    bad: dict[str, str] = field(default_factory=dict)
    """Files that are left out, with the reason."""
    before: dict[str, Tensor] = field(default_factory=dict)
    """File -> samples of every class in the files before it, where intervals are asked for."""
    rare: Rare | None = None
    """Classes with fewer samples than `min_count`, which no worker counts."""
    dim: int | None = None
    """Of the features, where a file of another dimension is to be refused by it."""

    def kept(self, labels: Tensor) -> Tensor:
        """Labels with the ignored one for rare classes."""
        if self.rare is None or self.ignore_index is None:
            return labels
        labels = labels.long()
        return labels.masked_fill(torch.isin(labels, self.rare.classes), self.ignore_index)

    def stream(self) -> LayerStream:
        """Empty sums."""
        stream = LayerStream(
            num_classes=self.num_classes,
            head=self.head,
            ignore_index=self.ignore_index,
            scatter=self.scatter,
            asked=self.asked,
        )
        stream.against = (
            None if self.reference is None else look_against(self.reference, self.names)
        )
        stream.only_known = self.min_count is not None
        return stream

    def count_labels(self, paths: Sequence[Path]) -> dict[Path, int]:
        """Read all labels: rows by file; broken files, absent classes and no data are refused."""
        if self.head is not None:
            self.num_classes = len(self.head.weight)
        counts = torch.zeros(self.num_classes or 0, dtype=torch.int64)
        rows: dict[Path, int] = {}
        for path in track(paths, "reading labels"):
            try:
                with _named(path):
                    labels = open_shard(path).labels()
                    check_labels(self.names, labels, self.ignore_index)
                    labels = as_labels(
                        labels,
                        rows=len(labels),
                        ignore_index=self.ignore_index,
                        num_classes=self.num_classes,
                    )
                    before, counts = counts, _with_room(counts, labels)
            except DataError as error:
                if not self.skip_bad:
                    raise
                self.bad[str(path)] = str(error)
                continue
            rows[path] = len(labels)
            if self.asked.groups:
                self.before[str(path)] = before.clone()
            used = labels if self.ignore_index is None else labels[labels != self.ignore_index]
            counts.index_add_(0, used, torch.ones_like(used))
        self.require_samples(int(counts.sum()))
        absent = len(counts) - int(counts.count_nonzero())
        if absent and not self.allow_missing:
            raise DataError(
                f"Expected samples of all {len(counts)} classes, got none of {absent}, such "
                f"as class {int(counts.argmin())}. Pass allow_missing (--allow-missing) to leave "
                "them out."
            )
        self.num_classes = len(counts)
        if self.min_count is not None and self.reference is None:  # else as the reference has it
            self.rare = Rare.among(counts, self.min_count)
        if self.rare is not None and self.ignore_index is None:
            raise DataError("Expected an ignore_index beside min_count, got None.")
        for name, seen in self.before.items():
            self.before[name] = pad(seen, (0, len(counts) - len(seen)))
        return rows

    def require_samples(self, total: int, bad: Mapping[str, str] | None = None) -> None:
        """Refuse to measure nothing, with what was wrong with the files that were left out."""
        left_out = [*self.bad.values(), *(bad or {}).values()]
        if not total and left_out:
            raise DataError(f"Expected a shard that can be read, got none: {left_out[0]}")
        if not total:
            raise DataError("Expected at least one sample, got none. Check the shards.")

    def fit(
        self,
        shards: Mapping[Path, int],
        workers: int | None,
        budget: Budget,
        engine: Engine | str,
    ) -> int | None:
        """How many processes: as many as asked for, are worth it and fit; refused if none does."""
        assert self.num_classes is not None
        dim = (self.dim or 1) if self.head is None else int(self.head.weight.shape[1])
        kept = dim <= SCATTER_LIMIT if self.scatter is None else self.scatter
        beside = group_bytes(self.num_classes, dim, self.asked.groups, scatter=kept)
        if self.reference is not None:
            beside += reference_bytes(self.num_classes, dim)
        sizes = Sizes(
            *(self.num_classes, dim, self.head is not None, kept, budget.second_pass),
            directional=self.asked.extras.directional,
            beside=beside,
        )
        if engine not in ("local", LOCAL):  # theirs is the memory of other machines
            budget.plan("shards", sizes)
            return workers
        most = LOCAL.slots() if workers is None else workers
        if workers is None and self.num_classes > MANY_CLASSES:
            most = min(most, sum(shards.values()) // (WORTH * self.num_classes))
        needed = sum(sizes._replace(missing=budget.missing).parts().values())
        while (
            workers is None
            and most
            and needed + worker_bytes(sizes, most) > (budget.limit or math.inf)
        ):
            most -= 1
        most = 0 if workers is None and most == 1 else most
        budget.plan("shards", sizes, elsewhere=worker_bytes(sizes, most))
        return most

    def find_dim(self, shards: Sequence[Path]) -> None:
        """The dimension that most of three files have; a classifier refuses by itself."""
        if self.head is not None:
            return
        found: list[int] = []
        middle = len(shards) // 2
        for path in dict.fromkeys([shards[0], shards[-1], *shards[middle:], *shards[:middle]]):
            try:
                found.append(int(next(iter(open_shard(path).features())).shape[1]))
            except (DataError, IndexError, StopIteration):
                continue  # the round says what is wrong
            if len(found) == VOTES:
                break
        self.dim = mode(found) if found else None

    def joined(self, parts: list[ReadPart]) -> LayerStream:
        """One stream with the sums of all parts, whose moments are used up."""
        stream = self.stream()
        for place, part in enumerate(parts):
            if part.moments is None:
                continue
            own = ClassMoments.from_state_dict(part.moments, copy=False)
            parts[place] = part = part._replace(moments=None)
            if not stream.started:
                stream.start(own.dim, own.device)
                stream.moments = own
            else:
                stream.moments.merge(own)
        if stream.started and stream.logits is not None:
            stream.logits = summed(stream.new_logits, _known(part.logits for part in parts))
        if stream.against is not None:
            blank = partial(look_against, self.reference, self.names)
            stream.against = summed(blank, _known(part.against for part in parts))
        if self.rare is not None:
            stream.rare = self.rare
            if stream.started:
                stream.moments.ignored -= self.rare.samples
        bad = {path: why for part in parts for path, why in part.bad.items()}
        self.require_samples(stream.moments.total if stream.started else 0, bad)
        stream.require_classes(allow_missing=True)
        if not self.allow_missing:  # a file may have been left out since the labels were counted
            stream.moments.require_all_classes()
        groups = groups_of(stream)
        if groups is not None:
            groups.join_first(stream.moments, [part.groups for part in parts if part.groups])
        return stream

    def join_looks(self, stream: LayerStream, parts: Sequence[ReadPart]) -> None:
        """Give a stream the second passes of all parts."""
        moments = stream.moments
        looks = _known(part.look for part in parts)
        stream.look = summed(partial(SecondPass, moments), looks)
        spreads = _known(part.spread for part in parts)
        if spreads:
            stream.spread = summed(partial(DirectionalSpread, moments), spreads)
        groups = groups_of(stream)
        if groups is not None:
            groups.join_second([part.groups for part in parts])


def _with_room(counts: Tensor, labels: Tensor) -> Tensor:
    """Counts of as many classes as the labels show, or one line that there is no room for them."""
    classes = int(labels.max()) + 1 if len(labels) else 0
    if classes <= len(counts):
        return counts
    try:
        more = torch.zeros(classes, dtype=torch.int64)
    except RuntimeError as error:
        raise DataError(
            f"Expected labels that are class numbers, got {classes - 1}. Labels that are ids must "
            "be mapped to 0, 1, 2, ..."
        ) from error
    more[: len(counts)] = counts
    return more


def _known(states: Iterable[State | None]) -> list[State]:
    return [state for state in states if state is not None]


def groups_of(stream: LayerStream) -> Groups | None:
    """What makes the intervals of a stream, if they are asked for."""
    return next((one for one in stream.beside if isinstance(one, Groups)), None)


@contextmanager
def _named(path: object) -> Iterator[None]:
    """Errors say in which file they are."""
    try:
        yield
    except DataError as error:  # one file alone may have soft labels
        raise DataError(f"{path}: {str(error).replace(SOFT_LABELS_HINT, '')}") from error


def _each(path: str, take: Take, report: ReportStep, done: int, plan: Plan) -> int:
    """Give all batches of a file to `take`; rows done afterwards."""
    if not Path(path).exists():  # it was there when the labels were read
        raise NclabError(
            f"Expected every machine to see {path}, but {platform.node()} does not. Keep shards in "
            "a folder that all of them share under the same path."
        )
    with _named(path):
        for rows, labels in open_shard(path).batches():
            if plan.dim is not None and rows.shape[1] != plan.dim:
                raise DataError(f"Expected features of dimension {plan.dim}, got {rows.shape[1]}.")
            # Not so few that they are not read by the compiled kernel.
            step = (
                max(COMPILED_SIZE, PRODUCTS // (plan.num_classes or 1)) // max(1, rows.shape[1]) + 1
            )
            for some, of_them in zip(rows.split(step), labels.split(step), strict=True):
                take(some, of_them)
                done += len(some)
                report(done)
    return done


def first_round(report: ReportStep, shards: Sequence[str], plan: Plan) -> ReadPart:
    """Moments and logits of some files; those that break are left out if that is asked for."""
    bad: dict[str, str] = {}
    while True:
        stream, done = plan.stream(), 0
        try:
            for path in shards:
                if path not in bad:
                    reading = path
                    stream.rows_before = stream.moments.rows_seen if stream.started else 0
                    update = _dealing(stream, plan.before.get(path), _kept(plan, stream.update))
                    done = _each(path, update, report, done, plan)
        except DataError as error:
            if not plan.skip_bad:
                raise
            bad[reading] = str(error)  # a part of it may be in the sums: begin again
        else:
            break
    if not stream.started:
        return ReadPart(bad)
    groups = groups_of(stream)
    return ReadPart(
        bad,
        moments=stream.moments.state_dict(copy=False),
        logits=None if stream.logits is None else stream.logits.sums(),
        against=None if stream.against is None else stream.against.sums(),
        groups=() if groups is None else groups.first_sums(),
    )


def second_round(
    report: ReportStep,
    shards: Sequence[str],
    plan: Plan,
    moments: State,
    without: Sequence[tuple[State, State | None]],
) -> ReadPart:
    """The second pass at some files, with the class means of all, and of all but each group."""
    stream, done = plan.stream(), 0
    known = ClassMoments.from_state_dict(moments, copy=False)
    stream.start(known.dim, known.device)
    stream.moments = known
    groups = groups_of(stream)
    if groups is not None:
        groups.look_on(known, without)
    for path in shards:
        look = _dealing(stream, plan.before.get(path), _kept(plan, stream.look_again))
        done = _each(path, look, report, done, plan)
    return ReadPart(
        {},
        look=None if stream.look is None else stream.look.sums(),
        spread=None if stream.spread is None else stream.spread.sums(),
        groups=() if groups is None else groups.second_sums(),
    )


def _kept(plan: Plan, take: Take) -> Take:
    """`take` without the classes that are left out."""
    return lambda rows, labels: take(rows, plan.kept(labels))


def _dealing(stream: LayerStream, before: Tensor | None, take: Take) -> Take:
    """`take`, which deals the samples of a file to groups as if it came after those before it."""

    def first(rows: Tensor, labels: Tensor) -> None:
        nonlocal before
        if before is not None:
            if not stream.started:
                stream.start(rows.shape[1], rows.device)
            groups = groups_of(stream)
            assert groups is not None, "only intervals need to know"
            groups.begin_at(before)
            before = None
        take(rows, labels)

    return first

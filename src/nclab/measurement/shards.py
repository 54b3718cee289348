"""measure_shards: the door for features in many files, on the cores here or on a Ray cluster."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.data.shards import find_shards, open_shard
from nclab.engine import LOCAL, Engine, Job, JobResult, Progress, ReportStep
from nclab.errors import DataError, NclabError
from nclab.measurement.arrays import NO_WEIGHT
from nclab.measurement.class_names import ClassNames, as_class_names, named
from nclab.measurement.collapse import Collapse
from nclab.measurement.layer_stream import SCATTER_LIMIT, Head, LayerStream
from nclab.measurement.memory import Budget, Memory, Sizes, as_bytes, worker_bytes
from nclab.progress import Bar, bar, track
from nclab.statistics import ClassMoments, SecondLook
from nclab.statistics.blocks import MANY
from nclab.statistics.checks import IGNORE_INDEX, as_labels, check_whole

TRIES = 3
"""So often a part is begun whose process dies."""
WORTH = 8
"""Rows a class, of many classes, from which on another process is worth the sums it sends."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
State = dict[str, Tensor]


def measure_shards(
    paths: Paths,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: int | None = None,
    ignore_index: int | None = IGNORE_INDEX,
    allow_missing: bool = False,
    second_look: bool = True,
    scatter: bool | None = None,
    engine: Engine | str = "local",
    workers: int | None = None,
    skip_bad: bool = False,
    class_names: ClassNames = None,
    memory: Memory = None,
) -> Collapse:
    """Measure features in many files as `measure_features` measures them in one array.

    Every file is .safetensors, .npz or Parquet with `features` and `labels`, or .npy with its
    labels beside it (`part-0.features.npy`, `part-0.labels.npy`). Labels are read first: absent
    classes and broken files are known before the features are. Then every worker reads its files
    in slices and keeps moments only, which are merged exactly; the second look is a second round.
    A worker that dies is replaced, and its files are read again.

    Args:
        paths: a pattern such as "features/*.safetensors", a folder, a file, or several of these.
        engine: "local", "ray", or an engine of `nclab.engine`.
        workers: processes at the same time, by default one a core; 0 for this process alone. Of
            many classes with few samples each only as many as are worth what they send.
        skip_bad: leave out files that cannot be read, and say so in the warnings.
        memory: what this and its processes may use, such as "8GB"; fewer of them where they would
            not fit.

    The other arguments are those of `measure_features`.

    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     np.savez(folder / f"part-{number}.npz", X=np.eye(4)[[0, 1, 2, 3]], y=[0, 0, 1, 1])
    >>> collapse = measure_shards(folder, workers=0)
    >>> collapse.samples, collapse.num_classes
    (12, 2)
    """
    if num_classes is not None:
        check_whole("classes", num_classes)
    if weight is None and bias is not None:
        raise DataError("Expected weight beside bias, got bias alone. Pass both.")
    names = as_class_names(class_names)
    num_classes = len(names) if names is not None and num_classes is None else num_classes
    head = None if weight is None else Head.checked(weight, bias, num_classes)
    plan = Plan(head, num_classes, ignore_index, scatter, allow_missing, skip_bad)
    limit = as_bytes(memory)
    shards = plan.count_labels(find_shards(paths))
    if limit is not None or (plan.num_classes or 0) > MANY:
        workers = plan.fit(shards, workers, Budget(limit, second_look, allow_missing), engine)
    rounds = 2 if second_look else 1
    with (
        _opened(engine) as own,
        bar("measuring shards", total=rounds * sum(shards.values())) as moving,
    ):
        runner = _Runner(own, workers)
        parts = runner.run(_first_round, plan, shards, moving)
        bad = {name: why for part in parts for name, why in part.bad.items()}
        stream = plan.joined(parts)
        if second_look:
            good = {path: rows for path, rows in shards.items() if str(path) not in bad}
            state = stream.moments.state_dict(copy=False)
            looks = runner.run(_second_round, plan, good, moving, state)
            stream.look = plan.look(stream.moments, looks)
            stream.finish_second_look()
    collapse = named(stream.collapse({} if head else {"weight": NO_WEIGHT}), names)
    left_out = {**plan.bad, **bad}
    said = tuple(f"Left out {why}" for why in left_out.values())
    return replace(collapse, warnings=(*said, *collapse.warnings)) if said else collapse


@contextmanager
def _opened(engine: Engine | str) -> Iterator[Engine]:
    """The engine; a cluster that was joined for this measurement is left after it."""
    if isinstance(engine, Engine):
        yield engine
    elif engine == "local":
        yield LOCAL
    elif engine == "ray":
        from nclab.engine.ray import Cluster

        with Cluster() as cluster:
            yield cluster
    else:
        raise NclabError(f"Expected engine='local' or 'ray', got {engine!r}.")


class ReadPart(NamedTuple):
    """What one worker has seen of its files."""

    moments: State | None
    logits: State | None
    look: State | None
    bad: dict[str, str]


@dataclass
class Plan:
    """What is asked of every worker."""

    head: Head | None
    num_classes: int | None
    ignore_index: int | None
    scatter: bool | None
    allow_missing: bool
    skip_bad: bool
    bad: dict[str, str] = field(default_factory=dict)
    """Files that are left out, with the reason."""

    def stream(self) -> LayerStream:
        """Empty sums."""
        return LayerStream(
            num_classes=self.num_classes,
            head=self.head,
            ignore_index=self.ignore_index,
            scatter=self.scatter,
        )

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
                    labels = as_labels(
                        labels,
                        rows=len(labels),
                        ignore_index=self.ignore_index,
                        num_classes=self.num_classes,
                    )
            except DataError as error:
                if not self.skip_bad:
                    raise
                self.bad[str(path)] = str(error)
                continue
            rows[path] = len(labels)
            own = labels[labels != self.ignore_index].bincount(minlength=len(counts))
            own[: len(counts)] += counts
            counts = own
        total, present = int(counts.sum()), int((counts > 0).sum())
        if not total:
            raise DataError("Expected at least one sample, got none. Check the shards.")
        if present < len(counts) and not self.allow_missing:
            absent = (counts == 0).nonzero().flatten().tolist()
            raise DataError(
                f"Expected samples of all {len(counts)} classes, got none of {len(absent)}, such "
                f"as class {absent[0]}. Pass allow_missing (--allow-missing) to leave them out."
            )
        self.num_classes = len(counts)
        return rows

    def fit(
        self,
        shards: Mapping[Path, int],
        workers: int | None,
        budget: Budget,
        engine: Engine | str,
    ) -> int | None:
        """How many processes: as many as asked for, are worth it and fit; refused if none does."""
        assert self.num_classes is not None
        dim, scatter = self._dim(shards), self.scatter
        kept = dim <= SCATTER_LIMIT if scatter is None else scatter
        sizes = Sizes(self.num_classes, dim, self.head is not None, kept, budget.second_look)
        if engine not in ("local", LOCAL):  # theirs is the memory of other machines
            budget.plan("shards", sizes)
            return workers
        most = LOCAL.slots() if workers is None else workers
        if workers is None and self.num_classes > MANY:
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

    def _dim(self, shards: Iterable[Path]) -> int:
        """The dimension of the features, by the first file that can be read."""
        if self.head is not None:
            return int(self.head.weight.shape[1])
        for path in shards:
            try:
                return int(next(iter(open_shard(path).features())).shape[1])
            except (DataError, IndexError, StopIteration):
                continue  # the round says what is wrong
        return 1

    def joined(self, parts: list[ReadPart]) -> LayerStream:
        """One stream with the sums of all parts, which are used up."""
        stream = self.stream()
        while parts:
            part = parts.pop(0)
            if part.moments is None:
                continue
            own = ClassMoments.from_state_dict(part.moments, copy=False)
            if not stream.started:
                stream.start(own.dim, own.device)
                stream.moments = own
            else:
                stream.moments.merge(own)
            if stream.logits is not None and part.logits is not None:
                logits = stream.new_logits()
                logits.load_sums(part.logits)
                stream.logits.merge(logits)
        stream.require_classes(allow_missing=True)
        if not self.allow_missing:  # a file may have been left out since the labels were counted
            stream.moments.require_all_classes()
        return stream

    def look(self, moments: ClassMoments, parts: Sequence[ReadPart]) -> SecondLook:
        """One second look with the sums of all parts."""
        looks = [part.look for part in parts if part.look is not None]
        total = SecondLook(moments)
        if len(looks) == 1:
            total.load_sums(looks[0])
            return total
        own = SecondLook(moments)
        for look in looks:
            own.load_sums(look)
            total.merge(own)
        return total


@dataclass
class _Runner:
    """Gives files to workers, in as many groups of about the same size as work at a time."""

    engine: Engine
    workers: int | None

    def run(
        self,
        work: Callable[..., ReadPart],
        plan: Plan,
        shards: dict[Path, int],
        moving: Bar,
        *more: Any,
    ) -> list[ReadPart]:
        count = 1 if self.workers == 0 else self.workers or self.engine.slots()
        groups = _groups(shards, count)
        jobs = [
            Job(f"shards {place + 1}", work, ([*map(str, group)], plan, *more))
            for place, group in enumerate(groups)
        ]
        before = [0] * len(jobs)
        start = 0 if work is _first_round else sum(shards.values())

        def progress(step: Progress) -> None:
            before[step.index] = step.step
            moving.update(start + sum(before))

        found: dict[int, ReadPart] = {}
        for tries in range(TRIES):
            waiting = [place for place in range(len(jobs)) if place not in found]
            results = self.engine.run_jobs(
                [jobs[place] for place in waiting], workers=self.workers, on_progress=progress
            )
            for place, result in zip(waiting, results, strict=True):
                if result.ok:
                    found[place] = result.value
                elif result.trace is not None or tries == TRIES - 1:
                    raise _error(result)
            if len(found) == len(jobs):
                break
        return [found[place] for place in range(len(jobs))]


def _error(result: JobResult) -> NclabError:
    """A worker's own words; only what it did not expect is an error of ours."""
    kind, _, words = str(result.error).partition(": ")
    return DataError(words if kind in ("DataError", "NclabError", "MissingExtra") else result.error)


def _groups(shards: dict[Path, int], count: int) -> list[list[Path]]:
    """Neighbouring files together, by rows."""
    total, groups, done = sum(shards.values()), [list[Path]()], 0
    count = min(count, len(shards))
    for path, rows in shards.items():
        if groups[-1] and done >= total * len(groups) / count and len(groups) < count:
            groups.append([])
        groups[-1].append(path)
        done += rows
    return groups


@contextmanager
def _named(path: object) -> Iterator[None]:
    """Errors say in which file they are."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _each(path: str, take: Callable[[Tensor, Tensor], None], report: ReportStep, done: int) -> int:
    """Give all batches of a file to `take`; rows done afterwards."""
    with _named(path):
        for rows, labels in open_shard(path).batches():
            take(rows, labels)
            done += len(rows)
            report(done)
    return done


def _first_round(report: ReportStep, shards: Sequence[str], plan: Plan) -> ReadPart:
    """Moments and logits of some files; those that break are left out if that is asked for."""
    bad: dict[str, str] = {}
    while True:
        stream, done = plan.stream(), 0
        try:
            for path in shards:
                if path not in bad:
                    reading = path
                    done = _each(path, stream.update, report, done)
        except DataError as error:
            if not plan.skip_bad:
                raise
            bad[reading] = str(error)  # a part of it may be in the sums: begin again
        else:
            break
    if not stream.started:
        return ReadPart(None, None, None, bad)
    logits = None if stream.logits is None else stream.logits.sums()
    return ReadPart(stream.moments.state_dict(copy=False), logits, None, bad)


def _second_round(
    report: ReportStep, shards: Sequence[str], plan: Plan, moments: State
) -> ReadPart:
    """The second look at some files, with the class means of all."""
    stream, done = plan.stream(), 0
    known = ClassMoments.from_state_dict(moments, copy=False)
    stream.start(known.dim, known.device)
    stream.moments = known
    for path in shards:
        done = _each(path, stream.look_again, report, done)
    return ReadPart(None, None, None if stream.look is None else stream.look.sums(), {})

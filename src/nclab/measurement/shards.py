"""measure_shards: the door for features in many files, on the cores here or on a Ray cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nclab.data.shards import find_shards, open_shard
from nclab.engine import LOCAL, Engine, Job, JobResult, Progress, ReportStep
from nclab.errors import DataError, NclabError
from nclab.measurement.asked import Asked
from nclab.measurement.class_names import (
    ClassNames,
    as_class_names,
    check_count,
    check_labels,
    named,
)
from nclab.measurement.collapse import Collapse
from nclab.measurement.held_out import NO_WEIGHT, Reference, look_against
from nclab.measurement.intervals import Groups, State, summed
from nclab.measurement.layer_stream import Head, LayerStream
from nclab.progress import Bar, bar, track
from nclab.statistics import ClassMoments, DirectionalSpread, SecondLook
from nclab.statistics.checks import IGNORE_INDEX, as_labels, check_whole

TRIES = 3
"""So often a part is begun whose process dies."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Take = Callable[[Tensor, Tensor], None]
"""Takes features and labels of a batch."""


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
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    reference: Reference | None = None,
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
        workers: processes at the same time, by default one a core; 0 for this process alone.
        skip_bad: leave out files that cannot be read, and say so in the warnings.

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
    check_count(names, num_classes, "classes of num_classes")
    head = None if weight is None else Head.checked(weight, bias, num_classes)
    check_count(names, None if head is None else len(head.weight), "rows of weight")
    num_classes = len(names) if names is not None else num_classes
    plan = Plan(
        head,
        num_classes,
        ignore_index,
        scatter,
        allow_missing or reference is not None,
        skip_bad,
        Asked.checked(metrics, intervals=intervals, null=False),
        reference,
        names,
    )
    shards = plan.count_labels(find_shards(paths))
    rounds = 2 if second_look else 1
    with (
        _opened(engine) as own,
        bar("measuring shards", total=rounds * sum(shards.values())) as moving,
    ):
        runner = _Runner(own, workers)
        parts = runner.run(_first_round, plan, shards, moving)
        stream = plan.joined(parts)
        bad = {name: why for part in parts for name, why in part.bad.items()}
        if second_look:
            good = {path: rows for path, rows in shards.items() if str(path) not in bad}
            state, groups = stream.moments.state_dict(), groups_of(stream)
            without = [] if groups is None else groups.first_sums()
            looks = runner.run(_second_round, plan, good, moving, state, without)
            plan.join_looks(stream, looks)
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
    bad: dict[str, str] = field(default_factory=dict)
    """Files that are left out, with the reason."""
    before: dict[str, Tensor] = field(default_factory=dict)
    """File -> samples of every class in the files before it, where intervals are asked for."""

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
            except DataError as error:
                if not self.skip_bad:
                    raise
                self.bad[str(path)] = str(error)
                continue
            rows[path] = len(labels)
            if self.asked.groups:
                self.before[str(path)] = counts
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
        for name, seen in self.before.items():
            self.before[name] = pad(seen, (0, len(counts) - len(seen)))
        return rows

    def joined(self, parts: Sequence[ReadPart]) -> LayerStream:
        """One stream with the sums of all parts."""
        stream = self.stream()
        for part in parts:
            if part.moments is None:
                continue
            own = ClassMoments.from_state_dict(part.moments)
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
        stream.require_classes(allow_missing=True)
        if not self.allow_missing:  # a file may have been left out since the labels were counted
            stream.moments.require_all_classes()
        groups = groups_of(stream)
        if groups is not None:
            groups.join_first(stream.moments, [part.groups for part in parts if part.groups])
        return stream

    def join_looks(self, stream: LayerStream, parts: Sequence[ReadPart]) -> None:
        """Give a stream the second looks of all parts."""
        moments = stream.moments
        looks, spreads = (_known(getattr(part, name) for part in parts) for name in SECOND)
        stream.look = summed(partial(SecondLook, moments), looks)
        if spreads:
            stream.spread = summed(partial(DirectionalSpread, moments), spreads)
        groups = groups_of(stream)
        if groups is not None:
            groups.join_second([part.groups for part in parts])


SECOND = ("look", "spread")
"""What a second round gives of a `ReadPart`."""


def _known(states: Iterable[State | None]) -> list[State]:
    return [state for state in states if state is not None]


def groups_of(stream: LayerStream) -> Groups | None:
    """What makes the intervals of a stream, if they are asked for."""
    return next((one for one in stream.beside if isinstance(one, Groups)), None)


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


def _each(path: str, take: Take, report: ReportStep, done: int) -> int:
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
                    update = _dealing(stream, plan.before.get(path), stream.update)
                    done = _each(path, update, report, done)
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
        moments=stream.moments.state_dict(),
        logits=None if stream.logits is None else stream.logits.sums(),
        against=None if stream.against is None else stream.against.sums(),
        groups=() if groups is None else groups.first_sums(),
    )


def _second_round(
    report: ReportStep,
    shards: Sequence[str],
    plan: Plan,
    moments: State,
    without: Sequence[tuple[State, State | None]],
) -> ReadPart:
    """The second look at some files, with the class means of all, and of all but each group."""
    stream, done = plan.stream(), 0
    known = ClassMoments.from_state_dict(moments)
    stream.start(known.dim, known.device)
    stream.moments = known
    groups = groups_of(stream)
    if groups is not None:
        groups.look_on(known, without)
    for path in shards:
        look = _dealing(stream, plan.before.get(path), stream.look_again)
        done = _each(path, look, report, done)
    return ReadPart(
        {},
        look=None if stream.look is None else stream.look.sums(),
        spread=None if stream.spread is None else stream.spread.sums(),
        groups=() if groups is None else groups.second_sums(),
    )


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

"""measure_shards: the door for features in many files, on the cores here or on a Ray cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nclab.engine import LOCAL, Engine, Job, JobResult, Progress
from nclab.errors import DataError, NclabError
from nclab.measurement.asked import Asked, check_min_count
from nclab.measurement.class_names import ClassNames, as_class_names, check_count, named
from nclab.measurement.collapse import Collapse
from nclab.measurement.held_out import NO_WEIGHT, Reference
from nclab.measurement.kept_parts import KeptParts
from nclab.measurement.layer_stream import Head
from nclab.measurement.memory import Budget, Memory, as_bytes
from nclab.measurement.shard_files import find_shards
from nclab.measurement.shard_rounds import Plan, ReadPart, first_round, groups_of, second_round
from nclab.progress import Bar, bar
from nclab.statistics.blocks import MANY_CLASSES
from nclab.statistics.checks import IGNORE_INDEX, check_integer

TRIES = 3
"""So often a part is begun whose process dies."""
KEPT = 4
"""Parts for each worker where what is done is kept: a kill loses less."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def measure_shards(
    paths: Paths,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: int | None = None,
    ignore_index: int | None = IGNORE_INDEX,
    allow_missing: bool = False,
    min_count: int | None = None,
    second_pass: bool = True,
    scatter: bool | None = None,
    engine: Engine | str = "local",
    workers: int | None = None,
    skip_bad: bool = False,
    keep: str | os.PathLike[str] | None = None,
    class_names: ClassNames = None,
    metrics: str | Sequence[str] = "default",
    intervals: bool | int = False,
    reference: Reference | None = None,
    memory: Memory = None,
) -> Collapse:
    """Measure features in many files as `measure_features` measures them in one array.

    Every file is .safetensors, .npz or Parquet with `features` and `labels`, or .npy with its
    labels beside it (`part-0.features.npy`, `part-0.labels.npy`). Labels are read first: absent
    classes and broken files are known before the features are. Then every worker reads its files
    in slices and keeps moments only, which are merged exactly; the second pass is a second round.
    A worker that dies is replaced, and its files are read again.

    Args:
        paths: a pattern such as "features/*.safetensors", a folder, a file, or several of these.
        engine: "local", "ray", or an engine of `nclab.engine`.
        workers: processes at the same time, by default one a core; 0 for this process alone. Of
            many classes with few samples each only as many as are worth what they send.
        skip_bad: leave out files that cannot be read, and say so in the warnings.
        keep: a folder for the sums of files that are done, until all are: the same call goes on
            where one was killed, with the same numbers.
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
        check_integer("classes", num_classes)
    if weight is None and bias is not None:
        raise DataError("Expected weight beside bias, got bias alone. Pass both.")
    names = as_class_names(class_names)
    check_count(names, num_classes, "classes of num_classes")
    head = None if weight is None else Head.checked(weight, bias, num_classes)
    check_count(names, None if head is None else len(head.weight), "rows of weight")
    num_classes = len(names) if names is not None else num_classes
    check_min_count(min_count, intervals=intervals)
    limit = as_bytes(memory)
    plan = Plan(
        head,
        num_classes,
        ignore_index,
        scatter,
        allow_missing or reference is not None or min_count is not None,
        skip_bad,
        Asked.checked(metrics, intervals=intervals, null=False),
        reference,
        names,
        min_count,
    )
    files = find_shards(paths)
    if engine != "local" and not getattr(engine, "here", False):
        # Absolute, as a cluster's processes have working folders of their own.
        files = [file.absolute() for file in files]
    shards = plan.count_labels(files)
    plan.find_dim(list(shards))
    if limit is not None or (plan.num_classes or 0) > MANY_CLASSES:
        workers = plan.fit(shards, workers, Budget(limit, second_pass, plan.allow_missing), engine)
    kept = None if keep is None else KeptParts(Path(keep))
    rounds = 2 if second_pass else 1
    with (
        _opened(engine) as own,
        bar("measuring shards", total=rounds * sum(shards.values())) as moving,
    ):
        runner = _Runner(own, workers, kept)
        parts = runner.run(first_round, plan, shards, moving)
        bad = {name: why for part in parts for name, why in part.bad.items()}
        stream = plan.joined(parts)
        if second_pass:
            good = {path: rows for path, rows in shards.items() if str(path) not in bad}
            state, groups = stream.moments.state_dict(copy=False), groups_of(stream)
            without = [] if groups is None else groups.first_sums()
            looks = runner.run(second_round, plan, good, moving, state, without)
            plan.join_looks(stream, looks)
            stream.finish_second_pass()
    if kept is not None:
        kept.forget()
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


@dataclass
class _Runner:
    """Gives files to workers, in as many groups of about the same size as work at a time."""

    engine: Engine
    workers: int | None
    keep: KeptParts | None

    def run(
        self,
        work: Callable[..., ReadPart],
        plan: Plan,
        shards: dict[Path, int],
        moving: Bar,
        *more: Any,
    ) -> list[ReadPart]:
        count = 1 if self.workers == 0 else self.workers or self.engine.slots()
        groups = _groups(shards, count if self.keep is None else KEPT * count)
        jobs = [
            Job(f"shards {place + 1}", work, ([*map(str, group)], plan, *more))
            for place, group in enumerate(groups)
        ]
        before = [0] * len(jobs)
        start = 0 if work is first_round else sum(shards.values())

        def progress(step: Progress) -> None:
            before[waiting[step.index]] = step.step
            moving.update(start + sum(before))

        found: dict[int, ReadPart] = {}
        keys: list[str] = []
        if self.keep is not None:
            keys = [self.keep.key(work.__name__, plan, group, *more) for group in groups]
            found = {place: part for place, key in enumerate(keys) if (part := self.keep.read(key))}
            for place in found:
                before[place] = sum(shards[path] for path in groups[place])

        def done(index: int, result: JobResult) -> None:
            if self.keep is not None and result.ok:
                self.keep.write(keys[waiting[index]], result.value)

        waiting = [place for place in range(len(jobs)) if place not in found]
        results = self.engine.run_jobs(
            [jobs[place] for place in waiting],
            workers=self.workers,
            tries=TRIES,
            on_progress=progress,
            on_done=done,
        )
        for place, result in zip(waiting, results, strict=True):
            if not result.ok:
                raise _error(result)
            found[place] = result.value
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

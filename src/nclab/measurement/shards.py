"""measure_shards: measure features in many files, on the cores here or on a Ray cluster."""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nclab.engine import LOCAL, Engine, Job, Progress, ReportStep
from nclab.errors import DataError, NclabError
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import NO_WEIGHT, RareClasses
from nclab.measurement.layer_stream import LayerStream, State
from nclab.measurement.options import (
    ClassNames,
    Head,
    MeasureOptions,
    Reference,
    check_count,
    check_labels,
)
from nclab.measurement.shard_files import Paths, find_shards, open_shard
from nclab.progress import bar, track
from nclab.statistics import ClassMoments
from nclab.statistics.blocks import COMPILED_SIZE
from nclab.statistics.checks import IGNORE_INDEX, as_labels

TRIES = 3
"""Number of times that a group of files is started if its process dies."""
PRODUCTS = 2**34
"""Progress is reported after this many multiplications, about every second."""


def measure_shards(
    paths: Paths,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: int | None = None,
    ignore_index: int | None = IGNORE_INDEX,
    min_count: int | None = None,
    second_pass: bool = True,
    scatter: bool | None = None,
    engine: Engine | str = "local",
    workers: int | None = None,
    skip_bad: bool = False,
    class_names: ClassNames = None,
    metrics: str | Sequence[str] = "default",
    reference: Reference | None = None,
) -> Collapse:
    """Measure features in many files as `measure_features` measures them in one array.

    Every file is .safetensors, .npz or Parquet with `features` and `labels`, or .npy with its
    labels in a second file (`part-0.features.npy`, `part-0.labels.npy`). All labels are read
    first, so that absent classes and broken files raise an error early. Then every worker reads
    its files in slices and keeps only moments, which are merged exactly. The second pass reads
    the files again. A worker that dies is replaced, and its files are read again.

    Args:
        paths: a pattern such as "features/*.safetensors", a folder, a file, or several of these.
        engine: "local", "ray", or an engine of `nclab.engine`.
        workers: number of processes, by default one per core; 0 for this process alone, which is
            best for many classes with few samples each.
        skip_bad: leave out files that cannot be read, with a warning.

    The other arguments are those of `measure_features`.

    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     np.savez(folder / f"part-{number}.npz", X=np.eye(4)[[0, 1, 2, 3]], y=[0, 0, 1, 1])
    >>> collapse = measure_shards(folder, workers=0)
    >>> collapse.samples, collapse.num_classes
    (12, 2)
    """
    options = MeasureOptions.checked(
        num_classes=num_classes,
        ignore_index=ignore_index,
        min_count=min_count,
        second_pass=second_pass,
        scatter=scatter,
        class_names=class_names,
        metrics=metrics,
        reference=reference,
    )
    head = Head.optional(weight, bias, num_classes)
    check_count(options.class_names, None if head is None else len(head.weight), "rows of weight")
    files = find_shards(paths)
    if engine != "local" and not getattr(engine, "here", False):
        # Absolute paths, because processes of a cluster have other working folders.
        files = [file.absolute() for file in files]
    plan, shards, bad = _read_labels(files, Plan(head, options, skip_bad))
    total = sum(shards.values())
    with (
        _opened(engine) as open_engine,
        bar("measuring shards", total=2 * total if second_pass else total) as progress,
    ):
        run = partial(_run, engine=open_engine, workers=workers)
        parts = run(first_round, shards, (plan,), report=progress.update)
        bad |= {name: why for part in parts for name, why in part.bad.items()}
        stream = _merged(plan, parts, bad)
        if second_pass:
            good = {path: rows for path, rows in shards.items() if str(path) not in bad}
            moments = stream.moments.state_dict(copy=False)
            for part in run(
                *(second_round, good, (plan, moments)),
                report=lambda rows: progress.update(total + rows),
            ):
                stream.add_sums(part.sums)
            stream.finish_second_pass()
    collapse = stream.collapse({} if head else {"weight": NO_WEIGHT})
    warnings = tuple(f"Left out {why}" for why in bad.values())
    return replace(collapse, warnings=(*warnings, *collapse.warnings)) if warnings else collapse


def _opened(engine: Engine | str) -> AbstractContextManager[Engine]:
    """Return a context that yields the engine; its end closes a connection to a Ray cluster."""
    if engine == "ray":
        from nclab.engine.ray import Cluster

        return Cluster()
    opened = LOCAL if engine == "local" else engine
    if not isinstance(opened, Engine):
        raise NclabError(f"Expected engine='local' or 'ray', got {engine!r}.")
    return nullcontext(opened)


# Before the first pass


@dataclass(frozen=True)
class Plan:
    """Settings of a measurement that are sent to every worker."""

    head: Head | None
    options: MeasureOptions
    skip_bad: bool = False
    """Whether files that cannot be read are left out instead of raising an error."""
    rare: RareClasses | None = None
    """Classes with fewer samples than `min_count`. No worker counts them."""
    dim: int | None = None
    """Dimension of the features; files with another dimension raise an error. None if a classifier
    determines it."""

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None before the labels are read."""
        return self.options.class_count(self.head)

    def without_rare(self, labels: Tensor) -> Tensor:
        """Return labels with rare classes replaced by `ignore_index`."""
        if self.rare is None or self.options.ignore_index is None:
            return labels
        labels = labels.long()
        rare = torch.isin(labels, self.rare.classes)
        return labels.masked_fill(rare, self.options.ignore_index)


def _read_labels(files: Sequence[Path], plan: Plan) -> tuple[Plan, dict[Path, int], dict[str, str]]:
    """Return a complete plan, the number of rows of each file, and unreadable file -> error.

    Raise if a class is absent, there are no samples, or, without `plan.skip_bad`, a file cannot be
    read.
    """
    options, ignored = plan.options, plan.options.ignore_index
    counts = torch.zeros(plan.num_classes or 0, dtype=torch.int64)
    rows, bad = dict[Path, int](), dict[str, str]()
    for path in track(files, "reading labels"):
        try:
            with _error_names_file(path):
                labels = open_shard(path).labels()
                check_labels(options.class_names, labels, ignored)
                labels = as_labels(
                    labels, rows=len(labels), ignore_index=ignored, num_classes=plan.num_classes
                )
                classes = int(labels.max()) + 1 if len(labels) else 0
                if classes > len(counts):
                    options.check_memory(classes, 1)
                    counts = pad(counts, (0, classes - len(counts)))
        except DataError as error:
            if not plan.skip_bad:
                raise
            bad[str(path)] = str(error)
            continue
        rows[path] = len(labels)
        used = labels if ignored is None else labels[labels != ignored]
        counts.index_add_(0, used, torch.ones_like(used))
    _require_samples(int(counts.sum()), bad)
    absent = len(counts) - int(counts.count_nonzero())
    if absent and not options.missing_allowed:
        raise DataError(
            f"Expected samples of all {len(counts)} classes, got none of {absent}, such as class "
            f"{int(counts.argmin())}. Pass min_count=1 (--min-count 1) to leave them out."
        )
    rare = None
    if options.min_count is not None and options.reference is None:
        rare = RareClasses.among(counts, options.min_count)
        if rare is not None and ignored is None:
            raise DataError("Expected an ignore_index together with min_count, got None.")
    options = replace(options, num_classes=len(counts))
    dim = _common_dim(list(rows)) if plan.head is None else None
    return replace(plan, options=options, rare=rare, dim=dim), rows, bad


def _common_dim(files: Sequence[Path]) -> int | None:
    """Return the feature dimension of most of three files, so that one wrong file is outvoted.

    None if none of the three files can be read.
    """
    dims = []
    for path in dict.fromkeys([files[0], files[len(files) // 2], files[-1]]):
        try:
            dims.append(int(next(iter(open_shard(path).features())).shape[1]))
        except (DataError, IndexError, StopIteration):
            continue  # the first pass raises a clear error
    return mode(dims) if dims else None


def _require_samples(total: int, bad: Mapping[str, str]) -> None:
    """Raise if there are no samples; the message quotes the error of an unreadable file, if any."""
    if not total and bad:
        fault = next(iter(bad.values()))
        raise DataError(f"Expected a shard that can be read, got none: {fault}")
    if not total:
        raise DataError("Expected at least one sample, got none. Check the shards.")


@contextmanager
def _error_names_file(path: object) -> Iterator[None]:
    """Add the name of a file to the errors that occur while it is read."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


# Passes over all files


class ReadPart(NamedTuple):
    """The sums of one worker over its files in one pass."""

    bad: dict[str, str]
    """Reason by file, for the files that cannot be read."""
    sums: dict[str, State]
    """Sums as a `LayerStream` returns them."""


def _run(
    work: Callable[..., ReadPart],
    shards: dict[Path, int],
    arguments: tuple[Any, ...],
    *,
    engine: Engine,
    workers: int | None,
    report: Callable[[int], None],
) -> list[ReadPart]:
    """Run `work` on groups of files, and return its results; report the number of rows done."""
    count = 1 if workers == 0 else workers or engine.slots()
    jobs = [
        Job(f"shards {index + 1}", work, ([*map(str, group)], *arguments))
        for index, group in enumerate(_groups(shards, count))
    ]
    rows_done = [0] * len(jobs)

    def on_progress(step: Progress) -> None:
        rows_done[step.index] = step.step
        report(sum(rows_done))

    results = engine.run_jobs(jobs, workers=workers, tries=TRIES, on_progress=on_progress)
    for result in results:
        if not result.ok:
            kind, _, message = str(result.error).partition(": ")
            is_ours = kind in ("DataError", "NclabError", "MissingExtra")
            raise DataError(message if is_ours else result.error)
    return [result.value for result in results]


def _groups(shards: dict[Path, int], count: int) -> list[list[Path]]:
    """Split the files into groups of neighbours with about the same number of rows."""
    total, groups, done = sum(shards.values()), [list[Path]()], 0
    count = min(count, len(shards))
    for path, rows in shards.items():
        if groups[-1] and done >= total * len(groups) / count and len(groups) < count:
            groups.append([])
        groups[-1].append(path)
        done += rows
    return groups


def _merged(plan: Plan, parts: list[ReadPart], bad: Mapping[str, str]) -> LayerStream:
    """Return one stream with the sums of the first pass of all parts; `parts` is emptied."""
    stream = LayerStream(plan.options, head=plan.head)
    while parts:
        sums = parts.pop(0).sums
        if sums:
            stream.add_sums(sums)
    _require_samples(stream.moments.total if stream.started else 0, bad)
    if plan.rare is not None:
        stream.leave_out(plan.rare)
    # A file may have been left out since the labels were counted.
    stream.require_classes(allow_missing=plan.options.missing_allowed)
    return stream


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
                    done = _read_file(path, stream.update, report, done, plan)
        except DataError as error:
            if not plan.skip_bad:
                raise
            bad[current] = str(error)  # a part of it may be in the sums: start again
        else:
            return ReadPart(bad, stream.first_sums() if stream.started else {})


def second_round(report: ReportStep, shards: Sequence[str], plan: Plan, moments: State) -> ReadPart:
    """Make the second pass over some files; `moments` are those of all files."""
    stream, done = LayerStream(plan.options, head=plan.head), 0
    stream.restore(ClassMoments.from_state_dict(moments, copy=False))
    for path in shards:
        done = _read_file(path, stream.update_second, report, done, plan)
    return ReadPart({}, stream.second_sums())


def _read_file(
    path: str, add: Callable[[Tensor, Tensor], None], report: ReportStep, done: int, plan: Plan
) -> int:
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
            size = max(COMPILED_SIZE, PRODUCTS // (plan.num_classes or 1))
            step = size // max(1, rows.shape[1]) + 1
            for some_rows, some_labels in zip(rows.split(step), labels.split(step), strict=True):
                add(some_rows, plan.without_rare(some_labels))
                done += len(some_rows)
                report(done)
    return done

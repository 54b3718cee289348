"""measure_shards: measure features in many files, on the cores here or on a Ray cluster."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nclab import __version__
from nclab.array_files import read_tree, write_tree
from nclab.engine import LOCAL, Engine, Job, JobResult, Progress
from nclab.errors import DataError, NclabError
from nclab.files import delete, remove_leftovers, translate_os_errors
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import NO_WEIGHT, with_class_names
from nclab.measurement.memory import Memory
from nclab.measurement.options import (
    ClassNames,
    Head,
    MeasureOptions,
    Reference,
    check_count,
)
from nclab.measurement.shard_files import Paths, find_shards
from nclab.measurement.shard_workers import Plan, ReadPart, first_round, second_round
from nclab.progress import Bar, bar
from nclab.statistics.blocks import MANY_CLASSES
from nclab.statistics.checks import IGNORE_INDEX

TRIES = 3
"""How often a part is started if its process dies."""
PARTS_PER_WORKER = 4
"""Parts for each worker if finished parts are kept, so that a killed run loses less."""
SUFFIX = ".part.safetensors"


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
    labels in a second file (`part-0.features.npy`, `part-0.labels.npy`). All labels are read
    first, so that absent classes and broken files raise an error early. Then every worker reads
    its files in slices and keeps only moments, which are merged exactly. The second pass reads
    the files again. A worker that dies is replaced, and its files are read again.

    Args:
        paths: a pattern such as "features/*.safetensors", a folder, a file, or several of these.
        engine: "local", "ray", or an engine of `nclab.engine`.
        workers: number of processes, by default one per core; 0 for this process alone. With many
            classes and few samples per class nclab starts only as many as save time.
        skip_bad: leave out files that cannot be read, with a warning.
        keep: a folder for the sums of finished files until all are finished. After a kill, the
            same call continues with the same numbers.
        memory: limit for this process and its workers, such as "8GB"; nclab starts fewer workers
            if not all of them fit.

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
        allow_missing=allow_missing,
        min_count=min_count,
        second_pass=second_pass,
        scatter=scatter,
        class_names=class_names,
        metrics=metrics,
        intervals=intervals,
        reference=reference,
        memory=memory,
    )
    head = Head.optional(weight, bias, num_classes)
    check_count(options.class_names, None if head is None else len(head.weight), "rows of weight")
    plan = Plan(head, options, skip_bad)
    files = find_shards(paths)
    if engine != "local" and not getattr(engine, "here", False):
        # Absolute paths, because processes of a cluster have other working folders.
        files = [file.absolute() for file in files]
    shards = plan.count_labels(files)
    plan.find_dim(list(shards))
    is_large = options.groups or (plan.num_classes or 0) > MANY_CLASSES
    if options.memory_limit is not None or is_large:
        workers = plan.plan_workers(shards, workers, engine)
    store = None if keep is None else PartStore(Path(keep))
    total = sum(shards.values())
    with (
        _opened(engine) as open_engine,
        bar("measuring shards", total=2 * total if second_pass else total) as progress,
    ):
        runner = _Runner(open_engine, workers, store, progress)
        parts = runner.run(first_round, plan, shards)
        bad = {name: why for part in parts for name, why in part.bad.items()}
        stream = plan.join_first(parts)
        if second_pass:
            good = {path: rows for path, rows in shards.items() if str(path) not in bad}
            state = stream.moments.state_dict(copy=False)
            complements = [] if stream.jackknife is None else stream.jackknife.first_sums()
            plan.join_second(
                stream, runner.run(second_round, plan, good, state, complements, start=total)
            )
            stream.finish_second_pass()
    if store is not None:
        store.delete_all()
    collapse = stream.collapse({} if head else {"weight": NO_WEIGHT})
    collapse = with_class_names(collapse, options.class_names)
    warnings = tuple(f"Left out {why}" for why in {**plan.bad, **bad}.values())
    return replace(collapse, warnings=(*warnings, *collapse.warnings)) if warnings else collapse


def _opened(engine: Engine | str) -> AbstractContextManager[Engine]:
    """Return a context with the engine, which disconnects from a cluster joined for it."""
    if engine == "ray":
        from nclab.engine.ray import Cluster

        return Cluster()
    opened = LOCAL if engine == "local" else engine
    if not isinstance(opened, Engine):
        raise NclabError(f"Expected engine='local' or 'ray', got {engine!r}.")
    return nullcontext(opened)


@dataclass
class _Runner:
    """Distributes files to workers, in groups with about the same number of rows."""

    engine: Engine
    workers: int | None
    store: "PartStore | None"
    bar: Bar

    def run(
        self,
        work: Callable[..., ReadPart],
        plan: Plan,
        shards: dict[Path, int],
        *arguments: Any,
        start: int = 0,
    ) -> list[ReadPart]:
        """Run `work` on all files; `start` rows of the progress bar are done already."""
        count = 1 if self.workers == 0 else self.workers or self.engine.slots()
        groups = _groups(shards, count if self.store is None else PARTS_PER_WORKER * count)
        jobs = [
            Job(f"shards {index + 1}", work, ([*map(str, group)], plan, *arguments))
            for index, group in enumerate(groups)
        ]
        rows_done = [0] * len(jobs)
        parts: dict[int, ReadPart] = {}
        keys: list[str] = []
        if self.store is not None:
            keys = [self.store.key(work.__name__, plan, group, *arguments) for group in groups]
            for index, key in enumerate(keys):
                part = self.store.read(key)
                if part is not None:
                    parts[index] = part
                    rows_done[index] = sum(shards[path] for path in groups[index])
        waiting = [index for index in range(len(jobs)) if index not in parts]

        def on_progress(step: Progress) -> None:
            rows_done[waiting[step.index]] = step.step
            self.bar.update(start + sum(rows_done))

        def on_done(index: int, result: JobResult) -> None:
            if self.store is not None and result.ok:
                self.store.write(keys[waiting[index]], result.value)

        results = self.engine.run_jobs(
            [jobs[index] for index in waiting],
            workers=self.workers,
            tries=TRIES,
            on_progress=on_progress,
            on_done=on_done,
        )
        for index, result in zip(waiting, results, strict=True):
            if not result.ok:
                kind, _, message = str(result.error).partition(": ")
                is_ours = kind in ("DataError", "NclabError", "MissingExtra")
                raise DataError(message if is_ours else result.error)
            parts[index] = result.value
        return [parts[index] for index in range(len(jobs))]


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


class PartStore:
    """Finished parts on disk, so that a killed measurement can continue.

    The key of a part depends on everything that its sums depend on: the files with their sizes and
    times, the options and the class means.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._used: list[Path] = []
        with translate_os_errors("write", folder):
            folder.mkdir(parents=True, exist_ok=True)

    def key(self, work: str, plan: Plan, files: Iterable[Path], *arguments: Any) -> str:
        """Return the name of a part, which changes with the files, options and class means."""
        plan = replace(plan, options=replace(plan.options, memory_limit=None))
        digest = hashlib.sha256(f"{__version__} {work}".encode())
        for file in files:
            with translate_os_errors("read", file):
                status = file.stat()
            _add_to_digest(digest, [str(file), status.st_size, status.st_mtime_ns])
        _add_to_digest(digest, [plan, arguments])
        return digest.hexdigest()[:32]

    def read(self, key: str) -> ReadPart | None:
        """Return a part, or None if it does not exist or is damaged."""
        try:
            return ReadPart(**read_tree(self._path(key)))
        except NclabError:
            return None

    def write(self, key: str, part: ReadPart) -> None:
        """Write a part completely or not at all."""
        write_tree(self._path(key), part._asdict())

    def delete_all(self) -> None:
        """Delete the parts of a finished measurement."""
        for path in self._used:
            delete(path)
        remove_leftovers(self.folder, (f"*{SUFFIX}",))

    def _path(self, key: str) -> Path:
        path = self.folder / f"{key}{SUFFIX}"
        if path not in self._used:
            self._used.append(path)
        return path


def _add_to_digest(digest: Any, value: Any) -> None:
    """Add any value that a plan holds to a digest, the same in every process."""
    digest.update(f"{type(value).__name__}:".encode())
    if hasattr(value, "state_dict"):  # moments
        _add_to_digest(digest, value.state_dict())
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        _add_to_digest(digest, {field.name: getattr(value, field.name) for field in fields})
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _add_to_digest(digest, str(name))
            _add_to_digest(digest, item)
    elif isinstance(value, list | tuple):
        digest.update(f"{len(value)}:".encode())
        for item in value:
            _add_to_digest(digest, item)
    elif isinstance(value, Tensor):
        _add_to_digest(digest, list(value.shape))
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        _add_to_digest(digest, list(value.shape))
        digest.update(np.ascontiguousarray(value).tobytes())
    elif callable(getattr(value, "sums", None)):  # a second pass
        _add_to_digest(digest, value.sums())
    elif callable(value):  # its repr would contain an address, which differs between processes
        digest.update(f"{value.__module__}.{value.__qualname__};".encode())
    else:
        digest.update(f"{value!r};".encode())

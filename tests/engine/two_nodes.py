"""Program for the first of two machines of a Ray cluster; it prints results as JSON."""

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

import nclab
from nclab.engine import Job, Progress
from nclab.engine.ray import Cluster
from nclab.files import write_whole
from nclab.measurement import shards as module
from nclab.training.sweep import train, train_sweep
from nclab.training.sweep.group import train_group
from tests.clouds import cloud
from tests.engine.machines import ADDRESS, SHARED
from tests.measurement.test_shards import save
from tests.training.sweep.small import small

FIRST_ROUND = module.first_round
PATIENCE_SECONDS = 60.0
SIZE, VERSIONS = 200_000, 100


def meet(report: Any, folder: str, name: str) -> str:
    """Wait for the other job, which runs on the other machine since each has one core."""
    Path(folder, f"met-{platform.node()}").touch()
    report(0, 1)
    _wait(lambda: len(list(Path(folder).glob("met-*"))) == 2)
    return platform.node()


def watch(report: Any, folder: str, here: str) -> tuple[int, int, float]:
    """Read, on the other machine, a file that is replaced many times.

    How many versions were seen, how many of the reads were torn, and after how many seconds the
    last version was there.
    """
    if platform.node() == here:
        time.sleep(1.0)  # so that the other job does not land here
        return 0, 0, 0.0
    report(0, 1)
    file, reads, torn = Path(folder, "file"), set[int](), 0
    _wait(file.exists)
    while True:
        content = file.read_bytes()
        reads.add(content[0])
        torn += content != bytes([content[0]]) * SIZE
        if content[0] == VERSIONS:
            return len(reads), torn, time.time() - float(Path(folder, "time").read_text())


def noted(report: Any, shards: Any, plan: Any) -> Any:
    """Run the first round of shards and note the machine."""
    folder = Path(shards[0]).parents[1] / "rounds"
    (folder / platform.node()).touch()
    _wait(lambda: len(list(folder.iterdir())) == 2)
    return FIRST_ROUND(report, shards, plan)


def job(report: Any, group: Any) -> None:
    """Train a group of a sweep and note the machine."""
    (group.out.parent / "trained" / platform.node()).touch()
    _wait(lambda: len(list((group.out.parent / "trained").iterdir())) == 2)
    train_group(report, group)


def _wait(condition: Any) -> None:
    patience = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.02)


def refusal(work: Any) -> str:
    """Return the error message of a call."""
    try:
        work()
    except nclab.NclabError as error:
        return str(error)
    return ""


def write_shards(folder: Path) -> None:
    """Write eight shards."""
    data = cloud()
    folder.mkdir(parents=True)
    for number, rows in enumerate(torch.arange(len(data.labels)).split(6)):
        save(folder / f"part-{number}.safetensors", data.features[rows], data.labels[rows])


def main() -> dict[str, Any]:
    """Run jobs, watch a file, measure, train, and use folders that are not shared."""
    from tests.engine import two_nodes as this  # where workers find it

    data, output = cloud(), dict[str, Any]()
    for name in ("rounds", "trained"):
        (SHARED / name).mkdir()
    write_shards(SHARED / "shards")
    write_shards(Path("/tmp/shards"))
    with Cluster(ADDRESS) as cluster:
        output["slots"] = cluster.slots()
        both = [Job(name, this.meet, (str(SHARED), name)) for name in "ab"]
        output["met"] = sorted(str(end.value) for end in cluster.run_jobs(both))

        def write(_: Progress) -> None:
            for version in range(VERSIONS + 1):
                if version == VERSIONS:
                    (SHARED / "time").write_text(str(time.time()))
                write_whole(SHARED / "file", bytes([version]) * SIZE, flush=False)

        watchers = [Job(name, this.watch, (str(SHARED), platform.node())) for name in "ab"]
        ends = cluster.run_jobs(watchers, on_progress=write)
        output["watched"] = max(end.value for end in ends)

        setattr(module, "first_round", this.noted)  # noqa: B010
        result = nclab.measure_shards(SHARED / "shards", data.weight, data.bias, engine=cluster)
        setattr(module, "first_round", FIRST_ROUND)  # noqa: B010
        output["measured"] = result.to_dict()
        output["unshared shards"] = refusal(
            lambda: nclab.measure_shards("/tmp/shards", engine=cluster, skip_bad=True)
        )
        setattr(train, "train_group", this.job)  # noqa: B010
        train_sweep(small(), SHARED / "runs", engine=cluster)
        setattr(train, "train_group", train_group)  # noqa: B010
        local_path = Path("/tmp/runs")
        output["unshared runs"] = refusal(lambda: train_sweep(small(), local_path, engine=cluster))
    for name in ("rounds", "trained"):
        output[name] = sorted(path.name for path in (SHARED / name).iterdir())
    return output


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))

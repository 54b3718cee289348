"""Compare writing and reading records with the bare work: json, one system call, one parse.

One run, one thread. A record is a measurement of six layers with per-class values, about 7 kB. Best
of several rounds that alternate between nclab and the bare work. Times are CPU times, except for
checkpoints, which wait for the disk. At the end, a sweep of two small networks shows the share of
its CPU time that goes to checksums of lines, files and checkpoints.

    python benchmarks/records.py [--json] [--records 10000] [--rounds 5]
"""

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save

from nclab.cli.main import run
from nclab.records import (
    JournalReader,
    glance,
    journal,
    manifest,
    open_run,
    read_run,
    results,
)

LAYERS, CLASSES, SCALARS = 6, 10, 25
WIDTH = 300


def record(step: int) -> dict[str, Any]:
    """Return a measurement as the experiments write it."""
    value = 1 / (step + 3)
    scalars = {f"quantity_{place}": value * place for place in range(SCALARS)}
    layer = {"name": "last", **scalars, "intra_cosine": [value + c for c in range(CLASSES)]}
    train = {"loss": value, "accuracy": 1 - value, "rate": 0.1}
    return {
        "kind": "measurement",
        "step": step,
        "epoch": step / 79,
        "layers": [layer] * LAYERS,
        "train": train,
    }


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the time of one call."""
    started = clock()
    work()
    return clock() - started


def appending(folder: Path, records: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the seconds per record of nclab, and of json.dumps with a bare system call."""

    shutil.rmtree(folder / "run", ignore_errors=True)

    def ours() -> None:
        with open_run(folder / "run", kind="benchmark", config={}) as own:
            for item in records:
                own.append(item)

    def bare() -> None:
        descriptor = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for item in records:
            os.write(descriptor, json.dumps(item).encode())
        os.close(descriptor)

    return seconds(ours) / len(records), seconds(bare) / len(records)


def reading(folder: Path) -> dict[str, float]:
    """Return the seconds of each way to read the journal."""
    content = (folder / "journal.jsonl").read_bytes()
    tail = JournalReader(folder)
    tail.poll()

    def reopen() -> None:
        open_run(folder, kind="benchmark", config={}).close()

    return {
        "open_run": seconds(reopen),
        "read_run": seconds(lambda: read_run(folder)),
        "parse_at_once": seconds(
            lambda: json.loads(b"[" + content.rstrip().replace(b"\n", b",") + b"]")
        ),
        "glance": seconds(lambda: glance(folder)),
        "poll": seconds(tail.poll),
    }


def checkpointing(folder: Path) -> tuple[float, float]:
    """Return the seconds of a checkpoint of six layers, and of flushing the same bytes."""
    tensors = {f"layer{place}": torch.randn(WIDTH, WIDTH) for place in range(2 * LAYERS)}
    with open_run(folder / "run", kind="benchmark", config={}) as own:
        own.checkpoint(1, tensors)  # also flushes the journal
        ours = seconds(lambda: own.checkpoint(2, tensors), time.perf_counter)

    def bare() -> None:
        with (folder / "bare.safetensors").open("wb") as stream:
            stream.write(save(tensors))
            stream.flush()
            os.fsync(stream.fileno())

    return ours, seconds(bare, time.perf_counter)


SWEEP = "--data teacher --samples 1000 --layers 3 --width 64 --weight-decay 1e-3,1e-2 --epochs 20"


def sweeping(folder: Path) -> tuple[float, float]:
    """Return the CPU seconds of `nclab sweep` and of all checksums that it computes."""
    spent = 0.0

    def timed(check: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **options: Any) -> Any:
            nonlocal spent
            started = time.process_time()
            made = check(*given, **options)
            spent += time.process_time() - started
            return made

        return called

    def sweep() -> None:
        words = ["nclab", "sweep", *SWEEP.split(), "--workers", "1", "--out", str(folder)]
        silent = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        with patch.object(sys, "argv", words), silent[0], silent[1], suppress(SystemExit):
            run()

    with ExitStack() as stack:
        for place, name in CHECKS:
            stack.enter_context(patch.object(place, name, timed(getattr(place, name))))
        whole = seconds(sweep)
    assert len(list(folder.glob("*/checkpoints/*"))) >= 2, "nothing was trained"
    return whole, spent


CHECKS = (
    (journal, "add_checksum"),
    (zlib, "crc32"),
    (manifest, "dump_checked_json"),
    (results, "dump_checked_json"),
    (manifest, "_digest"),
)
"""All that writes a check; a CRC inside a seal counts twice."""


def measure(count: int, rounds: int) -> dict[str, float]:
    """Return the best of each measurement over the rounds."""
    records = [record(step) for step in range(count)]
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(rounds):
            append, write = appending(folder, records)
            checkpoint, flushed = checkpointing(folder)
            found = {
                "append": append,
                "bare_write": write,
                **reading(folder / "run"),
                "checkpoint": checkpoint,
                "bare_checkpoint": flushed,
            }
            best = {key: min(value, best.get(key, value)) for key, value in found.items()}
        sweeping(folder / "first")  # compiles the kernels
        best["sweep"], best["checks"] = sweeping(folder / "sweep")
        best["megabytes"] = (folder / "run" / "journal.jsonl").stat().st_size / 1e6
    return best


def main() -> None:
    """Print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    best = measure(options.records, options.rounds)
    if options.json:
        print(json.dumps(best))
        return
    print(f"{options.records} records, {best['megabytes']:.0f} MB")
    print(
        f"append      {best['append'] * 1e6:7.1f} µs a record, "
        f"{1 / best['append']:,.0f} a second; "
        f"json.dumps and a bare write {best['bare_write'] * 1e6:.1f} µs"
    )
    print(
        f"read_run    {best['read_run']:7.3f} s; one parse of everything "
        f"{best['parse_at_once']:.3f} s"
    )
    print(f"open_run    {best['open_run']:7.3f} s to check every line before going on")
    print(f"glance      {best['glance'] * 1e3:7.2f} ms")
    print(f"poll        {best['poll'] * 1e3:7.3f} ms when there is nothing new")
    print(
        f"checkpoint  {best['checkpoint'] * 1e3:7.1f} ms for {2 * LAYERS * WIDTH**2 * 4 / 1e6:.1f} "
        f"MB; bare flushed bytes {best['bare_checkpoint'] * 1e3:.1f} ms"
    )
    share = best["checks"] / best["sweep"]
    print(f"checks      {share:7.2%} of a sweep of {best['sweep']:.1f} s")


if __name__ == "__main__":
    main()

"""Measure nclab under load: many runs, clients and writers, and a growing folder.

python -m benchmarks.load [runs] [clients] [growing] [writers] [--size 100]

runs      list 1,000 runs with `nclab runs`: seconds of CPU, including the start of the program
clients   200 listeners of the live page: seconds until each of them receives a new point
growing   a folder of --size megabytes (1000 for a gigabyte) that grows while it is watched:
          the memory of the server
writers   32 processes that write 1,000 records each, see tests/records/writers.py
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.serve import lines, record, start
from nclab.records import open_run

POINTS = 1000
"""Points of the run that the clients listen to."""


def list_runs(root: Path, *, runs: int) -> None:
    """Run `nclab runs` as a user does and print its CPU time."""
    first = root / "run-0000"
    with open_run(first, kind="load", config={"n": 0}, seed=0) as run:
        for step in range(20):
            run.append(record(step, padding=0))
        run.finish(accuracy=0.9)
    for number in range(1, runs):
        shutil.copytree(first, root / f"run-{number:04}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "nclab", "runs", str(root), "--json"]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{len(json.loads(done.stdout))} runs listed in {cpu:.2f} s of CPU, {wall:.2f} s in all")


async def listen(address: str, count: int, journal: Path) -> list[float]:
    """Return the seconds from a written point until each of the listeners has received it."""
    host, port = address.split("//")[1].rstrip("/").split(":")
    ask = f"GET /api/events?metric=min_intra HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    open_ones = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
        writer.write(ask)
        open_ones.append((reader, writer))
    for reader, _ in open_ones:
        await until(reader, b"data:")
    begin = time.perf_counter()
    with journal.open("ab") as stream:
        stream.write(lines(journal.parent, range(POINTS, POINTS + 1), padding=0))

    async def heard(reader: asyncio.StreamReader) -> float:
        await until(reader, b"data:")
        return time.perf_counter() - begin

    waits = await asyncio.gather(*(heard(reader) for reader, _ in open_ones))
    for _, writer in open_ones:
        writer.close()
    return sorted(waits)


async def until(reader: asyncio.StreamReader, word: bytes) -> None:
    """Read lines up to the first that starts with this text."""
    while not (line := await asyncio.wait_for(reader.readline(), 120)).startswith(word):
        if not line:
            raise ConnectionError("the server has closed the connection")


def clients(root: Path, *, count: int) -> None:
    """Measure many simultaneous listeners."""
    folder = root / "run"
    open_run(folder, kind="load", config={}, seed=0).close()
    journal = folder / "journal.jsonl"
    with journal.open("ab") as stream:
        stream.write(lines(folder, range(POINTS), padding=0))
    process, address = start(root)
    try:
        waits = asyncio.run(listen(address, count, journal))
        half = waits[len(waits) // 2]
        print(f"{count} listeners: half heard within {half:.2f} s, all within {waits[-1]:.2f} s")
        print(f"  server: {memory(process.pid):.0f} MB, {cpu_of(process.pid):.1f} s of CPU")
    finally:
        process.terminate()
        process.wait()


def growing(root: Path, *, size: int, runs: int = 20) -> None:
    """Measure a folder that is large at the start and grows while it is watched."""
    folders = [root / f"run-{number:02}" for number in range(runs)]
    for number, folder in enumerate(folders):
        open_run(folder, kind="load", config={"n": number}, seed=number).close()
    each = len(lines(folders[0], range(1000), padding=10)) // 1000
    first, more = (max(1, part * 10**6 // runs // each) for part in (size, size // 50))

    def grow(begin: int, end: int) -> None:
        """Append the same points to all journals."""
        for place in range(begin, end, 10_000):
            part = range(place, min(place + 10_000, end))
            for folder in folders:
                with (folder / "journal.jsonl").open("ab") as journal:
                    journal.write(lines(folder, part, padding=10))

    grow(0, first)
    process, address = start(root)
    try:
        for look in range(6):
            asked = time.perf_counter()
            with urllib.request.urlopen(f"{address}api/curves?metric=min_intra") as answer:
                length = len(answer.read())
            whole = sum(one.stat().st_size for one in root.glob("*/journal.jsonl")) / 1e6
            print(
                f"  {whole:6.0f} MB of journals: answer of {length / 1e3:.0f} kB after "
                f"{time.perf_counter() - asked:.2f} s, server {memory(process.pid):.0f} MB"
            )
            grow(first, first + more)
            first += more
            time.sleep(0.2 if look else 0.0)
    finally:
        process.terminate()
        process.wait()


def memory(process: int) -> float:
    """Return the memory of a process in megabytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process."""
    words = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def writers(root: Path, *, processes: int, records: int) -> None:
    """Check that simultaneous writers lose no record."""
    words = [str(root), "--processes", str(processes), "--records", str(records)]
    command = [sys.executable, "-m", "tests.records.writers", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{processes} processes, {records} records each: {done.stdout.strip() or done.stderr}")


def main() -> None:
    """Run each chosen part in its own folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["runs", "clients", "growing", "writers"])
    parser.add_argument("--size", type=int, default=100, help="megabytes of the growing folder")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--records", type=int, default=1000)
    asked = parser.parse_args()
    works = {
        "runs": lambda root: list_runs(root, runs=asked.runs),
        "clients": lambda root: clients(root, count=asked.clients),
        "growing": lambda root: growing(root, size=asked.size),
        "writers": lambda root: writers(root, processes=asked.processes, records=asked.records),
    }
    for part in asked.parts:
        with tempfile.TemporaryDirectory() as folder:
            works[part](Path(folder))


if __name__ == "__main__":
    main()

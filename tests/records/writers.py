"""Many processes write at once: no record is lost, repeated or mixed with another.

    python -m tests.records.writers FOLDER [--processes 32] [--records 1000]

Each process writes one run alone. All processes also write one common run, which has only one
writer at a time: a refused process tries again. The program prints its result as JSON.
"""

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from pathlib import Path

from nclab.errors import RecordError
from nclab.records import open_run, read_run

TURN = 100
"""Records that a process writes to the common run before it lets another in."""
PATIENCE = 3600.0
"""Seconds after which a process that waits for its next turn gives up."""
LONGEST = 4.0
"""Seconds between two tries of one that waits, at most: asking costs the one who writes."""


def write(folder: Path, process: int, records: int) -> None:
    """Write the run of one process, then its share of the common run."""
    with open_run(folder / f"own-{process}", kind="load", config={"process": process}) as run:
        for number in range(records):
            run.append({"kind": "point", "process": process, "number": number})
    done, chance, begin, wait = 0, random.Random(process), time.monotonic(), 0.01
    while done < records and time.monotonic() - begin < PATIENCE:
        try:
            common = open_run(folder / "common", kind="load", config={})
        except RecordError:  # another one writes
            time.sleep(chance.uniform(0, wait))
            wait = min(2 * wait, LONGEST)
            continue
        with common:
            for number in range(done, min(done + TURN, records)):
                common.append({"kind": "point", "process": process, "number": number})
        done, begin, wait = done + TURN, time.monotonic(), 0.01
    if done < records:
        sys.exit(f"process {process} has had no turn for {PATIENCE:.0f} s after {done} records")


def check(folder: Path, processes: int, records: int) -> dict[str, int]:
    """Return the number of records and what is wrong with them."""
    wanted = {(process, number) for process in range(processes) for number in range(records)}
    found: Counter[tuple[int, int]] = Counter()
    wrong = problems = 0
    for name in ("common", *(f"own-{process}" for process in range(processes))):
        view = read_run(folder / name)
        problems += view.problem is not None
        own = Counter((record["process"], record["number"]) for record in view.records)
        wrong += sum(record.keys() - {"seal"} != KEYS for record in view.records)
        found += own
        in_order = [r["number"] for r in view.records if name == "common" and r["process"] == 0]
        wrong += in_order != sorted(in_order)
    return {
        "records": found.total(),
        "lost": sum(2 - min(found[one], 2) for one in wanted),
        "doubled": sum(count - 2 for count in found.values() if count > 2),
        "foreign": sum(one not in wanted for one in found),
        "wrong": wrong,
        "problems": problems,
    }


KEYS = {"kind", "process", "number"}


def main(arguments: list[str]) -> int:
    """Start the writers, wait for them and check the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--records", type=int, default=1000)
    asked = parser.parse_args(arguments)
    fork = multiprocessing.get_context("fork")
    works = [
        fork.Process(target=write, args=(asked.folder, number, asked.records))
        for number in range(asked.processes)
    ]
    for work in works:
        work.start()
    for work in works:
        work.join()
    found = check(asked.folder, asked.processes, asked.records)
    found["failed"] = sum(work.exitcode != 0 for work in works)
    sys.stdout.write(json.dumps(found) + "\n")
    return int(any(value for name, value in found.items() if name != "records"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

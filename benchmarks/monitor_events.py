"""Check that the memory and the open files of a monitor do not grow with the number of events.

A small network is trained with a measurement after every step, which is also written to a run on
disk. After each fifth of the events, the memory in use is printed. The history in memory is
cleared at each print, because it keeps one row for each event.

    python benchmarks/monitor_events.py [--events 100000]
"""

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import nclab
from nclab.monitor import RecordSink


def resident() -> float:
    """Return the memory of this process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Train and print the memory in use a few times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs, labels = torch.randn(8, 4), torch.arange(8) % 2
    begin, looks = time.process_time(), 5
    with (
        tempfile.TemporaryDirectory() as folder,
        nclab.Monitor(
            model, "1 steps", preset="economy", sinks=RecordSink(Path(folder) / "run")
        ) as monitor,
    ):
        for _ in range(looks):
            for _ in range(asked.events // looks):
                monitor.observe(labels)
                nn.functional.cross_entropy(model(inputs), labels).backward()
                model.zero_grad()
                monitor.step()
            monitor.history.rows.clear()
            gc.collect()
            handles = len(os.listdir("/proc/self/fd"))
            journal = (Path(folder) / "run" / "journal.jsonl").stat().st_size / 1e6
            print(
                f"{monitor.steps:7} events: {resident():7.1f} MB, {handles} file handles, "
                f"{len(gc.get_objects())} objects, journal "
                f"{journal:.0f} MB, {time.process_time() - begin:.0f} s CPU"
            )


if __name__ == "__main__":
    main()

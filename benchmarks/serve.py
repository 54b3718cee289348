"""Measure the live page under load: many long journals, and the delay of a new point.

Run: python benchmarks/serve.py [--runs 50] [--records 10000] Needs playwright and chromium; without
them, only the server is timed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from nclab.records import open_run
from nclab.records.encoding import add_checksum, encode
from nclab.records.manifest import read_manifest

METRICS = ("min_intra", "max_inter", "nc1_trace_pinv", "cdnv", "nc3_self_duality", "loss", "alpha")


def record(step: int, *, padding: int) -> dict[str, Any]:
    """Return a measurement of one layer with this many class cosines."""
    layer = {name: 1 / (step + place + 1) for place, name in enumerate(METRICS)}
    more = {"inter_cosine": [[1 / 3] * padding] * padding} if padding else {}
    train = {"loss": 1 / (step + 1), "accuracy": 0.9}
    at = {"step": step, "epoch": step / 100}
    return {
        "kind": "measurement",
        **at,
        "layers": [{"layer": "fc", **layer, **more}],
        "train": train,
    }


def lines(folder: Path, steps: range, *, padding: int) -> bytes:
    """Return the lines of a run's journal after its header, one for each step."""
    identity = read_manifest(folder).identity
    made = ((step, encode(record(step, padding=padding))[:-1]) for step in steps)
    return b"".join(add_checksum(body, step + 2, identity) for step, body in made)


def fill(root: Path, *, runs: int, records: int, padding: int) -> int:
    """Write the journals; return their total bytes."""
    size = 0
    for number in range(runs):
        folder = root / f"run-{number:02}"
        open_run(folder, kind="benchmark", config={"n": number}, seed=number).close()
        with (folder / "journal.jsonl").open("ab") as journal:
            size += journal.write(lines(folder, range(records), padding=padding))
    return size


def start(root: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server in a separate process; return the process and its address."""
    command = [sys.executable, "-m", "nclab", "serve", str(root), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, line.split(" at ")[1].split(" ")[0]


def seconds_until_api(address: str) -> float:
    """Return the seconds from the first request to all curves, without a browser."""
    begin = time.perf_counter()
    with urllib.request.urlopen(f"{address}api/curves?metric=min_intra") as answer:
        found = json.load(answer)
    points = sum(len(curve["x"]) for curves in found.values() for curve in curves)
    print(f"  {len(found)} curves, {points} points")
    return time.perf_counter() - begin


def in_browser(address: str, root: Path, *, runs: int, records: int) -> None:
    """Return the seconds until all curves are drawn, and until a written point is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        begin = time.perf_counter()
        page.goto(address)
        wait(page, f"window.nclab && nclab.live && nclab.live.chart.view.series.length === {runs}")
        print(f"page with {runs} runs drawn after {time.perf_counter() - begin:.2f} s")
        waits = []
        for more in range(5):
            time.sleep(0.3)
            point = range(records + more, records + more + 1)
            with (root / "run-00" / "journal.jsonl").open("ab") as journal:
                journal.write(lines(root / "run-00", point, padding=0))
            begin = time.perf_counter()
            last = "nclab.live.chart.view.series[0].x.slice(-1)[0]"
            wait(page, f"{last} === {(records + more) / 100}")
            waits.append(time.perf_counter() - begin)
        print(f"new point seen after {max(waits):.2f} s at most ({len(waits)} points)")
        browser.close()


def wait(page: Any, truth: str) -> None:
    """Wait until an expression is true; the page's security policy forbids playwright's own way."""
    while not page.evaluate(f"() => Boolean({truth})"):
        page.wait_for_timeout(20)


def main() -> None:
    """Fill a folder, serve it and measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=0, help="class cosines in every record")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        size = fill(root, runs=asked.runs, records=asked.records, padding=asked.classes)
        print(f"{asked.runs} runs of {asked.records} records, {size / 1e6:.0f} MB")
        process, address = start(root)
        try:
            if shutil.which("chromium"):
                in_browser(address, root, runs=asked.runs, records=asked.records)
            else:
                print(f"first answer after {seconds_until_api(address):.2f} s")
            print(f"second answer after {seconds_until_api(address):.2f} s")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

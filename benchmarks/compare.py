"""Measure how fast a page with a thousand runs loads and answers in a real browser.

Run: python benchmarks/compare.py [--runs 1000] [--records 200] Needs playwright and chromium.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nclab.records import open_run
from nclab.report.site import write_report

LIMIT_LOAD, LIMIT_ANSWER = 3.0, 0.2
"""Seconds that a user should wait at most for the page and for an answer."""
PATIENCE = 120
"""Seconds after which the measurement fails."""
DRAWN = "window.nclab && nclab.comparing && nclab.comparing.charts.length && +nclab.comparing"
DRAWN += ".charts[0].chart.canvas.dataset.points > {points}"
ACTIONS = {
    "sort": "document.querySelectorAll('button.sort')[3].click()",
    "sort again": "document.querySelectorAll('button.sort')[3].click()",
    "filter": "type('#run-filter', 'norm=affine weight_decay>=1e-3')",
    "no filter": "type('#run-filter', '')",
    "group by one": "type('#colour', 'norm')",
    "group by two": "type('#dash', 'weight_decay')",
    "no group": "type('#colour', ''); type('#dash', '')",
    "logarithmic y": "document.querySelector('#logy').click()",
    "smooth": "type('#smooth', '0.6')",
    "hover": "move(400, 150)",
    "against weight decay": "type('#x', 'weight_decay')",
    "back to epochs": "type('#x', 'epoch')",
}
"""Actions of a user, as scripts. `type` sets a control and sends its event."""
HELPERS = """
const type = (where, value) => {
  const one = document.querySelector(where);
  one.value = value;
  one.dispatchEvent(new Event("input", { bubbles: true }));
};
const move = (x, y) => {
  const box = document.querySelector("#compare canvas");
  box.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
};
"""


METRICS = ("min_intra", "max_inter", "nc1_trace_pinv", "cdnv", "nc3_self_duality", "loss", "alpha")


def fill(root: Path, *, runs: int, records: int) -> None:
    """Write runs of a sweep over two settings and many seeds, each with its own curves."""
    norms, decays = ("affine", "plain", "none"), (1e-4, 1e-3, 1e-2)
    for number in range(runs):
        draw = random.Random(number)
        member = {"norm": norms[number % 3], "weight_decay": decays[number // 3 % 3]}
        config = {"member": {**member, "seed": number // 9}, "recipe": {"epochs": records}}
        folder = root / f"run-{number:04}"
        with open_run(folder, kind="benchmark", config=config, seed=number // 9) as run:
            for step in range(records):
                layer = {name: (1 + 0.3 * draw.random()) / (step + 1) for name in METRICS}
                at = {"kind": "measurement", "step": step, "epoch": step / 100}
                run.append({**at, "layers": [{"layer": "fc", **layer}]})
            run.finish()


def start(root: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server in a separate process; return the process and its address."""
    command = [sys.executable, "-m", "nclab", "serve", str(root), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split(" at ")[1].split(" ")[0]


def busy(session: Any) -> float:
    """Return the seconds of CPU time that the main thread of the page has used."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def watch(page: Any, address: str, *, points: float) -> None:
    """Open a page, perform every action and print the times."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    begin = time.perf_counter()
    page.goto(address)
    while not page.evaluate(f"() => Boolean({DRAWN.format(points=points)})"):
        if time.perf_counter() - begin > PATIENCE:
            raise SystemExit(f"Expected {points:g} points on {address}, not drawn in {PATIENCE} s.")
        page.wait_for_timeout(10)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    spent = time.perf_counter() - begin
    print(f"{'':24} {'waited':>9} {'processor':>9}")
    print(f"{'opened and drawn':24} {spent:7.2f} s {busy(session):7.2f} s   limit {LIMIT_LOAD} s")
    for name, action in ACTIONS.items():
        script = f"""async () => {{
            {HELPERS}
            const frame = () => new Promise(requestAnimationFrame);
            await frame();
            const begin = performance.now();
            {action};
            await frame();
            await frame();
            return performance.now() - begin;
        }}"""
        before = busy(session)
        waited = page.evaluate(script) / 1e3
        used = busy(session) - before
        print(f"{name:24} {waited:7.3f} s {used:7.3f} s   limit {LIMIT_ANSWER} s")


def main() -> None:
    """Fill a folder, then measure its static report and its live page."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--records", type=int, default=200)
    asked = parser.parse_args()
    points = asked.runs * asked.records * 0.9
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder) / "runs"
        fill(root, runs=asked.runs, records=asked.records)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        report = write_report(root, Path(folder) / "report")
        print(
            f"the report of {asked.runs} runs of {asked.records} records, {report.bytes:.2g} bytes"
        )
        plain = "#colour=&dash="
        watch(page, (report.page.parent / "runs.html").as_uri() + plain, points=points)
        process, address = start(root)
        try:
            time.sleep(1)
            page.goto(f"{address}index.html")  # journals are read once, before anyone looks
            print("the live page of the same")
            watch(page, address + plain, points=points)
        finally:
            process.terminate()
            process.wait()
        browser.close()


if __name__ == "__main__":
    main()

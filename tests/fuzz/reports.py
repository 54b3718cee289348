"""A killed report leaves the old one, the new one or none, but never a mixture."""

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from nclab.records import open_run
from nclab.report.site import write_report
from tests.kills import killed_after

RUNS = 4


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Return an attack that kills a report; it returns whether the kill came before the end."""
    root = folder / "runs"
    for number in range(RUNS):
        begin(root / str(number))
    write_report(root)
    started = time.monotonic()
    write_report(root)
    seconds = time.monotonic() - started
    return lambda chance: attack(chance, root, 2 * seconds)


def begin(folder: Path) -> None:
    """Write a run that has its own page."""
    with open_run(folder, kind="fleet", config={"n": folder.name}, seed=0) as run:
        run.append({"kind": "measurement", "step": 1, "layers": [{"min_intra": 0.5}]})


def attack(chance: random.Random, root: Path, seconds: float) -> bool:
    """Add or delete a run and kill its report; return whether the kill came before the end."""
    one = root / str(chance.randrange(RUNS))
    shutil.rmtree(one) if one.exists() else begin(one)
    killed = killed_after(chance.uniform(0, seconds), lambda: write_report(root))
    check(root / "report")
    if chance.random() < 0.1:
        write_report(root)
        check(root / "report")
        left = [path.name for path in root.iterdir() if path.name.startswith(".")]
        assert not left, f"leftovers: {left}"
    return killed


def check(report: Path) -> None:
    """Fail if a link of a page leads nowhere or a page is incomplete."""
    if not report.exists():  # killed between the two renames; the next call restores the old one
        return
    pages = list(report.rglob("*.html"))
    assert report / "index.html" in pages
    for page in pages:
        text = page.read_text()
        assert text.rstrip().endswith("</html>"), page
        for target in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', text):
            if not target.startswith("data:"):
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
    assert not [path for path in report.rglob(".*") if path.is_file()]

"""Let the n-th change of the disk fail, for all n, in six programs; nothing may be lost.

LD_PRELOAD=shim.so python -m tests.faults.program FOLDER [--every K] [--only NAME …]
"""

import argparse
import errno
import json
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from nclab.errors import NclabError, NclabWarning
from nclab.monitor.sinks import RecordSink
from nclab.records import RunView, open_run, read_run
from nclab.report.site import write_report
from tests.cli.runner import call
from tests.faults.drawn import drawn_once
from tests.faults.shim import Faults
from tests.fuzz.reports import begin, check
from tests.kills import forked
from tests.monitor.loops import network, train
from tests.records.killing import content, small

MODES = {"once": (errno.EIO, False), "for ever": (errno.ENOSPC, True)}
DRAWN = "pan2023_drawings"
"""An experiment that trains nothing."""


class Scenario(NamedTuple):
    """A program that writes a folder."""

    prepare: Callable[[Path], object]
    work: Callable[[Path], None]
    """Raises an NclabError, or `Said` what a command has said."""
    after: Callable[[Path], object]
    """Without faults again: fails where something is lost or cannot go on; gives what must come
    out the same however often it failed."""


class Said(Exception):
    """Raised when a command ends with an error."""


def command(*words: object) -> None:
    """Run a command that succeeds, or prints one line and ends with exit code 2."""
    done = call(*words)
    if done.code:
        lines = [line for line in done.err.splitlines() if line]
        assert done.code == 2, f"exit code {done.code}: {done.err}"
        assert lines, "not a word"
        assert lines[-1].startswith("nclab: "), done.err
        assert "Traceback" not in done.err, done.err
        raise Said(lines[-1])


def sweep(folder: Path) -> None:
    options = "--data teacher --samples 60 --inputs 4 --teacher-depth 2 --layers 2 --width 4 "
    options += "--norm none --weight-decay 1e-3,1e-2 --epochs 2 --batch 30 --workers 1"
    command("sweep", *options.split(), "--out", folder / "runs")


def swept(folder: Path) -> object:
    sweep(folder)
    journals = (folder / "runs").rglob("journal.jsonl")
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(journals)}


def two_runs(folder: Path) -> None:
    for name in ("one", "two"):
        begin(folder / "runs" / name)
    write_report(folder / "runs")
    shutil.rmtree(folder / "runs" / "one")


def report(folder: Path) -> None:
    command("report", folder / "runs")


def reported(folder: Path) -> object:
    check(folder / "runs" / "report")  # the one before, or the new one
    report(folder)
    check(folder / "runs" / "report")
    left = [path.name for path in (folder / "runs").iterdir() if path.name.startswith(".")]
    assert not left, left
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))


def watched(folder: Path) -> None:
    """Train with a monitor that writes records."""
    import nclab

    model = network()
    with nclab.Monitor(model, every=1, sinks=[RecordSink(folder / "run")]) as monitor:
        train(model, monitor, epochs=1)


def watched_again(folder: Path) -> object:
    """Train again: a failed run stays as it is, and the next one gets another folder."""
    if not _finished(folder):
        watched(folder)
    (view,) = _finished(folder)
    assert view.problem is None
    return [record["step"] for record in view.of_kind("measurement")]


def _finished(folder: Path) -> list[RunView]:
    views = [read_run(path.parent) for path in folder.glob("*/manifest.json")]
    return [view for view in views if view.state == "finished"]


def reproduce(folder: Path) -> None:
    command("reproduce", DRAWN, "--seeds", 1, "--out", folder / "runs")


def reproduced(folder: Path) -> object:
    reproduce(folder)
    check(folder / "runs" / "report")
    numbers = json.loads((folder / "runs" / DRAWN / "numbers.json").read_text())
    return numbers["points"]


def poisoned(folder: Path) -> None:
    """Check that a run refuses records after an error of the disk, so that none is missing."""
    with open_run(folder / "run", kind="demo", config={"steps": 7}, seed=0) as run:
        found = run.resume_latest()
        failed = False
        for step in range(found.step + 1 if found else 1, 8):
            try:
                run.append({"kind": "measurement", "step": step})
            except NclabError as error:
                failed, why = True, error
            else:
                assert not failed, "a handle that failed has taken a record"
        if failed:
            raise why
        run.checkpoint(7, {"weight": torch.zeros(2)})
        run.finish()


def whole(folder: Path) -> object:
    run = folder / "run"
    if (run / "manifest.json").exists():
        steps = [one["step"] for one in read_run(run).of_kind("measurement")]
        assert steps == list(range(1, len(steps) + 1)), steps
    if not (run / "manifest.json").exists() or read_run(run).state != "finished":
        poisoned(folder)
    return [one.get("step") for one in read_run(run).records]


def trained(folder: Path) -> object:
    small(folder / "run")
    return {name: text.hex() for name, text in content(folder / "run").items()}


SCENARIOS = {
    "records": Scenario(lambda _: None, lambda folder: small(folder / "run"), trained),
    "handle": Scenario(lambda _: None, poisoned, whole),
    "sweep": Scenario(lambda _: None, sweep, swept),
    "report": Scenario(two_runs, report, reported),
    "monitor": Scenario(lambda _: None, watched, watched_again),
    "reproduce": Scenario(lambda _: None, reproduce, reproduced),
}


def attempt(scenario: Scenario, folder: Path, number: int, mode: str) -> str:
    """Return how the work ended when its n-th change failed: `done`, `said` or `never`."""
    told = folder.with_suffix(".told")

    def failing() -> None:
        faults = Faults()
        error, for_ever = MODES[mode]
        faults.arm(folder, number, error, for_ever=for_ever)
        outcome = "done"
        try:
            scenario.work(folder)
        except (NclabError, Said) as problem:
            outcome = "said" if "\n" not in str(problem) else f"{problem!r} has several lines"
        except BaseException:  # noqa: BLE001 - whatever it is, it is what we look for
            outcome = traceback.format_exc(limit=-4)
        reached = faults.seen >= number
        faults.arm(Path("/nowhere"), -1, 0, for_ever=False)
        told.write_text(outcome if reached or outcome != "done" else "never")

    status = os.waitpid(forked(failing), 0)[1]
    return told.read_text() if status == 0 else f"the process ended with {status}"


def attack(name: str, root: Path, every: int) -> dict[str, int]:
    """Let every n-th change of a scenario fail, in both modes; count how the attempts ended."""
    scenario, counts = SCENARIOS[name], {"faults": 0, "said": 0, "done": 0}
    reference = root / name / "undisturbed"
    reference.mkdir(parents=True)
    scenario.prepare(reference)
    scenario.work(reference)
    wanted = scenario.after(reference)
    for mode in MODES:
        for number in range(1, 100_000, every):
            folder = root / name / f"{mode[0]}{number}"
            folder.mkdir(parents=True)
            scenario.prepare(folder)
            outcome = attempt(scenario, folder, number, mode)
            if outcome == "never":
                break
            assert outcome in ("said", "done"), f"{name}, {mode}, call {number}: {outcome}"
            try:
                found = scenario.after(folder)
            except BaseException as error:
                raise AssertionError(f"{name}, {mode}, call {number}, afterwards") from error
            assert found == wanted, f"{name}, {mode}, call {number}: {found} in place of {wanted}"
            counts["faults"] += 1
            counts[outcome] += 1
            shutil.rmtree(folder)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NclabWarning)
    root = given.folder.resolve()
    told = {}
    for name in given.only:
        with drawn_once():
            told[name] = attack(name, root, given.every)
        sys.stderr.write(f"{name}: {told[name]}\n")
    print(json.dumps({"by library": Faults().by_library, **told}))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()

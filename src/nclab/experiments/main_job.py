"""The main job: every experiment, every claim judged, one report; what is done is not redone."""

import hashlib
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.engine import LOCAL, Engine
from nclab.errors import MissingData
from nclab.experiments import Experiment, find
from nclab.experiments.keep import (
    NUMBERS,
    heading,
    is_drawn,
    keep,
    kept_numbers,
    make_folder,
    read_json,
    write_json,
)
from nclab.progress import bar
from nclab.records.manifest import commit, versions
from nclab.threads import one_thread

CLAIMS = "claims.json"
SKIPPED = "skipped.json"
SEEDS = {"quick": 2, "paper": 3}
"""Seeds of every experiment where none are asked for."""


@dataclass
class Job:
    """What to reproduce and where; filled with what came of it."""

    preset: str
    seeds: tuple[int, ...]
    out: Path
    fresh: bool = False
    """Make numbers and figures again; finished networks are reused."""
    engine: Engine = LOCAL
    """Where networks are trained."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    """What `finish` wrote."""

    def run(self, names: Sequence[str], say: Callable[..., None]) -> None:
        """The named experiments, or all; `say` gets the tables and lines of each."""
        chosen = find(names)
        for name in chosen:
            make_folder(self.out / name)
        with bar("reproduce", total=len(chosen)) as whole:
            for done, (name, experiment) in enumerate(chosen.items()):
                whole.update(done, name)
                try:
                    self._run_one(name, experiment, say)
                except MissingData as error:
                    self.skipped[name] = str(error)
                    say(f"skipped {name}: {error}", "")
        before = read_json(self.out / SKIPPED)
        others = {name: why for name, why in before.items() if name not in chosen}
        write_json(self.out / SKIPPED, {**others, **self.skipped})

    def _run_one(self, name: str, experiment: Experiment, say: Callable[..., None]) -> None:
        folder = self.out / name
        config = experiment.PRESETS[self.preset]
        wanted = heading(name, preset=self.preset, seeds=self.seeds, config=config)
        numbers = None if self.fresh else kept_numbers(folder, wanted)
        if numbers is None:
            found = experiment.run(
                preset=self.preset, seeds=self.seeds, out=self.out, engine=self.engine
            )
            numbers = {**found, **wanted, "manifest": _manifest()}
            lines = keep(experiment, numbers, folder)
        else:
            self.reused.append(name)
            lines = [f"reused {folder}"]
            if not is_drawn(experiment, numbers, folder):
                lines += keep(experiment, numbers, folder)
        self.numbers[name] = numbers
        say(*experiment.show(numbers), *lines, "")

    def finish(self) -> dict[str, Any]:
        """Judge every claim of both papers and write the report from what is on disk."""
        from nclab.report.site import write_report

        self.judge()
        self.report = write_report(self.out).to_dict()
        return {**self.report, "skipped": self.skipped, "reused": self.reused}

    def summary(self) -> list[Any]:
        """What a person wants to know at the end."""
        from rich.table import Table

        table = Table(header_style="bold")
        table.add_column("verdict")
        table.add_column("claims", justify="right")
        for verdict, count in sorted(self.report["claims"].items(), key=lambda item: -item[1]):
            table.add_row(verdict, str(count))
        return [
            f"{self.report['figures']} figures, {sum(self.report['claims'].values())} claims:",
            table,
            *(f"skipped {name}: {why}" for name, why in self.skipped.items()),
            f"report: {self.report['page']}",
        ]

    def judge(self) -> None:
        """Every claim, from the numbers on disk, unless they were judged as they are before."""
        from nclab.claims.ledger import judge_all

        path, digest = self.out / CLAIMS, self._digest()
        if not self.fresh and read_json(path).get("judged_from") == digest:
            return
        with one_thread():
            claims = judge_all(self.preset, self.numbers)
        write_json(path, {"judged_from": digest, "preset": self.preset, "claims": claims})

    def _digest(self) -> str:
        """Of everything that decides the verdicts: the numbers, the preset and the code."""
        found = hashlib.sha256(f"{self.preset} {__version__} {commit()}".encode())
        for name in sorted(self.numbers):
            found.update((self.out / name / NUMBERS).read_bytes())
        return found.hexdigest()


def _manifest() -> dict[str, Any]:
    """Where the numbers come from."""
    return {"commit": commit(), "versions": versions(), "command": shlex.join(sys.argv)}

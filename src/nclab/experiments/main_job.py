"""The main job: every experiment, every claim judged, one report; what is done is not redone."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nclab.errors import MissingData
from nclab.experiments import Experiment, find
from nclab.experiments.keep import heading, keep, kept_numbers, make_folder, write_json
from nclab.progress import bar
from nclab.records.manifest import commit, versions

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
    """Run again what is already there."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    claims: list[dict[str, Any]] = field(default_factory=list)
    report: Path | None = None

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
        write_json(self.out / SKIPPED, self.skipped)

    def _run_one(self, name: str, experiment: Experiment, say: Callable[..., None]) -> None:
        folder = self.out / name
        wanted = heading(name, preset=self.preset, seeds=self.seeds)
        config = asdict(experiment.PRESETS[self.preset])
        numbers = None if self.fresh else kept_numbers(folder, wanted, config)
        if numbers is None:
            found = experiment.run(preset=self.preset, seeds=self.seeds, out=self.out)
            numbers = {**wanted, "manifest": _manifest(), **found}
            lines = keep(experiment, numbers, folder)
        else:
            self.reused.append(name)
            lines = [f"reused {folder}"]
        self.numbers[name] = numbers
        say(*experiment.show(numbers), *lines, "")

    def judge(self) -> list[dict[str, Any]]:
        """Every claim of both papers, from the numbers of the experiments; kept in claims.json."""
        from nclab.claims.ledger import judge_all

        path = self.out / CLAIMS
        if len(self.reused) == len(self.numbers) and not self.fresh:
            try:
                kept = json.loads(path.read_text())
                if kept["preset"] == self.preset:
                    return list(kept["claims"])
            except (OSError, ValueError, KeyError):
                pass
        claims = judge_all(self.preset, self.numbers)
        write_json(path, {"preset": self.preset, "claims": claims})
        return claims

    def finish(self) -> dict[str, Any]:
        """Judge the claims and write the report from what is on disk."""
        from nclab.report.site import write_site

        self.claims = self.judge()
        self.report = write_site(self.out, self.out / "report")
        return {
            "report": str(self.report),
            "figures": len(self._figures()),
            "claims": dict(Counter(claim["verdict"] for claim in self.claims)),
            "skipped": self.skipped,
            "reused": self.reused,
        }

    def summary(self) -> list[Any]:
        """What a person wants to know at the end."""
        from rich.table import Table

        table = Table(header_style="bold")
        table.add_column("verdict")
        table.add_column("claims", justify="right")
        for verdict, count in Counter(claim["verdict"] for claim in self.claims).most_common():
            table.add_row(verdict, str(count))
        return [
            f"{len(self._figures())} figures, {len(self.claims)} claims judged:",
            table,
            *(f"skipped {name}: {why}" for name, why in self.skipped.items()),
            f"report: {self.report}",
        ]

    def _figures(self) -> list[Path]:
        return [path for name in self.numbers for path in (self.out / name).glob("*.picture.json")]


def _manifest() -> dict[str, Any]:
    """Where the numbers come from."""
    return {"commit": commit(), "versions": versions(), "command": shlex.join(sys.argv)}

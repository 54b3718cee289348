"""The main job: every experiment, every claim judged, one report; what is done is not redone."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.claims.claim import OURS
from nclab.claims.drawing import is_drawn, keep
from nclab.claims.experiment import Experiment, preset_of
from nclab.claims.forest import forest
from nclab.claims.ledger import judge_all, judge_needing
from nclab.claims.recorded_networks import lay_out_networks
from nclab.claims.registry import experiments, find_experiments, paper_of, papers
from nclab.claims.story import errata_rows, stories
from nclab.claims.tables import recorded_verdicts, shown
from nclab.claims.verdict import Verdict
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.errors import MissingData
from nclab.progress import bar
from nclab.records.manifest import commit, versions
from nclab.records.results import (
    CLAIMS,
    SKIPPED,
    digest,
    heading,
    kept_numbers,
    make_folder,
    read_json,
    read_numbers,
    write_json,
)
from nclab.text import counted

SEEDS = {"quick": 2}
"""Seeds of every experiment where none are asked for; of other presets `MORE_SEEDS`."""
MORE_SEEDS = 3


@dataclass
class MainJob:
    """What to reproduce and where; filled with what came of it."""

    preset: str
    seeds: tuple[int, ...]
    out: Path
    fresh: bool = False
    """Make numbers and figures again; finished networks are reused."""
    engine: Engine = LOCAL
    """Where networks are trained."""
    recorded: bool = False
    """Take the networks that are kept with the evidence as trained."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    """What `finish` wrote."""

    def run(self, names: Sequence[str], say: Callable[..., None]) -> None:
        """The named experiments, or all; `say` gets the tables and lines of each."""
        chosen = find_experiments(names)
        for experiment in chosen.values():
            preset_of(experiment, self.preset)  # here, before hours of training
        for name in chosen:
            make_folder(self.out / name)
        if self.recorded:
            for paper in sorted({paper_of(name) for name in chosen}):
                count = lay_out_networks(paper, self.out)
                say(f"{count} recorded networks of {paper} laid out in {self.out}", "")
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
        config = preset_of(experiment, self.preset)
        wanted = heading(name, preset=self.preset, seeds=self.seeds, config=config)
        numbers = None if self.fresh else kept_numbers(folder, wanted)
        if numbers is None:
            began = time.perf_counter()
            found = experiment.run(config, seeds=self.seeds, out=self.out, engine=self.engine)
            hours = (time.perf_counter() - began) / 3600  # of this run; networks may be older
            numbers = {**found, **wanted, "manifest": {**_manifest(), "hours": round(hours, 4)}}
            lines = []
        else:
            self.reused.append(name)
            lines = [f"reused {folder}"]
        judged = judge_needing(name, numbers)
        pictures = [*experiment.pictures(numbers), *forest(name, judged)]
        if not (lines and is_drawn(pictures, folder)):
            lines += keep(pictures, numbers, folder)
        self.numbers[name] = numbers
        tables = [*experiment.tables(numbers), *([recorded_verdicts(judged)] if judged else [])]
        say(*map(shown, tables), *lines, "")

    def finish(self, *, whole: bool) -> dict[str, Any]:
        """Judge the claims and write the report from what is on disk.

        Args:
            whole: judge every claim of every paper, not only those of the experiments that ran.
        """
        from nclab.report.site import write_report

        self.judge(whole=whole)
        self.report = write_report(self.out).to_dict()
        return {**self.report, "skipped": self.skipped, "reused": self.reused}

    def summary(self) -> list[Any]:
        """What a person wants to know at the end."""
        from rich.table import Table

        rows = read_json(self.out / CLAIMS).get("claims", [])
        table = Table(header_style="bold")
        table.add_column("")
        table.add_column("verdict")
        for title in ("statements", "results", "here: agrees", "differs", "undecided"):
            table.add_column(title, justify="right")
        ours = [row for row in rows if row.get("ours")]
        theirs = [row for row in rows if not row.get("ours")]
        for whose, some in (("of the papers", theirs), ("ours", ours)):
            for place, line in enumerate(_tally(some)):
                table.add_row("" if place else whose, *line)
            table.add_section()
        beside = {row["needs"] for row in rows if row.get("here")}
        judged = [
            "Results are judged from the recorded evidence"
            + (
                f"; beside them stands what the runs in {self.out} say, of "
                f"{counted(len(beside), 'experiment')} at the sizes below:"
                if beside
                else ":"
            ),
            table,
            *self._sizes(rows),
        ]
        return [
            f"{counted(self.report['figures'], 'figure')}, "
            f"{counted(len(theirs), 'statement')} of the papers, "
            f"{counted(len(ours), 'finding')} of ours.",
            *(judged if rows else ()),
            *(f"skipped {name}: {why}" for name, why in self.skipped.items()),
            f"report: {self.report['page']}",
        ]

    def _sizes(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """At which sizes what is recorded and what ran here was obtained, by experiment."""
        found = {
            row["needs"]: (row["size"] or "nothing", row.get("here"))
            for row in rows
            if row["size"] or row.get("here")
        }
        lines = [
            f"  {name}: recorded {size}"
            + (f"; here {here['size'] or 'cannot be read'}" if here else "")
            for name, (size, here) in found.items()
        ]
        return ["Sizes:", *lines] if lines else []

    def judge(self, *, whole: bool) -> None:
        """Judge from the numbers on disk; all claims, unless that was done with the same before."""
        before = read_json(self.out / CLAIMS)
        if whole:
            code = f"{__version__} {commit()}"
            files = {name: digest(self.out, name) for name in experiments()}
            state = {"preset": self.preset, "code": code, "judged_from": files}
            if not self.fresh and all(before.get(key) == value for key, value in state.items()):
                return
            with one_thread():
                rows = judge_all(self.preset, read_numbers(self.out, experiments()))
        else:
            files = {name: digest(self.out, name) for name in self.numbers}
            state = {**before, "judged_from": {**before.get("judged_from", {}), **files}}
            rows = self._judged_again(before)
        sources = {
            key: {"title": one.title, "authors": one.authors, "year": one.year}
            for key, one in sorted(papers().items(), key=lambda item: item[0] == OURS)
        }
        told = {"stories": stories(), "errata": errata_rows()}
        write_json(self.out / CLAIMS, {**state, "papers": sources, "claims": rows, **told})

    def _judged_again(self, before: dict[str, Any]) -> list[dict[str, Any]]:
        """The claims as they were, but for those of the experiments that ran now."""
        again = [row for name in self.numbers for row in judge_needing(name, self.numbers[name])]
        fresh = {row["id"]: row for row in again}
        kept = [fresh.pop(row["id"], row) for row in before.get("claims", [])]
        return [*kept, *fresh.values()]


def _tally(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """By verdict: statements, results, and what runs here say beside the results."""
    for verdict in Verdict:
        own = [row for row in rows if row["verdict"] == verdict.value]
        if own:
            said = Counter(row["here"]["relation"] for row in own if row.get("here"))
            results = sum(bool(row["size"]) or verdict is Verdict.OPEN for row in own)
            counts = (len(own) - results, results, said["agrees"], said["differs"])
            yield verdict.value, *(str(n or "") for n in (*counts, said["undecided"]))


def _manifest() -> dict[str, Any]:
    """Where the numbers come from."""
    return {"commit": commit(), "versions": versions(), "command": shlex.join(sys.argv)}

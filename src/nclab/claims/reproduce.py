"""Reproduction of papers: runs experiments, judges all claims, writes one report, and verifies it.

A checksum shows that a file is unchanged since it was written. Recomputation shows that the
written numbers follow from their sources.
"""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.claims.claim import OURS
from nclab.claims.evidence import evidence_digests, restore_networks
from nclab.claims.ledger import judge, judge_all, judge_experiment
from nclab.claims.paper import Experiment, describe_experiment, find_preset
from nclab.claims.pictures import are_drawn, forest, write_results
from nclab.claims.registry import claims, errata, experiments, find_experiments, paper_of, papers
from nclab.claims.tables import count_verdicts, for_terminal, recorded_verdict_table
from nclab.compute import one_thread
from nclab.engine import LOCAL, Engine
from nclab.errors import MissingData, NclabError
from nclab.progress import bar
from nclab.records.manifest import commit, versions
from nclab.records.read import RunView, read_run
from nclab.records.results import (
    CLAIMS,
    NUMBERS,
    SKIPPED,
    digest,
    heading,
    kept_numbers,
    make_folder,
    read_json,
    read_numbers,
    write_json,
)
from nclab.records.schema import FLEET, MEASUREMENT, TRAIN, layers_of, split_of
from nclab.records.verify import Verified
from nclab.text import counted
from nclab.training.sweep.measure import remeasure

SEEDS = {"quick": 2}
"""Default number of seeds by preset; other presets use `MORE_SEEDS`."""
MORE_SEEDS = 3
RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Tolerances between two measurements of one network: another CPU or version of torch rounds the
float32 features differently."""


@dataclass
class Reproduction:
    """Settings of a reproduction and, after `run` and `finish`, its results."""

    preset: str
    seeds: tuple[int, ...]
    out: Path
    fresh: bool = False
    """Whether to recompute all numbers and figures; finished networks are reused."""
    engine: Engine = LOCAL
    """Engine that trains the networks."""
    recorded: bool = False
    """Whether to restore the networks that ship with the evidence instead of training them."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Numbers of the experiments that ran, by name."""
    reused: list[str] = field(default_factory=list)
    """Names of the experiments whose numbers were already on disk."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Reasons for skipped experiments, by name."""
    report: dict[str, Any] = field(default_factory=dict)
    """Description of the report that `finish` wrote."""

    def run(self, names: Sequence[str], say: Callable[..., None]) -> None:
        """Run the named experiments, by default all.

        Finished experiments are not repeated. An experiment whose data are not installed is
        skipped.

        Args:
            say: function that prints the tables and lines of each experiment.
        """
        chosen = find_experiments(names)
        for experiment in chosen.values():
            find_preset(experiment, self.preset)  # raises before hours of training
        for name in chosen:
            make_folder(self.out / name)
        if self.recorded:
            for paper in sorted({paper_of(name) for name in chosen}):
                count = restore_networks(paper, self.out)
                say(f"restored {count} recorded networks of {paper} in {self.out}", "")
        with bar("reproduce", total=len(chosen)) as progress_bar:
            for done, (name, experiment) in enumerate(chosen.items()):
                progress_bar.update(done, name)
                try:
                    self._run_experiment(name, experiment, say)
                except MissingData as error:
                    self.skipped[name] = str(error)
                    say(f"skipped {name}: {error}", "")
        before = read_json(self.out / SKIPPED)
        others = {name: reason for name, reason in before.items() if name not in chosen}
        write_json(self.out / SKIPPED, {**others, **self.skipped})

    def _run_experiment(self, name: str, experiment: Experiment, say: Callable[..., None]) -> None:
        """Run one experiment or read its numbers; write its figures and print its tables."""
        folder = self.out / name
        config = find_preset(experiment, self.preset)
        request = heading(name, preset=self.preset, seeds=self.seeds, config=config)
        numbers = None if self.fresh else kept_numbers(folder, request)
        lines = []
        if numbers is None:
            began = time.perf_counter()
            results = experiment.run(config, seeds=self.seeds, out=self.out, engine=self.engine)
            hours = (time.perf_counter() - began) / 3600  # without networks that were finished
            manifest = {
                "commit": commit(),
                "versions": versions(),
                "command": shlex.join(sys.argv),
                "hours": round(hours, 4),
            }
            numbers = {**results, **request, "manifest": manifest}
        else:
            self.reused.append(name)
            lines = [f"reused {folder}"]
        judged = judge_experiment(name, numbers, recorded=True)
        pictures = [*experiment.pictures(numbers), *forest(name, judged)]
        if not (lines and are_drawn(pictures, folder)):
            lines += write_results(pictures, numbers, folder)
        self.numbers[name] = numbers
        tables = experiment.tables(numbers)
        if judged:
            tables = [*tables, recorded_verdict_table(judged)]
        say(*map(for_terminal, tables), *lines, "")

    def finish(self, *, all_claims: bool) -> dict[str, Any]:
        """Judge the claims, write the report from the files on disk and describe it.

        Args:
            all_claims: judge every claim of every paper, not only those of the experiments that
                ran.
        """
        from nclab.report.site import write_report

        self.judge(all_claims=all_claims)
        refresh_claims(self.out)
        self.report = write_report(self.out).to_dict()
        return {**self.report, "skipped": self.skipped, "reused": self.reused}

    def summary(self) -> list[Any]:
        """Return the closing summary for the terminal."""
        rows = read_json(self.out / CLAIMS).get("claims", [])
        relations = Counter(row["here"]["relation"] for row in rows if row.get("here"))
        lines: list[Any] = [counted(self.report["figures"], "figure"), *count_verdicts(rows)]
        if relations:
            compared = ", ".join(f"{count} {relation}" for relation, count in relations.items())
            lines.append(
                "Results are judged from the recorded evidence. "
                f"The runs in {self.out}, compared with it: {compared}."
            )
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return [*lines, f"report: {self.report['page']}"]

    def judge(self, *, all_claims: bool) -> None:
        """Judge claims from the numbers on disk and write `claims.json`.

        Judging all claims is skipped if `claims.json` was made by the same code from the same
        numbers.
        """
        before = read_json(self.out / CLAIMS)
        if all_claims:
            code = f"{__version__} {commit()}"
            digests = {name: digest(self.out, name) for name in experiments()}
            state = {"preset": self.preset, "code": code, "judged_from": digests}
            state["evidence"] = evidence_digests()
            if not self.fresh and all(before.get(key) == value for key, value in state.items()):
                return
            with one_thread():
                rows = judge_all(self.preset, read_numbers(self.out, experiments()))
        else:
            digests = {name: digest(self.out, name) for name in self.numbers}
            state = {**before, "judged_from": {**before.get("judged_from", {}), **digests}}
            state.setdefault("evidence", evidence_digests())
            rows = self._update_rows(before.get("claims", []))
        sources = {
            key: {"title": paper.title, "authors": paper.authors, "year": paper.year}
            for key, paper in sorted(papers().items(), key=lambda item: item[0] == OURS)
        }
        content = {
            **state,
            "papers": sources,
            "claims": rows,
            "stories": {
                name: describe_experiment(module) for name, module in experiments().items()
            },
            "errata": [asdict(erratum) for erratum in errata()],
        }
        write_json(self.out / CLAIMS, content)

    def _update_rows(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Judge the claims of the experiments that ran; return all rows with the new verdicts."""
        updated = {
            row["id"]: row
            for name, numbers in self.numbers.items()
            for row in judge_experiment(name, numbers, recorded=True)
        }
        replaced = [updated.pop(row["id"], row) for row in rows]
        return [*replaced, *updated.values()]


def refresh_claims(root: Path) -> bool:
    """Judge the results in `claims.json` again if the recorded evidence is no longer the same.

    Without this, `nclab report` would show other verdicts than `nclab claims` after an update.
    Return whether the file was written.
    """
    content, digests = read_json(root / CLAIMS), evidence_digests()
    rows = content.get("claims")
    if not isinstance(rows, list) or content.get("evidence") == digests:
        return False
    results = {claim.id: claim for claim in claims() if claim.empirical}
    ids = [row.get("id") if isinstance(row, dict) else None for row in rows]
    local = read_numbers(root, sorted({results[id].needs for id in ids if id in results}))
    updated = [
        judge(results[id], local.get(results[id].needs)) if id in results else row
        for id, row in zip(ids, rows, strict=True)
    ]
    if updated == rows:
        return False
    judged_from = {**content.get("judged_from", {}), **{name: digest(root, name) for name in local}}
    content |= {"claims": updated, "evidence": digests, "judged_from": judged_from}
    write_json(root / CLAIMS, content)
    return True


def recompute_run(folder: Path) -> list[Verified]:
    """Measure the last checkpoint of a sweep's run again; return nothing for other runs."""
    view = read_run(folder)
    return [_check_network(view)] if view.manifest.kind == FLEET else []


def recompute_claims(root: Path) -> list[Verified]:
    """Judge the claims in `claims.json` again from the numbers in the same folder."""
    content = read_json(root / CLAIMS)
    rows = {row["id"]: row for row in content.get("claims", []) if isinstance(row, dict)}
    results = []
    for name, numbers in read_numbers(root, experiments()).items():
        file, remedy = f"{name}: verdicts", f"nclab reproduce {name}"
        if content.get("judged_from", {}).get(name) != digest(root, name):
            reason = f"{NUMBERS} changed after it was judged, or was never judged"
            results.append(Verified(file, "differs", reason, remedy))
            continue
        differences = [
            f"{again['id']}: {key} was {before.get(key)!r}, is {after[key]!r}"
            for again in judge_experiment(name, numbers, recorded=True)
            for before, after in [(_judgement(rows.get(again["id"], {})), _judgement(again))]
            for key in after
            if before.get(key) != after[key]
        ]
        if differences:
            results.append(Verified(file, "differs", differences[0], remedy))
        else:
            count = sum(row.get("needs") == name for row in rows.values())
            results.append(Verified(file, "good", f"{count} claims judged again, no difference"))
    return results


def _judgement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a claim and the numbers of its weakest effect, for comparisons."""
    numbers = row.get("numbers", {})
    effect = {key: numbers.get(key) for key in ("estimate", "interval", "margin", "seeds")}
    return {"verdict": row.get("verdict"), **effect}


def _check_network(view: RunView) -> Verified:
    """Measure the network of the last checkpoint again and compare with its record."""
    try:
        epoch, layers = remeasure(view.folder, view.manifest)
    except NclabError as error:
        reason = str(error).rstrip(".")
        return Verified("network", "unchecked", f"it cannot be measured again: {reason}")
    records = (
        record
        for record in view.of_kind(MEASUREMENT)
        if record.get("epoch") == epoch and split_of(record) == TRAIN
    )
    record = next(records, None)
    if record is None:
        return Verified("network", "unchecked", f"nothing was measured at epoch {epoch:g}")
    worst, description, checked = 0.0, "", 0
    for written, measured in zip(layers_of(record), layers, strict=False):
        for metric, value in measured.items():
            before = written.get(metric)
            if type(value) is not float or type(before) is not float:
                continue
            checked += 1
            scale = max(abs(value), abs(before))
            error_in_tolerances = abs(value - before) / (ABSOLUTE + RELATIVE * scale)
            if error_in_tolerances > worst:
                worst = error_in_tolerances
                description = f"{metric} was {before:.6g}, is {value:.6g}"
    if worst > 1:
        reason = f"measured again at epoch {epoch:g}: {description}"
        return Verified("network", "differs", reason, "Delete the run and make it again.")
    agreement = "identical to the last bit" if worst == 0 else f"largest difference: {description}"
    summary_text = f"{checked} numbers measured again at epoch {epoch:g}, {agreement}"
    return Verified("network", "good", summary_text)
